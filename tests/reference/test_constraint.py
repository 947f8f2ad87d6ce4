"""The reference constraint: worked examples, the smallest majorant, the gradient."""

import random

import pytest

from reference.constraint import binding_classes, constrain, constrain_gradient, smallest_majorant
from reference.loss_examples import TREE, random_hierarchy
from tolerances import FORWARD_DIFFERENCES


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
