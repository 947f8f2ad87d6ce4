"""A memory in parts: in one process, and one part in each of two processes."""

import json
from itertools import pairwise

import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.memory import NeighborHead, Part, ShardedSearch, nearest_in_shards
from hierlearn.memory.search import (
    DISTANCES,
    RUN,
    Blocks,
    best_of,
    distances_of,
    first_of_equal_rows,
    merge,
    nearest,
    priority,
)
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.explain import explain
from memory import sharded_worker as worker
from reference.search import mixed
from reference.search import nearest_with_ties as nearest_by_loops
from tolerances import FLOAT32
from two_processes import launch

TINY_BLOCKS = Blocks(queries=3, rows=RUN, kept=2000, gathered=500)


def assert_equal(found, expected):
    for got, wanted in zip(found, expected, strict=True):
        assert torch.equal(got, wanted)


# ---------------------------------------------------------------------- ties


def test_the_hash_is_that_of_the_definition():
    rows = [0, 1, 2, 77, 10**6, 2**40]
    assert priority(torch.tensor(rows)).tolist() == [mixed(row) for row in rows]


@pytest.mark.parametrize("k", [1, 3, 7, 40, 150])
@pytest.mark.parametrize("blocks", [None, TINY_BLOCKS], ids=["default", "tiny"])
@pytest.mark.parametrize("kind", worker.TIED)
def test_ties_are_resolved_as_loops_do(kind, k, blocks):
    queries, rows = worker.TIED[kind]()
    distances, numbers = nearest(queries, rows.half(), k, blocks=blocks)
    expected = nearest_by_loops(queries.tolist(), rows.tolist(), k)
    assert numbers.tolist() == expected[1]
    FLOAT32.assert_close(distances, torch.tensor(expected[0]))


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_distance_does_not_depend_on_what_is_computed_with_it(distance):
    queries, rows = worker.random_rows(40, 24), worker.random_rows(300, 24, seed=1).half()
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
    left = first_of_equal_rows(rows, 2, first=10).tolist()
    ones = sorted((0, 2, 3, 5), key=lambda row: mixed(row + 10))[:2]
    assert left == sorted([*ones, 1, 4, 6])


def test_best_of_keeps_rows_that_are_not_finite_last():
    values = torch.tensor([[torch.inf, 2.0, torch.inf, 1.0]])
    assert best_of(values, torch.tensor([[0, 5, 3, 9]]), 3)[1].tolist()[0][:2] == [9, 5]


# ---------------------------------------------------------------------- shards


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("shards", [1, 2, 7, 64])
@pytest.mark.parametrize("case", worker.CASES)
def test_shards_answer_as_one_memory_bit_for_bit(case, shards, distance):
    queries, rows, k = worker.CASES[case]()
    total = rows.shape[-2]
    bounds = [number * total // shards for number in range(shards + 1)]
    parts = [rows[..., a:b, :] for a, b in pairwise(bounds)]
    expected = nearest(queries, rows, k, distance)
    assert_equal(nearest_in_shards(queries, parts, k, distance), expected)


def test_merging_in_any_order():
    queries, rows = worker.TIED["copies"]()
    parts = [nearest(queries, rows[a:b], 9, first=a) for a, b in ((0, 50), (50, 90), (90, 150))]
    expected = nearest(queries, rows, 9)
    assert_equal(merge(parts[::-1], 9), expected)
    assert_equal(merge([merge(parts[1:], 9), parts[0]], 9), expected)


# ---------------------------------------------------------------------- processes


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Two processes that have searched all cases, and answered with a model."""
    folder = tmp_path_factory.mktemp("ranks")
    worker.save_model(folder / "model")
    done = launch(worker.__file__, folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("case", worker.CASES)
@pytest.mark.parametrize("distance", DISTANCES)
def test_two_processes_answer_as_one_bit_for_bit(ranks, case, distance):
    queries, rows, k = worker.CASES[case]()
    expected = nearest(queries, rows, k, distance)
    for rank in range(2):
        found = torch.load(ranks / f"{rank}.pt", weights_only=True)
        assert_equal(found[f"{case} {distance}"], expected)


def test_a_model_whose_memory_two_processes_share_answers_bit_for_bit(ranks):
    model, inputs = Pipeline.load(ranks / "model"), worker.new_rows()
    expected = model.probabilities(inputs)
    evidence = [[[one.id, one.weight] for one in row] for row in explain(model, inputs, 5)]
    for rank in range(2):
        found = torch.load(ranks / f"{rank}.pt", weights_only=True)
        assert torch.equal(found["probabilities"], expected)
        said = json.loads((ranks / f"{rank}.json").read_text())
        assert said["explained"] == evidence
        assert said["held"] == [15, 15][rank]
        assert said["refused"] == (
            "the rows of this memory are split over 2 processes, which can only predict and "
            "explain; load the whole model for anything else"
        )


def test_a_query_that_is_not_finite_leaves_the_others_alone(ranks):
    queries, rows, k = worker.CASES["spread"]()
    expected = nearest(queries, rows, k)
    found = torch.load(ranks / "0.pt", weights_only=True)
    distances, numbers = found["not finite"]
    assert distances[1].isnan().all()
    assert 0 <= int(numbers.min()) <= int(numbers.max()) < len(rows)
    assert torch.equal(distances[2:], expected[0][2:])
    assert torch.equal(numbers[2:], expected[1][2:])


def test_a_part_must_fit():
    with pytest.raises(HierlearnError, match="rank 2 must be below 2"):
        Part(2, 2)
    with pytest.raises(HierlearnError, match=r"\(4, 3\) must have 5 rows, those of process 1 of 2"):
        ShardedSearch(torch.zeros(4, 3), 10, Part(1, 2))
    assert [Part(rank, 3).bounds(10) for rank in range(3)] == [(0, 3), (3, 6), (6, 10)]


def test_one_process_alone_needs_no_group():
    queries, rows, k = worker.CASES["spread"]()
    assert_equal(ShardedSearch(rows, len(rows), Part(0, 1))(queries, k), nearest(queries, rows, k))


def test_a_head_says_how_much_is_remembered_by_all():
    from memory.random_memories import Case

    case = Case(3)
    head: NeighborHead = case.head()
    head.memory.set(case.rows[:4], case.remembered(), Part(0, 2))
    assert len(head.memory) == 9
    head.memory.clear()
    assert head.memory.part is None
