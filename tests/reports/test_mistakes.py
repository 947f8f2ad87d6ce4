"""The worst mistakes: which are kept, in which order, and the remembered rows that misled."""

import numpy as np

from hierlearn import Hierarchy
from hierlearn.lab.evidence import StoredEvidence, evidence_of
from hierlearn.reports.decisions import (
    LONGEST,
    LONGEST_NEIGHBOR,
    Decisions,
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


def stored(labels, rows, weights, *, texts=None):
    """Return the evidence of (seeds, N, k) rows with given labels, by path."""
    classes = [NUMBER[name] for one in labels for name in one]
    return StoredEvidence(
        rows=np.array(rows, dtype=np.int32),
        weights=np.array(weights, dtype=np.float32),
        offsets=np.cumsum([0, *map(len, labels)]),
        classes=np.array(classes, dtype=np.int64),
        ids=[f"id{number}" for number in range(len(labels))],
        texts=texts,
    )


def test_the_rows_behind_a_mistake_are_those_of_the_surest_run_that_agrees():
    a, b = NUMBER["a/1"], NUMBER["b/3"]
    made = decisions(
        [[b], [b], [NUMBER["a/2"]]], [[2], [2], [1]], [[0.3], [0.6], [0.9]]
    )  # the third is surer, and decides otherwise
    held = stored(
        [["a/1"], ["b/3"], ["a/2"], ["b/4"]],
        [[[0, 1, 2]], [[1, 3, 0]], [[2, 2, 2]]],
        [[[0.5, 0.3, 0.1]], [[0.4006, 0.2, 0.1]], [[1, 0, 0]]],
    )
    [found] = evidence_of([[0, a, b, 2, 2, 45]], made, held, TREE)
    assert [one["id"] for one in found] == ["id1", "id3", "id0"]
    assert [one["weight"] for one in found] == [401, 200, 100]  # in thousandths
    assert [(one["decided"], one["true"]) for one in found] == [
        (True, False),  # misled
        (False, False),  # a sibling of the decided class is neither
        (False, True),
    ]
    assert [one["labels"] for one in found] == [[b], [NUMBER["b/4"]], [a]]
    assert not any("text" in one for one in found)


def test_a_label_below_the_decided_class_misleads_too():
    a, b = NUMBER["a/1"], NUMBER["b/4"]
    held = stored([["b/4/x"], ["b"]], [[[0, 1]]], [[[0.9, 0.1]]])
    [found] = evidence_of([[0, a, b, 2, 1, 90]], decisions([[b]], [[2]]), held, TREE)
    assert [one["decided"] for one in found] == [True, False]  # b alone does not say b/4


def test_of_many_labels_those_of_the_mistake_are_shown_first():
    a, b = NUMBER["a/2"], NUMBER["b/4"]
    held = stored([["a", "a/1", "b/3", "a/2", "b/4/x"], []], [[[0, 1]]], [[[0.8, 0.2]]])
    [found] = evidence_of([[0, a, b, 2, 1, 90]], decisions([[b]], [[2]]), held, TREE)
    first, empty = found
    assert first["labels"][:2] == [NUMBER["b/4/x"], a]
    assert (len(first["labels"]), first["more"]) == (4, 1)
    assert first["decided"]
    assert first["true"]
    assert (empty["labels"], empty["more"], empty["decided"], empty["true"]) == (
        [],
        0,
        False,
        False,
    )


def test_a_class_of_a_dag_is_reached_by_every_parent():
    dag = Hierarchy.from_edges([("p", "x"), ("q", "x")])
    p, q, x = (dag.names.index(name) for name in "pqx")
    held = StoredEvidence(
        np.zeros((1, 1, 1), np.int32),
        np.ones((1, 1, 1), np.float32),
        np.array([0, 1]),
        np.array([x]),
        ["7"],
    )
    for decided in (p, q):
        mistake = [0, 0, decided, 1, 1, 90]
        [[found]] = evidence_of([mistake], decisions([[decided]], [[1]]), held, dag)
        assert found["decided"]


def test_rows_without_weight_are_left_out_and_long_texts_are_cut():
    a, b = NUMBER["a/1"], NUMBER["b/3"]
    held = stored([["b/3"], ["a/1"]], [[[0, 1]]], [[[0.9999, 0.0001]]], texts=["b" * 1000, "short"])
    [found] = evidence_of([[0, a, b, 2, 1, 99]], decisions([[b]], [[2]]), held, TREE)
    assert [one["text"] for one in found] == ["b" * (LONGEST_NEIGHBOR - 1) + "…"]
