"""Row groups shared out among processes: every row once, each process its own part of the bytes."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import counted_files
from hierlearn.datasets import stream_table
from hierlearn.pipeline import Pipeline
from hierlearn.training.processes import Processes
from hierlearn.training.seeding import epoch_order
from hierlearn.training.stream import ParquetRows, ShardOrder, StreamedBatches, quota, share_count
from training import parquet_worker as job
from training.datasets import read_records, state
from training.test_stream import CPU, rows_of, write
from two_processes import launch


class Files:
    """What the order of rows needs to know of them."""

    def __init__(self, sizes, window):
        self.bounds = np.concatenate([[0], np.cumsum(sizes)])
        self.source = self
        self.window = window
        self.cache = self
        self.expected = []

    def __len__(self):
        return int(self.bounds[-1])

    def expect(self, now, ahead):
        self.expected.append((set(now), set(ahead)))


def batches(files, rank, world, size, seeds=(0,), epoch=0, shards=None):
    here = Processes(rank, world, CPU)
    return StreamedBatches(files, list(seeds), epoch, size, here, shards or world)


uneven = st.lists(st.integers(0, 12), min_size=1, max_size=12).filter(sum)


@settings(deadline=None, max_examples=150)
@given(uneven, st.integers(1, 40), st.integers(1, 9), st.integers(1, 5), st.integers(0, 3))
def test_every_row_is_read_once_by_the_process_that_has_its_group(
    sizes, window, size, world, epoch
):
    files = Files(sizes, window)
    steps = -(-len(files) // size)
    parts = [batches(files, rank, world, size, epoch=epoch) for rank in range(world)]
    seen, readers = [], {}
    for place in range(steps):
        shares = [one.share(place)[0] for one in parts]
        whole = parts[0].whole(place)[0]
        assert len(whole) == min(size, len(files) - place * size)
        for rank, share in enumerate(shares):
            assert share.tolist() == whole[rank::world].tolist(), "as a batch in memory is shared"
            for group in np.searchsorted(files.bounds, share.numpy(), side="right") - 1:
                readers.setdefault(int(group), set()).add(rank)
        seen += whole.tolist()
    assert sorted(seen) == list(range(len(files)))
    assert sum(map(len, readers.values())) <= len(readers) + world - 1
    assert sum(quota(len(files), size, rank, world) for rank in range(world)) == len(files)
    rows = [quota(len(files), size, rank, world) for rank in range(world)]
    assert max(rows) - min(rows) <= steps, "at most a row per batch"


def test_one_process_with_a_large_window_has_the_order_of_rows_in_memory():
    files = Files([5, 0, 7, 3], 15)
    for seed, epoch in ((0, 0), (0, 1), (3, 1)):
        found = batches(files, 0, 1, 4, [seed], epoch)
        order = torch.cat([found.share(place) for place in range(4)], dim=1)
        assert torch.equal(order, epoch_order([seed], 15, epoch))


def test_the_order_depends_on_seed_epoch_and_processes_alone():
    files = Files([6] * 9, 12)
    orders = {}
    for world in (1, 2, 3):
        for seed in (0, 1):
            for epoch in (0, 1):
                found = batches(files, 0, world, 5, [seed], epoch)
                order = [row for place in range(11) for row in found.whole(place)[0].tolist()]
                later = batches(files, 0, world, 5, [seed], epoch)  # as a resumed training
                assert later.whole(7)[0].tolist() == order[35:40]
                assert later.whole(2)[0].tolist() == order[10:15]
                orders[world, seed, epoch] = tuple(order)
    assert len(set(orders.values())) == len(orders)
    both = batches(files, 1, 2, 5, [0, 1], 1)
    for place in (0, 4):
        begin = place * 5
        wanted = [orders[2, seed, 1][begin : begin + 5][1::2] for seed in (0, 1)]
        assert both.share(place).tolist() == [list(one) for one in wanted]


def test_the_next_window_is_announced_once_per_window():
    files = Files([4] * 8, 8)
    order = ShardOrder(files, 0, 0, 4, 1, 2)
    found = batches(files, 1, 2, 4)
    for place in range(8):
        found.share(place)
    groups = [order.groups(range(k, k + 1)) for k in range(len(order.windows) + 1)]
    assert [len(one) for one in groups] == [2, 2, 0]
    assert files.expected == [(groups[0], groups[1]), (groups[1], set())]


def test_shares_of_a_batch():
    assert [share_count(7, rank, 3) for rank in range(3)] == [3, 2, 2]
    assert [share_count(1, rank, 3) for rank in range(3)] == [1, 0, 0]
    assert [quota(15, 7, rank, 2) for rank in range(2)] == [9, 6]


def test_a_share_of_no_rows_has_their_width(tmp_path):
    for text in (False, True):
        rows = rows_of(write(tmp_path / f"{text}.parquet", text=text), 20, text).rows
        x, targets, _ = rows.batch(torch.zeros(0, dtype=torch.int64))
        assert (x.shape[0], x.shape[-1]) == (0, rows.batch(torch.tensor([3]))[0].shape[-1])
        assert targets.shape[0] == 0


# ---------------------------------------------------------------------- two real processes


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return job.write_files(tmp_path_factory.mktemp("files") / "rows")


@pytest.fixture(scope="module")
def two(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("two")
    done = launch(job.__file__, files, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_each_of_two_processes_reads_about_half_of_the_bytes(two, files):
    counted_files.begin()
    dataset = stream_table(counted_files.address(files), label="y")
    counts = []
    for _ in range(3):  # a thread of another test may still be reading
        counted_files.begin()
        np.asarray(dataset.inputs)
        counts.append(counted_files.count())
    all_bytes = min(counts)
    reads = [json.loads((two / f"reads-{rank}.json").read_text()) for rank in (0, 1)]
    # The first one fits the preprocessing in two passes; the last group that it reads ahead for its
    # first epoch may count here or there.
    assert abs(reads[0][0] - reads[1][0] - 2 * all_bytes) < 0.1 * all_bytes, (all_bytes, reads)
    for _, *epochs in reads:
        assert len(epochs) == 3
        for epoch in epochs:
            # Its half, and at most a group at the border (100 of 1,123 rows at the most).
            assert 0.4 * all_bytes < epoch < 0.6 * all_bytes, (all_bytes, reads)


def test_two_processes_train_as_one_on_the_same_batches(two, files, tmp_path, monkeypatch):
    monkeypatch.setattr(ParquetRows, "shards", property(lambda self: 2, lambda self, count: None))
    job.run(files, tmp_path)
    together, alone = read_records(two / "model"), read_records(tmp_path / "model")
    for mine, theirs in zip(together, alone, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert mine["selected_by_level"] == theirs["selected_by_level"]
    mine, theirs = (Pipeline.load(one / "model").network for one in (two, tmp_path))
    for name, value in state(mine).items():
        torch.testing.assert_close(state(theirs)[name], value, rtol=1e-3, atol=2e-5)


def test_a_killed_process_changes_nothing(two, files, tmp_path):
    """The second process is killed in the middle of an epoch; torchrun starts both again."""
    middle = -(-job.ROWS // job.BATCH) + 34
    done = launch(job.__file__, files, tmp_path, "--die", "1", str(middle), "signal", restarts=1)
    assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "hierarchy.json"):
        assert (tmp_path / "model" / name).read_bytes() == (two / "model" / name).read_bytes()
    assert read_records(tmp_path / "model") == read_records(two / "model")
