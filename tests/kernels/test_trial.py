"""Kernels are tried on a device before they are used, and left out where they do not work."""

import warnings

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.kernels import mcloss, neighbor_head, neighbor_launch, tree_link, trial
from hierlearn.kernels.launch import Launch
from hierlearn.links import HeadOutput, SoftmaxLink
from hierlearn.losses import HCLLoss, MCLoss
from hierlearn.losses.hcl import triton
from hierlearn.memory import NeighborHead
from hierlearn.memory.compare import SetCandidates
from hierlearn.memory.store import LabelSets
from kernels.kernel_cases import DEVICE, batch, on_device, tree
from kernels.kernel_imports import INTERPRETED
from kernels.test_neighbors import SMALL
from tolerances import FLOAT32_SUMS

HIERARCHY = tree((2, 4, 12))
HERE = torch.device(DEVICE)
FAMILIES = ("link", "mcloss", "hcl, levels", "hcl, softmax", "neighbors")


@pytest.fixture(autouse=True)
def on_a_new_gpu(monkeypatch):
    """Let the plain tensors of these tests count as being on a GPU that was never tried."""
    monkeypatch.setattr(trial, "VERDICTS", {})
    monkeypatch.setattr(trial, "ROWS", 3)
    monkeypatch.setattr(trial, "LEVEL_SIZES", (2, 5, 17))
    monkeypatch.setattr(trial, "example_inputs", small_inputs)
    monkeypatch.setattr(neighbor_head, "LEAST", 0)
    if INTERPRETED:
        for module in (tree_link, mcloss, neighbor_head):
            monkeypatch.setattr(module, "is_on_gpu", lambda _: True)
        monkeypatch.setattr(neighbor_launch, "FORWARD", SMALL)
        monkeypatch.setattr(neighbor_launch, "BACKWARD", SMALL)


def small_inputs(device, columns=24):
    return torch.randn(3, columns, generator=torch.Generator().manual_seed(0)).to(device)


def compute(family):
    """Return what a user's call computes, and whether the family's kernels passed."""
    logits, targets, _ = on_device(*batch(HIERARCHY, 4))
    if family == "link":
        link = SoftmaxLink(HIERARCHY).to(HERE)
        return link.log_probabilities(logits)[0], link.plain_log_probabilities(logits)[0]
    if family == "mcloss":
        loss = MCLoss(HIERARCHY).to(HERE)
        return loss(logits, targets), loss.plain_loss(logits, targets)
    if family == "neighbors":
        labels = LabelSets.from_labels(Labels([[5], [6], [9]], HIERARCHY, numbers=True))
        keys = torch.arange(3, device=HERE)
        rows = SetCandidates(labels, torch.from_numpy(labels.of_row).to(HERE), keys, keys)
        head = NeighborHead(HIERARCHY, torch.nn.Identity())
        found = head.compare(logits[:3, :4], logits[:3, 4:8], rows)
        weights = torch.cdist(logits[:3, :4], logits[:3, 4:8]).square() / -16
        weights = weights.fill_diagonal_(-torch.inf).softmax(1)
        p = weights @ labels.targets(torch.from_numpy(labels.of_row)).to(weights)
        return found.probabilities, (1 - 2e-6) * p + 1e-6
    link, scope = ("sigmoid", "levels") if "levels" in family else ("softmax", "ancestors")
    loss = HCLLoss(HIERARCHY, link=link, scope=scope, validate=False).to(HERE)
    output = HeadOutput.from_logits(logits, loss.link)
    works = triton.kernels_work(loss, output)
    value = HCLLoss(HIERARCHY, link=link, scope=scope, fused=works or False).to(HERE)
    return value(logits, targets), loss.to("cpu")(logits.cpu(), targets.cpu()).to(HERE)


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_that_work_pass_without_a_word(family):
    with warnings.catch_warnings():
        warnings.simplefilter("error", trial.KernelWarning)
        FLOAT32_SUMS.assert_close(*compute(family))
    assert set(trial.VERDICTS.values()) == {True}


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_that_compute_something_else_are_left_out_with_a_warning(family, monkeypatch):
    def nonsense(self, at):
        for one in at.values():
            if one.is_floating_point():
                one.detach().fill_(0.25)

    monkeypatch.setattr(Launch, "compile_and_run", nonsense)
    with pytest.warns(trial.KernelWarning, match=r"do not work on .* same answers: a value"):
        found, expected = compute(family)
    FLOAT32_SUMS.assert_close(found, expected)
    assert False in trial.VERDICTS.values()


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_that_do_not_compile_are_left_out_with_a_warning(family, monkeypatch):
    def refuse(*_args, **_options):
        raise RuntimeError("PTX of a later version\nand more lines")

    for module in (tree_link, mcloss):
        monkeypatch.setattr(module, "plan_of", refuse)
    monkeypatch.setattr(neighbor_head, "neighbor_pair", refuse)
    monkeypatch.setattr(triton, "spec_of", refuse)
    with pytest.warns(trial.KernelWarning, match="RuntimeError: PTX of a later version$"):
        found, expected = compute(family)
    FLOAT32_SUMS.assert_close(found, expected)


def test_a_trial_is_made_once_per_device_and_name():
    calls = []

    def compare(device):
        calls.append(device)
        yield torch.ones(2), torch.ones(2)

    for _ in range(3):
        assert trial.passes("a", HERE, compare)
    assert len(calls) == 1
    assert trial.passes("b", HERE, compare)
    assert len(calls) == 2


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, 1.02, -1.0])
def test_a_value_that_differs_fails(wrong):
    def compare(device):
        yield torch.tensor([1.0, wrong]), torch.ones(2)

    with pytest.warns(trial.KernelWarning):
        assert not trial.passes("a", HERE, compare)


def test_a_trial_inside_inference_mode_still_compares_gradients():
    with torch.inference_mode():
        assert trial.passes("a", HERE, lambda device: SoftmaxTrial(device))


class SoftmaxTrial:
    def __init__(self, device):
        self.device = device

    def __iter__(self):
        yield from trial.compare_functions(
            lambda x: [x.softmax(-1)], lambda x: [x.softmax(-1)], trial.example_inputs(self.device)
        )


def test_the_example_tree_has_the_sizes_of_its_levels():
    assert Hierarchy.from_parents(trial.example_parents()).level_sizes == trial.LEVEL_SIZES
