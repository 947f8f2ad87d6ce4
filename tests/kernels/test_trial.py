"""Kernels are tried on a device before they are used, and left out where they do not work."""

import warnings

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.kernels import choose, neighbor_batch, neighbor_head, tree
from hierlearn.kernels.plan import Launch, scalar_one
from hierlearn.links import SoftmaxLink
from hierlearn.losses import HCLLoss, MCLoss
from hierlearn.losses.hcl import forms
from hierlearn.memory import NeighborHead
from hierlearn.memory.compare import SetCandidates
from hierlearn.memory.store import LabelSets
from kernels.kernel_cases import DEVICE, PlainHCL, batch, on_device
from kernels.kernel_cases import tree as tree_of
from kernels.kernel_imports import INTERPRETED
from kernels.test_neighbors import SMALL
from tolerances import FLOAT32_SUMS

HIERARCHY = tree_of((2, 4, 12))
HERE = torch.device(DEVICE)
FAMILIES = ("link", "mcloss", "hcl, levels", "hcl, softmax", "neighbors")


@pytest.fixture(autouse=True)
def on_a_new_gpu(monkeypatch):
    """Let the plain tensors of these tests count as being on a GPU that was never tried."""
    monkeypatch.setattr(choose, "VERDICTS", {})
    monkeypatch.setattr(choose, "ROWS", 3)
    monkeypatch.setattr(choose, "LEVEL_SIZES", (2, 5, 17))
    monkeypatch.setattr(choose, "example_inputs", small_inputs)
    monkeypatch.setattr(neighbor_head, "LEAST", 0)
    if INTERPRETED:
        monkeypatch.setattr(neighbor_batch, "FORWARD", SMALL)
        monkeypatch.setattr(neighbor_batch, "BACKWARD", SMALL)


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
    plain = PlainHCL(HIERARCHY, link=link, scope=scope, validate=False)
    return loss(logits, targets), plain(logits.cpu(), targets.cpu()).to(HERE)


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_that_work_pass_without_a_word(family):
    with warnings.catch_warnings():
        warnings.simplefilter("error", choose.KernelWarning)
        FLOAT32_SUMS.assert_close(*compute(family))
    assert set(choose.VERDICTS.values()) == {True}


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_that_compute_something_else_are_left_out_with_a_warning(family, monkeypatch):
    def nonsense(self, at):
        for one in at.values():
            if one.is_floating_point():
                one.detach().fill_(0.25)

    monkeypatch.setattr(Launch, "compile_and_run", nonsense)
    with pytest.warns(choose.KernelWarning, match=r"do not work on .* same answers: a value"):
        found, expected = compute(family)
    FLOAT32_SUMS.assert_close(found, expected)
    assert False in choose.VERDICTS.values()
    scalar_one.cache_clear()  # which holds nonsense, too


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_that_do_not_compile_are_left_out_with_a_warning(family, monkeypatch):
    def refuse(*_args, **_options):
        raise RuntimeError("PTX of a later version\nand more lines")

    for name in ("link_plan", "mcloss_plan"):
        monkeypatch.setattr(tree, name, refuse)
    monkeypatch.setattr(neighbor_head, "neighbor_pair", refuse)
    monkeypatch.setattr(forms, "spec_of", refuse)
    with pytest.warns(choose.KernelWarning, match="RuntimeError: PTX of a later version$"):
        found, expected = compute(family)
    FLOAT32_SUMS.assert_close(found, expected)


def test_a_trial_is_made_once_per_device_and_name():
    calls = []

    def compare(device):
        calls.append(device)
        yield torch.ones(2), torch.ones(2)

    for _ in range(3):
        assert choose.passes("a", HERE, compare)
    assert len(calls) == 1
    assert choose.passes("b", HERE, compare)
    assert len(calls) == 2


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, 1.02, -1.0])
def test_a_value_that_differs_fails(wrong):
    def compare(device):
        yield torch.tensor([1.0, wrong]), torch.ones(2)

    with pytest.warns(choose.KernelWarning):
        assert not choose.passes("a", HERE, compare)


def test_a_trial_inside_inference_mode_still_compares_gradients():
    with torch.inference_mode():
        assert choose.passes("a", HERE, lambda device: SoftmaxTrial(device))


class SoftmaxTrial:
    def __init__(self, device):
        self.device = device

    def __iter__(self):
        yield from choose.compare_functions(
            lambda x: [x.softmax(-1)], lambda x: [x.softmax(-1)], choose.example_inputs(self.device)
        )


def test_the_example_tree_has_the_sizes_of_its_levels():
    assert Hierarchy.from_parents(choose.example_parents()).level_sizes == choose.LEVEL_SIZES
