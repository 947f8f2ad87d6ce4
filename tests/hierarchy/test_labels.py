"""Labels against the naive meaning of every word in their docstring."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierlearn import Hierarchy, Labels
from hierlearn.errors import DataError, LabelError

H = Hierarchy.from_paths(["animal/dog/bulldog", "animal/dog/pug", "animal/cat", "plant/oak"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("c", "e")])


def names(hierarchy, row):
    return {hierarchy.names[c] for c in np.flatnonzero(row.numpy())}


def naive(hierarchy, labels):
    """Closed set, terminal set and unknown set of one row, by sets."""
    closed = {a for label in labels for a in (label, *hierarchy.ancestors(label))}
    terminal = {c for c in closed if not set(hierarchy.children(c)) & closed}
    unknown = {d for c in terminal for d in hierarchy.descendants(c)} - closed
    if not closed:
        unknown = set(hierarchy.names)
    return closed, terminal, unknown


@given(data=st.data(), hierarchy=st.sampled_from([H, DAG]))
def test_targets_terminals_and_mask_match_sets(data, hierarchy):
    one_row = st.lists(st.sampled_from(hierarchy.names), max_size=4)
    rows = data.draw(st.lists(one_row, min_size=1, max_size=5))
    labels = Labels(rows, hierarchy, unlabeled_descendants="ignore")
    offsets, numbers = labels.terminal
    ends = set()
    for i, row in enumerate(rows):
        closed, terminal, unknown = naive(hierarchy, row)
        assert names(hierarchy, labels.targets()[i]) == closed
        found = {hierarchy.names[c] for c in numbers[offsets[i] : offsets[i + 1]]}
        assert found == terminal
        assert names(hierarchy, ~labels.mask()[i]) == unknown
        ends |= terminal
    leaves = {hierarchy.names[c] for c in hierarchy.leaves}
    assert {hierarchy.names[c] for c in labels.terminal_classes} == leaves | ends
    assert labels.counts.tolist() == labels.targets().sum(0).tolist()
    assert Labels(rows, hierarchy).mask().all()


def test_rows_may_be_picked_by_list_array_or_slice():
    labels = Labels(["pug", "cat", "plant", None], H, unlabeled_descendants="ignore")
    for rows in ([2, 0], np.array([2, 0])):
        assert labels.targets(rows).equal(labels.targets()[[2, 0]])
        assert labels.mask(rows).equal(labels.mask()[[2, 0]])
    assert labels.mask(slice(1, 3)).equal(labels.mask()[1:3])
    assert labels.targets([]).shape == (0, 7)


def test_single_path_and_terminal_ids():
    labels = Labels(["pug", ["animal", "cat"], "plant"], H)
    assert labels.single_path
    assert [H.names[c] for c in labels.terminal_ids()] == ["animal/dog/pug", "animal/cat", "plant"]
    several = Labels(["pug", ["cat", "oak"]], H)
    assert not several.single_path
    with pytest.raises(LabelError, match="row 1 has 2 terminal labels"):
        several.terminal_ids()
    with pytest.raises(LabelError, match="row 0 has 0 terminal labels"):
        Labels([[]], H).terminal_ids()


def test_unknown_labels_name_the_row_and_the_nearest():
    with pytest.raises(LabelError, match=r"row 1: unknown label 'bulldg'; did you mean 'bulldog'"):
        Labels(["pug", ["cat", "bulldg"]], H)


def test_rows_may_be_picked_by_mask():
    labels = Labels(["pug", "cat", "plant"], H, unlabeled_descendants="ignore")
    for mask in ([False, False, True], np.array([False, False, True])):
        assert labels.targets(mask).equal(labels.targets()[[2]])
        assert labels.mask(mask).equal(labels.mask()[[2]])
    with pytest.raises(DataError, match=r"a mask of shape \(2,\), but there are 3 rows"):
        labels.targets([True, False])
    with pytest.raises(DataError, match="must be row numbers or a mask, not float64"):
        labels.mask([0.0])
    with pytest.raises(DataError, match="names row 3, but there are 3 rows, counted from 0"):
        labels.targets([0, 3])


def test_a_missing_row_has_no_label():
    pd = pytest.importorskip("pandas")
    rows = [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT, "", []]
    assert np.diff(Labels(rows, H).annotated[0]).tolist() == [0] * 7
    series = pd.Series(["pug", None, pd.NA], dtype="string")
    assert np.diff(Labels(series, H).annotated[0]).tolist() == [1, 0, 0]
    with pytest.raises(LabelError, match="row 0: "):
        Labels([["pug", float("nan")]], H)
    with pytest.raises(LabelError, match="labels must be a list with one entry per row"):
        Labels("pug", H)


def test_labels_are_immutable_and_can_be_copied():
    labels = Labels(["pug", "plant"], H)
    with pytest.raises(
        AttributeError, match="Labels is immutable; unlabeled_descendants cannot be set"
    ):
        labels.unlabeled_descendants = "unknown"
    with pytest.raises(AttributeError, match="closed cannot be deleted"):
        del labels.closed
    for copied in (copy.deepcopy(labels), pickle.loads(pickle.dumps(labels))):
        assert copied.targets().equal(labels.targets())


def test_unknown_policy_is_refused():
    with pytest.raises(LabelError, match=r"unknown value of unlabeled_descendants 'inherit'"):
        Labels(["pug"], H, unlabeled_descendants="inherit")


def test_no_rows():
    labels = Labels([], H)
    assert len(labels) == 0
    assert labels.targets().shape == labels.mask().shape == (0, 7)
    assert labels.counts.tolist() == [0] * 7
    assert repr(labels).startswith("Labels(0 rows")
