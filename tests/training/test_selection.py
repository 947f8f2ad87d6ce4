"""Greedy forward selection, against the same in plain loops and scikit-learn's precision."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from hierlearn import Hierarchy, LabelSpace
from hierlearn.training.blending import (
    counted_average_precision,
    is_larger_better,
    scorer,
    select,
)

SPACE = LabelSpace(Hierarchy.from_paths(["a/b", "a/c", "d"]))


def draw(seed, rows=60):
    generator = np.random.default_rng(seed)
    targets = generator.random((rows, 4)) < 0.3
    good = np.clip(0.5 * targets + 0.6 * generator.random((rows, 4)), 0, 1)
    other = np.clip(0.5 * targets + 0.6 * generator.random((rows, 4)), 0, 1)
    poor = generator.random((rows, 4))
    return targets, {"good": good, "other": other, "poor": poor}


def loops(predictions, targets, picks):
    """Caruana's selection, the average computed again for every trial."""
    chosen, best = [], (-1.0, [])
    for _ in range(picks):
        scores = {}
        for name in predictions:
            mean = np.mean([predictions[one] for one in [*chosen, name]], axis=0)
            scores[name] = average_precision_score(targets.ravel(), mean.ravel())
        name = max(scores, key=scores.get)
        chosen.append(name)
        if scores[name] > best[0]:
            best = scores[name], list(chosen)
    value, kept = best
    return {name: kept.count(name) / len(kept) for name in kept}, value


@pytest.mark.parametrize("seed", range(5))
def test_the_weights_are_those_of_plain_loops(seed):
    targets, predictions = draw(seed)
    as_halves = {k: np.float16(v).astype(np.float64) for k, v in predictions.items()}
    expected, value = loops(as_halves, targets, 8)

    def score(p):
        return average_precision_score(targets.ravel(), p.numpy().ravel())

    found = select({k: torch.from_numpy(v) for k, v in as_halves.items()}, score, picks=8)
    assert found.weights == pytest.approx(expected)
    assert found.value == pytest.approx(value)
    assert found.value >= max(found.single.values())


@pytest.mark.parametrize("seed", range(5))
def test_counted_precision_is_scikit_learns(seed):
    targets, predictions = draw(seed)
    p = torch.from_numpy(predictions["good"]).half().float()
    p[3] = p[4]  # ties
    expected = average_precision_score(targets.ravel(), p.numpy().ravel())
    assert counted_average_precision(p, torch.from_numpy(targets)) == pytest.approx(expected)


def test_unknown_entries_do_not_count():
    targets, predictions = draw(0)
    p, known = torch.from_numpy(predictions["good"]).half().float(), np.ones((60, 4), dtype=bool)
    known[::3, 1] = False
    expected = average_precision_score(targets[known], p.numpy()[known])
    found = counted_average_precision(p, torch.from_numpy(targets), torch.from_numpy(known))
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("metric", ["au-prc", "ap-micro", "hit@1", "mrr"])
def test_what_selects_sees_no_unknown_entry(metric):
    """Of rows labeled a, nobody knows whether they are b or c: how probable these are is open."""
    p = torch.from_numpy(np.random.default_rng(0).random((40, 4))).half().float()
    a, b, c = (SPACE.hierarchy.index(name) for name in ("a", "a/b", "a/c"))
    targets, known = torch.zeros(40, 4, dtype=torch.bool), torch.ones(40, 4, dtype=torch.bool)
    targets[:20, [a, c]] = True
    targets[20:, a] = True
    known[20:, [b, c]] = False
    other = p.clone()
    other[20:, [b, c]] *= 0.125
    masked, plain = (scorer(metric, targets, SPACE, mask) for mask in (known, None))
    assert masked(other) == pytest.approx(masked(p))
    assert plain(other) != pytest.approx(plain(p))


def test_probabilities_of_0_and_1():
    p = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert counted_average_precision(p, p.bool()) == 1.0


def test_an_answer_that_is_of_no_use_gets_no_weight():
    targets, predictions = draw(1, rows=400)
    score = scorer("au-prc", torch.from_numpy(targets), SPACE)
    found = select({k: torch.from_numpy(v).float() for k, v in predictions.items()}, score)
    assert set(found.weights) == {"good", "other"}
    assert sum(found.weights.values()) == pytest.approx(1)


def test_a_metric_that_should_be_small():
    targets = SPACE.hierarchy.encode([["a/b"], ["d"]])
    right = torch.where(targets, 0.9, 0.05)
    wrong = torch.where(targets, 0.05, 0.9)
    score = scorer("hier-dist", targets, SPACE)
    found = select({"wrong": wrong, "right": right}, score, larger=is_larger_better("hier-dist"))
    assert found.weights == {"right": 1.0}
    assert is_larger_better("au-prc")
    assert not is_larger_better("hier-dist")
