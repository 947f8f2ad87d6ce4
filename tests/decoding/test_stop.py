"""Stop and its threshold: what a threshold means, and which one a calibration set gives."""

import re
from itertools import pairwise

import pytest
import torch

from decoding.probability_cases import random_case
from hierlearn import Hierarchy
from hierlearn.decoding import Stop, TopDown, risk_threshold
from hierlearn.decoding import guarantees as calibration
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import structure
from hierlearn.links import SoftmaxLink
from reference import decoding as reference

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])


def probabilities(rows=50, seed=0):
    logits = 2 * torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed))
    return SoftmaxLink(TREE).probabilities(logits)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.75, 1.0])
def test_from_a_half_on_it_is_the_deepest_class_of_all(seed, threshold):
    case = random_case(seed)
    expected = reference.deepest_above(case.rows, case.parents, threshold)
    assert Stop(case.hierarchy, threshold)(case.p).tolist() == expected


def test_the_ends_of_the_range():
    p = probabilities()
    assert torch.equal(Stop(TREE, 0.0)(p), TopDown(TREE)(p))
    sure = TREE.encode([["a/b/c"]]).float()
    assert Stop(TREE, 1.0)(sure).tolist() == [-1]
    assert Stop(TREE, 0.99)(sure).tolist() == [TREE.index("a/b/c")]


def test_a_higher_threshold_never_goes_deeper():
    p = probabilities()
    depth = [Stop(TREE, t / 20).sets(p).sum(dim=1) for t in range(21)]
    assert all((a >= b).all() for a, b in pairwise(depth))


def test_a_class_below_one_that_fails_is_not_reached():
    p = torch.zeros(1, 8)
    p[0, TREE.index("a")], p[0, TREE.index("a/b")], p[0, TREE.index("a/b/c")] = 0.9, 0.4, 0.8
    assert Stop(TREE, 0.5)(p).tolist() == [TREE.index("a")]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_threshold_is_exact_in_every_precision(dtype):
    """At the threshold as many rows err as alpha allows; just below it, more do."""
    p = probabilities(200, seed=3).to(dtype)
    labels = torch.randint(8, (200, 1), generator=torch.Generator().manual_seed(4)).tolist()
    targets = TREE.encode(labels, numbers=True)

    def errors(threshold):
        answers = Stop(TREE, threshold)(p)
        return int(sum(a >= 0 and not y[a] for a, y in zip(answers.tolist(), targets, strict=True)))

    for alpha in (0.02, 0.1, 0.3):
        decoder = Stop(TREE).calibrate(p, targets, alpha)
        t = decoder.threshold
        assert (errors(t) + 1) / 201 <= alpha
        wide = torch.tensor(t, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
        below = float(torch.nextafter(wide, torch.zeros_like(wide)))
        assert (errors(below) + 1) / 201 > alpha


def test_rounding_above_one_is_one():
    p = TREE.encode([["a/b/c"]] * 30).float() * (1 + 5e-6)
    assert (Stop(TREE, 1.0)(p) == -1).all()
    wrong = TREE.encode([["h"]] * 30)
    decoder = Stop(TREE).calibrate(p, wrong, 1 / 31)
    assert decoder.threshold == 1
    assert (decoder(p) == -1).all()


def test_calibrating_leaves_the_decoder_alone():
    stop = Stop(TREE, 0.3)
    p = probabilities(30)
    targets = TREE.encode([["h"]] * 30)
    other = stop.calibrate(p, targets, 0.1)
    assert stop.threshold == 0.3
    assert other.threshold == risk_threshold(p, targets, TREE, 0.1)


def test_rows_that_are_never_wrong_need_no_threshold():
    p = probabilities(30)
    targets = TREE.encode(TopDown(TREE)(p).tolist(), numbers=True)
    assert risk_threshold(p, targets, TREE, 0.1) == 0
    assert Stop(TREE).calibrate(p, torch.ones_like(targets), 0.1).threshold == 0


def test_rows_that_are_always_wrong_stop_at_the_root():
    p = probabilities(30)
    nothing = torch.zeros(30, 8, dtype=torch.bool)
    assert (Stop(TREE).calibrate(p, nothing, 1 / 31)(p) == -1).all()


def test_ranks_by_exact_division():
    """0.29 * 100 rounds to less than 29, and 1 / 0.07 to more than its value."""
    for alpha, count, rank in (
        (0.29, 99, 29),
        (0.1, 9, 1),
        (0.1, 18, 1),
        (0.1, 19, 2),
        (0.07, 99, 7),
        (0.57, 99, 57),
        (0.999, 999, 999),
        (1e-3, 999, 1),
    ):
        assert calibration.rank_of(alpha, count) == rank
    for count in range(1, 200):
        assert calibration.rank_of(1 / (count + 1), count) == 1
        assert calibration.rank_of(count / (count + 1), count) == count


@pytest.mark.parametrize("chunk", [1, 2**22])
def test_calibration_sets_that_do_not_fit(chunk, monkeypatch):
    monkeypatch.setattr(structure, "CHUNK", chunk)
    p, targets = probabilities(8), TREE.encode([["h"]] * 8)
    stop = Stop(TREE)
    open_ = targets.clone()
    open_[5, TREE.index("a/b")] = True
    for arguments, message in (
        ((p, targets, 0.1), "a risk of 0.1 needs at least 9 calibration rows, but there are 8"),
        (
            (p[:0], targets[:0], 0.5),
            "a risk of 0.5 needs at least 1 calibration rows, but there are 0",
        ),
        ((p, targets, 0.0), "risk must lie between 0 and 1, not 0.0"),
        ((p, targets, 1.0), "risk must lie between 0 and 1, not 1.0"),
        ((p, targets, float("nan")), "risk must lie between 0 and 1, not nan"),
        ((p, targets[:7], 0.5), "targets (7, 8) must match probabilities (8, 8)"),
        ((p, targets.float(), 0.5), "targets must be bool, not torch.float32"),
        (
            (p, open_, 0.5),
            "row 5: targets are not closed: 'a/b' is positive but its parent 'a' is not; make",
        ),
        ((p[:, :2], targets, 0.5), "probabilities (8, 2) must be (N, 8)"),
        ((p + 1, targets, 0.5), "row 0: the probability of 'a' is 1."),
    ):
        with pytest.raises(HierlearnError, match=re.escape(message)):
            stop.calibrate(*arguments)
    assert stop.calibrate(p, targets, 1 / 9).threshold > 0
    for threshold in (-0.1, 1.01):
        with pytest.raises(HierlearnError, match=re.escape(f"in [0, 1], not {threshold}")):
            Stop(TREE, threshold)
