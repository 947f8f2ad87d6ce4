"""SMACOF against scikit-learn where they coincide, against loops elsewhere; stress never grows."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.manifold import smacof as sklearn_smacof

from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.clems import classical_start, smacof_between
from reference import clems as reference
from tolerances import FLOAT64, FLOAT64_SUMS


def problem(n, seed, size=2):
    """Distances that no plane has, a start, and symmetric weights."""
    draw = torch.Generator().manual_seed(seed)
    points = torch.rand(n, 5, generator=draw, dtype=torch.float64)
    noise = torch.rand(n, n, generator=draw, dtype=torch.float64)
    distances = torch.cdist(points, points) + 0.2 * (noise + noise.T)
    start = torch.randn(n, size, generator=draw, dtype=torch.float64)
    weights = torch.rand(n, n, generator=draw, dtype=torch.float64)
    return distances.fill_diagonal_(0), start, (weights + weights.T).fill_diagonal_(0)


def between(k, others, seed, size=2):
    """A problem between two groups, and the weights of all pairs that say the same."""
    distances, start, _ = problem(k + others, seed, size)
    draw = torch.Generator().manual_seed(seed + 100)
    a, b = (torch.rand(n, generator=draw, dtype=torch.float64) + 0.1 for n in (k, others))
    weights = torch.zeros_like(distances)
    weights[:k, k:] = a[:, None] * b
    return distances, start, (a, b), weights + weights.T


@pytest.mark.parametrize("seed", range(3))
def test_with_equal_weights_the_loops_are_those_of_scikit_learn(seed):
    distances, start, _ = problem(9, seed)
    points, stress = sklearn_smacof(
        distances.numpy(),
        n_components=2,
        init=start.numpy(),
        n_init=1,
        max_iter=12,
        eps=0,
        normalized_stress=False,
    )
    equal = torch.ones_like(distances).fill_diagonal_(0).tolist()
    found = start.tolist()
    for _ in range(12):
        found = reference.smacof_step(found, distances.tolist(), equal)
    assert reference.stress(found, distances.tolist(), equal) == FLOAT64.approx(stress)
    FLOAT64.assert_close(torch.tensor(found, dtype=torch.float64), torch.from_numpy(points))


def test_the_loops_minimize_what_bounds_the_stress():
    """The reference itself: a step is the lowest point of a bound that touches the stress."""
    distances, start, weights = (one.tolist() for one in problem(5, 4))
    moved = reference.smacof_step(start, distances, weights)
    at_start = reference.majorizer(start, start, distances, weights)
    assert at_start == FLOAT64.approx(reference.stress(start, distances, weights))
    lowest = reference.majorizer(moved, start, distances, weights)
    assert reference.stress(moved, distances, weights) <= lowest < at_start
    for i in range(5):
        for k in range(2):
            for change in (-1e-3, 1e-3):
                other = [list(one) for one in moved]
                other[i][k] += change
                assert reference.majorizer(other, start, distances, weights) > lowest


@pytest.mark.parametrize("seed", range(3))
def test_between_groups_no_pseudo_inverse_is_needed(seed):
    distances, start, (a, b), weights = between(4, 3, seed)
    found, stress = smacof_between(distances[:4, 4:], start, (a, b), iterations=5, tolerance=0)
    points = start.tolist()
    for step in range(6):
        expected = reference.stress(points, distances.tolist(), weights.tolist())
        assert stress[step] == FLOAT64_SUMS.approx(expected)
        if step < 5:
            points = reference.smacof_step(points, distances.tolist(), weights.tolist())
    FLOAT64_SUMS.assert_close(found, torch.tensor(points, dtype=torch.float64))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000), st.integers(1, 4))
def test_the_stress_never_grows(k, others, seed, size):
    distances, start, weights, _ = between(k, others, seed, size)
    found, stress = smacof_between(distances[:k, k:], start, weights, iterations=20, tolerance=0)
    steps = np.diff(stress)
    assert (steps <= 1e-9 * (1 + np.array(stress[:-1]))).all()
    assert found.isfinite().all()


def test_many_chunks_are_one(monkeypatch):
    distances, start, weights, _ = between(9, 8, 0)
    whole, stress = smacof_between(distances[:9, 9:], start, weights, iterations=3, tolerance=0)
    monkeypatch.setattr("hierlearn.lab.baselines.clems.FINER", 1 << 19)  # a row at a time
    parts, other = smacof_between(distances[:9, 9:], start, weights, iterations=3, tolerance=0)
    FLOAT64.assert_close(parts, whole)
    assert other == FLOAT64.approx(stress)


def test_points_that_coincide_and_groups_without_weight_stay_finite():
    distances, start, (a, b), _ = between(4, 4, 0)
    start[4:] = start[:4]
    a[1] = 0
    found, stress = smacof_between(distances[:4, 4:], start, (a, b), iterations=50)
    assert found.isfinite().all()
    assert stress[-1] < stress[0]


def test_it_stops_where_steps_hardly_help():
    distances, start, weights, _ = between(6, 5, 1)
    _, long = smacof_between(distances[:6, 6:], start, weights, iterations=500, tolerance=0)
    _, short = smacof_between(distances[:6, 6:], start, weights, iterations=500, tolerance=1e-2)
    assert len(short) < len(long)
    last, before = short[-1], short[-2]
    assert before - last <= 1e-2 * before
    assert all(a - b > 1e-2 * a for a, b in pairwise(short[:-1]))


@pytest.mark.parametrize("n", [7, 300])
def test_the_start_embeds_euclidean_distances_exactly(n):
    points = torch.randn(n, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    squared = torch.cdist(points, points).square()
    found = classical_start(squared, 5, seed=0, noise=0.0)
    FLOAT64_SUMS.assert_close(torch.cdist(found, found).square(), squared)
    one, same, other = (classical_start(squared, 5, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert classical_start(torch.zeros(1, 1), 4, seed=0).shape == (1, 4)


def test_shapes_that_do_not_fit():
    distances, start, _ = problem(4, 0)
    with pytest.raises(HierlearnError, match=r"distances \(4, 2\) need a start of 6 points"):
        smacof_between(distances[:, :2], start, (torch.ones(4), torch.ones(2)))
