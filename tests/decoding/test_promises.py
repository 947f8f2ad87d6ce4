"""The promises of calibration hold on average over calibration sets, and a naive quantile's do not.

One pool of 20,000 exchangeable rows from a model that is too sure of itself. Again and again some
rows calibrate and others test.
"""

import functools
import math
import statistics

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.decoding import ConformalSets, Stop
from hierlearn.decoding.decoder import most_specific
from hierlearn.decoding.guarantees import error_scores
from hierlearn.links import SoftmaxLink

TREE = Hierarchy.from_paths(
    [f"a{i}/b{j}/c{k}" for i in range(4) for j in range(3) for k in range(4)]
)
POOL, TEST, ROUNDS = 20_000, 400, 400


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Thousands of small calls: a second thread would only wait for the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def pool():
    """Probabilities that are 1.7 times too sure and noisy, and targets from the true ones."""
    generator = torch.Generator().manual_seed(0)
    link = SoftmaxLink(TREE)
    logits = 2.5 * torch.randn(POOL, len(TREE), generator=generator)
    leaves = logits.index_select(1, link.terminals).softmax(dim=1)
    truth = link.terminals[torch.multinomial(leaves, 1, generator=generator).squeeze(1)]
    noise = 0.5 * torch.randn(logits.shape, generator=generator)
    return link.probabilities(1.7 * logits + noise), TREE.encode(truth.tolist(), numbers=True)


def shares(count, miss, seed=0):
    """Return the share of wrong test rows in each round; ``miss`` calibrates and tests."""
    p, targets = pool()
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(ROUNDS):
        order = torch.randperm(POOL, generator=generator)
        cal, test = order[:count], order[count : count + TEST]
        wrong = miss((p[cal], targets[cal]), (p[test], targets[test]))
        found.append(float(wrong.float().mean()))
    return found


def assert_promise(found, alpha, count):
    """The mean is at most alpha, and not needlessly small; both up to its standard error."""
    error = 4 * statistics.stdev(found) / math.sqrt(len(found))
    mean = statistics.fmean(found)
    assert mean <= alpha + error
    assert mean >= alpha - 2 / (count + 1) - error


def stop_wrong(decoder, test):
    p, targets = test
    answers = decoder(p)
    right = targets.gather(1, answers.clamp_min(0)[:, None]).squeeze(1)
    return (answers >= 0) & ~right


def candidates_miss(decoder, test):
    p, targets = test
    return (most_specific(targets, TREE) & ~decoder(p)).any(dim=1)


SETTINGS = [(0.1, 19), (0.1, 20), (0.1, 100), (0.25, 50), (0.05, 200)]


@pytest.mark.parametrize(("alpha", "count"), SETTINGS)
def test_the_risk_of_stop(alpha, count):
    found = shares(count, lambda c, t: stop_wrong(Stop(TREE).calibrate(*c, alpha), t))
    assert_promise(found, alpha, count)


@pytest.mark.parametrize("spread", [None, 0.5])
@pytest.mark.parametrize(("alpha", "count"), SETTINGS)
def test_the_coverage_of_conformal_sets(alpha, count, spread):
    decoder = ConformalSets(TREE, spread=spread)
    found = shares(count, lambda c, t: candidates_miss(decoder.calibrate(*c, alpha), t))
    assert_promise(found, alpha, count)


def test_leaf_by_leaf_the_sets_are_the_smallest():
    """At equal coverage: fewer leaves than by subtrees, and exactly those of plain conformal."""
    p, targets = pool()
    leaves = torch.tensor(TREE.leaves)
    truth = targets[:, leaves].int().argmax(dim=1, keepdim=True)
    order = torch.randperm(POOL, generator=torch.Generator().manual_seed(1))
    calibration, test = order[:5000], order[5000:]
    alpha, sizes, coverage = 0.1, {}, {}
    for spread in (None, 0.5, 1.0):
        found = ConformalSets(TREE, spread=spread).calibrate(
            p[calibration], targets[calibration], alpha
        )
        answer = found(p[test])[:, leaves]
        sizes[spread] = float(answer.sum(dim=1).double().mean())
        coverage[spread] = float(answer.gather(1, truth[test]).double().mean())
    # plain: the leaves whose p reaches the (n + 1) alpha-th smallest p of a true leaf
    scores = p[calibration][:, leaves].gather(1, truth[calibration]).flatten().sort().values
    plain = p[test][:, leaves] >= scores[int(alpha * 5001) - 1]
    assert sizes[None] == float(plain.sum(dim=1).double().mean())
    assert all(abs(one - 0.9) < 0.015 for one in coverage.values())
    assert sizes[None] < 0.95 * sizes[1.0] < sizes[0.5]


def test_uncalibrated_the_model_errs_more():
    """The pool is no easy one: without calibration over 40 % of the answers are wrong."""
    assert stop_wrong(Stop(TREE), pool()).float().mean() > 0.4


@pytest.mark.parametrize("count", [10, 20])
def test_a_naive_quantile_breaks_the_promise(count):
    """Without the + 1 the calibration rows keep to alpha, and new rows do not.

    With n = 10 or 20 and alpha 0.1 it allows one error more than may be: (k + 1) / (n + 1).
    """
    alpha = 0.1

    def naive_stop(calibration, test):
        scores = error_scores(*calibration, TREE).sort(descending=True).values
        threshold = float(scores[int(alpha * count)])  # at most alpha n scores lie above
        return stop_wrong(Stop(TREE, threshold), test)

    def naive_sets(calibration, test):
        p, targets = calibration
        values = ConformalSets(TREE).values(p)
        values = values.masked_fill(~most_specific(targets, TREE), torch.inf).amin(dim=1)
        threshold = float(values.sort().values[int(alpha * count)])  # at most alpha n lie below
        return candidates_miss(ConformalSets(TREE, threshold), test)

    for naive in (naive_stop, naive_sets):
        found = shares(count, naive)
        with pytest.raises(AssertionError):
            assert_promise(found, alpha, count)
        assert statistics.fmean(found) > alpha
