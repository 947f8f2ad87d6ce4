"""The reference curriculum: worked examples, brute force, and the bounds of the paper."""

import itertools
import math
import random

import pytest

from reference import curriculum, links
from reference.hcl import hcl
from reference.loss_examples import random_hierarchy, random_logits, random_targets
from tolerances import FLOAT64, PRINTED_3_DIGITS, PRINTED_4_DIGITS


def test_selection_by_hand():
    # C = 3, e_h = 1, thresh 4. Losses 5 1 2, sorted 1 2 5: 1 <= 4, 1+2 = 3 <= 3, 8 > 2.
    assert curriculum.select([5.0, 1.0, 2.0], 4.0) == [False, True, True]
    # F = max(1 + 2, 3 - 2 + 1) = 3; none: max(0, 4) = 4; the first: 3; all: max(8, 1) = 8
    assert curriculum.objective([0, 1, 1], [5.0, 1.0, 2.0], 1.0) == 3.0
    assert curriculum.brute_force([5.0, 1.0, 2.0], 1.0) == 3.0
    # as printed, in class order: 5 > 4 at once, nothing is selected, F = 4
    assert curriculum.select_as_printed([5.0, 1.0, 2.0], 4.0) == [False, False, False]
    # ties go by class order: 2 <= 2 takes the first of the two, 4 > 1 stops
    assert curriculum.select([2.0, 2.0], 2.0) == [True, False]
    assert curriculum.select([0.0, math.inf], 2.0) == [True, False]


def random_problems(count, seed, size=6):
    """Class losses and e_h; half of them in quarters, so that ties and equalities occur."""
    rng = random.Random(seed)
    for n in range(count):
        C = rng.randint(1, size)
        if n % 2:
            yield [rng.randint(0, 12) / 4 for _ in range(C)], float(rng.randint(0, 3))
        else:
            yield [rng.expovariate(0.5) for _ in range(C)], float(rng.randint(0, 2 * C))


def test_algorithm_1_is_optimal_when_sorted_and_only_then():
    unsorted_wrong = thresh_c_wrong = 0
    for losses, errors in random_problems(4000, seed=5):
        C = len(losses)

        def value(selected, losses=losses, errors=errors):
            return curriculum.objective(curriculum.weights(selected), losses, errors)

        best = curriculum.brute_force(losses, errors)
        assert value(curriculum.select(losses, C + errors)) == FLOAT64.approx(best)
        unsorted_wrong += value(curriculum.select_as_printed(losses, C + errors)) > best + 1e-9
        thresh_c_wrong += value(curriculum.select(losses, float(C))) > best + 1e-9
    assert unsorted_wrong > 100
    assert thresh_c_wrong > 100


def test_exact_selection_with_a_floor():
    rng = random.Random(6)
    kept_wrong = below_paper = above_paper = 0
    for losses, errors in random_problems(2000, seed=7, size=5):
        floor = rng.choice([0.0, 0.1, 0.25, 0.5, 0.9])
        C = len(losses)
        best = curriculum.brute_force(losses, errors, floor)
        exact = curriculum.select_exact(losses, errors, floor)
        kept = curriculum.select(losses, C + errors)
        value = curriculum.objective(curriculum.weights(exact, floor), losses, errors)
        assert value == FLOAT64.approx(best)
        at_kept = curriculum.objective(curriculum.weights(kept, floor), losses, errors)
        assert at_kept >= best - 1e-9
        if errors <= sum(losses):  # what a base of at least the 0-1 loss grants
            assert sum(exact) <= sum(kept)
        paper = curriculum.brute_force(losses, errors)
        kept_wrong += at_kept > best + 1e-9
        below_paper += at_kept < paper - 1e-9
        above_paper += best > paper + 1e-9
    # none of these three is a theorem
    assert min(kept_wrong, below_paper, above_paper) > 0


@pytest.mark.parametrize("scope", ["levels", "ancestors", None])
@pytest.mark.parametrize("normalize", ["sum", "mean"])
def test_bounds_with_a_floor(scope, normalize):
    """e <= e_h <= min over {f, 1}^C <= F(w) <= f l_h + (1 - f) l_hc <= l_h for bce in base 2."""
    rng = random.Random(8)
    tol = 1e-9
    for _ in range(120):
        parents = random_hierarchy(rng, rng.randint(1, 6), most_parents=2)
        N = rng.randint(1, 4)
        targets = random_targets(rng, parents, N)
        logits = random_logits(rng, parents, N, scale=rng.choice([0.3, 2.0, 5.0]))
        mask = [[rng.random() < 0.9 for _ in parents] for _ in range(N)]
        link = rng.choice(sorted(links.LINKS))
        floor = rng.choice([0.0, 0.1, 0.3, 0.7, 0.99])
        common = {"link": link, "log_base": 2, "normalize": normalize, "mask": mask}
        e = hcl(logits, targets, parents, scope=None, **common)["e_h"]
        paper = hcl(logits, targets, parents, scope=scope, **common)
        ours = hcl(logits, targets, parents, scope=scope, floor=floor, **common)
        if ours["l_h"] == math.inf:  # a softmax mass of exactly 1 against a target 0
            continue
        best = curriculum.brute_force(ours["class_losses"], ours["e_h"], floor)
        mixed = floor * ours["l_h"] + (1 - floor) * paper["l_hc"]
        chain = [e, ours["e_h"], best, ours["l_hc"], mixed, ours["l_h"]]
        assert all(a <= b + tol for a, b in itertools.pairwise(chain)), chain


def test_the_training_loss_alone_is_no_upper_bound_of_the_error():
    # one wrong class with loss log2(1 + e^5) = 7.22 > thresh 2: dropped, loss 0 < e = 1 <= l_hc = 2
    out = hcl([[-5.0]], [[1]], [[]], log_base=2, reduction="sum")
    assert (out["loss"], out["e_h"], out["l_hc"]) == (0.0, 1.0, 2.0)


def test_the_natural_logarithm_breaks_the_upper_bound():
    # C = N = 1, y = 1, logit -0.2: e = 1, l_h = ln(1 + e^0.2) = 0.798; s = 1: max(.798, 1) = 1
    out = hcl([[-0.2]], [[1]], [[]])
    assert out["e_h"] == 1.0
    assert out["l_h"] == PRINTED_3_DIGITS.approx(0.798)
    assert out["l_hc"] == 1.0 > out["l_h"]
    out = hcl([[-0.2]], [[1]], [[]], log_base=2)  # 0.79814 / 0.69315 = 1.1515
    assert out["l_hc"] == out["l_h"] == PRINTED_4_DIGITS.approx(1.1515)
