"""Equally near rows: which of them are found, and in which order."""

import pytest
import torch

from hierlearn.memory.search import (
    DISTANCES,
    RUN,
    Blocks,
    best_of,
    distances_of,
    first_of_equal_rows,
    nearest,
    priority,
)
from reference.search import mixed
from reference.search import nearest_with_ties as nearest_by_loops
from tolerances import FLOAT32

TINY_BLOCKS = Blocks(queries=3, rows=RUN, kept=2000, gathered=500)


def random_rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def copies():
    """Ten rows, fifteen times each, sorted."""
    rows = torch.arange(10.0).repeat_interleave(15)[:, None].repeat(1, 3)
    return torch.tensor([[0.0, 0, 0], [4, 4, 5], [9, 9, 9]]), rows


def grid():
    """Many different rows at equal distances."""
    draw = torch.Generator().manual_seed(5)
    rows = torch.randint(-2, 3, (150, 4), generator=draw).float()
    return torch.randint(-2, 3, (6, 4), generator=draw).float(), rows


def equal():
    """All rows are equal."""
    return torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.ones(150, 2)


TIED = {"copies": copies, "grid": grid, "equal": equal}


def test_the_hash_is_that_of_the_definition():
    rows = [0, 1, 2, 77, 10**6, 2**40]
    assert priority(torch.tensor(rows)).tolist() == [mixed(row) for row in rows]


@pytest.mark.parametrize("k", [1, 3, 7, 40, 150])
@pytest.mark.parametrize("blocks", [None, TINY_BLOCKS], ids=["default", "tiny"])
@pytest.mark.parametrize("kind", TIED)
def test_ties_are_resolved_as_loops_do(kind, k, blocks):
    queries, rows = TIED[kind]()
    distances, numbers = nearest(queries, rows.half(), k, blocks=blocks)
    expected = nearest_by_loops(queries.tolist(), rows.tolist(), k)
    assert numbers.tolist() == expected[1]
    FLOAT32.assert_close(distances, torch.tensor(expected[0]))


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_distance_does_not_depend_on_what_is_computed_with_it(distance):
    queries, rows = random_rows(40, 24), random_rows(300, 24, seed=1).half()
    numbers = torch.arange(300).expand(40, 300)
    whole = distances_of(queries, rows, numbers, distance)
    single = distances_of(
        queries.repeat_interleave(300, 0), rows, numbers.reshape(-1, 1), distance
    ).view(40, 300)
    assert torch.equal(single, whole)
    some = distances_of(queries[7:8], rows[100:], numbers[:1, :37], distance)
    assert torch.equal(some, whole[7:8, 100:137])


def test_of_equal_rows_as_many_are_left_as_can_answer():
    rows = torch.tensor([[1.0], [2.0], [1.0], [1.0], [2.0], [1.0], [3.0]])
    left = first_of_equal_rows(rows, 2).tolist()
    ones = sorted((0, 2, 3, 5), key=lambda row: mixed(row))[:2]
    assert left == sorted([*ones, 1, 4, 6])


def test_best_of_keeps_rows_that_are_not_finite_last():
    values = torch.tensor([[torch.inf, 2.0, torch.inf, 1.0]])
    assert best_of(values, torch.tensor([[0, 5, 3, 9]]), 3)[1].tolist()[0][:2] == [9, 5]
