"""Decisions against the truth, row by row and class by class, against loops."""

import random

import numpy as np
import pytest
import torch

from hierlearn.hierarchy.labels import Labels
from hierlearn.studies.decisions import HEIGHT, Decisions, Truth, evaluate_decisions
from hierlearn.studies.summary import summarize
from losses.random_batches import random_hierarchy
from reports.handmade_study import stored_rows
from studies.small_studies import run


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
    truth, found = read(hierarchy, rows, decided)
    metric = [[] for _ in decided]  # the metric that a study stores
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
            metric[member].append(found.heights[member, row])
    if any(rows):
        told = evaluate_decisions(truth, decided, [HEIGHT])[HEIGHT]
        assert told == pytest.approx([np.mean(one) for one in metric])


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


def test_heights_are_the_severity_of_the_summary(tmp_path):
    study = run(tmp_path / "s", ("bce", "hxe"))
    summary, truth = summarize(study), study.truth()
    for candidate in study.candidates:
        heights = Decisions.read(truth, study.rows(candidate)).heights
        told = stored_rows(truth, study.rows(candidate)["terminal"])[HEIGHT]
        assert np.array_equal(study.rows(candidate)[HEIGHT], told)
        counts = np.bincount(heights.ravel(), minlength=study.hierarchy.root_height + 1)
        assert (counts / heights.size).tolist() == pytest.approx(summary["severity"][candidate.key])
