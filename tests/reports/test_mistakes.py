"""The worst mistakes: which are kept, in which order."""

import numpy as np

from hierlearn.reports.mistakes import LONGEST, shorten, texts_of, worst
from hierlearn.studies.decisions import Decisions


def decisions(decided, heights, probability=None):
    decided = np.array(decided)
    p = np.full(decided.shape, 0.5) if probability is None else np.array(probability)
    return Decisions(decided, np.zeros_like(decided), np.array(heights), p, np.zeros(1, dtype=int))


def test_the_highest_comes_first_then_agreement_then_probability():
    found = worst(
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
    found = worst(decisions([[1, 2], [1, 3]], [[2, 2], [2, 2]], [[0.3, 0.9], [0.3, 0.8]]))
    assert [one[0] for one in found] == [0, 1]
    assert found[1][2] == 2  # of two decisions on a row, the more probable


def test_some_of_each_height_are_kept_and_a_row_only_by_its_worst():
    decided = [[1, 1, 1, 1, 1], [2, 2, 2, 1, 1]]
    found = worst(decisions(decided, [[3, 3, 3, 1, 1], [2, 2, 2, 1, 1]]), most=2)
    assert [(row, height) for row, _, _, height, _, _ in found] == [(0, 3), (1, 3), (3, 1), (4, 1)]


def test_no_mistakes_are_no_list():
    assert worst(decisions([[1, 2]], [[0, 0]])) == []


def test_long_texts_are_cut():
    assert texts_of([1, 1], ["a", "b" * 1000]) == {"1": "b" * (LONGEST - 1) + "…"}
    assert texts_of([0], None) == {}
    assert shorten("x" * LONGEST) == "x" * LONGEST
