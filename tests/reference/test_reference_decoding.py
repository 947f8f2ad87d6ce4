"""The oracles of the decoders: examples worked by hand in exact fractions, and closed forms."""

import itertools
import math
import random
from fractions import Fraction

import pytest

from reference import decoding
from reference.taxonomy import (
    ancestors_or_self,
    children,
    descendants_or_self,
    heights,
    levels,
    root_height,
)
from tolerances import FLOAT64

#     0 animal            1 plant
#       2 cat   3 dog       (a leaf)
#         4 bulldog   5 pug
TREE = [(), (), (0,), (0,), (3,), (3,)]
# A DAG: 3 lies under both top classes, 4 under 2 and 3.
DAG = [(), (), (0,), (0, 1), (2, 3)]


def tenths(*values):
    return [Fraction(value, 10) for value in values]


# Of ten rows one ends at the root, two at plant, one at cat, one at dog itself, two at bulldog
# and three at pug.
ROW = tenths(7, 2, 1, 6, 2, 3)
ENDS = tenths(0, 2, 1, 1, 2, 3)


def chosen(*rows):
    """Return the sets as class numbers."""
    return [{c for c, inside in enumerate(row) if inside} for row in rows]


def multi_hot(parents, *labels):
    return decoding.coherent([[c in labels for c in range(len(parents))]], parents, 1)[0]


def random_parents(rng, size, most_parents=1):
    """Draw a hierarchy in class order: by level."""
    parents = []
    for c in range(size):
        count = min(c, rng.randint(0, most_parents))
        parents.append(tuple(sorted(rng.sample(range(c), count))))
    level = levels(parents)
    order = sorted(range(size), key=lambda c: level[c])
    place = {c: i for i, c in enumerate(order)}
    return [tuple(sorted(place[p] for p in parents[c])) for c in order]


def random_row(rng, parents):
    """Draw a distribution over the classes and the root; few distinct values, so that ties occur.

    Returns:
        p, q
    """
    weights = [rng.choice([0, 0, 1, 1, 2, 3, 5, 8]) for _ in parents]
    total = sum(weights) + rng.choice([0, 0, 1, 4]) or 1
    q = [Fraction(weight, total) for weight in weights]
    classes = range(len(parents))
    return [sum((q[d] for d in descendants_or_self(parents, c)), Fraction()) for c in classes], q


def cases(seed, count=30, most_parents=1, size=7):
    rng = random.Random(seed)
    for _ in range(count):
        parents = random_parents(rng, rng.randint(1, size), most_parents)
        yield rng, parents, *random_row(rng, parents)


# ---------------------------------------------------------------------- the mass that ends


def test_mass_by_hand():
    assert decoding.terminal_mass(ROW, TREE) == ENDS
    # ends: 1, 2, 1, 2, 3 tenths; class 0 holds 2, 3 and 4, and 4 counts once though both lead to
    # it: 1 + 1 + 2 + 3 = 7, while its children's p add up to 4 + 5 = 9
    assert decoding.terminal_mass(tenths(7, 7, 4, 5, 3), DAG) == tenths(1, 2, 1, 2, 3)
    # dog's children have 6 tenths, it has 5 itself: q = -1, held at 0
    assert decoding.raw_mass(tenths(7, 0, 0, 5, 3, 3), TREE) == tenths(2, 0, 0, -1, 3, 3)
    assert decoding.terminal_mass(tenths(7, 0, 0, 5, 3, 3), TREE) == tenths(2, 0, 0, 0, 3, 3)


def test_mass_is_what_was_summed_up():
    for most_parents in (1, 3):
        for _, parents, p, q in cases(1, most_parents=most_parents):
            assert decoding.terminal_mass(p, parents) == q
            assert decoding.first_excess([p], parents) is None


def test_the_first_excess_by_hand():
    tops = tenths(7, 5, 0, 0, 0, 0)  # 12 tenths under the root
    dog = tenths(7, 0, 0, 5, 3, 3)  # 6 under dog, which has 5
    assert decoding.first_excess([ROW, tops, dog], TREE) == (1, -1, Fraction(12, 10), 1)
    assert decoding.first_excess([ROW, dog, tops], TREE) == (1, 3, *tenths(6, 5))
    nearly = tenths(7, 0, 0, 5, 2, 3)
    nearly[3] -= Fraction(1, 20_000)
    assert decoding.first_excess([nearly], TREE) is None
    assert decoding.first_excess([nearly], TREE, 1e-5) == (0, 3, Fraction(5, 10), nearly[3])


# ---------------------------------------------------------------------- argmax, leaf, top-down


def test_argmax_leaf_and_chain_by_hand():
    assert decoding.argmax([ROW], TREE) == [0]
    assert decoding.argmax([[0.1, 0.3, 0.2, 0.1, 0.3, 0.0]], TREE) == [1]  # 1 and 4 tie
    assert decoding.argmax([ROW], TREE, keep=[1, 2, 3]) == [3]
    assert decoding.leaf([ROW], TREE) == [5]
    # dog's 5 tenths all lie below it, so nothing ends there; plant keeps its 2
    assert decoding.leaf([ROW], TREE, terminals=[1, 3]) == [1]
    ends = tenths(7, 2, 2, 5, 1, 1)  # 3 tenths end at dog itself
    assert decoding.leaf([ends], TREE, terminals=[1, 3, 4]) == [3]
    assert decoding.leaf([ROW], TREE, terminals=[4, 1]) == [1]  # 2 tenths each: the first class
    assert decoding.greedy_chain(ROW, TREE) == [0, 3, 5]
    assert decoding.top_down([ROW], TREE) == [5]
    # plant is the likelier top class and a leaf: the walk ends there, pug or not
    plant = [0.4, 0.6, 0.0, 0.4, 0.0, 0.9]
    assert decoding.greedy_chains([ROW, plant], TREE) == [[0, 3, 5], [1, -1, -1]]
    assert decoding.top_down([plant], TREE) == [1]
    assert decoding.leaf([plant], TREE) == [5]
    # all children tie: the first at every step
    assert decoding.greedy_chain([0.0] * 6, TREE) == [0, 2]
    # class 3 is a child of both 0 and 1; 1 leads to it, not to 2
    assert decoding.greedy_chain([0.6, 0.7, 0.5, 0.4, 0.3], DAG) == [1, 3, 4]
    assert decoding.greedy_chain([0.7, 0.6, 0.5, 0.4, 0.3], DAG) == [0, 2, 4]


def test_top_down_refuses_a_dag():
    with pytest.raises(ValueError, match="tree"):
        decoding.top_down([[0.5] * 5], DAG)


def test_chains_are_paths_of_best_children():
    for most_parents in (1, 3):
        for _, parents, p, _ in cases(2, most_parents=most_parents):
            chain = decoding.greedy_chain(p, parents)
            below = children(parents)
            assert parents[chain[0]] == ()
            assert not below[chain[-1]]
            for above, c in itertools.pairwise(chain):
                assert above in parents[c]
                assert p[c] == max(p[k] for k in below[above])


# ---------------------------------------------------------------------- sets


def test_ancestor_sets_by_hand():
    sets = decoding.ancestor_sets([5, -1, 2, 1], TREE)
    assert chosen(*sets) == [{0, 3, 5}, set(), {0, 2}, {1}]
    assert chosen(*decoding.ancestor_sets([4, 3], DAG)) == [{0, 1, 2, 3, 4}, {0, 1, 3}]


def test_coherent_by_hand():
    # bulldog lifts dog and animal to 5 tenths, cat has 4 of its own
    row = tenths(1, 2, 4, 3, 5, 1)
    out = [decoding.coherent([row], TREE, Fraction(t, 10))[0] for t in (0, 2, 4, 5, 6)]
    assert chosen(*out) == [{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4}, {0, 2, 3, 4}, {0, 3, 4}, set()]
    assert chosen(*decoding.coherent([[0.0, 0.0, 0.0, 0.0, 0.5]], DAG)) == [{0, 1, 2, 3, 4}]
    assert chosen(*decoding.coherent([[0.0, 0.0, 0.0, 0.5, 0.0]], DAG)) == [{0, 1, 3}]


# ---------------------------------------------------------------------- least expected cost


def test_costs_of_pairs_by_hand():
    # heights: animal 2, dog 1, leaves 0, root 3
    height = {(5, 5): 0, (5, 4): 1, (3, 3): 1, (3, 5): 1, (2, 5): 2, (0, 5): 2, (1, 5): 3}
    # pug - dog - bulldog; cat - animal - dog - pug; plant - root - animal - dog - pug
    path = {(5, 5): 0, (5, 4): 2, (3, 3): 0, (3, 5): 1, (2, 5): 3, (0, 5): 2, (1, 5): 4}
    for a, b in height:
        for pair in ((a, b), (b, a)):
            assert decoding.lca_height_cost(TREE, *pair) == height[a, b]
            assert decoding.path_cost(TREE, *pair) == path[a, b]
    assert [decoding.lca_height_cost(TREE, c, -1) for c in range(6)] == [3] * 6
    assert [decoding.path_cost(TREE, c, -1) for c in range(6)] == [1, 1, 2, 2, 3, 3]
    # 2 and 3 share class 0 alone, of height 2; 3 and 4 share 0, 1 and 3, of height 1
    assert decoding.lca_height_cost(DAG, 2, 3) == 2
    assert decoding.lca_height_cost(DAG, 3, 4) == 1
    with pytest.raises(ValueError, match="tree"):
        decoding.path_cost(DAG, 2, 3)


def test_expected_costs_by_hand():
    # in tenths; the summands are plant, cat, dog, bulldog, pug, root
    by_height = [
        6 + 2 + 2 + 4 + 6 + 3,  # animal
        0 + 3 + 3 + 6 + 9 + 3,  # plant
        6 + 0 + 2 + 4 + 6 + 3,  # cat
        6 + 2 + 1 + 2 + 3 + 3,  # dog
        6 + 2 + 1 + 0 + 3 + 3,  # bulldog
        6 + 2 + 1 + 2 + 0 + 3,  # pug
    ]
    by_path = [
        4 + 1 + 1 + 4 + 6 + 1,
        0 + 3 + 3 + 8 + 12 + 1,
        6 + 0 + 2 + 6 + 9 + 2,
        6 + 2 + 0 + 2 + 3 + 2,
        8 + 3 + 1 + 0 + 6 + 3,
        8 + 3 + 1 + 4 + 0 + 3,
    ]
    assert decoding.expected_costs(ROW, TREE, "lca-height") == tenths(*by_height)
    assert decoding.expected_costs(ROW, TREE, "path") == tenths(*by_path)
    assert decoding.cost([ROW], TREE) == [5]  # 14 tenths
    assert decoding.cost([ROW], TREE, "path") == [3]  # 15
    assert decoding.cost([ROW], TREE, "path", "leaves") == [5]  # 19
    assert decoding.cost([ROW], TREE, "path", "terminal") == [5]
    assert decoding.cost([ROW], TREE, "path", "terminal", [1, 2, 4]) == [4]  # 27, 25, 21
    assert decoding.cost([ROW], TREE, "path", keep=[1, 2]) == [2]


def test_a_matrix_of_costs_by_hand():
    # 0 for a hit and 1 else: 9 tenths end at a class, so the cost is 9 tenths - q
    equal = [[int(c != t) for t in range(6)] for c in range(6)]
    assert decoding.expected_costs(ROW, TREE, equal) == tenths(9, 7, 8, 8, 7, 6)
    assert decoding.cost([ROW], TREE, equal) == [5]
    # cost[c][t] is read with the prediction first: here predicting plant costs nothing, ever
    free_plant = [[int(c != 1) for t in range(6)] for c in range(6)]
    assert decoding.expected_costs(ROW, TREE, free_plant) == tenths(9, 0, 9, 9, 9, 9)
    # the DAG's mass is 1, 2, 1, 2, 3 tenths
    weights = [list(range(5)) for _ in range(5)]
    expected = decoding.expected_costs(tenths(7, 7, 4, 5, 3), DAG, weights)
    assert expected == tenths(*[0 * 1 + 1 * 2 + 2 * 1 + 3 * 2 + 4 * 3] * 5)
    assert decoding.cost([tenths(7, 7, 4, 5, 3)], DAG, weights) == [0]  # all tie: the first


def test_expected_costs_have_closed_forms_on_trees():
    for _, parents, p, q in cases(3, size=9):
        height, level = heights(parents), levels(parents)
        top = root_height(parents)
        mean_level = sum(a * b for a, b in zip(q, level, strict=True))
        for c in range(len(parents)):
            saved = sum(
                p[a] * ((height[parents[a][0]] if parents[a] else top) - height[a])
                for a in ancestors_or_self(parents, c)
            )
            shared = sum(p[a] for a in ancestors_or_self(parents, c))
            assert decoding.expected_costs(p, parents)[c] == top - saved
            by_path = decoding.expected_costs(p, parents, "path")[c]
            assert by_path == level[c] + mean_level - 2 * shared


# ---------------------------------------------------------------------- largest expected F


def test_closed_sets_by_hand():
    sets = decoding.closed_sets([(), (), (0,)])
    assert [sorted(members) for members in sets] == [[], [0], [1], [0, 1], [0, 2], [0, 1, 2]]
    assert decoding.closed_sets([(), (), (0,)], keep=[0, 2]) == [set(), {0}, {0, 2}]


def test_closed_sets_are_all_of_them():
    for most_parents in (1, 3):
        for _, parents, _, _ in cases(4, count=10, most_parents=most_parents):
            every = itertools.product([False, True], repeat=len(parents))
            closed = {
                frozenset(members)
                for members in chosen(*every)
                if all(set(ancestors_or_self(parents, c)) <= members for c in members)
            }
            found = decoding.closed_sets(parents)
            assert len(found) == len(closed)
            assert set(found) == closed


def test_f_beta_by_hand():
    assert decoding.f_beta({0, 3}, {0, 3, 5}) == Fraction(2 * 2, 2 + 3)
    assert decoding.f_beta({0, 3}, {0, 3, 5}, 2) == Fraction(5 * 2, 2 + 4 * 3)  # near recall, 2/3
    assert decoding.f_beta({0, 3}, {0, 3, 5}, 0) == 1  # precision
    assert decoding.f_beta(set(), {0}) == decoding.f_beta({0}, set()) == 0
    assert decoding.f_beta(set(), set()) == decoding.f_beta(set(), {0}, 0) == 0


def test_expected_f_by_hand():
    sets = [{0}, {0, 3}, {0, 3, 5}, {0, 1, 3}, {0, 1, 3, 5}]
    # ten times the value; the summands are plant, cat, dog, bulldog, pug
    by_hand = [
        Fraction(2, 3) + Fraction(2, 3) + 1 + Fraction(3, 2),
        Fraction(1, 2) + 1 + 2 * Fraction(4, 5) + 3 * Fraction(4, 5),
        Fraction(2, 5) + Fraction(4, 5) + 2 * Fraction(4, 6) + 3,
        2 * Fraction(2, 4)
        + Fraction(2, 5)
        + Fraction(4, 5)
        + 2 * Fraction(4, 6)
        + 3 * Fraction(4, 6),
        2 * Fraction(2, 5)
        + Fraction(2, 6)
        + Fraction(4, 6)
        + 2 * Fraction(4, 7)
        + 3 * Fraction(6, 7),
    ]
    found = decoding.expected_fs(sets, ROW, TREE)
    assert found == [value / 10 for value in by_hand]
    # 11/20 < 83/150: the third and the fourth tie there, and plant comes before pug
    assert found[1] == Fraction(11, 20)
    assert found[2] == found[3] == Fraction(83, 150) > found[4]
    assert chosen(*decoding.expected_f([ROW], TREE)) == [{0, 1, 3}]
    assert chosen(*decoding.expected_f([ROW], TREE, keep=[0, 3, 5])) == [{0, 3, 5}]
    # precision alone: animal, 7 tenths; with dog (7 + 6) / 2
    assert chosen(*decoding.expected_f([ROW], TREE, beta=0)) == [{0}]
    # nearly recall alone: everything with mass
    assert chosen(*decoding.expected_f([ROW], TREE, beta=1000)) == [{0, 1, 2, 3, 4, 5}]
    # nothing ends at a class: every set has 0, and the smallest wins
    assert chosen(*decoding.expected_f([[0] * 6], TREE)) == [set()]


def test_expected_f_is_the_best_size_of_the_heaviest_classes():
    # For a fixed size k the value is a sum of weights over the set, and weights fall along paths.
    for most_parents in (1, 3):
        for rng, parents, p, q in cases(5, most_parents=most_parents):
            beta = rng.choice([1, 2, Fraction(1, 2)])
            classes = range(len(parents))
            best, value = [], 0
            for k in range(1, len(parents) + 1):
                weights = [
                    sum(
                        (1 + beta**2) * q[t] / (k + beta**2 * len(ancestors_or_self(parents, t)))
                        for t in descendants_or_self(parents, c)
                    )
                    for c in classes
                ]
                heaviest = sorted(classes, key=lambda c: (-weights[c], c))[:k]
                if sum(weights[c] for c in heaviest) > value:
                    best, value = heaviest, sum(weights[c] for c in heaviest)
            assert chosen(*decoding.expected_f([p], parents, beta)) == [set(best)]
            assert decoding.expected_fs([best], p, parents, beta) == [value]


# ---------------------------------------------------------------------- stopping early


def test_stop_by_hand():
    # the chain animal, dog, pug has 7, 6 and 3 tenths
    out = [decoding.stop([ROW], TREE, Fraction(t, 10))[0] for t in (0, 2, 3, 5, 6, 7, 10)]
    assert out == [5, 5, 3, 3, 0, -1, -1]
    # dog has 9 tenths, but animal before it only 5
    assert decoding.stop([tenths(5, 4, 1, 9, 2, 3)], TREE, Fraction(6, 10)) == [-1]
    assert decoding.stop([tenths(5, 4, 1, 9, 2, 3)], TREE, Fraction(4, 10)) == [3]
    assert decoding.stop([tenths(0, 0, 0, 0, 0, 0)], TREE, 0) == [-1]
    assert decoding.deepest_above([tenths(5, 4, 1, 9, 2, 3)], TREE, Fraction(6, 10)) == [3]
    assert decoding.deepest_above([ROW], TREE, Fraction(7, 10)) == [-1]


def test_above_one_half_stop_is_the_deepest_class_of_a_tree():
    for _, parents, p, _ in cases(6, count=60, size=9):
        for threshold in (Fraction(1, 2), Fraction(3, 5), Fraction(4, 5), 1):
            assert decoding.stop([p], parents, threshold) == decoding.deepest_above(
                [p], parents, threshold
            )
    # In a DAG two classes may both hold more than half and neither lie above the other: 35, 45
    # and 20 of 100 end at 0, 4 and 3, where 4 lies under 0 and 3, and 3 under 2 under 1.
    parents = [(), (), (1,), (2,), (0, 3)]
    row = [Fraction(v, 100) for v in (80, 65, 65, 65, 45)]
    assert decoding.terminal_mass(row, parents) == [Fraction(v, 100) for v in (35, 0, 0, 20, 45)]
    assert decoding.stop([row], parents, Fraction(1, 2)) == [0]
    assert decoding.deepest_above([row], parents, Fraction(1, 2)) == [3]


def test_rows_needed_by_hand():
    # 1 / (n + 1) <= alpha
    assert [decoding.rows_needed(a) for a in (0.5, 0.1, 0.099, 0.07, 0.01)] == [1, 9, 10, 14, 99]
    assert [decoding.rows_needed(1 / d) for d in range(2, 200)] == list(range(1, 199))


SMALL = [(), (), (0,), (0,)]
CALIBRATION = [
    (tenths(9, 1, 6, 3), (3,), Fraction(6, 10)),  # chain 0, 2; 2 is wrong: min(9, 6)
    (tenths(8, 2, 5, 3), (1,), Fraction(8, 10)),  # chain 0, 2; 0 is wrong already
    (tenths(7, 3, 1, 6), (3,), 0),  # chain 0, 3, all right
    (tenths(4, 5, 1, 3), (0,), Fraction(5, 10)),  # chain 1, wrong
]


def test_risk_threshold_by_hand():
    rows = [row for row, _, _ in CALIBRATION]
    targets = [multi_hot(SMALL, *labels) for _, labels, _ in CALIBRATION]
    scores = [score for _, _, score in CALIBRATION]
    pairs = list(zip(rows, targets, strict=True))
    assert [decoding.first_wrong(row, y, SMALL) for row, y in pairs] == scores
    # the scores 0, 5, 6 and 8 tenths: so many rows err
    errors = [decoding.stop_errors(rows, targets, SMALL, Fraction(t, 10)) for t in (0, 4, 5, 6, 8)]
    assert errors == [3, 3, 2, 1, 0]
    # (errors + 1) / 5 <= alpha allows 0, 0, 1, 1, 2 and 3 errors
    out = [decoding.risk_threshold(rows, targets, SMALL, a) for a in (0.2, 0.3, 0.4, 0.5, 0.6, 0.8)]
    assert out == tenths(8, 8, 6, 6, 5, 0)
    with pytest.raises(ValueError, match=r"4 rows; alpha 0\.19 needs 5"):
        decoding.risk_threshold(rows, targets, SMALL, 0.19)
    for alpha in (0, 1, -0.1, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            decoding.risk_threshold(rows, targets, SMALL, alpha)


def test_the_score_is_the_smallest_p_so_far():
    # p rises along the chain 0, 2: at 3 tenths the walk never reaches the wrong class
    row = tenths(3, 2, 9, 1)
    assert decoding.first_wrong(row, multi_hot(SMALL, 3), SMALL) == Fraction(3, 10)
    assert decoding.first_wrong(row, multi_hot(SMALL, 1), SMALL) == Fraction(3, 10)
    # two paths: either is right; no label: nothing is
    assert decoding.first_wrong(row, multi_hot(SMALL, 2, 3), SMALL) == 0
    assert decoding.first_wrong(row, multi_hot(SMALL), SMALL) == Fraction(3, 10)


def calibration_sets(seed, count=12, most_parents=1):
    """Draw hierarchies with rows whose p need not be coherent, and closed targets."""
    for rng, parents, _, _ in cases(seed, count, most_parents):
        size = rng.randint(6, 14)
        rows = [[Fraction(rng.randint(0, 8), 8) for _ in parents] for _ in range(size)]
        labels = [rng.choices(range(len(parents)), k=rng.randint(1, 2)) for _ in rows]
        yield parents, rows, [multi_hot(parents, *row) for row in labels]


@pytest.mark.parametrize("most_parents", [1, 3])
def test_risk_threshold_is_a_quantile_of_the_scores(most_parents):
    for parents, rows, targets in calibration_sets(7, most_parents=most_parents):
        pairs = list(zip(rows, targets, strict=True))
        scores = [decoding.first_wrong(row, y, parents) for row, y in pairs]
        for t in sorted({0, *scores}, reverse=True):
            late = sum(s > t for s in scores)
            assert decoding.stop_errors(rows, targets, parents, t) == late
        for alpha in (0.15, 0.25, 0.5, 0.9):
            allowed = math.floor(Fraction(str(alpha)) * (len(rows) + 1)) - 1
            first = min(t for t in {0, *scores} if sum(s > t for s in scores) <= allowed)
            assert decoding.risk_threshold(rows, targets, parents, alpha) == first


@pytest.mark.parametrize("most_parents", [1, 3])
def test_the_promises_hold_on_average_over_which_row_is_left_out(most_parents):
    # Exchangeable rows: given all n + 1 of them, each is equally often the one not calibrated on.
    # So the promise must hold for every such collection, and not only in the long run.
    for parents, rows, targets in calibration_sets(8, most_parents=most_parents):
        for alpha in (0.2, 0.35):
            errors = missed = 0
            for i in range(len(rows)):
                rest = rows[:i] + rows[i + 1 :], targets[:i] + targets[i + 1 :]
                t = decoding.risk_threshold(*rest, parents, alpha)
                errors += decoding.stop_errors(rows[i : i + 1], targets[i : i + 1], parents, t)
                t = decoding.conformal_threshold(*rest, parents, alpha)
                found = decoding.conformal(rows[i : i + 1], parents, t)[0]
                missed += any(y and not c for y, c in most_specific(parents, targets[i], found))
            assert errors <= alpha * len(rows)
            assert missed <= alpha * len(rows)


def most_specific(parents, target, found):
    """Pair the labels that have no label below them with whether they were found."""
    below = children(parents)
    tips = [y and not any(target[k] for k in below[c]) for c, y in enumerate(target)]
    return zip(tips, found, strict=True)


# ---------------------------------------------------------------------- conformal sets


def test_memberships_by_hand():
    # leaves at or below: animal 3, dog 2; densities 7/3, 2, 1, 3, 2, 3 tenths
    v = decoding.memberships(ROW, TREE)
    assert v == [Fraction(7, 30), *tenths(2), Fraction(7, 30), *tenths(3, 3, 3)]
    # spread 0: the densities are p itself, and everything under animal has animal's
    assert decoding.memberships(ROW, TREE, spread=0) == tenths(7, 2, 7, 7, 7, 7)
    # with dog as a terminal class too: animal 4, dog 3; densities 7/4, 2, 1, 2, 2, 3 tenths
    v = decoding.memberships(ROW, TREE, terminals=[1, 2, 3, 4, 5])
    assert v == [Fraction(7, 40), *tenths(2), Fraction(7, 40), *tenths(2, 2, 3)]
    # with plant and cat alone dog has none at or below it: what it has comes from animal
    assert decoding.memberships(ROW, TREE, terminals=[1, 2]) == tenths(7, 2, 7, 7, 7, 7)
    # the DAG has one leaf, at or below every class; 2 lies under 0 only
    v = decoding.memberships(tenths(3, 6, 4, 5, 2), DAG)
    assert v == tenths(3, 6, 4, 6, 6)
    # half a power of the size: animal's 3 leaves, dog's 2
    v = decoding.memberships([0.7, 0.2, 0.1, 0.6, 0.2, 0.3], TREE, spread=0.5)
    best = [0.7 / math.sqrt(3), 0.2, 0.7 / math.sqrt(3), *[0.6 / math.sqrt(2)] * 3]
    assert v == FLOAT64.approx(best)


@pytest.mark.parametrize(
    ("threshold", "terminals", "members", "tops"),
    [
        (Fraction(31, 100), None, set(), set()),
        (Fraction(3, 10), None, {3, 4, 5}, {3}),  # pug reaches it too, under dog
        (Fraction(7, 30), None, {0, 2, 3, 4, 5}, {0}),
        (Fraction(2, 10), None, {0, 1, 2, 3, 4, 5}, {0, 1}),
        (Fraction(3, 10), [1, 2, 3, 4, 5], {5}, {5}),
        (Fraction(2, 10), [1, 2, 3, 4, 5], {1, 3, 4, 5}, {1, 3}),
        (0, None, {0, 1, 2, 3, 4, 5}, {0, 1}),
    ],
)
def test_conformal_sets_by_hand(threshold, terminals, members, tops):
    options = {"threshold": threshold, "terminals": terminals}
    assert chosen(*decoding.conformal([ROW], TREE, **options)) == [members]
    assert chosen(*decoding.conformal_subtrees([ROW], TREE, **options)) == [tops]


def test_conformal_sets_in_a_dag_by_hand():
    # 1 reaches 6 tenths and takes 3 and 4 along, though 0 and 2, also above 4, do not reach it
    row = tenths(3, 6, 4, 5, 2)
    assert chosen(*decoding.conformal([row], DAG, Fraction(6, 10))) == [{1, 3, 4}]
    assert chosen(*decoding.conformal_subtrees([row], DAG, Fraction(6, 10))) == [{1}]
    assert chosen(*decoding.conformal_subtrees([row], DAG, Fraction(4, 10))) == [{1, 2}]


def test_conformal_scores_and_threshold_by_hand():
    scores = [
        decoding.conformal_score(ROW, multi_hot(TREE, *labels), TREE)
        for labels in ([5], [2], [5, 2], [0], [])
    ]
    assert scores == [*tenths(3), *[Fraction(7, 30)] * 3, math.inf]
    flat, first = [(), ()], [True, False]
    rows = [tenths(v, 10 - v) for v in (9, 5, 7, 3)]  # the scores: 9, 5, 7 and 3 tenths
    # k / 5 <= alpha: k = 1, 1, 2, 3, 4
    out = [
        decoding.conformal_threshold(rows, [first] * 4, flat, a) for a in (0.2, 0.39, 0.4, 0.6, 0.8)
    ]
    assert out == tenths(3, 3, 5, 7, 9)
    # 0.29 of 99 + 1 rows is 29 of them, though 0.29 * 100 falls short of 29
    rows = [[Fraction(v, 100), 0] for v in range(99, 0, -1)]
    out = decoding.conformal_threshold(rows, [first] * 99, flat, 0.29)
    assert out == Fraction(29, 100)
    with pytest.raises(ValueError, match=r"8 rows; alpha 0\.1 needs 9"):
        decoding.conformal_threshold(rows[:8], [first] * 8, flat, 0.1)


def test_conformal_threshold_is_the_largest_that_misses_few_enough():
    for parents, rows, targets in calibration_sets(9):
        for spread in (0, 1):
            scores = [
                decoding.conformal_score(row, y, parents, spread)
                for row, y in zip(rows, targets, strict=True)
            ]
            for alpha in (0.15, 0.3, 0.7):
                fit = [
                    s
                    for s in scores
                    if (sum(other < s for other in scores) + 1) / (len(rows) + 1) <= alpha
                ]
                t = decoding.conformal_threshold(rows, targets, parents, alpha, spread)
                assert t == max(fit)


# ---------------------------------------------------------------------- some classes only


def test_renormalized_by_hand():
    # cat has 1 of 3, bulldog 2 of 3, and dog and animal what lies below them; dog's own mass,
    # pug's and plant's are gone
    p = decoding.renormalized(ROW, TREE, [2, 4])
    assert p == [1, 0, Fraction(1, 3), Fraction(2, 3), Fraction(2, 3), 0]
    # dog stands for itself and its breeds: 1, 2 and 3 of 6; naming pug as well adds nothing
    p = [1, 0, 0, 1, Fraction(1, 3), Fraction(1, 2)]
    assert decoding.renormalized(ROW, TREE, [3]) == p
    assert decoding.renormalized(ROW, TREE, [3, 5]) == p
    # the mass at the root goes too
    assert decoding.renormalized(ROW, TREE, [0, 1])[:2] == [Fraction(7, 9), Fraction(2, 9)]
    # of 1, 2, 1, 2 and 3 tenths in the DAG, 3 and 4 are left: 2 and 3 of 5
    p = decoding.renormalized(tenths(7, 7, 4, 5, 3), DAG, [3])
    assert p == [1, 1, Fraction(3, 5), 1, Fraction(3, 5)]
    assert decoding.renormalized(tenths(10, 0, 10, 0, 0, 0), TREE, [3]) == [0] * 6


def test_kept_classes_by_hand():
    assert decoding.kept_classes(TREE, [5]) == {0, 3, 5}
    assert decoding.kept_classes(TREE, [3, 1]) == {0, 1, 3, 4, 5}
    assert decoding.kept_classes(DAG, [3]) == {0, 1, 2, 3, 4}  # 2 stands above 4
    assert decoding.kept_classes(DAG, [2]) == {0, 1, 2, 3, 4}
    assert decoding.kept_classes(DAG, [1]) == {0, 1, 2, 3, 4}


def test_subset_by_hand():
    def answer(row, allowed, decoder, **options):
        return decoding.subset([row], TREE, allowed, decoder, **options)[0]

    # p = 1, 0, 1/3, 2/3, 2/3, 0
    assert answer(ROW, [2, 4], "argmax") == 0
    assert answer(ROW, [2, 4], "leaf") == 4
    assert answer(ROW, [2, 4], "top-down") == 4
    assert answer(ROW, [2, 4], "stop") == 4
    assert answer(ROW, [2, 4], "stop", threshold=Fraction(2, 3)) == 0
    # heights stay those of the whole tree: cat 3 - 1 - 2/3, bulldog 3 - 1 - 2/3 - 2/3
    assert answer(ROW, [2, 4], "cost") == 4
    # paths, as level + mean level - twice the p on the way, the mean level 1/3 * 2 + 2/3 * 3 = 8/3:
    # animal 1 + 8/3 - 2, cat 2 + 8/3 - 8/3, dog 2 + 8/3 - 10/3, bulldog 3 + 8/3 - 14/3
    values = decoding.expected_costs(decoding.renormalized(ROW, TREE, [2, 4]), TREE, "path")
    assert [values[c] for c in (0, 2, 3, 4)] == [Fraction(5, 3), 2, Fraction(4, 3), 1]
    assert answer(ROW, [2, 4], "cost", cost="path") == 4
    assert chosen(answer(ROW, [2, 4], "coherent", threshold=0)) == [{0, 2, 3, 4}]
    assert chosen(answer(ROW, [2, 4], "coherent")) == [{0, 3, 4}]
    # {0, 3, 4}: cat 2/5, bulldog 1, so 2/15 + 2/3 = 4/5; {0, 2, 3, 4}: cat 2/3, bulldog 6/7, less
    assert chosen(answer(ROW, [2, 4], "expected-f")) == [{0, 3, 4}]
    # densities animal 1/3, cat 1/3, dog 1/3, bulldog 2/3
    assert chosen(answer(ROW, [2, 4], "conformal", threshold=Fraction(1, 2))) == [{4}]
    assert chosen(answer(ROW, [2, 4], "conformal", threshold=Fraction(1, 3))) == [{0, 2, 3, 4}]


def test_subset_answers_kept_classes_only():
    # all ends at dog itself: every leaf has 0, and the first leaf, plant, is not kept
    dog = tenths(10, 0, 0, 10, 0, 0)
    assert decoding.leaf([dog], TREE) == [1]
    assert decoding.subset([dog], TREE, [3], "leaf") == [4]
    assert decoding.subset([dog], TREE, [3], "leaf", terminals=[1, 5]) == [5]
    assert decoding.subset([dog], TREE, [3], "leaf", terminals=[1]) == [-1]
    # no mass in the allowed subtree
    for name in decoding.CLASS_DECODERS:
        assert decoding.subset([dog, ROW], TREE, [1], name) == [-1, 1]
    for name in decoding.SET_DECODERS:
        assert chosen(*decoding.subset([dog], TREE, [1], name)) == [set()]


def test_renormalized_is_the_conditional_distribution():
    for most_parents in (1, 3):
        for rng, parents, p, q in cases(10, most_parents=most_parents):
            allowed = rng.sample(range(len(parents)), rng.randint(1, len(parents)))
            ends = [
                t for t in range(len(parents)) if set(ancestors_or_self(parents, t)) & {*allowed}
            ]
            within = sum(q[t] for t in ends)
            found = decoding.renormalized(p, parents, allowed)
            for c in range(len(parents)):
                both = sum(q[t] for t in ends if c in ancestors_or_self(parents, t))
                assert found[c] * within == both
