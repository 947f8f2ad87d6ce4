"""HCLLoss itself: its options, its state, its warning, and two processes."""

import copy
import subprocess
import warnings

import pytest
import torch

import warm
from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.kernels import choose, cpu
from hierlearn.links import SoftmaxLink
from hierlearn.losses import BCE, CollapseWarning, Focal, FocalLoss, HCLLoss
from losses.random_batches import RAGGED as TREE
from losses.random_batches import leaf_batch


def batch(rows=6, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, len(TREE), generator=generator)
    numbers = torch.randint(0, len(TREE), (rows,), generator=generator)
    return logits, TREE.encode([[TREE.names[int(c)]] for c in numbers])


def test_unselected_classes_keep_the_floor():
    logits, targets = batch()
    selected = HCLLoss.paper(TREE)
    selected(logits, targets)
    chosen = selected.last["selected"]
    assert 0 < chosen.sum() < len(TREE)
    gradients = {}
    for floor in (0.0, 0.25):
        x = logits.clone().requires_grad_()
        HCLLoss.paper(TREE, scope=None, floor=floor, reduction="sum")(x, targets).backward()
        gradients[floor] = x.grad
    plain = HCLLoss.paper(TREE, scope=None)
    plain(logits, targets)
    off = ~plain.last["selected"]
    full = logits.sigmoid() - targets.float()
    assert (gradients[0.0][:, off] == 0).all()
    torch.testing.assert_close(gradients[0.25][:, off], 0.25 * full[:, off])
    torch.testing.assert_close(gradients[0.25][:, ~off], full[:, ~off])


def test_last_reports_the_selection_by_level():
    logits, targets = batch()
    loss = HCLLoss(TREE)
    assert loss.last == {}
    loss(logits, targets)
    last = loss.last
    assert set(last) == {"selected", "selected_fraction", "selected_by_level", "e_h", "l_hc"}
    for level, columns in enumerate(TREE.level_slices):
        share = last["selected"][columns].float().mean()
        assert last["selected_by_level"][level] == share
    assert not any(value.requires_grad for value in last.values())


@pytest.mark.parametrize("make", [HCLLoss, HCLLoss.paper], ids=["HCLLoss", "paper"])
def test_the_selection_is_that_of_the_last_call_with_fewer_members_too(make, monkeypatch):
    """Kernels compute one member after another on the CPU; of focal losses there are none."""
    pytest.importorskip("numba", reason="the CPU kernels need numba")
    monkeypatch.setattr(choose, "FEWEST", 1)  # rows enough for them
    for options in ({}, {"base": "focal"}):
        loss = make(TREE, **options)
        for count in (3, 2, None, 1, 4):
            logits, targets = batch(seed=count or 0, scale=6.0)
            if count is not None:
                some = [batch(seed=10 * count + k, scale=6.0) for k in range(count)]
                logits, targets = (torch.stack(one) for one in zip(*some, strict=True))
            loss(logits, targets)
            alone = make(TREE, **options)
            expected = []
            for member in range(count or 1):
                one = (logits, targets) if count is None else (logits[member], targets[member])
                alone(*one)
                expected.append(alone.selection)
            expected = expected[0] if count is None else torch.stack(expected)
            assert loss.selection.tolist() == expected.tolist()
            assert loss.last["selected"].shape == expected.shape
            assert loss.last["l_hc"].shape == expected.shape[:-1]
            one_by_one = count is not None and not options
            assert set(loss._records) == (set(range(count)) if one_by_one else {None})


def test_a_larger_threshold_selects_more():
    logits, targets = batch()
    shares = []
    for threshold in (0.0, 10.0, 1000.0):
        loss = HCLLoss(TREE, threshold=threshold)
        loss(logits, targets)
        shares.append(float(loss.last["selected_fraction"]))
    assert shares[0] < shares[1] < shares[2] == 1.0


def test_what_an_epoch_has_selected_is_saved():
    loss = HCLLoss.paper(TREE)
    loss(*batch(scale=6.0))
    assert 0 < loss.ever_selected.sum() < len(TREE)
    resumed = HCLLoss.paper(TREE)
    resumed.load_state_dict(loss.state_dict())
    assert torch.equal(resumed.ever_selected, loss.ever_selected)
    assert not HCLLoss(TREE).state_dict()  # nothing is left out under a floor


def test_without_a_floor_it_warns_once_and_names_the_classes_that_stop_learning():
    logits, targets = batch(scale=6.0)
    loss = HCLLoss.paper(TREE)
    loss(logits, targets)
    left = [TREE.names[int(c)] for c in (~loss.last["selected"]).nonzero()]
    assert left
    with pytest.warns(
        CollapseWarning, match=rf"{len(left)} of 8 classes .*'{left[0]}'.* floor=0.1"
    ):
        loss.end_epoch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(logits, targets)
        loss.end_epoch()  # once is enough
        for silent in (
            HCLLoss(TREE),
            HCLLoss(TREE, floor=0.0),
            HCLLoss.paper(TREE, link="softmax"),
            HCLLoss.paper(TREE, curriculum=None),
        ):
            silent(logits, targets)
            silent.end_epoch()


def test_a_class_selected_in_one_batch_of_the_epoch_gives_no_warning():
    loss = HCLLoss.paper(TREE)
    logits, targets = batch(scale=6.0)
    loss(logits, targets)
    loss((targets.float() * 2 - 1) * 9, targets)  # all right: every class is selected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss.end_epoch()


def test_evaluation_computes_no_gradient(monkeypatch):
    logits, targets = batch()
    logits.requires_grad_()
    loss = HCLLoss(TREE)
    expected = loss(logits, targets).detach()
    monkeypatch.setattr(choose, "FEWEST", 1)  # the CPU kernels compute gradients at once
    monkeypatch.setattr(cpu.HCLRows, "gradient", lambda *_: pytest.fail("computed a gradient"))
    with torch.no_grad():
        torch.testing.assert_close(loss(logits, targets), expected)
    torch.testing.assert_close(loss(logits.detach(), targets), expected)


def test_a_second_backward_pass_and_an_upstream_gradient():
    logits, targets = batch()
    once, twice = (logits.clone().requires_grad_() for _ in range(2))
    (3 * HCLLoss(TREE)(once, targets)).backward()
    value = HCLLoss(TREE)(twice, targets)
    value.backward(retain_graph=True)
    (2 * value).backward()
    torch.testing.assert_close(twice.grad, once.grad)


def test_autocast_keeps_the_loss_in_float32():
    logits, targets = batch()
    for options in ({}, {"curriculum": None}, {"base": "focal"}):
        loss = HCLLoss(TREE, **options)
        expected = loss(logits, targets)
        with torch.autocast("cpu", torch.bfloat16):
            found = loss(logits, targets)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected)


def test_a_copy_does_not_hold_the_last_selection():
    loss = HCLLoss(TREE)
    loss(*batch())
    assert copy.deepcopy(loss).last == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"floor": 1.0}, r"floor must lie in \[0, 1\), not 1.0; for no selection pass curriculum"),
        ({"floor": -0.1}, r"floor must lie in \[0, 1\)"),
        ({"base": "bcee"}, "unknown base 'bcee'; did you mean 'bce' or 'bce2'"),
        ({"base": 3}, "a base is a name or a function of three tensors, not 3"),
        ({"link": "sofmax"}, "unknown link 'sofmax'; did you mean 'softmax'"),
        ({"link": 3}, "a link is a name or a Link, not 3"),
        ({"scope": "level"}, "unknown scope 'level'; did you mean 'levels'"),
        ({"curriculum": "step"}, "unknown curriculum 'step'; known: batch"),
        ({"normalize": "max"}, "unknown normalize 'max'; known: losses, mean, sum"),
    ],
)
def test_bad_options_are_refused_at_construction(options, message):
    with pytest.raises(HierlearnError, match=message):
        HCLLoss(TREE, **options)


def test_a_link_of_another_hierarchy_is_refused():
    from hierlearn.links import MaxLink

    with pytest.raises(HierlearnError, match="the link is of LabelSpace"):
        HCLLoss(TREE, link=MaxLink(Hierarchy.from_paths(["x"])))


def test_bases_and_links_may_be_passed_as_objects():
    logits, targets, _, _ = leaf_batch()
    inner = [TREE.names.index("a")]
    pairs = [
        ({"base": "focal"}, {"base": Focal()}),
        ({"base": "focal"}, {"base": FocalLoss(TREE, reduction="none")}),
        ({"base": "bce2"}, {"base": BCE(2)}),
        ({"link": "softmax"}, {"link": SoftmaxLink(TREE)}),
    ]
    for by_name, by_object in pairs:
        found = [HCLLoss(TREE, **options)(logits, targets) for options in (by_name, by_object)]
        torch.testing.assert_close(*found)
    # The label space says what the softmax is over, however the link is given.
    space = LabelSpace(TREE, inner)
    with_inner = HCLLoss(space, link="softmax")(logits, targets)
    assert with_inner == HCLLoss(space, link=SoftmaxLink(space))(logits, targets)
    assert with_inner != HCLLoss(TREE, link="softmax")(logits, targets)


WORKER = """
import sys, torch, torch.distributed as dist
from hierlearn import Hierarchy
from hierlearn.losses import HCLLoss
rank, where = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{where}/store", rank=rank, world_size=2)
h = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
g = torch.Generator().manual_seed(0)
logits = 2 * torch.randn(6, 8, generator=g)
targets = h.encode([[h.names[int(c)]] for c in torch.randint(0, 8, (6,), generator=g)])
part = slice(0, 4) if rank == 0 else slice(4, 6)
x = logits[part].clone().requires_grad_()
loss = HCLLoss(h, floor=0.1, reduction="sum")
loss(x, targets[part]).backward()
torch.save({"selected": loss.last["selected"], "e_h": loss.last["e_h"], "grad": x.grad},
           f"{where}/{rank}.pt")
dist.destroy_process_group()
"""


def test_two_processes_select_the_same_as_one(tmp_path):
    runs = [
        subprocess.Popen([*warm.python(), "-c", WORKER, str(rank), str(tmp_path)])
        for rank in (0, 1)
    ]
    assert [run.wait(timeout=600) for run in runs] == [0, 0]
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    logits, targets = batch()
    x = logits.clone().requires_grad_()
    loss = HCLLoss(TREE, floor=0.1, reduction="sum")
    loss(x, targets).backward()
    for one in found:
        assert one["selected"].tolist() == loss.last["selected"].tolist()
        assert one["e_h"] == loss.last["e_h"]
    torch.testing.assert_close(torch.cat([one["grad"] for one in found]), x.grad)
