"""The oracles themselves: examples worked by hand, brute force, known limits."""

import itertools
import math
import random

import pytest

from reference import curriculum, links, sample_curriculum
from reference.bases import zero_one
from reference.bce import bce
from reference.cond_softmax import cond_softmax
from reference.constraint import binding_classes, constrain, constrain_gradient, smallest_majorant
from reference.focal import focal
from reference.hcl import hcl
from reference.hxe import hxe
from reference.lca_cost import lca_cost
from reference.leaf_ce import leaf_ce
from reference.level_weighted import level_weighted
from reference.mcloss import mcloss
from reference.soft_labels import distance, soft_label, soft_labels
from reference.taxonomy import (
    ancestors_or_self,
    children,
    descendants_or_self,
    heights,
    lca_height,
    leaves,
    levels,
    root_height,
    terminal_labels,
)
from tolerances import FLOAT64, FORWARD_DIFFERENCES, PRINTED_3_DIGITS, PRINTED_4_DIGITS

# The tree of most examples, deliberately not in level order:
#     1 animal          5 plant
#       4 dog   2 cat     (a leaf)
#         0 pug   3 bulldog
TREE = [[4], [], [1], [4], [1], []]
# A DAG: 3 has the parents 1 and 2, of levels 1 and 2; 4 hangs directly under 0 and under 3.
DAG = [[], [], [0], [1, 2], [0, 3]]
FLAT = [[], [], []]
LN2 = math.log(2)


def log(x):
    return math.log(x)


def random_hierarchy(rng, size, most_parents=1):
    """Draw a hierarchy in a random class order; up to ``most_parents`` parents per class."""
    order = list(range(size))
    rng.shuffle(order)
    parents = [[] for _ in range(size)]
    for position in range(1, size):
        count = min(position, rng.randint(0, most_parents))
        parents[order[position]] = rng.sample(order[:position], count)
    return parents


def random_targets(rng, parents, rows, most=3):
    out = []
    for _ in range(rows):
        positive = set()
        for c in rng.sample(range(len(parents)), min(len(parents), rng.randint(0, most))):
            positive |= set(ancestors_or_self(parents, c))
        out.append([int(c in positive) for c in range(len(parents))])
    return out


def random_logits(rng, parents, rows, scale=2.0):
    return [[rng.gauss(0, scale) for _ in parents] for _ in range(rows)]


def one_hot(parents, c):
    closed = ancestors_or_self(parents, c)
    return [int(k in closed) for k in range(len(parents))]


# taxonomy ----------------------------------------------------------------------------------------


def test_taxonomy_of_a_tree():
    assert children(TREE) == [[], [2, 4], [], [], [0, 3], []]
    assert levels(TREE) == [3, 1, 2, 3, 2, 1]
    assert heights(TREE) == [0, 2, 0, 0, 1, 0]
    assert root_height(TREE) == 3
    assert leaves(TREE) == [0, 2, 3, 5]
    assert ancestors_or_self(TREE, 0) == [0, 1, 4]
    assert descendants_or_self(TREE, 1) == [0, 1, 2, 3, 4]
    assert lca_height(TREE, 0, 3) == 1  # dog
    assert lca_height(TREE, 0, 2) == 2  # animal
    assert lca_height(TREE, 0, 5) == 3  # only the root
    assert lca_height(TREE, 0, 4) == 1  # dog is its own ancestor
    assert terminal_labels([1, 1, 1, 0, 1, 0], TREE) == [0, 2]


def test_taxonomy_of_a_dag():
    assert levels(DAG) == [1, 1, 2, 3, 4]
    assert heights(DAG) == [3, 2, 2, 1, 0]
    assert root_height(DAG) == 4
    assert ancestors_or_self(DAG, 4) == [0, 1, 2, 3, 4]
    assert descendants_or_self(DAG, 1) == [1, 3, 4]
    # 2 and 1 share no class above them; 3 and 2 share 2 (height 2) and 0 (height 3)
    assert lca_height(DAG, 1, 2) == 4
    assert lca_height(DAG, 3, 2) == 2
    # the smallest height, not the largest level: two siblings under a high and a low parent
    two_ways = [[], [], [0, 1], [0, 1], [0], [4]]
    assert heights(two_ways) == [2, 1, 0, 0, 1, 0]
    assert lca_height(two_ways, 2, 3) == 1
    assert lca_height([[], [], [0, 1], [0, 1], [1], [4]], 2, 3) == 1  # in either order


# links -------------------------------------------------------------------------------------------


def test_links_by_hand():
    x = [log(1), log(3), log(2), log(4), log(1), log(5)]  # sigmoid(log a) = a / (1 + a)
    (p,), (q,) = links.probabilities([x], TREE, "sigmoid")
    assert p == FLOAT64.approx([1 / 2, 3 / 4, 2 / 3, 4 / 5, 1 / 2, 5 / 6])
    assert q == FLOAT64.approx([1 / 2, 1 / 4, 1 / 3, 1 / 5, 1 / 2, 1 / 6])
    # softmax over the leaves pug 1, cat 2, bulldog 4, plant 5: total 12; dog 1+4, animal 1+2+4
    (p,), (q,) = links.probabilities([x], TREE, "softmax")
    assert p == FLOAT64.approx([1 / 12, 7 / 12, 2 / 12, 4 / 12, 5 / 12, 5 / 12])
    assert q == FLOAT64.approx([11 / 12, 5 / 12, 10 / 12, 8 / 12, 7 / 12, 7 / 12])
    # with dog (weight 1) a terminal of its own: total 13, dog 1+4+1, animal 1+2+4+1
    (p,), _ = links.probabilities([x], TREE, "softmax", terminals=[0, 2, 3, 4, 5])
    assert p == FLOAT64.approx([1 / 13, 8 / 13, 2 / 13, 4 / 13, 6 / 13, 5 / 13])
    # animal 3/4; dog 3/4 * 1/2; pug 3/8 * 1/2; bulldog 3/8 * 4/5; cat 3/4 * 2/3
    (p,), (q,) = links.probabilities([x], TREE, "conditional")
    assert p == FLOAT64.approx([3 / 16, 3 / 4, 1 / 2, 3 / 10, 3 / 8, 5 / 6])
    assert q == FLOAT64.approx([13 / 16, 1 / 4, 1 / 2, 7 / 10, 5 / 8, 1 / 6])
    # dog takes the bulldog's 4/5, and so does animal
    (p,), (q,) = links.probabilities([x], TREE, "max")
    assert p == FLOAT64.approx([1 / 2, 4 / 5, 2 / 3, 4 / 5, 4 / 5, 5 / 6])
    assert q == FLOAT64.approx([1 / 2, 1 / 5, 1 / 3, 1 / 5, 1 / 5, 1 / 6])


def test_a_shared_descendant_counts_once():
    # DAG: the only leaf is 4, so with terminals 3 and 4 both top classes hold 3 and 4, once each
    (p,), (q,) = links.probabilities([[0.0] * 4 + [log(3)]], DAG, "softmax", terminals=[2, 3, 4])
    assert p == FLOAT64.approx([5 / 5, 4 / 5, 5 / 5, 4 / 5, 3 / 5])
    assert q == FLOAT64.approx([0, 1 / 5, 0, 1 / 5, 2 / 5])
    # 4 has the five ancestors-or-self 0 1 2 3 4, though 0 is reached over two ways: (1/2)^5
    (p,), _ = links.probabilities([[0.0] * 5], DAG, "conditional")
    assert p == FLOAT64.approx([1 / 2, 1 / 2, 1 / 4, 1 / 16, 1 / 32])


@pytest.mark.parametrize("link", sorted(links.LINKS))
def test_logs_and_complements_agree(link):
    rng = random.Random(0)
    for _ in range(40):
        parents = random_hierarchy(rng, rng.randint(1, 8), most_parents=2)
        logits = random_logits(rng, parents, 2)
        p, q = links.probabilities(logits, parents, link)
        log_p, log_q = links.log_probabilities(logits, parents, link)
        for i, j in itertools.product(range(2), range(len(parents))):
            assert p[i][j] + q[i][j] == FLOAT64.approx(1.0)
            assert math.exp(log_p[i][j]) == FLOAT64.approx(p[i][j])
            assert math.exp(log_q[i][j]) == FLOAT64.approx(q[i][j])


@pytest.mark.parametrize("link", ["softmax", "conditional", "max"])
def test_coherent_links(link):
    rng = random.Random(1)
    for _ in range(40):
        parents = random_hierarchy(rng, 7, most_parents=2)
        p, _ = links.probabilities(random_logits(rng, parents, 1), parents, link)
        for c in range(7):
            for a in parents[c]:
                assert p[0][c] <= p[0][a] * (1 + 1e-12)


def test_extreme_logits():
    # a chain of three with logit 40: 1 - p = 3 exp(-40) to first order, far below 1e-16
    chain = [[], [0], [1]]
    _, ((*_, log_q),) = links.log_probabilities([[40.0] * 3], chain, "conditional")
    assert log_q == FLOAT64.approx(log(3) - 40)
    # pug ahead of every other leaf by 20000: 1 - p(pug) = 2 exp(-20000) + exp(-30000)
    x = [1e4, 0.0, -1e4, -1e4, 0.0, -2e4]
    (log_p,), (log_q,) = links.log_probabilities([x], TREE, "softmax")
    assert log_p[0] == 0.0
    assert log_q[0] == FLOAT64.approx(LN2 - 2e4)
    assert log_p[5] == FLOAT64.approx(-3e4)
    assert log_q[1] == FLOAT64.approx(-3e4)  # all but the plant: its complement is the plant
    for link in links.LINKS:
        for sign in (1e4, -1e4):
            both = links.log_probabilities([[sign] * 6], TREE, link)
            assert all(math.isfinite(v) and v <= 0 for part in both for v in part[0])


# bases -------------------------------------------------------------------------------------------


def test_bases_by_hand():
    log_p, log_q = log(1 / 4), log(3 / 4)
    assert bce(log_p, log_q, 1) == FLOAT64.approx(2 * LN2)
    assert bce(log_p, log_q, 1, log_base=2) == FLOAT64.approx(2.0)
    assert bce(log_p, log_q, 0) == FLOAT64.approx(-log(3 / 4))
    # y = 1: alpha (1 - p)^2 (-ln p) = 1/4 * 9/16 * 2 ln 2;  y = 0: 3/4 * 1/16 * -ln 3/4
    assert focal(log_p, log_q, 1, alpha=0.25, gamma=2.0) == FLOAT64.approx(9 / 64 * 2 * LN2)
    assert focal(log_p, log_q, 0, alpha=0.25, gamma=2.0) == FLOAT64.approx(-3 / 64 * log(3 / 4))
    assert focal(log_p, log_q, 1, alpha=None, gamma=2.0) == FLOAT64.approx(9 / 16 * 2 * LN2)
    for y in (0, 1):  # gamma 0 without alpha is bce
        assert focal(log_p, log_q, y, None, 0.0, 2) == bce(log_p, log_q, y, 2)
    assert [zero_one(log_p, log_q, y) for y in (0, 1)] == [0.0, 1.0]
    assert [zero_one(log_q, log_p, y) for y in (0, 1)] == [1.0, 0.0]
    assert [zero_one(-LN2, -LN2, y) for y in (0, 1)] == [1.0, 1.0]  # p = 1/2: never right
    assert bce(0.0, -math.inf, 1) == 0.0
    assert focal(0.0, -math.inf, 1, 0.25, 2.0) == 0.0
    assert bce(0.0, -math.inf, 0) == math.inf


def test_base_two_bounds_zero_one_and_the_natural_logarithm_does_not():
    rng = random.Random(2)
    broken = 0
    for _ in range(1000):
        x = rng.gauss(0, 2)
        log_p, log_q, y = links.log_sigmoid(x), links.log_sigmoid(-x), rng.randint(0, 1)
        error = zero_one(log_p, log_q, y)
        assert bce(log_p, log_q, y, 2) >= error
        broken += bce(log_p, log_q, y) < error
    assert broken > 0


# constraint --------------------------------------------------------------------------------------


def test_constraint_by_hand():
    # levels:       3    1    2    3    2    1
    losses = [[0.5, 1.0, 4.0, 2.0, 0.0, 3.0]]
    # level 1 keeps its own: 1, 3. Level 2: max(own, 1, 3). Level 3: max(own, 1, 3, 4, 0) = 4.
    assert constrain(losses, TREE, "levels") == [[4.0, 1.0, 4.0, 4.0, 3.0, 3.0]]
    # ancestors: pug max(.5, dog 0, animal 1) = 1, cat 4, bulldog max(2, 0, 1) = 2, dog 1, plant 3
    assert constrain(losses, TREE, "ancestors") == [[1.0, 1.0, 4.0, 2.0, 1.0, 3.0]]
    assert constrain(losses, TREE, None) == losses
    # cat and plant unknown: they bind nobody and are 0
    mask = [[True, True, False, True, True, False]]
    assert constrain(losses, TREE, "levels", mask) == [[1.0, 1.0, 0.0, 2.0, 1.0, 0.0]]
    assert constrain(losses, TREE, None, mask) == [[0.5, 1.0, 0.0, 2.0, 0.0, 0.0]]


def test_gradient_by_hand():
    losses = [[0.5, 1.0, 4.0, 2.0, 0.0, 3.0]]
    upstream = [[1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0]]
    # winners under levels: pug -> cat, animal own, cat own, bulldog -> cat, dog -> plant, plant own
    expected = [[0.0, 10.0, 1101.0, 0.0, 0.0, 110000.0]]
    assert constrain_gradient(losses, TREE, "levels", upstream) == expected
    # ties: the own entry wins; where own is lower, the first of the tied in class order wins
    ties = [[1.0, 2.0, 2.0, 2.0, 1.0, 2.0]]  # pug -> animal (1 before 2 and 5), dog -> animal
    expected = [[0.0, 10011.0, 100.0, 1000.0, 0.0, 100000.0]]
    assert constrain_gradient(ties, TREE, "levels", upstream) == expected
    mask = [[True, False, True, True, True, False]]  # pug -> cat, dog own: no one above is known
    expected = [[0.0, 0.0, 101.0, 1000.0, 10000.0, 0.0]]
    assert constrain_gradient(ties, TREE, "levels", upstream, mask) == expected


@pytest.mark.parametrize("scope", ["levels", "ancestors", None])
def test_constraint_is_the_smallest_majorant(scope):
    rng = random.Random(3)
    for _ in range(100):
        parents = random_hierarchy(rng, rng.randint(1, 8), most_parents=2)
        losses = [[float(rng.randint(0, 5)) for _ in parents] for _ in range(2)]
        constrained = constrain(losses, parents, scope)
        assert constrained == smallest_majorant(losses, parents, scope)
        assert constrained == constrain(constrained, parents, scope)  # idempotent
        for j, above in enumerate(binding_classes(parents, scope)):  # Lambda
            assert all(row[j] >= row[k] for row in constrained for k in above)


@pytest.mark.parametrize("scope", ["levels", "ancestors", None])
def test_gradient_is_the_derivative(scope):
    rng = random.Random(4)
    for _ in range(20):
        parents = random_hierarchy(rng, 6, most_parents=2)
        losses = [[rng.random() for _ in parents]]
        upstream = [[rng.gauss(0, 1) for _ in parents]]
        mask = [[rng.random() < 0.8 for _ in parents]]
        gradient = constrain_gradient(losses, parents, scope, upstream, mask)

        def total(at, parents=parents, mask=mask, upstream=upstream):
            constrained = constrain(at, parents, scope, mask)
            return sum(u * v for u, v in zip(upstream[0], constrained[0], strict=True))

        for j in range(6):
            moved = [list(losses[0])]
            moved[0][j] += 1e-7
            slope = (total(moved) - total(losses)) / 1e-7
            assert slope == FORWARD_DIFFERENCES.approx(gradient[0][j])


# curriculum --------------------------------------------------------------------------------------


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


# hcl ---------------------------------------------------------------------------------------------


def test_hcl_by_hand():
    # a chain 0 > 1, and 2 beside 0. Base 2. sigmoid(log a) = a / (1 + a).
    parents = [[], [0], []]
    logits = [[log(1), log(3), log(7)], [log(3), -log(3), -log(3)]]
    targets = [[1, 1, 0], [1, 0, 0]]
    # row 1: p = 1/2 3/4 7/8 -> -log2: 1, log2 4/3, log2 8 = 3; errors 1 (p = 1/2), 0, 1
    # row 2: p = 3/4 1/4 1/4 -> log2 4/3 thrice; no error
    a = math.log2(4 / 3)  # 0.415
    # levels: class 1 takes the maximum of all: row 1: 3, row 2: a; its error in row 1 is then 1
    out = hcl(logits, targets, parents, log_base=2, reduction="none")
    assert out["class_losses"] == FLOAT64.approx([1 + a, 3 + a, 3 + a])
    assert out["e_h"] == 3.0
    # thresh 3 + 3 = 6; sorted 1.415, 3.415, 3.415: 1.415 <= 6; 4.83 <= 5; 8.245 > 4: drop class 2
    assert out["selected"] == [True, True, False]
    assert out["loss"] == [FLOAT64.approx([1.0, 3.0, 0.0]), FLOAT64.approx([a, a, 0.0])]
    assert out["l_h"] == FLOAT64.approx(7 + 3 * a)
    assert out["l_hc"] == FLOAT64.approx(4 + 2 * a)  # max(4.83, 3 - 2 + 3 = 4)
    out = hcl(logits, targets, parents, log_base=2, floor=0.5, reduction="sum")
    assert out["loss"] == FLOAT64.approx(4 + 2 * a + 0.5 * (3 + a))
    assert out["l_hc"] == FLOAT64.approx(max(4 + 2 * a + 0.5 * (3 + a), 3 - 2.5 + 3))
    # ancestors: class 1 sees class 0 only: row 1: max(a, 1) = 1, its error 1
    out = hcl(logits, targets, parents, log_base=2, scope="ancestors")
    assert out["class_losses"] == FLOAT64.approx([1 + a, 1 + a, 3 + a])
    # thresh 6: 1.415 <= 6, 2.83 <= 5, 6.245 > 4
    assert out["loss"] == FLOAT64.approx((2 + 2 * a) / 6)
    # HCL-CL: class 1 has a + a = .83, e = 2, thresh 5: .83, 2.245 <= 4, 5.66 > 3
    out = hcl(logits, targets, parents, log_base=2, scope=None, reduction="sum")
    assert out["e_h"] == 2.0
    assert out["loss"] == FLOAT64.approx(1 + 3 * a)
    # HCL-Hier: nothing is dropped
    out = hcl(logits, targets, parents, log_base=2, curriculum=None, reduction="sum")
    assert out["loss"] == FLOAT64.approx(7 + 3 * a)
    # means: losses .7075, 1.7075, 1.7075, e_h 1.5, thresh 4.5: .71 <= 4.5, 2.4 <= 3.5, 4.12 > 2.5
    out = hcl(logits, targets, parents, log_base=2, normalize="mean", reduction="sum")
    assert out["selected"] == [True, True, False]
    assert (out["e_h"], out["l_h"]) == FLOAT64.approx((1.5, (7 + 3 * a) / 2))
    assert out["l_hc"] == FLOAT64.approx(max((4 + 2 * a) / 2, 3 - 2 + 1.5))
    assert out["loss"] == FLOAT64.approx(4 + 2 * a)
    # a threshold of 1: 1.415 > 1, nothing is selected; one of 100: everything
    assert hcl(logits, targets, parents, log_base=2, threshold=1.0)["selected"] == [False] * 3
    assert hcl(logits, targets, parents, log_base=2, threshold=100.0)["selected"] == [True] * 3


def test_hcl_mask():
    # class 2 of row 1 unknown: it neither binds class 1 (now max(a, 1) = 1) nor counts
    parents = [[], [0], []]
    logits = [[log(1), log(3), log(7)], [log(3), -log(3), -log(3)]]
    targets = [[1, 1, 0], [1, 0, 0]]
    mask = [[True, True, False], [True, True, True]]
    a = math.log2(4 / 3)
    out = hcl(logits, targets, parents, log_base=2, mask=mask)
    assert out["class_losses"] == FLOAT64.approx([1 + a, 1 + a, a])
    assert out["e_h"] == 2.0
    # thresh 5; sorted a = .415 <= 5, 1.83 <= 4, 3.245 > 3
    assert out["selected"] == [True, False, True]
    assert out["loss"] == FLOAT64.approx((1 + 2 * a) / 5)  # five known entries
    nothing = [[False] * 3] * 2
    assert hcl(logits, targets, parents, mask=nothing)["loss"] == 0.0
    assert hcl([], [], parents)["loss"] == 0.0


# the other losses --------------------------------------------------------------------------------

X = [log(1), 9.0, log(2), log(4), -9.0, log(5)]  # leaves pug 1, cat 2, bulldog 4, plant 5: of 12


def test_hxe_by_hand():
    # pug: P(animal) = 7/12, P(dog | animal) = 5/7, P(pug | dog) = 1/5; heights 2, 1, 0
    path = -math.exp(-0.2) * log(7 / 12) - math.exp(-0.1) * log(5 / 7) - log(1 / 5)
    plant = -log(5 / 12)
    dog = -math.exp(-0.2) * log(7 / 12) - math.exp(-0.1) * log(5 / 7)
    both = [1, 1, 0, 0, 1, 1]
    targets = [one_hot(TREE, 0), one_hot(TREE, 5), one_hot(TREE, 4), both, [0] * 6]
    out = hxe([X] * 5, targets, TREE, alpha=0.1)
    assert out == FLOAT64.approx([path, plant, dog, (path + plant) / 2, 0.0])


def test_soft_labels_by_hand():
    # from pug: pug 0, cat 2/3, bulldog 1/3, plant 3/3
    terminals = leaves(TREE)
    assert [distance(TREE, a, 0) for a in terminals] == FLOAT64.approx([0, 2 / 3, 1 / 3, 1])
    # beta = 3 ln 2: weights 1, 1/4, 1/2, 1/8, sum 15/8: q = 8/15, 2/15, 4/15, 1/15
    beta = 3 * LN2
    assert soft_label(TREE, 0, beta, terminals) == FLOAT64.approx([8 / 15, 2 / 15, 4 / 15, 1 / 15])
    log_p = [log(1 / 12), log(2 / 12), log(4 / 12), log(5 / 12)]
    pug = -(8 * log_p[0] + 2 * log_p[1] + 4 * log_p[2] + log_p[3]) / 15
    # dog is no terminal: the mean of pug's q and bulldog's (4, 2, 8, 1) / 15
    dog = -(6 * log_p[0] + 2 * log_p[1] + 6 * log_p[2] + log_p[3]) / 15
    # plant: 1/8 thrice and 1, sum 11/8: q = 1/11 thrice, 8/11; with pug: the mean of both losses
    plant = -(log_p[0] + log_p[1] + log_p[2] + 8 * log_p[3]) / 11
    targets = [one_hot(TREE, 0), one_hot(TREE, 4), [1, 1, 0, 0, 1, 1], [0] * 6]
    out = soft_labels([X] * 4, targets, TREE, beta)
    assert out == FLOAT64.approx([pug, dog, (pug + plant) / 2, 0.0])
    # dog as a terminal: d(dog, dog) = 0, though dog is 1 high; d(dog, pug) = 1/3
    q = soft_label(TREE, 4, beta, [0, 2, 3, 4, 5])  # 1/2, 1/4, 1/2, 1, 1/8: sum 19/8
    assert q == FLOAT64.approx([4 / 19, 2 / 19, 4 / 19, 8 / 19, 1 / 19])


def test_leaf_ce_by_hand():
    targets = [one_hot(TREE, 0), one_hot(TREE, 4), [1, 1, 0, 0, 1, 1], [0] * 6]
    expected = [-log(1 / 12), -log(5 / 12), -(log(1 / 12) + log(5 / 12)) / 2, 0.0]
    assert leaf_ce([X] * 4, targets, TREE) == FLOAT64.approx(expected)
    # dog as a terminal of weight 3: total 15, and the label dog is its own mass only
    x = [log(1), 9.0, log(2), log(4), log(3), log(5)]
    assert leaf_ce([x], [one_hot(TREE, 4)], TREE, [0, 2, 3, 4, 5]) == FLOAT64.approx([-log(3 / 15)])


def test_mcloss_by_hand():
    x = [log(1), log(3), log(2), log(4), log(1), log(5)]  # h = 1/2 3/4 2/3 4/5 1/2 5/6
    # positives pug, dog, animal. pug: -ln 1/2. animal: max of positives pug 1/2, dog 1/2,
    # animal 3/4. dog: 1/2. Negatives cat 1 - 2/3, bulldog 1 - 4/5, plant 1 - 5/6.
    out = mcloss([x], [one_hot(TREE, 0)], TREE)
    assert out == [FLOAT64.approx([LN2, log(4 / 3), log(3), log(5), LN2, log(6)])]
    # all negative: dog and animal take the bulldog's 4/5
    out = mcloss([x], [[0] * 6], TREE)
    assert out == [FLOAT64.approx([LN2, log(5), log(3), log(5), log(5), log(6)])]
    # bulldog unknown: dog falls to max(1/2, 1/2), animal to 3/4
    out = mcloss([x], [[0] * 6], TREE, [[True, True, True, False, True, True]])
    assert out == [FLOAT64.approx([LN2, log(4), log(3), 0.0, LN2, log(6)])]


def test_cond_softmax_by_hand():
    # groups: animal 3, plant 5 | cat 2, dog 1 | pug 1, bulldog 4
    x = [log(1), log(3), log(2), log(4), log(1), log(5)]
    pug = -log(3 / 8) - log(1 / 3) - log(1 / 5)
    dog = -log(3 / 8) - log(1 / 3)
    # pug, cat and plant: both of the top group, both of the middle group, pug of the last
    many = -(log(3 / 8) + log(5 / 8)) / 2 - (log(1 / 3) + log(2 / 3)) / 2 - log(1 / 5)
    targets = [one_hot(TREE, 0), one_hot(TREE, 4), [1, 1, 1, 0, 1, 1], [0] * 6]
    assert cond_softmax([x] * 4, targets, TREE) == FLOAT64.approx([pug, dog, many, 0.0])


def test_level_weighted_by_hand():
    x = [log(1), log(3), log(2), log(4), log(1), log(5)]
    out = level_weighted([x], [one_hot(TREE, 0)], TREE, [1.0, 10.0, 100.0])
    expected = [100 * LN2, log(4 / 3), 10 * log(3), 100 * log(5), 10 * LN2, log(6)]
    assert out == [FLOAT64.approx(expected)]
    mask = [[False, True, True, True, True, True]]
    out = level_weighted([x], [one_hot(TREE, 0)], TREE, [1.0, 10.0, 100.0], mask)
    assert out == [FLOAT64.approx([0.0, *expected[1:]])]


def test_lca_cost_by_hand():
    # pug: cat 2/12 * 2/3 + bulldog 4/12 * 1/3 + plant 5/12 * 1 = (4 + 4 + 15) / 36
    # plant: 7/12 * 1. dog, no terminal: pug and bulldog 5/12 * 1/3, cat 2/12 * 2/3, plant 5/12
    targets = [one_hot(TREE, 0), [1, 1, 0, 0, 1, 1], one_hot(TREE, 4), [0] * 6]
    expected = [23 / 36, (23 / 36 + 7 / 12) / 2, (5 + 4 + 15) / 36, 0.0]
    assert lca_cost([X] * 4, targets, TREE) == FLOAT64.approx(expected)
    # dog as a terminal of weight 3, total 15: d(dog, dog) = 0
    x = [log(1), 9.0, log(2), log(4), log(3), log(5)]
    out = lca_cost([x], [one_hot(TREE, 4)], TREE, [0, 2, 3, 4, 5])
    assert out == FLOAT64.approx([(5 + 4 + 15) / 45])


def test_sample_curriculum_by_hand():
    # base 2; rows 1 + 3 = 4 (p = 1/2 and 1/8, errors 2) and log2 4/3 twice = .83 (no error)
    logits = [[0.0, -log(7)], [log(3), -log(3)]]
    targets = [[1, 1], [1, 0]]
    out = sample_curriculum.sample_curriculum(logits, targets, log_base=2)
    a = math.log2(4 / 3)
    assert out["row_losses"] == FLOAT64.approx([4.0, 2 * a])
    assert out["e"] == 2.0
    # thresh 2 + 2 = 4: .83 <= 4, 4.83 > 3: the hard row is dropped; max(.83, 2 - 1 + 2) = 3
    assert out["selected"] == [False, True]
    assert (out["loss"], out["value"]) == FLOAT64.approx((2 * a, 3.0))


def test_sample_curriculum_against_brute_force():
    rng = random.Random(9)
    for _ in range(60):
        N = rng.randint(1, 8)
        logits = random_logits(rng, FLAT, N)
        targets = [[rng.randint(0, 1) for _ in FLAT] for _ in range(N)]
        mask = [[rng.random() < 0.8 for _ in FLAT] for _ in range(N)]
        out = sample_curriculum.sample_curriculum(logits, targets, 2, mask)
        assert out["value"] == FLOAT64.approx(
            sample_curriculum.brute_force(logits, targets, 2, mask)
        )
        assert out["e"] - 1e-9 <= out["value"] <= sum(out["row_losses"]) + 1e-9


# limits ------------------------------------------------------------------------------------------


def tree_cases(seed, count=40):
    rng = random.Random(seed)
    for _ in range(count):
        parents = random_hierarchy(rng, rng.randint(2, 8))
        yield parents, random_logits(rng, parents, 3), random_targets(rng, parents, 3)


def test_hxe_without_discount_is_leaf_cross_entropy():
    for parents, logits, targets in tree_cases(10):
        assert hxe(logits, targets, parents, 0.0) == FLOAT64.approx(
            leaf_ce(logits, targets, parents)
        )


def test_soft_labels_with_a_huge_beta_are_leaf_cross_entropy():
    for parents, logits, _ in tree_cases(11):
        targets = [one_hot(parents, leaves(parents)[0])] * 3
        out = soft_labels(logits, targets, parents, 1e4)
        assert out == FLOAT64.approx(leaf_ce(logits, targets, parents))


def test_soft_labels_without_beta_are_uniform():
    for parents, logits, _ in tree_cases(12):
        below = leaves(parents)
        log_p, _ = links.log_probabilities(logits, parents, "softmax")
        out = soft_labels(logits, [one_hot(parents, below[0])] * 3, parents, 0.0)
        assert out == FLOAT64.approx([-sum(row[t] for t in below) / len(below) for row in log_p])


def test_cond_softmax_is_the_product_down_the_path():
    # on a tree with one label a row: exp(-loss) summed over the leaves is 1
    for parents, logits, _ in tree_cases(13):
        mass = 0.0
        for leaf in leaves(parents):
            mass += math.exp(-cond_softmax(logits[:1], [one_hot(parents, leaf)], parents)[0])
        assert mass == FLOAT64.approx(1.0)


def test_mcloss_of_no_label_is_bce_on_the_max_link():
    for parents, logits, _ in tree_cases(14):
        _, log_q = links.log_probabilities(logits, parents, "max")
        out = mcloss(logits, [[0] * len(parents)] * 3, parents)
        assert out == [FLOAT64.approx([-v for v in row]) for row in log_q]


def test_flat_hierarchies_reduce_to_known_losses():
    rng = random.Random(15)
    x = random_logits(rng, FLAT, 3)
    y = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    bce = [
        [math.log(1 + math.exp(-v if t else v)) for v, t in zip(row, target, strict=True)]
        for row, target in zip(x, y, strict=True)
    ]
    softmax = [[math.exp(v) / sum(math.exp(u) for u in row) for v in row] for row in x]
    ce = [-math.log(softmax[i][i]) for i in range(3)]

    for link in ("sigmoid", "conditional", "max"):
        for scope in ("levels", "ancestors", None):
            out = hcl(x, y, FLAT, link=link, scope=scope, curriculum=None, reduction="none")
            assert out["loss"] == [FLOAT64.approx(row) for row in bce]
    assert mcloss(x, y, FLAT) == [FLOAT64.approx(row) for row in bce]
    assert level_weighted(x, y, FLAT, [1.0]) == [FLOAT64.approx(row) for row in bce]
    for alpha in (0.0, 0.7):  # every class is a leaf: no discount
        assert hxe(x, y, FLAT, alpha) == FLOAT64.approx(ce)
    assert leaf_ce(x, y, FLAT) == FLOAT64.approx(ce)
    assert cond_softmax(x, y, FLAT) == FLOAT64.approx(ce)
    # every other class is at distance 1
    assert lca_cost(x, y, FLAT) == FLOAT64.approx([1 - softmax[i][i] for i in range(3)])
    # label smoothing: 1 : exp(-beta) : exp(-beta)
    b = math.exp(-0.8)
    smooth = []
    for i in range(3):
        log_p = [math.log(p) for p in softmax[i]]
        smooth.append(-((1 - b) * log_p[i] + b * sum(log_p)) / (1 + 2 * b))
    assert soft_labels(x, y, FLAT, 0.8) == FLOAT64.approx(smooth)


def test_dags_are_refused_where_a_path_must_be_unique():
    with pytest.raises(ValueError, match="tree"):
        hxe([[0.0] * 5], [[0] * 5], DAG, 0.1)
    with pytest.raises(ValueError, match="tree"):
        cond_softmax([[0.0] * 5], [[0] * 5], DAG)
