"""The approximate index: its recall, its exact distances, rows that come and go, its file."""

import importlib.util
import subprocess
import sys

import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.memory.index import ApproximateIndex
from hierlearn.memory.search import DISTANCES, dense_distances, nearest
from reference.search import recall
from tolerances import FLOAT32

HAS_FAISS = importlib.util.find_spec("faiss") is not None
needs_faiss = pytest.mark.skipif(
    not HAS_FAISS, reason="faiss is not installed: pip install faiss-cpu"
)


def clusters(rows, seed, width=96):
    """Rows around 40 centers, in a space of 10 dimensions that lies in a wider one."""
    world, own = (torch.Generator().manual_seed(one) for one in (7, seed))
    centers = 3 * torch.randn(40, 10, generator=world)
    basis = torch.randn(10, width, generator=world)
    near = centers[torch.randint(40, (rows,), generator=own)]
    return (near + torch.randn(rows, 10, generator=own)) @ basis


@pytest.fixture(scope="module")
def memory():
    return clusters(6000, seed=1).half()


@pytest.fixture(scope="module")
def queries():
    return clusters(100, seed=2)


@needs_faiss
@pytest.mark.parametrize("distance", DISTANCES)
def test_recall_and_distances(memory, queries, distance):
    index = ApproximateIndex.build(memory, distance, k=20, recall=0.95)
    distances, numbers = index.search(queries, 20)
    expected, rows = dense_distances(queries.double(), memory.double(), 20, distance).topk(
        20, largest=False
    )
    assert index.recall >= 0.95
    assert recall(numbers.tolist(), rows.tolist()) >= 0.93
    assert index.probes < 0.5 * 4 * 6000**0.5  # it does not look everywhere
    exact = DISTANCES[distance](queries.double(), memory.double()).gather(1, numbers)
    FLOAT32.assert_close(distances, exact.float())
    assert torch.equal(distances, distances.sort(dim=1).values)
    assert (distances >= expected.float() - 1e-3).all()
    assert all(len(set(row)) == 20 for row in numbers.tolist())


@needs_faiss
def test_a_higher_recall_probes_more(memory):
    low, high = (ApproximateIndex.build(memory, k=50, recall=one) for one in (0.6, 0.999))
    assert low.probes < high.probes
    assert low.recall < high.recall


@needs_faiss
def test_lists_with_too_few_rows_are_searched_exactly(memory, queries):
    index = ApproximateIndex.build(memory, k=5, recall=0.5)
    index.probes = 1
    distances, numbers = index.search(queries[:10], 5000)
    expected = nearest(queries[:10], memory, 5000)
    assert torch.equal(numbers, expected[1])
    assert torch.equal(distances, expected[0])


@needs_faiss
def test_fewer_candidates_than_wanted_are_not_repeated(memory, queries):
    """Lists that hold k rows, but not as many candidates as are compared exactly."""
    index = ApproximateIndex.build(memory, k=5, recall=0.5)
    index.probes, index.candidates = 1, 50.0
    _, numbers = index.search(queries, 10)
    assert all(len(set(row)) == 10 for row in numbers.tolist())


@needs_faiss
@pytest.mark.parametrize("rows", [1, 3, 50, 500])
def test_small_memories(rows):
    memory = clusters(rows, seed=3)
    index = ApproximateIndex.build(memory, recall=1.0)
    distances, numbers = index.search(memory, 600)
    assert distances.shape == numbers.shape == (rows, rows)
    assert torch.equal(numbers[:, 0], torch.arange(rows))
    assert index.search(memory[:0], 3)[1].shape == (0, min(3, rows))


@needs_faiss
def test_a_file_gives_the_same_answers(memory, queries, tmp_path):
    index = ApproximateIndex.build(memory, "cosine", k=20, recall=0.9)
    index.save(tmp_path / "index.safetensors")
    loaded = ApproximateIndex.load(tmp_path / "index.safetensors", memory)
    for got, expected in zip(loaded.search(queries, 9), index.search(queries, 9), strict=True):
        assert torch.equal(got, expected)
    assert (loaded.probes, loaded.recall) == (index.probes, index.recall)
    with pytest.raises(HierlearnError, match=r"\(6000, 96\) embeddings, not of \(5900, 96\)"):
        ApproximateIndex.load(tmp_path / "index.safetensors", memory[100:])


@needs_faiss
def test_another_file_is_refused(memory, tmp_path):
    from safetensors.torch import save_file

    save_file({"rows": torch.arange(3)}, tmp_path / "other.safetensors")
    with pytest.raises(HierlearnError, match=r"other.safetensors is not an index"):
        ApproximateIndex.load(tmp_path / "other.safetensors", memory)


@needs_faiss
def test_errors_after_building(memory):
    index = ApproximateIndex.build(memory[:100])
    with pytest.raises(HierlearnError, match=r"queries \(2, 3\) and k = 1 must be \(n, 96\)"):
        index.search(torch.zeros(2, 3), 1)


def test_errors_before_building():
    with pytest.raises(HierlearnError, match="one index for each member"):
        ApproximateIndex.build(torch.zeros(2, 3, 4))
    with pytest.raises(HierlearnError, match=r"recall is 1\.5"):
        ApproximateIndex.build(torch.zeros(3, 4), recall=1.5)
    with pytest.raises(HierlearnError, match="unknown distance 'far'"):
        ApproximateIndex.build(torch.zeros(3, 4), "far")


def test_without_faiss_an_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(HierlearnError, match=r"pip install faiss-cpu"):
        ApproximateIndex.build(torch.zeros(3, 4))


def test_faiss_is_not_imported_with_the_module():
    code = "import sys, hierlearn.memory.index; print('faiss' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


@pytest.mark.slow
@needs_faiss
@pytest.mark.parametrize("order", ["torch, faiss", "faiss, torch"])
def test_torch_and_faiss_live_in_one_process(order):
    """Each brings an OpenMP runtime of its own."""
    code = f"""import {order}
from hierlearn.memory.index import ApproximateIndex
import torch
torch.set_num_threads(2)
rows = torch.randn(3000, 80, generator=torch.Generator().manual_seed(0))
index = ApproximateIndex.build(rows, k=5)
print(index.search(rows, 1)[1][:, 0].eq(torch.arange(3000)).float().mean() > 0.99)
print((rows @ rows.T).shape)"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "tensor(True)\ntorch.Size([3000, 3000])\n"
