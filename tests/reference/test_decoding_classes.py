"""Reference decoders of one class: worked in exact fractions, and closed forms."""

import itertools
from fractions import Fraction

import pytest

from reference import decoding
from reference.decoding_examples import DAG, ENDS, ROW, TREE, cases, tenths
from reference.taxonomy import ancestors_or_self, children, heights, levels, root_height


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
