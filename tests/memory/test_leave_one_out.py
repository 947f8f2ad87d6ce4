"""The scale of a memory by leave-one-out likelihood, against naive loops."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from hierlearn import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.memory import LabelSets, NeighborHead, Remembered
from hierlearn.memory.compare import best_scale, losses, nearest_others
from reference import neighbors as reference

TREE = Hierarchy.from_paths(["a/b", "a/c", "d/e", "d/f"])


def filled(rows=24, *, neighbors=256, ids=None, policy="negative", weights=None, distance="cosine"):
    """Return a head that remembers rows around a corner per class, some of them mislabeled."""
    draw = np.random.default_rng(3)
    leaves = ["a/b", "a/c", "d/e", "d/f"]
    kinds = draw.integers(0, 4, rows)
    x = np.eye(4)[kinds] + draw.normal(0, 0.3, (rows, 4))
    shown = np.where(draw.random(rows) < 0.2, draw.integers(0, 4, rows), kinds)
    labels = [[leaves[k]] if n % 7 else [leaves[k][0]] for n, k in enumerate(shown)]
    head = NeighborHead(TREE, nn.Identity(), neighbors=neighbors, distance=distance)
    held = LabelSets.from_labels(Labels(labels, TREE, unlabeled_descendants=policy))
    names = [str(n) for n in range(rows)] if ids is None else ids
    head.memory.set(torch.tensor(x).float(), Remembered(held, names, weights))
    return head, x.tolist(), held, names


def naive_loss(head, rows, held, names, scale, weights=None):
    total = count = 0.0
    targets = held.sets.targets(held.of_row).int().tolist()
    mask = held.sets.mask(held.of_row).tolist() if held.is_partial else None
    parents = [list(TREE.parents(c)) for c in range(len(TREE))]
    for i, row in enumerate(rows):
        away = {j for j in range(len(rows)) if names[j] == names[i]}
        kept = [j for j in range(len(rows)) if j not in away]
        kept.sort(key=lambda j: reference.DISTANCES[head.distance](row, rows[j]))
        away |= set(kept[head.neighbors :])
        w = reference.neighbor_weights(
            row, rows, scale, head.distance, counts=weights, excluded=away
        )
        p = reference.mixture(w, targets, mask, parents)
        q = reference.mixture(w, [[1 - y for y in one] for one in targets], mask, parents)
        e, terms = head.smoothing, []
        for c in range(len(TREE)):
            known = mask is None or mask[i][c]
            own = p[c] if targets[i][c] else (1 - p[c] if mask is not None else q[c])
            terms.append(-math.log((1 - 2 * e) * own + e) if known else 0.0)
        share = 1.0 if weights is None else weights[i]
        total += share * sum(terms) / len(terms)
        count += share
    return total / count


@pytest.mark.parametrize("neighbors", [5, 256])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_losses_equal_the_naive_loops(neighbors, distance):
    head, rows, held, names = filled(neighbors=neighbors, distance=distance)
    others = nearest_others(head)
    found = losses(head, others, [0.05, 0.5])
    wanted = [naive_loss(head, rows, held, names, scale) for scale in (0.05, 0.5)]
    assert found == pytest.approx(wanted, rel=1e-3)


def test_rows_of_one_id_are_left_out_together():
    ids = [str(n // 3) for n in range(24)]
    head, rows, held, names = filled(ids=ids)
    found = losses(head, nearest_others(head), [0.2])
    assert found == pytest.approx([naive_loss(head, rows, held, names, 0.2)], rel=1e-3)


def test_weights_count_for_rows_and_neighbors():
    weights = np.random.default_rng(0).uniform(0.2, 3, 24)
    head, rows, held, names = filled(weights=weights)
    found = losses(head, nearest_others(head), [0.2])
    wanted = naive_loss(head, rows, held, names, 0.2, weights.tolist())
    assert found == pytest.approx([wanted], rel=1e-3)


def test_the_best_scale_is_better_than_those_around_it():
    head, rows, held, names = filled(60)
    best, value = best_scale(head)
    around = [naive_loss(head, rows, held, names, best * step) for step in (0.8, 1.0, 1.25)]
    assert around[1] == pytest.approx(value, rel=1e-3)
    assert around[1] < min(around[0], around[2])


def test_partial_labels():
    head, *_ = filled(policy="ignore")
    best, value = best_scale(head)
    assert 0 < best < 10
    assert value is not None


def test_a_scale_stays_where_there_is_nothing_to_compare():
    head, *_ = filled(1)
    assert best_scale(head) == (head.scale.value, None)
    head, *_ = filled(4, ids=["same"] * 4)
    assert best_scale(head) == (head.scale.value, None)
    head, _, held, names = filled(4)
    head.memory.set(torch.ones(4, 4), Remembered(held, names))
    assert best_scale(head)[0] == head.scale.value
