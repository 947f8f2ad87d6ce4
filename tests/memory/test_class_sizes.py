"""Few rows of a class that came after the training count as much as those of a usual class."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hierlearn import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.memory import LabelSets, NeighborHead, Remembered
from hierlearn.memory.store import counted_weights
from reference import class_sizes

H = Hierarchy.from_paths(["a/x", "a/y", "a/z", "b"])
row = st.tuples(
    st.lists(st.sampled_from(["a/x", "a/y", "a/z", "b", "a"]), max_size=2, unique=True),
    st.booleans(),
    st.sampled_from([0.5, 1.0, 3.0]),
)


def remembered(labels, later, weights=None):
    sets = LabelSets.from_labels(Labels(labels, H))
    weights = None if weights is None else np.asarray(weights, dtype=float)
    ids = [str(number) for number in range(len(labels))]
    return Remembered(sets, ids, weights, later=np.asarray(later, dtype=bool))


@given(st.lists(row, min_size=1, max_size=12))
def test_it_equals_the_loop(rows):
    labels, later, weights = (list(part) for part in zip(*rows, strict=True))
    given_rows = remembered(labels, later, weights)
    specific = given_rows.labels.names(np.arange(len(labels)))  # no ancestors of other labels
    expected = class_sizes.counted_weights(specific, later, weights)
    np.testing.assert_allclose(counted_weights(given_rows), expected)


def test_nothing_changes_without_new_classes():
    labels = [["a/x"], ["a/y"], ["a/y"]]
    assert counted_weights(remembered(labels, [False] * 3)) is None
    assert counted_weights(remembered(labels, [True] * 3)) is None  # no class to compare with
    more = remembered([*labels, ["a/x"]], [False, False, False, True])
    assert counted_weights(more) is None


def test_a_new_class_that_grows_beyond_the_usual_size_counts_as_any_other():
    for count in (1, 2, 4, 8, 16):
        rows = remembered(
            [["b"]] * 4 + [["a/x"]] * 4 + [["a/z"]] * count, [False] * 8 + [True] * count
        )
        found = counted_weights(rows)
        np.testing.assert_allclose(found, [1.0] * 8 + [max(1.0, 6 / count)] * count)


def test_flags_follow_rows():
    rows = remembered([["b"], ["a/x"], ["a/x"]], [False, True, True])
    assert rows.take(np.array([2, 0])).later.tolist() == [True, False]
    plain = Remembered(rows.labels, rows.ids)
    assert plain.join(rows).later.tolist() == [False, False, False, False, True, True]
    assert plain.join(plain).later is None
    with pytest.raises(ValueError, match="1 later do not fit 3 rows"):
        Remembered(rows.labels, rows.ids, later=np.ones(1, dtype=bool))


def test_few_rows_win_where_they_are_nearest():
    """One new row at the query, forty old ones a little farther: by their sum the old ones won."""
    head = NeighborHead(H, torch.nn.Identity(), distance="euclidean", scale=1.0)
    embeddings = torch.cat([torch.full((40, 2), 1.0), torch.zeros(1, 2)])
    labels = [["a/x"]] * 40 + [["a/z"]]
    for later, winner in ((False, "a/x"), (True, "a/z")):
        head.memory.set(embeddings, remembered(labels, [False] * 40 + [later]))
        p = head.look_up(torch.zeros(1, 2)).probabilities[0]
        assert p[H.index(winner)] > 0.5


def test_a_row_counts_sixty_times_at_most():
    rows = remembered([["b"]] * 100 + [["a/z"]], [False] * 100 + [True])
    assert counted_weights(rows)[-1] == 60
