"""Memory: its two ways to sum labels, its precision, its copies; LabelSets and Remembered."""

import copy
import pickle

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.memory import LabelSets, Remembered, store
from hierlearn.memory.store import as_stored
from memory.random_memories import POLICIES, Case, positive_counts
from tolerances import FLOAT64

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])
ROWS = [["a/b"], ["d"], [], ["a"], ["d", "a/c"], ["a/b"], ["a/c", "d"], ["a", "a/b"], []]


def sets(rows=ROWS, policy="negative"):
    return LabelSets.from_labels(Labels(rows, TREE, unlabeled_descendants=policy))


# ---------------------------------------------------------------------- sums over labels


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.parametrize("block", [1, 17, 1 << 20])
def test_sums_in_blocks_are_those_over_all_sets(monkeypatch, policy, members, block):
    case = Case(8, dag=True, policy=policy, rows=40)
    dense = case.full_head(neighbors=15)
    monkeypatch.setattr(store, "DENSE", 0)
    monkeypatch.setattr(store, "BLOCK", block)
    few = case.full_head(neighbors=15)
    assert dense.memory._targets is not None
    assert few.memory._targets is None
    queries = case.queries
    if members:
        queries = torch.stack([queries, queries + 1])
        for head in (dense, few):
            head.memory.set(torch.stack([case.rows, case.rows * 2]), case.remembered())
    for first, second in zip(dense.look_up(queries).pair, few.look_up(queries).pair, strict=True):
        FLOAT64.assert_close(second, first)


def test_few_sets_are_kept_of_many_rows():
    found = LabelSets.from_labels(Labels([["a/b"], ["d"]] * 500, TREE))
    assert (len(found), len(found.sets)) == (1000, 2)
    assert found.names([0, 1, 999]) == [["a/b"], ["d"], ["d"]]


# ---------------------------------------------------------------------- label sets


@pytest.mark.parametrize("policy", POLICIES)
def test_label_sets_are_the_labels_of_their_rows(policy):
    found, labels = sets(policy=policy), Labels(ROWS, TREE, unlabeled_descendants=policy)
    assert len(found.sets) == 5
    numbers = found.of_row
    assert torch.equal(found.sets.targets()[numbers], labels.targets())
    assert torch.equal(found.sets.mask()[numbers], labels.mask())
    assert found.is_partial == (policy == "ignore")
    assert found.names([4, 6, 7, 8]) == [["d", "a/c"], ["d", "a/c"], ["a/b"], []]


def test_some_rows_and_rows_joined():
    picked = np.array([8, 3, 3, 1])
    some = sets().take(picked)
    assert some.names(range(4)) == [[], ["a"], ["a"], ["d"]]
    assert len(some.sets) == 3
    both = some.join(sets([["a/b"], ["d"], []]))
    assert both.names(range(7)) == [[], ["a"], ["a"], ["d"], ["a/b"], ["d"], []]
    assert len(both.sets) == 4
    nothing = sets([])
    assert nothing.join(some).names(range(4)) == some.names(range(4))
    other = LabelSets.from_labels(Labels([["x"]], Hierarchy.from_paths(["x"])))
    with pytest.raises(HierlearnError, match="labeled by different hierarchies"):
        some.join(other)


# ---------------------------------------------------------------------- what is remembered


def test_remembered_rows_are_taken_and_joined_with_all_that_is_known_of_them():
    ids = [f"r{n}" for n in range(9)]
    texts = [f"text {n}" for n in range(9)]
    rows = Remembered(sets(), ids, np.arange(1.0, 10.0), texts)
    some = rows.take(np.array([2, 5]))
    assert (list(some.ids), list(some.texts)) == (["r2", "r5"], ["text 2", "text 5"])
    assert some.weights.tolist() == [3.0, 6.0]
    assert some.labels.names([0, 1]) == [[], ["a/b"]]
    both = some.join(Remembered(sets([["d"]]), ["new"], None, ["more"]))
    assert both.weights.tolist() == [3.0, 6.0, 1.0]
    assert list(both.texts) == ["text 2", "text 5", "more"]
    assert both.labels.names([2]) == [["d"]]
    assert Remembered(sets(), ids).join(Remembered(sets(), ids)).weights is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ids": ["a"]}, "1 ids do not fit 9 rows"),
        ({"weights": np.ones(3)}, "3 weights do not fit 9 rows"),
        ({"texts": ["a"]}, "1 texts do not fit 9 rows"),
        ({"weights": np.zeros(9)}, "the weight of row 0 is 0.0; weights of remembered rows are"),
        ({"weights": np.array([1.0] * 8 + [np.nan])}, "the weight of row 8 is nan"),
        ({"weights": np.array([1.0] * 8 + [np.inf])}, "the weight of row 8 is inf"),
    ],
)
def test_what_does_not_fit_is_refused(given, message):
    ids = [str(n) for n in range(9)]
    with pytest.raises(HierlearnError, match=message):
        Remembered(sets(), **{"ids": ids, **given})


def test_embeddings_of_other_rows_are_refused():
    case = Case(0)
    with pytest.raises(HierlearnError, match=r"embeddings \(8, 3\) do not fit 9 remembered rows"):
        case.full_head().memory.set(case.rows[:8], case.remembered())


# ---------------------------------------------------------------------- precision and copies


def test_embeddings_are_stored_in_half_precision_unless_that_overflows():
    small = torch.randn(5, 3)
    assert as_stored(small).dtype == torch.float16
    huge = small * 1e6
    assert torch.equal(as_stored(huge), huge)


def test_answers_from_half_precision_are_close():
    case = Case(3, rows=30)
    head = case.full_head(neighbors=30)
    exact = head.look_up(case.queries).probabilities
    head.memory.set(as_stored(case.rows), case.remembered())
    rounded = head.look_up(case.queries)
    assert rounded.log_p.dtype == torch.float64
    torch.testing.assert_close(rounded.probabilities, exact, rtol=0, atol=5e-3)
    assert not torch.equal(rounded.probabilities, exact)


@pytest.mark.parametrize("weighted", [False, True])
def test_copies_answer_alike_and_another_precision_leaves_the_embeddings(weighted):
    case = Case(3, policy="ignore")
    head = case.full_head(positive_counts(case, 1) if weighted else None)
    head.memory.set(as_stored(case.rows), head.memory.rows)
    expected = head.look_up(case.queries).log_p
    for twin in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert torch.equal(twin.look_up(case.queries).log_p, expected)
        twin.memory.clear()
        assert len(twin.memory) == 0
    assert len(head.memory) == 9
    before = head.memory.embeddings
    for change in (head.float, head.half, head.double, lambda: head.to(torch.bfloat16)):
        change()
        assert head.memory.embeddings is before
        assert head.memory.embeddings.dtype == torch.float16
    assert torch.equal(head.double().look_up(case.queries).log_p, expected)
    assert not any("memory" in name for name in head.state_dict())
    assert list(head.state_dict()) == []


def test_the_memory_follows_its_module_to_another_device():
    head = Case(3).full_head(np.ones(9))
    head.to("meta")
    held = head.memory
    for one in (held.embeddings, held._set_ids, held._log_weights, held._targets):
        assert one.device.type == "meta"
    assert held.embeddings.dtype == torch.float64


def test_members_stack_what_they_remember():
    case = Case(3)
    first, second = case.full_head(), case.full_head()
    second.memory.set(case.rows * 2, case.remembered())
    both = store.Memory.stack([first.memory, second.memory])
    assert torch.equal(both.embeddings, torch.stack([case.rows, case.rows * 2]))
    assert len(both) == 9
    assert len(store.Memory.stack([store.Memory(), store.Memory()])) == 0
