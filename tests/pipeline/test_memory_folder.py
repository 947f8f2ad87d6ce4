"""MemoryFolder: rows that come and go without the rest of the memory being read or written."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import warm
from hierlearn import Dataset, Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.files import writing
from hierlearn.networks.memories import embeddings_of, remembered
from hierlearn.pipeline import Pipeline, memory_files, train
from hierlearn.pipeline import remember as in_memory
from hierlearn.pipeline import remember as memory_folder
from hierlearn.pipeline.explain import explain
from hierlearn.pipeline.memory_files import id_digests, rows_with_ids
from hierlearn.pipeline.remember import MemoryFolder, first_small_shard
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.seen_rows import row_digests
from shards import memory
from training.datasets import neighbor_plan, partial_problem, problem, texts

QUIET = Reporting(bar=False)
TREE = Hierarchy.from_paths(["a/b", "a/c", "d/e", "d/f"])


def clusters(rows=24, seed=0, labels=None):
    rng = np.random.default_rng(seed)
    ends = [TREE.names[number] for number in TREE.leaves]
    chosen = labels or [ends[number % len(ends)] for number in range(rows)]
    return Dataset(
        rng.standard_normal((rows, 4)).astype(np.float32), [[one] for one in chosen], TREE
    )


def model_of(dataset, folder, **options):
    chosen = neighbor_plan(**{"epochs": 1, **options})
    train(dataset, chosen, reporting=QUIET).save(folder)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return model_of(clusters(), tmp_path_factory.mktemp("models") / "m")


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "m")


def files(folder):
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.iterdir()
        if path.is_file()
    }


def shards(folder):
    return [one["file"] for one in json.loads((folder / "memory.json").read_text())["shards"]]


def assert_same(one, other, inputs):
    """Two pipelines remember the same and answer the same, bit for bit."""
    mine, theirs = remembered(one.network), remembered(other.network)
    assert [str(x) for x in mine.ids] == [str(x) for x in theirs.ids]
    assert mine.labels.names(range(len(mine))) == theirs.labels.names(range(len(theirs)))
    assert (mine.texts is None) == (theirs.texts is None)
    assert list(mine.texts or ()) == list(theirs.texts or ())
    assert (mine.weights is None) == (theirs.weights is None)
    for name, held in embeddings_of(one.network).items():
        assert torch.equal(held, embeddings_of(other.network)[name])
    assert torch.equal(one.probabilities(inputs), other.probabilities(inputs))
    assert one.hierarchy == other.hierarchy
    assert one.label_space.terminals.tolist() == other.label_space.terminals.tolist()
    assert one.seen.overlap(row_digests(one, inputs)) == other.seen.overlap(
        row_digests(other, inputs)
    )
    names = ("history", "next_id", "metrics", "metrics_before")
    assert {name: one.config.get(name) for name in names} == {
        name: other.config.get(name) for name in names
    }


CASES = {
    "one network": (clusters, {}, lambda: clusters(5, seed=1)),
    "an ensemble": (clusters, {"ensemble_size": 2}, lambda: clusters(5, seed=1)),
    "joint heads": (
        clusters,
        {"joint": {"bce": 1.0}, "answer": "main"},
        lambda: clusters(5, seed=1),
    ),
    "partial labels": (
        partial_problem,
        {"unlabeled_descendants": "ignore"},
        lambda: partial_problem(seed=1).take(range(5)),
    ),
    "several labels": (problem, {}, lambda: problem(seed=1).take(range(5))),
    "texts": (texts, {"network": "token-bag"}, texts),
}


@pytest.mark.parametrize("case", CASES)
def test_a_folder_that_grew_is_what_a_pipeline_in_memory_becomes(tmp_path, case):
    make, options, make_more = CASES[case]
    dataset, more = make(), make_more()
    folder = model_of(dataset, tmp_path / "m", **options)
    model = Pipeline.load(folder)
    for names in (None, [f"new {number}" for number in range(len(more.labels))]):
        with MemoryFolder.open(folder) as held:
            found = held.remember(more.inputs, more.labels, ids=names)
        assert found == in_memory.remember(model, more.inputs, more.labels, ids=names)
    assert len(shards(folder)) == 3
    assert_same(Pipeline.load(folder), model, dataset.inputs)
    with MemoryFolder.open(folder) as held:
        assert held.forget(["new 2", "0"]) == in_memory.forget(model, ["new 2", "0"]) == 2
        assert len(held) == len(remembered(model.network))
    assert_same(Pipeline.load(folder), model, dataset.inputs)
    again = model.save(tmp_path / "whole")
    assert_same(Pipeline.load(again), model, dataset.inputs)


def test_weights_of_new_rows(folder):
    more, model = clusters(5, seed=1), Pipeline.load(folder)
    weights = np.array([1.0, 2.0, 0.5, 3.0, 1.0])
    with MemoryFolder.open(folder) as held:
        held.remember(more.inputs, more.labels, weights=weights)
    in_memory.remember(model, more.inputs, more.labels, weights=weights)
    loaded = Pipeline.load(folder)
    assert remembered(loaded.network).weights.tolist() == [1.0] * 24 + weights.tolist()
    assert torch.equal(loaded.probabilities(more.inputs), model.probabilities(more.inputs))


def test_new_classes_leave_the_shards_as_they_are(folder):
    model, before = Pipeline.load(folder), files(folder)
    more = clusters(4, seed=1, labels=["a/aa", "a/b/bb", "a/aa", "d/f"])  # before and below others
    with MemoryFolder.open(folder) as held:
        found = held.remember(more.inputs, more.labels)
        assert "a/aa" in held.pipeline.hierarchy
    assert found == in_memory.remember(model, more.inputs, more.labels)
    assert set(found.classes) == {"a/aa", "a/b/bb"}
    after = files(folder)
    assert after["memory-00001.safetensors"] == before["memory-00001.safetensors"]
    assert after["hierarchy.json"][2] != before["hierarchy.json"][2]
    assert_same(Pipeline.load(folder), model, more.inputs)


def test_new_classes_of_a_model_with_joint_heads(tmp_path):
    folder = model_of(clusters(), tmp_path / "m", joint={"bce": 1.0}, answer="main")
    model = Pipeline.load(folder)
    more = clusters(2, seed=1, labels=["a/new", "d/f"])
    with MemoryFolder.open(folder) as held:
        held.remember(more.inputs, more.labels)
    in_memory.remember(model, more.inputs, more.labels)
    assert_same(Pipeline.load(folder), model, more.inputs)


# ---------------------------------------------------------------------- what is written


def test_remembering_reads_and_writes_nothing_of_the_earlier_shards(folder, monkeypatch):
    before = files(folder)
    real, read = memory_files.read_shard, []
    monkeypatch.setattr(memory_files, "read_shard", lambda path, *rest: read.append(path))
    more = clusters(5, seed=1)
    with MemoryFolder.open(folder) as held:
        held.remember(more.inputs, more.labels)
    monkeypatch.setattr(memory_files, "read_shard", real)
    after = files(folder)
    assert read == []
    same = {name for name in before if before[name] == after[name]}
    assert same == {
        "memory-00001.safetensors",
        "model.safetensors",
        "hierarchy.json",
        "rows.safetensors",
    }
    assert set(after) - set(before) == {"memory-00002.safetensors"}
    assert not list(folder.glob(".*"))


def test_bytes_written_do_not_grow_with_the_memory(tmp_path):
    sizes = []
    for number, rows in enumerate((50, 2000)):
        folder = model_of(clusters(rows), tmp_path / str(number))
        known, more = set(files(folder)), clusters(5, seed=1)
        before = files(folder)
        with MemoryFolder.open(folder) as held:
            held.remember(more.inputs, more.labels)
        after = files(folder)
        changed = [name for name in after if before.get(name) != after[name]]
        assert set(changed) - known == {"memory-00002.safetensors"}
        sizes.append(sum(len(after[name][2]) for name in changed))
    assert abs(sizes[1] - sizes[0]) < 200, sizes  # digits of some numbers


def test_forgetting_writes_the_shards_again_that_held_the_rows(tmp_path):
    dataset = replace(texts(), ids=tuple(f"id-{number:03}" for number in range(24)))
    folder = model_of(dataset, tmp_path / "m", network="token-bag")
    with MemoryFolder.open(folder) as held:
        held.remember(["one more text"], [dataset.labels[0]], ids=["later"])
    before = files(folder)
    with MemoryFolder.open(folder) as held:
        assert held.forget(["id-004", "id-007"]) == 2
        with pytest.raises(HierlearnError, match="no row with id 'id-004'; it has 'id-000'"):
            held.forget(["id-004"])
    assert shards(folder) == ["memory-00003.safetensors", "memory-00002.safetensors"]
    assert files(folder)["memory-00002.safetensors"] == before["memory-00002.safetensors"]
    written = b"".join(one[2] for one in files(folder).values())
    assert b"id-004" not in written
    assert b"id-007" not in written
    assert b"id-008" in written
    found = [one.id for row in explain(Pipeline.load(folder), dataset.inputs, 23) for one in row]
    assert set(found) == set(memory(folder)["ids"])
    assert len(set(found)) == 23
    with MemoryFolder.open(folder) as held:
        assert held.forget("later") == 1
    assert shards(folder) == ["memory-00003.safetensors"]
    assert len(remembered(Pipeline.load(folder).network)) == 22


def test_what_cannot_be_forgotten(folder):
    before = files(folder)
    with MemoryFolder.open(folder) as held:
        with pytest.raises(HierlearnError, match="these are all 24 rows of the memory"):
            held.forget([str(number) for number in range(24)])
        with pytest.raises(HierlearnError, match="no row with id 'x'"):
            held.forget(["1", "x"])
    assert files(folder) == before


def test_rows_are_found_by_id_in_a_file_that_is_not_read(folder):
    path = folder / "memory-00001.safetensors"
    rows, which = rows_with_ids(path, id_digests(["7", "none", "3", "7"]))
    assert rows.tolist() == [7, 3, 7]
    assert which.tolist() == [0, 2, 3]


# ---------------------------------------------------------------------- many shards


def test_small_shards_are_joined_when_there_are_many(folder, monkeypatch):
    monkeypatch.setattr(memory_folder, "MOST", 4)
    model, counts = Pipeline.load(folder), []
    first = files(folder)["memory-00001.safetensors"]
    for number in range(9):
        more = clusters(2, seed=number + 1)
        with MemoryFolder.open(folder) as held:
            held.remember(more.inputs, more.labels)
            if number in (2, 5):
                held.forget([str(24 + number)])
        in_memory.remember(model, more.inputs, more.labels)
        if number in (2, 5):
            in_memory.forget(model, [str(24 + number)])
        counts.append(len(shards(folder)))
        assert_same(Pipeline.load(folder), model, clusters().inputs)
    assert max(counts) == 4
    assert min(counts[3:]) == 3
    assert files(folder)["memory-00001.safetensors"] == first


@pytest.mark.parametrize(
    ("rows", "first"),
    [([1000, 1, 1, 1], 1), ([1000, 9, 5, 5], 1), ([1000, 11, 5, 5], 2), ([1, 1], 0)],
)
def test_which_shards_are_small(rows, first, monkeypatch):
    monkeypatch.setattr(memory_folder, "MOST", 2)
    listed = [memory_files.ShardEntry("", count) for count in rows]
    assert first_small_shard(memory_files.Manifest("negative", False, shards=listed)) == first


def test_shards_of_a_row_are_written_again_as_often_as_the_memory_doubles(monkeypatch):
    """Amortized: 10,000 calls of one row each write every row a dozen times, not 10,000."""
    held, written = memory_files.Manifest("negative", False), 0
    for _ in range(10_000):
        if len(held.shards) >= 64:
            start = first_small_shard(held)
            rows = sum(one.rows for one in held.shards[start:])
            assert rows
            written += rows
            held.shards[start:] = [memory_files.ShardEntry("", rows)]
        held.shards.append(memory_files.ShardEntry("", 1))
    assert written < 13 * 10_000
    assert len(held.shards) <= 64


def test_full_shards_are_not_joined_by_remember(monkeypatch):
    monkeypatch.setattr(memory_folder, "ROWS", 10)
    monkeypatch.setattr(memory_folder, "MOST", 3)
    for rows, wanted in (
        ([10] * 20, 20),
        ([10, 12, 1, 1], 4),
        ([1, 1, 10, 3, 2, 1], 3),
        ([10, 9, 5, 3, 1], 1),
    ):
        listed = [memory_files.ShardEntry("", count) for count in rows]
        assert first_small_shard(memory_files.Manifest("negative", False, shards=listed)) == wanted


def test_a_whole_memory_is_written_in_shards(folder, tmp_path, monkeypatch):
    model = Pipeline.load(folder)
    monkeypatch.setattr(memory_files, "ROWS", 10)
    model.save(tmp_path / "parts")
    assert [
        one["rows"]
        for one in json.loads((tmp_path / "parts" / "memory.json").read_text())["shards"]
    ] == [10, 10, 4]
    assert_same(Pipeline.load(tmp_path / "parts"), model, clusters().inputs)


def test_an_index_goes_with_the_rows_it_was_built_of(folder):
    pytest.importorskip("faiss")
    model = Pipeline.load(folder)
    in_memory.build_index(model)
    model.save(folder, force=True)
    name = "index-main-0.safetensors"
    assert (folder / name).is_file()
    more = clusters(5, seed=1)
    with MemoryFolder.open(folder) as held:
        held.remember(more.inputs, more.labels)
    assert not (folder / name).exists()


# ---------------------------------------------------------------------- damage


def test_a_model_without_a_memory_is_refused(tmp_path):
    from training.datasets import plan

    train(problem(), plan(epochs=1), reporting=QUIET).save(tmp_path / "m")
    with pytest.raises(HierlearnError, match="m has no memory"), MemoryFolder.open(tmp_path / "m"):
        pass


# ---------------------------------------------------------------------- several processes

WRITER = """
import sys
import numpy as np
from hierlearn.pipeline.remember import MemoryFolder
folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    with MemoryFolder.open(folder) as held:
        rows = np.full((2, 4), number, dtype=np.float32)
        held.remember(rows, [["a/b"]] * 2, ids=[f"{name}-{number}-{one}" for one in range(2)])
"""


def test_two_processes_at_once_lose_nothing(folder):
    def begin(name):
        return subprocess.Popen(
            [*warm.python(), "-c", WRITER, str(folder), name, "3"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    with begin("x") as first, begin("y") as second:
        both = (first, second)
        for one in both:
            assert one.stdout.readline() == "ready\n"
        for one in both:
            one.stdin.write("\n")
            one.stdin.flush()
        while any(one.poll() is None for one in both):
            Pipeline.load(folder)  # which reads whole models meanwhile
            time.sleep(0.02)
        assert [one.wait(240) for one in both] == [0, 0]
    new = memory(folder)["ids"][24:]
    assert sorted(new) == sorted(
        f"{name}-{number}-{one}" for name in "xy" for number in range(3) for one in range(2)
    )
    for name in "xy":
        own = [one for one in new if one.startswith(name)]
        assert own == sorted(own)
    assert len(remembered(Pipeline.load(folder).network)) == 24 + 12


def test_a_folder_that_another_process_holds_is_named(folder, monkeypatch):
    code = (
        "import sys; from pathlib import Path; from hierlearn.files.writing import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "held\n"
        begun = time.monotonic()
        with (
            pytest.raises(
                writing.BusyError, match="m is being changed by another process, for more"
            ),
            writing.locked(folder, 0.2),
        ):
            pass
        assert time.monotonic() - begun < 60
        other.kill()  # and its lock is gone with it
    with writing.locked(folder, 10), writing.locked(folder, 0.2):
        pass
