"""The exact search against loops, against the full matrix, and at its edges."""

import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.memory import search
from hierlearn.memory.search import DISTANCES, GROUP, RUN, Blocks, dense_distances, nearest
from reference.search import nearest as nearest_by_loops
from tolerances import FLOAT32, FLOAT32_SUMS, FLOAT64

# Several blocks of queries and of rows, and several passes, on a few hundred rows.
TINY_BLOCKS = Blocks(queries=3, rows=RUN, kept=2000, gathered=500)


def random_rows(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("blocks", [None, TINY_BLOCKS], ids=["default", "tiny"])
@pytest.mark.parametrize("k", [1, 7, 40, 203])
def test_agrees_with_loops(distance, blocks, k):
    queries, rows = random_rows(11, 5, dtype=torch.float64), random_rows(203, 5, seed=1).double()
    distances, numbers = nearest(queries, rows, k, distance, blocks=blocks)
    expected = nearest_by_loops(queries.tolist(), rows.tolist(), k, distance)
    assert numbers.tolist() == expected[1]
    FLOAT64.assert_close(distances, torch.tensor(expected[0], dtype=torch.float64))


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_agrees_with_the_full_matrix(distance, stored):
    queries, rows = random_rows(70, 24), random_rows(9001, 24, seed=1, dtype=stored)
    distances, numbers = nearest(queries, rows, 50, distance)
    expected, _ = dense_distances(queries.double(), rows.double(), 50, distance).topk(
        50, largest=False
    )
    assert distances.dtype == torch.float32
    assert numbers.dtype == torch.int64
    FLOAT32.assert_close(distances, expected.float())
    exact = DISTANCES[distance](queries.double(), rows.double()).gather(1, numbers)
    FLOAT32.assert_close(distances, exact.float())
    assert all(len(set(row)) == 50 for row in numbers.tolist())


@pytest.mark.parametrize("norm", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("distance", DISTANCES)
def test_two_halves_of_the_queries_agree_with_float32(distance, norm):
    """The path of a GPU, whose matmuls of float16 are the fast ones."""
    queries, rows = random_rows(50, 32) * norm, (random_rows(700, 32, seed=1) * norm).half()
    halves = TINY_BLOCKS._replace(halves=True)
    distances, numbers = nearest(queries, rows, 20, distance, blocks=halves)
    expected, expected_numbers = nearest(queries, rows, 20, distance)
    torch.testing.assert_close(distances, expected)
    assert (numbers == expected_numbers).float().mean() > 0.999


def test_queries_beyond_float16_are_not_halved():
    queries, rows = random_rows(5, 8) * 1e6, random_rows(100, 8, seed=1).half()
    distances, _ = nearest(queries, rows, 10, blocks=TINY_BLOCKS._replace(halves=True))
    torch.testing.assert_close(distances, nearest(queries, rows, 10)[0])


@pytest.mark.parametrize("order", ["toward", "away", "sorted"])
def test_any_order_of_the_rows(order):
    """Rows that come nearer and nearer beat every threshold; rows sorted by class nearly so."""
    queries = torch.zeros(4, 3)
    rows = random_rows(999, 3, seed=2)
    by_distance = rows.square().sum(1).argsort(descending=order == "toward")
    rows = rows[rows[:, 0].argsort()] if order == "sorted" else rows[by_distance]
    distances, _ = nearest(queries, rows, 20, blocks=TINY_BLOCKS)
    expected = rows.double().square().sum(1).sort().values[:20].float()
    FLOAT32.assert_close(distances, expected.expand(4, -1))


def test_one_block_that_beats_the_threshold_everywhere():
    """Every later block holds better rows than all before it, whatever rows make a block."""
    step = 960 // RUN
    block = torch.arange(960) // RUN  # each run of rows is a block
    rows = (step - block + torch.arange(960) / 1e4)[:, None]
    distances, numbers = nearest(torch.zeros(2, 1), rows, 30, blocks=TINY_BLOCKS)
    assert numbers.tolist() == [rows[:, 0].argsort()[:30].tolist()] * 2
    FLOAT32.assert_close(distances[0], rows[:, 0].sort().values[:30].square())


def test_one_query_of_many_is_flooded():
    """A block whose rows are all better for one query, more than there is room for."""
    queries = torch.tensor([[0.0], [2000.0], [2001.0], [2002.0], [2003.0]])
    rows = 500.0 - torch.arange(4096) / 100
    rows[torch.arange(4096) // RUN % 4 == 1] -= 100  # the second of four blocks
    blocks = Blocks(queries=8, rows=1024, kept=10_000, gathered=1000)
    distances, numbers = nearest(queries, rows[:, None], 1, blocks=blocks)
    assert numbers[:, 0].tolist() == [62 * RUN - 1, 0, 0, 0, 0]
    FLOAT32.assert_close(distances[0], rows[62 * RUN - 1].square()[None])


@pytest.mark.parametrize("members", ["both", "queries", "embeddings"])
def test_members_of_an_ensemble(members):
    queries = random_rows(3, 8, 6) if members != "embeddings" else random_rows(8, 6)
    rows = random_rows(3, 300, 6, seed=1) if members != "queries" else random_rows(300, 6, seed=1)
    distances, numbers = nearest(queries, rows, 9)
    assert distances.shape == numbers.shape == (3, 8, 9)
    for member in range(3):
        one = dense_distances(
            queries[member] if queries.dim() == 3 else queries,
            rows[member] if rows.dim() == 3 else rows,
            9,
        ).topk(9, largest=False)
        assert torch.equal(numbers[member], one[1])
        FLOAT32.assert_close(distances[member], one[0])


@pytest.mark.parametrize("norm", [10.0, 100.0])
@pytest.mark.parametrize("distance", ["squared", "euclidean"])
def test_a_row_finds_itself(norm, distance):
    """Distances come from differences: 0 for the row itself, and accurate for a near duplicate.

    From |a|^2 + |b|^2 - 2 a b in single precision they would be off by about 1e-7 norm^2.
    """
    rows = norm * torch.nn.functional.normalize(random_rows(2000, 64), dim=1)
    rows[1000:] = rows[:1000] + 1e-3 * random_rows(1000, 64, seed=5)  # near duplicates
    distances, numbers = nearest(rows, rows, 2, distance)
    assert torch.equal(numbers[:, 0], torch.arange(2000))
    assert torch.equal(numbers[:, 1], (torch.arange(2000) + 1000) % 2000)
    assert float(distances[:, 0].max()) <= 1e-6
    expected = (rows[:1000].double() - rows[1000:].double()).norm(dim=1)
    expected = expected.square() if distance == "squared" else expected
    FLOAT32_SUMS.assert_close(distances[:1000, 1], expected.float())


def test_a_row_finds_itself_among_near_duplicates():
    """Their scores differ by less than rounding; the distances decide."""
    rows = 100 * torch.nn.functional.normalize(random_rows(300, 64), dim=1).repeat(5, 1)
    rows[300:] += 1e-4 * random_rows(1200, 64, seed=5)
    distances, numbers = nearest(rows, rows, 1)
    assert torch.equal(numbers[:, 0], torch.arange(1500))
    assert torch.equal(distances, torch.zeros(1500, 1))


def test_a_common_offset_does_not_blur_the_order():
    rows = random_rows(3000, 32) + 3000.0
    _, numbers = nearest(rows[:50], rows, 10)
    expected = torch.cdist(rows[:50].double(), rows.double()).topk(10, largest=False).indices
    assert torch.equal(numbers, expected)


def test_equal_rows_come_in_the_same_order_each_time():
    rows = random_rows(40, 4).repeat(10, 1)
    first, second = (nearest(rows[:5], rows, 15, blocks=TINY_BLOCKS) for _ in range(2))
    assert torch.equal(first[1], second[1])
    assert all(len(set(row)) == 15 for row in first[1].tolist())
    assert torch.equal(first[0][:, :10], torch.zeros(5, 10))


@pytest.mark.parametrize("distance", DISTANCES)
def test_of_many_equal_rows_a_fair_share_is_found(distance):
    """Rows sorted by class: the first class must not fill all places."""
    rows = torch.ones(1000, 8).half()
    _, numbers = nearest(torch.ones(1, 8) * 2, rows, 256, distance, blocks=TINY_BLOCKS)
    assert 0.5 < (numbers < 600).float().mean() < 0.7
    assert len(numbers.unique()) == 256


def test_rows_of_zeros_have_cosine_distance_1():
    rows = torch.cat([random_rows(20, 3), torch.zeros(1, 3)])
    distances, numbers = nearest(random_rows(2, 3, seed=3), rows, 21, "cosine")
    FLOAT32.assert_close(distances[numbers == 20], torch.ones(2))


def test_more_neighbors_than_rows_gives_all_rows():
    distances, numbers = nearest(random_rows(3, 4), random_rows(6, 4, seed=1), 10)
    assert distances.shape == (3, 6)
    assert numbers.sort(dim=1).values.tolist() == [list(range(6))] * 3
    assert torch.equal(distances, distances.sort(dim=1).values)


@pytest.mark.parametrize(("queries", "rows"), [(0, 5), (5, 0), (0, 0)])
def test_nothing_to_search(queries, rows):
    distances, numbers = nearest(torch.zeros(queries, 4), torch.zeros(rows, 4), 3)
    assert distances.shape == numbers.shape == (queries, min(3, rows))
    assert (distances.dtype, numbers.dtype) == (torch.float32, torch.int64)


def test_a_query_that_is_not_finite_leaves_the_others_alone():
    queries, rows = random_rows(6, 4), random_rows(205, 4, seed=1)
    blocks = TINY_BLOCKS._replace(queries=6)
    expected = nearest(queries, rows, 40, blocks=blocks)
    queries[2] = torch.nan
    distances, numbers = nearest(queries, rows, 40, blocks=blocks)
    assert distances[2].isnan().all()
    assert int(numbers.max()) < 205
    others = [0, 1, 3, 4, 5]
    assert torch.equal(distances[others], expected[0][others])
    assert torch.equal(numbers[others], expected[1][others])


def test_rows_that_are_not_finite_leave_row_numbers_in_range():
    rows = random_rows(205, 4, seed=1)
    rows[10:] = torch.nan
    _, numbers = nearest(random_rows(6, 4), rows, 30, "cosine", blocks=TINY_BLOCKS)
    assert int(numbers.max()) < 205


def test_no_gradient_is_recorded():
    queries = random_rows(3, 4).requires_grad_()
    distances, _ = nearest(queries, random_rows(30, 4, seed=1), 2)
    assert not distances.requires_grad


def test_most_scores_are_never_sorted(monkeypatch):
    """The point of the threshold: topk sees a small part of the matrix of scores."""
    seen = 0
    topk = torch.Tensor.topk

    def counting(self, *args, **kwargs):
        nonlocal seen
        seen += self.numel()
        return topk(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "topk", counting)
    nearest(random_rows(8, 4), random_rows(200_000, 4, seed=1), 10)
    assert 0 < seen < 0.05 * 8 * 200_000


def test_memory_is_bounded():
    """The buffers of a search do not grow with the number of queries or rows."""
    for blocks, mebibytes in ((search.CPU, 120), (search.GPU, 1000)):
        scores = 4 * blocks.queries * blocks.rows
        kept = 12 * blocks.kept
        gathered = 3 * 4 * blocks.gathered
        assert scores + kept + gathered < mebibytes * 2**20
        assert blocks.rows % RUN == RUN % GROUP == 0


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_dense_form_agrees_with_loops(distance):
    queries, rows = random_rows(4, 5).double(), random_rows(30, 5, seed=1).double()
    distances, numbers = dense_distances(queries, rows, 6, distance).topk(6, largest=False)
    expected = nearest_by_loops(queries.tolist(), rows.tolist(), 6, distance)
    assert numbers.tolist() == expected[1]
    FLOAT64.assert_close(distances, torch.tensor(expected[0], dtype=torch.float64))


def test_the_dense_form_can_be_exported():
    class Head(torch.nn.Module):
        def forward(self, queries, rows):
            return dense_distances(queries, rows, 3)

    example = (random_rows(4, 5), random_rows(30, 5, seed=1))
    program = torch.export.export(Head(), example)
    assert torch.equal(program.module()(*example), dense_distances(*example, 3))


def test_rows_that_tie_at_the_last_rank_all_stay_in_the_dense_form():
    rows = torch.tensor([[1.0], [2.0], [2.0], [2.0], [5.0]])
    found = dense_distances(torch.zeros(1, 1), rows, 2)
    assert found.isfinite().tolist() == [[True, True, True, True, False]]


@pytest.mark.parametrize(
    ("queries", "rows", "k", "distance", "message"),
    [
        ((2, 3), (4, 5), 1, "squared", r"queries \(2, 3\) and embeddings \(4, 5\) .* columns"),
        ((2, 3), (3,), 1, "squared", r"must be \(n, D\) or \(M, n, D\)"),
        ((2, 4, 3), (3, 4, 3), 1, "squared", "equally many members"),
        ((2, 3), (4, 3), 0, "squared", "k is 0, but must be at least 1"),
        ((2, 3), (4, 3), 1, "squarred", "did you mean 'squared'"),
    ],
)
def test_errors(queries, rows, k, distance, message):
    with pytest.raises(HierlearnError, match=message):
        nearest(torch.zeros(queries), torch.zeros(rows), k, distance)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("distance", DISTANCES)
def test_on_a_gpu(distance):
    queries, rows = random_rows(300, 64), random_rows(200_000, 64, seed=1, dtype=torch.float16)
    distances, numbers = nearest(queries.cuda(), rows.cuda(), 40, distance)
    expected, _ = nearest(queries, rows, 40, distance)
    assert numbers.is_cuda
    FLOAT32_SUMS.assert_close(distances.cpu(), expected)
