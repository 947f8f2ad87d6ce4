"""Decisions against the truth, row by row and class by class, against loops."""

import random

import numpy as np
import pytest

from hierlearn.hierarchy.labels import Labels
from hierlearn.reports.judged import Truth, judge
from hierlearn.studies.summary import summarize
from losses.random_batches import random_hierarchy


def case(seed):
    rng = random.Random(seed)
    hierarchy = random_hierarchy(rng, dag=seed % 2 == 1)
    rows = [
        [hierarchy.names[rng.randrange(len(hierarchy))] for _ in range(rng.randint(0, 3))]
        for _ in range(rng.randint(1, 6))
    ]
    decided = np.array([[rng.randrange(len(hierarchy)) for _ in rows] for _ in range(2)])
    return hierarchy, rows, decided


def judged(hierarchy, rows, decided):
    truth = Truth.of(hierarchy, *Labels(rows, hierarchy).closed)
    probability = np.full(decided.shape, 0.5)
    return truth, judge(truth, {"terminal": decided, "probability": probability})


@pytest.mark.parametrize("seed", range(40))
def test_heights_and_nearest_labels_are_those_of_loops(seed):
    hierarchy, rows, decided = case(seed)
    _, found = judged(hierarchy, rows, decided)
    for member, classes in enumerate(decided.tolist()):
        for row, (labels, c) in enumerate(zip(rows, classes, strict=True)):
            closed = set(hierarchy.closure([hierarchy.index(label) for label in labels]))
            ends = [one for one in closed if not closed & set(hierarchy.children(one))]
            if not ends:
                assert found.nearest[member, row] == -1
                assert found.heights[member, row] == 0
                continue
            far = {}
            for end in ends:
                lca = hierarchy.lca(c, end)
                far[end] = hierarchy.root_height if lca is None else int(hierarchy.heights[lca])
            assert far[int(found.nearest[member, row])] == min(far.values())
            assert found.heights[member, row] == (0 if c in closed else min(far.values()))


@pytest.mark.parametrize("seed", range(40))
def test_support_and_hits_are_those_of_loops(seed):
    hierarchy, rows, decided = case(seed)
    truth, found = judged(hierarchy, rows, decided)
    support, hits = [0] * len(hierarchy), [0] * len(hierarchy)
    for row, labels in enumerate(rows):
        closed = set(hierarchy.closure([hierarchy.index(label) for label in labels]))
        for c in closed:
            support[c] += 1
            hits[c] += sum(c in hierarchy.closure([int(classes[row])]) for classes in decided)
    assert truth.support.tolist() == support
    assert found.hits.tolist() == hits
    assert truth.labeled == sum(map(bool, rows))


def test_heights_are_the_severity_of_the_summary(study):
    summary = summarize(study)
    truth = Truth.of(study.hierarchy, *(part.numpy() for part in study.truth()))
    for entry in study.entries:
        heights = judge(truth, study.rows(entry)).heights
        counts = np.bincount(heights.ravel(), minlength=study.hierarchy.root_height + 1)
        assert (counts / heights.size).tolist() == pytest.approx(summary["severity"][entry.key])
