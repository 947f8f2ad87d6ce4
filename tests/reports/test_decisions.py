"""Decisions against the truth, row by row and class by class, against loops."""

import random

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.noise import evaluate_decisions
from hierlearn.lab.summary import summarize
from hierlearn.reports.decisions import Decisions, Truth
from lab.small_studies import run
from losses.random_batches import random_hierarchy
from reports.handmade_study import stored_rows


def case(seed):
    rng = random.Random(seed)
    hierarchy = random_hierarchy(rng, dag=seed % 2 == 1)
    rows = [
        [hierarchy.names[rng.randrange(len(hierarchy))] for _ in range(rng.randint(0, 3))]
        for _ in range(rng.randint(1, 6))
    ]
    decided = np.array([[rng.randrange(len(hierarchy)) for _ in rows] for _ in range(2)])
    return hierarchy, rows, decided


def read(hierarchy, rows, decided):
    truth = Truth(hierarchy, *Labels(rows, hierarchy).closed)
    return truth, Decisions.read(truth, stored_rows(truth, decided))


@pytest.mark.parametrize("seed", range(40))
def test_heights_and_nearest_labels_are_those_of_loops(seed):
    hierarchy, rows, decided = case(seed)
    _, found = read(hierarchy, rows, decided)
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
            # Right is the label itself: a class above or below it is off by at least 1.
            wanted = 0 if c in ends else max(1, min(far.values()))
            assert found.heights[member, row] == wanted


@pytest.mark.parametrize("seed", range(40))
def test_support_and_hits_are_those_of_loops(seed):
    hierarchy, rows, decided = case(seed)
    truth, found = read(hierarchy, rows, decided)
    support, hits = [0] * len(hierarchy), [0] * len(hierarchy)
    for row, labels in enumerate(rows):
        closed = set(hierarchy.closure([hierarchy.index(label) for label in labels]))
        for c in closed:
            support[c] += 1
            hits[c] += sum(c in hierarchy.closure([int(classes[row])]) for classes in decided)
    assert truth.support.tolist() == support
    assert found.hits.tolist() == hits
    assert truth.labeled == sum(map(bool, rows))


@pytest.mark.parametrize("seed", range(40))
def test_levels_are_those_of_loops(seed):
    hierarchy, rows, decided = case(seed)
    if not any(rows):
        return
    truth = Truth(hierarchy, *Labels(rows, hierarchy).closed)
    found = evaluate_decisions(truth, decided, [])
    assert list(found) == [f"level-{m}" for m in range(1, hierarchy.depth + 1)]
    for level in range(1, hierarchy.depth + 1):
        hits = [[] for _ in decided]
        for row, labels in enumerate(rows):
            closed = hierarchy.closure([hierarchy.index(label) for label in labels])
            there = {c for c in closed if hierarchy.levels[c] == level}
            if there:
                for own, classes in zip(hits, decided, strict=True):
                    own.append(bool(there & set(hierarchy.closure([int(classes[row])]))))
        wanted = [np.mean(own) if own else np.nan for own in hits]
        assert found[f"level-{level}"] == pytest.approx(wanted, nan_ok=True)


def test_the_dense_targets_are_those_of_the_labels():
    hierarchy, rows, _ = case(3)
    labels = Labels(rows, hierarchy)
    assert torch.equal(Truth(hierarchy, *labels.closed).targets, labels.targets())


def test_no_answer_and_one_that_stops_early_are_not_shown_as_mistakes():
    h = Hierarchy.from_paths(["a/b/c", "a/d"])
    truth = Truth(h, *Labels(["a/b/c", "a/b/c", "a/b/c", "a/d"], h).closed)
    decided = np.array([[-1, h.index("a"), h.index("a/d"), h.index("a/d")]])
    rows = {**stored_rows(truth, np.maximum(decided, 0)), "answer": decided}
    found = Decisions.read(truth, rows)
    assert found.heights.tolist() == [[3, 2, 2, 0]]
    assert found.mistakes.tolist() == [[False, True, True, False]]
    terminal = np.array([not h.children(c) for c in range(len(h))])
    assert Decisions.read(truth, rows, terminal).mistakes.tolist() == [[False, False, True, False]]
    assert found.hits.tolist() == [3, 0, 1, 0]  # a, a/b, a/d, a/b/c


def test_the_table_and_the_bars_of_the_mistakes_agree(tmp_path):
    """Also where labels end at inner classes: an answer above or below the label is a mistake."""
    study = run(tmp_path / "s", ("bce", "hxe"))
    summary, truth = summarize(study), study.truth()
    metrics = summary["metrics"]
    assert metrics[:2] == ["exact", "severity"]
    for place, candidate in enumerate(study.candidates):
        bar = summary["severity"][candidate.key]
        table = summary["figures"]["exact"][place]
        assert bar[0] == pytest.approx(table["mean"])
        assert sum(bar) == pytest.approx(1)
        rows = study.rows(candidate)
        told = stored_rows(truth, rows["answer"])
        assert np.array_equal(rows["exact"], told["exact"])
        assert np.array_equal(rows["severity"], told["severity"], equal_nan=True)
        wrong = Decisions.read(truth, rows).heights > 0
        assert np.array_equal(wrong, rows["exact"] == 0)
