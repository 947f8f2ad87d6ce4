"""The statistics of a study against SciPy, definitions, a published example and simulation."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from hierlearn.errors import HierlearnError
from hierlearn.lab.statistics import (
    bootstrap_interval,
    holm,
    paired_test,
    rank_methods,
    spread,
    t_interval,
)

values = st.lists(st.floats(-5, 5), min_size=2, max_size=12)


def test_the_spread_by_hand():
    found = spread([1.0, 2.0, 6.0])
    assert found.mean == 3.0
    assert found.deviation == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert spread([2.0]).deviation is None
    with pytest.raises(HierlearnError, match="there are no runs to average"):
        spread([])


@given(values, st.sampled_from([0.05, 0.2]))
def test_the_t_interval_is_scipys(found, level):
    assume(np.std(found) > 0)  # SciPy knows no interval without a spread
    wanted = stats.t.interval(1 - level, len(found) - 1, np.mean(found), stats.sem(found))
    assert t_interval(found, level=level) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_the_t_interval_at_its_ends():
    assert t_interval([0.5, 0.5, 0.5]) == (0.5, 0.5)
    assert all(map(math.isnan, t_interval([0.5])))
    assert all(map(math.isnan, t_interval([0.5, math.nan])))


def test_the_t_interval_holds_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(size=(2000, 3))
    held = np.mean([low < 0 < high for low, high in map(t_interval, draws)])
    assert held == pytest.approx(0.95, abs=0.02)  # four standard errors


@given(values, st.integers(0, 1000))
def test_the_paired_test_is_scipys(first, seed):
    second = np.asarray(first) + np.random.default_rng(seed).normal(size=len(first))
    found = paired_test(first, second.tolist())
    assert found == pytest.approx(stats.ttest_rel(first, second).pvalue, rel=1e-9)


def test_the_paired_test_at_its_ends():
    assert paired_test([1.0, 2.0], [1.0, 2.0]) == 1.0
    assert math.isnan(paired_test([1.0, 2.0], [0.5, 1.5]))
    assert math.isnan(paired_test([0.62, 0.58], [0.58, 0.54]))  # the same but for rounding
    assert math.isnan(paired_test([1.0], [2.0]))
    assert math.isnan(paired_test([1.0, math.nan], [2.0, 1.0]))
    with pytest.raises(HierlearnError, match="2 runs cannot be paired with 3"):
        paired_test([1.0, 2.0], [1.0, 2.0, 3.0])


def holm_by_definition(p_values):
    """Reject the smallest p while p_(k) <= level / (m - k): the adjusted p is the least level."""
    order = sorted(p_values)
    found = []
    for p in p_values:
        place = order.index(p)
        found.append(min(1.0, max((len(order) - k) * order[k] for k in range(place + 1))))
    return found


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_its_definition(p_values):
    assert holm(p_values) == pytest.approx(holm_by_definition(p_values))


def test_holm_by_hand_and_around_missing_tests():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    found = holm([math.nan, 0.02, 0.5])  # two tests, not three
    assert math.isnan(found[0])
    assert found[1:] == pytest.approx([0.04, 0.5])


def test_holm_keeps_the_chance_of_any_false_claim():
    draws = np.random.default_rng(0).uniform(size=(4000, 5))
    claims = np.mean([min(holm(row.tolist())) < 0.05 for row in draws])
    assert 0.04 < claims < 0.06
    naive = np.mean(draws.min(axis=1) < 0.05)
    assert naive > 0.2  # what the correction is for


def test_the_bootstrap_interval_covers_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(1)
    covered = 0
    for number in range(300):
        rows = draws.exponential(size=80)
        low, high = bootstrap_interval(rows, resamples=300, seed=number)
        covered += low <= 1.0 <= high
    assert 0.88 < covered / 300 < 0.98


def test_the_bootstrap_interval_leaves_out_rows_that_do_not_count():
    rows = np.array([0.0, 1.0, 1.0, np.nan, 0.0, 1.0])
    assert bootstrap_interval(rows) == bootstrap_interval(rows[~np.isnan(rows)])
    assert bootstrap_interval(np.array([2.0, 2.0])) == (2.0, 2.0)
    assert all(map(math.isnan, bootstrap_interval(np.array([np.nan]))))


def test_the_bootstrap_interval_of_seeds_that_count_different_rows():
    """Of mistakes only, each seed has its own rows: its mean comes first, then that of seeds."""
    draws = np.random.default_rng(2)
    rows = draws.exponential(size=(3, 40))
    rows[draws.random(rows.shape) < 0.6] = np.nan
    kept = rows[:, (~np.isnan(rows)).any(axis=0)]
    resampled, means = np.random.default_rng(0), []
    for _ in range(500):
        part = kept[:, resampled.integers(0, kept.shape[1], kept.shape[1])]
        means.append(np.mean([np.mean([v for v in seed if v == v]) for seed in part]))
    found = bootstrap_interval(rows, resamples=500)
    assert found == pytest.approx(np.quantile(means, [0.025, 0.975]))


def test_the_bootstrap_interval_of_seeds_is_that_of_their_mean():
    rows = np.random.default_rng(3).normal(size=(4, 30))
    rows[:, 5] = np.nan
    assert bootstrap_interval(rows) == bootstrap_interval(rows.mean(axis=0))


def test_ranks_by_hand_and_friedman_by_scipy():
    table = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.5], [0.4, 0.6, 0.1], [0.9, 0.8, 0.3]])
    found = rank_methods(table, larger_is_better=True)
    assert found.average.tolist() == [(1 + 1 + 2 + 1) / 4, (2 + 2.5 + 1 + 2) / 4, (9 + 2.5) / 4]
    assert found.p == pytest.approx(stats.friedmanchisquare(*table.T).pvalue)
    turned = rank_methods(-table, larger_is_better=False)
    assert turned.average.tolist() == found.average.tolist()


def test_the_critical_difference_is_demsars():
    # Demsar (2006), section 3.2.2: 4 methods on 14 datasets, q = 2.569, CD = 1.25.
    values = np.random.default_rng(0).normal(size=(14, 4))
    found = rank_methods(values, larger_is_better=True)
    assert found.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 14)), rel=1e-3)
    assert round(found.critical_difference, 2) == 1.25


def test_what_cannot_be_ranked():
    with pytest.raises(HierlearnError, match="at least two datasets and two methods, not 1 and 3"):
        rank_methods(np.zeros((1, 3)), larger_is_better=True)
    with pytest.raises(HierlearnError, match="a figure of every method on every dataset"):
        rank_methods(np.array([[1.0, np.nan], [1.0, 2.0]]), larger_is_better=True)
    assert rank_methods(np.ones((3, 3)), larger_is_better=True).p == 1.0
    assert math.isnan(rank_methods(np.ones((3, 2)), larger_is_better=True).p)
