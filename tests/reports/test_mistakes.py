"""The worst mistakes: which are kept, in which order, and the remembered rows that misled."""

import numpy as np

from hierlearn import Hierarchy
from hierlearn.reports.decisions import (
    LONGEST,
    LONGEST_NEIGHBOR,
    Decisions,
    neighbor,
    shorten,
    texts_of,
    worst_mistakes,
)


def decisions(decided, heights, probability=None):
    decided = np.array(decided)
    p = np.full(decided.shape, 0.5) if probability is None else np.array(probability)
    return Decisions(decided, np.zeros_like(decided), np.array(heights), p, np.zeros(1, dtype=int))


def test_the_highest_comes_first_then_agreement_then_probability():
    found = worst_mistakes(
        decisions(
            [[1, 2, 3, 4, 0], [1, 5, 3, 4, 0], [0, 5, 3, 4, 0]],
            [[1, 2, 2, 2, 0], [1, 3, 2, 2, 0], [0, 3, 2, 2, 0]],
            [[0.9, 0.9, 0.2, 0.4, 1.0], [0.7, 0.8, 0.2, 0.4, 1.0], [0.1, 0.6, 0.2, 0.4, 1.0]],
        )
    )
    assert found == [
        [1, 0, 5, 3, 2, 70],  # row, true, decided, height, seeds, percent
        [3, 0, 4, 2, 3, 40],
        [2, 0, 3, 2, 3, 20],
        [0, 0, 1, 1, 2, 80],
    ]


def test_agreement_comes_before_probability():
    found = worst_mistakes(decisions([[1, 2], [1, 3]], [[2, 2], [2, 2]], [[0.3, 0.9], [0.3, 0.8]]))
    assert [one[0] for one in found] == [0, 1]
    assert found[1][2] == 2  # of two decisions on a row, the more probable


def test_some_of_each_height_are_kept_and_a_row_only_by_its_worst():
    decided = [[1, 1, 1, 1, 1], [2, 2, 2, 1, 1]]
    found = worst_mistakes(decisions(decided, [[3, 3, 3, 1, 1], [2, 2, 2, 1, 1]]), most=2)
    assert [(row, height) for row, _, _, height, _, _ in found] == [(0, 3), (1, 3), (3, 1), (4, 1)]


def test_no_mistakes_are_no_list():
    assert worst_mistakes(decisions([[1, 2]], [[0, 0]])) == []


def test_long_texts_are_cut():
    assert texts_of([1, 1], ["a", "b" * 1000]) == {"1": "b" * (LONGEST - 1) + "…"}
    assert texts_of([0], None) == {}
    assert shorten("x" * LONGEST, LONGEST) == "x" * LONGEST


TREE = Hierarchy.from_paths(["a/1", "a/2", "b/3", "b/4", "b/4/x"])
NUMBER = {name: TREE.names.index(name) for name in TREE.names}


def shown(labels, truth, decided, hierarchy=TREE, text=None):
    """Return what the page shows of a remembered row with some labels, beside a mistake."""
    numbers = [hierarchy.names.index(name) for name in labels]
    pair = (hierarchy.names.index(truth), hierarchy.names.index(decided))
    return neighbor("id", text, numbers, pair, hierarchy)


def test_a_remembered_row_misled_or_speaks_for_the_truth():
    for labels, flags in (
        (["b/3"], (True, False)),  # misled
        (["b/4"], (False, False)),  # a sibling of the decided class is neither
        (["a/1"], (False, True)),
    ):
        found = shown(labels, "a/1", "b/3")
        assert (found["decided"], found["true"]) == flags
        assert found["labels"] == [NUMBER[name] for name in labels]
        assert "text" not in found
    assert shown(["b/4/x"], "a/1", "b/4")["decided"]  # below the decided class
    assert not shown(["b"], "a/1", "b/4")["decided"]  # b alone does not say b/4


def test_of_many_labels_those_of_the_mistake_are_shown_first():
    found = shown(["a", "a/1", "b/3", "a/2", "b/4/x"], "a/2", "b/4")
    assert found["labels"][:2] == [NUMBER["b/4/x"], NUMBER["a/2"]]
    assert (len(found["labels"]), found["more"]) == (4, 1)
    assert found["decided"]
    assert found["true"]
    assert shown([], "a/2", "b/4") == {
        **{"id": "id", "decided": False, "true": False, "labels": [], "more": 0}
    }


def test_a_class_of_a_dag_is_reached_by_every_parent():
    dag = Hierarchy.from_edges([("p", "x"), ("q", "x")])
    assert all(shown(["x"], "x", decided, dag)["decided"] for decided in "pq")


def test_a_long_text_of_a_remembered_row_is_cut():
    assert (
        shown(["b/3"], "a/1", "b/3", text="b" * 1000)["text"] == "b" * (LONGEST_NEIGHBOR - 1) + "…"
    )
