"""Hot paths take no more operations, memory and reads of values than their budget allows."""

import pytest
import torch

import operation_counts as counts
from hierlearn.losses import BCELoss

RELEASE, BUDGET = counts.read_budget()
PATHS = counts.paths()


@pytest.mark.parametrize("path", PATHS)
def test_a_path_keeps_to_its_budget(path):
    if path.startswith("kernel/"):
        pytest.importorskip("numba", reason="the CPU kernels need numba")
    found = PATHS[path]()
    same = counts.release() == RELEASE
    said = counts.complaints(path, BUDGET.get(path), found, same_torch=same)
    assert not said, "\n".join(said)


def test_the_budget_has_no_other_paths():
    assert set(BUDGET) == set(PATHS)


FORWARD = BCELoss.forward


def wasteful(self, output, *rest):
    """Cross entropy with one operation too many."""
    return FORWARD(self, output + 0, *rest)


def reading(self, output, *rest):
    """Cross entropy that reads a value."""
    assert output.sum().item() < 1e9
    return FORWARD(self, output, *rest)


@pytest.mark.parametrize(
    ("forward", "measures"),
    [(wasteful, {"operations", "tensors"}), (reading, {"operations", "waits"})],
)
def test_what_is_superfluous_is_found(monkeypatch, forward, measures):
    path = "loss/bce/tree"
    monkeypatch.setattr(BCELoss, "forward", forward)
    found = PATHS[path]()
    said = counts.complaints(path, BUDGET[path], found)
    for measure in measures:
        most, now = BUDGET[path][measure], found[measure]
        begin = f"{path} takes {now} {measure}, and {most} are allowed; make it cheaper"
        assert any(one.startswith(begin) for one in said), said
    assert len(said) == len(measures)


def test_a_budget_that_is_too_large_is_to_be_lowered():
    found = {"operations": 79, "tensors": 8.0, "waits": 0}
    allowed = {"operations": 100, "tensors": 10.0, "waits": 0}
    (said,) = counts.complaints("loss/a/tree", allowed, found)
    assert said.startswith("loss/a/tree takes 79 operations, far fewer than the 100 that are")
    assert counts.UPDATE in said
    assert not counts.complaints("loss/a/tree", allowed, {**found, "operations": 80})
    assert not counts.complaints("loss/a/tree", allowed, found, same_torch=False)


def test_a_new_path_needs_a_budget():
    (said,) = counts.complaints("loss/new/tree", None, {})
    assert said == f"loss/new/tree has no budget; write one with {counts.UPDATE} loss/new/tree"


def test_another_release_of_torch_may_take_a_few_more():
    allowed = {"operations": 100, "tensors": 1.0, "waits": 0}
    found = {"operations": 125, "tensors": 1.0, "waits": 0}
    assert counts.complaints("p", allowed, found)
    assert not counts.complaints("p", allowed, found, same_torch=False)
    assert counts.complaints("p", allowed, {**found, "operations": 126}, same_torch=False)


def counted(function, entries=6):
    with counts.Counter(entries) as counter:
        function()
    return counter.counts()


def test_views_and_writes_in_place_allocate_nothing():
    x = torch.zeros(2, 3)
    assert counted(lambda: x.view(3, 2).add_(1)) == {"operations": 2, "tensors": 0, "waits": 0}
    assert counted(lambda: (x + 1).bool()) == {"operations": 2, "tensors": 1.25, "waits": 0}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).any()),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: torch.equal(x, x),
        lambda x: torch.unique(x),
    ],
)
def test_reads_of_values_are_counted(function):
    assert counted(lambda: function(torch.ones(2, 3)))["waits"] == 1


def test_the_command_writes_what_it_finds(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(counts, "BUDGET", tmp_path / "budget.json")
    some = {path: PATHS[path] for path in ("loss/bce/tree", "link/sigmoid/tree")}
    monkeypatch.setattr(counts, "paths", lambda: some)
    assert counts.main([]) == 1
    assert counts.main(["--update"]) == 0
    assert counts.main([]) == 0
    assert "was" not in capsys.readouterr().out.splitlines()[-1]
    release, budget = counts.read_budget()
    assert release == counts.release()
    assert budget["loss/bce/tree"] == some["loss/bce/tree"]()
    monkeypatch.setattr(BCELoss, "forward", wasteful)
    assert counts.main(["link/"]) == 0
    assert counts.main(["loss/"]) == 1
    assert counts.main(["--update", "link/"]) == 0
    assert counts.read_budget()[1] == budget
    assert counts.main(["--update", "loss/bce"]) == 0
    assert (
        counts.read_budget()[1]["loss/bce/tree"]["operations"]
        > budget["loss/bce/tree"]["operations"]
    )
