"""Rows that stay in a Parquet file train as rows in memory do, a window at a time."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from hierlearn.datasets import read_table, stream_table
from hierlearn.networks import SparseRows
from hierlearn.networks.ensemble import member_state
from hierlearn.pipeline.run import check_identity, run_identity
from hierlearn.pipeline.train import train
from hierlearn.training.checkpoint import Checkpoint, CheckpointError
from hierlearn.training.prepare import prepare
from hierlearn.training.settings import Plan
from hierlearn.training.solvers.gradient import Trainer
from hierlearn.training.stream import ParquetRows, Piece, ShardOrder, pack_windows

CPU = torch.device("cpu")
CLASSES = ["a/b", "a/c", "d", "d/e/f"]
GROUP = 8


def write(path, rows=60, group=GROUP, text=False):
    """Write a table of 3 numbers with gaps, or of texts; a validation row in every 5."""
    draw = np.random.default_rng(3)
    kinds = draw.integers(0, 4, rows)
    values = kinds[:, None] + draw.standard_normal((rows, 3))
    columns = {f"x{k}": pa.array(values[:, k], mask=draw.random(rows) < 0.1) for k in range(3)}
    if text:
        words = np.array(["red", "blue", "small", "round"])
        columns = {
            "text": [f"{words[k]} {words[k - 1]} thing{row % 7}" for row, k in enumerate(kinds)]
        }
    columns |= {
        "y": [CLASSES[k] for k in kinds],
        "part": ["train", "train", "valid", "train", "train"] * (rows // 5),
    }
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "rows.parquet")


def options(text=False):
    return {"label": "y", "split": "part"} | ({"text": "text"} if text else {})


def small(**settings):
    chosen = {"epochs": 3, "batch_size": 7, **settings}
    return Plan(network_options={"width": 5}, calibration=False, settings=chosen)


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("seeds", [1, 2])
def test_a_window_that_covers_the_file_trains_as_in_memory_bit_for_bit(tmp_path, text, seeds):
    path = write(tmp_path / "rows.parquet", text=text)
    plan = small(ensemble_size=seeds)
    held = train(read_table(path, **options(text)), plan)
    streamed = train(stream_table(path, **options(text)), plan)
    for name, value in held.network.state_dict().items():
        torch.testing.assert_close(streamed.network.state_dict()[name], value, rtol=0, atol=0)
    assert streamed.preprocessor.state()[0] == held.preprocessor.state()[0]
    for name, array in held.preprocessor.state()[1].items():
        np.testing.assert_array_equal(streamed.preprocessor.state()[1][name], array)
    assert streamed.config["metrics"] == held.config["metrics"]
    assert held.config["metrics"]["valid"]["f1"] > 0


def test_levels_are_trained_one_after_another_by_streamed_rows(table):
    plan = Plan(
        recipe="hmc-lmlp",
        network_options={"width": 5},
        settings={"epochs": 4, "batch_size": 7, "ensemble_size": 2},
    )
    held = train(read_table(table, **options()), plan)
    streamed = train(stream_table(table, **options()), plan)
    for name, value in held.network.state_dict().items():
        torch.testing.assert_close(streamed.network.state_dict()[name], value, rtol=0, atol=0)


def test_bins_are_fitted_to_a_file_bit_for_bit(table):
    chosen = replace(small(), preprocessing="piecewise-linear")
    held = train(read_table(table, **options()), chosen)
    streamed = train(stream_table(table, **options()), chosen)
    for name, value in held.network.state_dict().items():
        assert torch.equal(streamed.network.state_dict()[name], value)
    for name, array in held.preprocessor.state()[1].items():
        np.testing.assert_array_equal(streamed.preprocessor.state()[1][name], array)


def rows_of(path, window, text=False, ensemble_size=1):
    prepared = prepare(
        stream_table(path, window=window, **options(text)), small(ensemble_size=ensemble_size), CPU
    )
    assert isinstance(prepared.rows, ParquetRows)
    assert isinstance(prepared.valid, ParquetRows)
    return prepared


@pytest.mark.parametrize("text", [False, True])
def test_batches_are_those_of_the_rows_in_memory(tmp_path, text):
    path = write(tmp_path / "rows.parquet", text=text)
    ours = rows_of(path, 10, text).rows
    theirs = prepare(read_table(path, **options(text)), small(), CPU).rows
    draw = torch.Generator().manual_seed(1)
    for index in (
        torch.randperm(len(ours), generator=draw)[:11],
        torch.randint(len(ours), (2, 6), generator=draw),
        torch.tensor([0]),
        torch.arange(len(ours)),
    ):
        (x, targets, mask), (y, wanted, _) = ours.batch(index), theirs.batch(index)
        if text:
            assert isinstance(x, SparseRows)
            assert (x.members, x.shape) == (y.members, y.shape)
            x, y = x.dense(), y.dense()
        torch.testing.assert_close(x, y, rtol=0, atol=0)
        torch.testing.assert_close(targets, wanted)
        assert mask is None


def windows_of(rows, seed, epoch):
    order = ShardOrder(rows, seed, epoch, size=7)
    return [order.window(number) for number in range(len(order.windows))]


def test_an_epoch_reads_every_row_once_a_window_at_a_time(table):
    rows = rows_of(table, 20).rows
    groups = np.searchsorted(rows.bounds, np.arange(len(rows)), side="right")
    orders, cuts = {}, set()
    for seed in (0, 1):
        for epoch in (0, 1):
            order = rows.order([seed], epoch)[0]
            assert sorted(order.tolist()) == list(range(len(rows)))
            windows = windows_of(rows, seed, epoch)
            assert torch.equal(torch.cat(windows), order)
            assert max(map(len, windows)) <= 20
            assert len(windows) > 2
            met = [set(groups[window]) for window in windows]
            assert sum(map(len, met)) == len(set.union(*met)), "a row group lies in one window"
            orders[seed, epoch] = tuple(order.tolist())
            cuts.add(frozenset(map(frozenset, met)))
    assert len(set(orders.values())) == 4
    assert len(cuts) == 4, "row groups meet others in every epoch"
    both = rows.order([0, 1], 1)
    assert [tuple(order) for order in both.tolist()] == [orders[0, 1], orders[1, 1]]


def test_no_more_than_a_window_is_held(table):
    rows = rows_of(table, 20).rows
    most = 0
    for begin in range(0, len(rows), 7):
        rows.batch(rows.order([0], 0)[0][begin : begin + 7])
        most = max(most, rows.cache.rows)
    assert 0 < most <= 20
    one = rows_of(table, 3).rows  # a row group is the least that can be read
    one.batch(torch.arange(len(one)))
    assert one.cache.rows <= GROUP


def test_row_groups_are_cut_into_windows():
    bounds = np.array([0, 4, 7, 12])
    pieces = [Piece(2, 7, 12), Piece(0, 0, 4), Piece(1, 4, 7)]
    assert list(pack_windows(pieces, bounds, 8)) == [pieces[:1], pieces[1:]]
    assert list(pack_windows(pieces, bounds, 2)) == [pieces[:1], pieces[1:2], pieces[2:]]
    half = [Piece(2, 10, 12), Piece(0, 0, 4)]  # the group of 5 is held, whatever is used of it
    assert list(pack_windows(half, bounds, 8)) == [half[:1], half[1:]]
    assert list(pack_windows([], bounds, 4)) == []


def trainer_of(prepared, **settings):
    return Trainer(
        prepared.network,
        prepared.loss,
        prepared.rows,
        replace(prepared.decision.settings, **settings),
        valid=prepared.valid,
        read=prepared.read,
    )


def test_a_streamed_training_goes_on_bit_for_bit_from_the_end_of_an_epoch(table, tmp_path):
    whole = rows_of(table, 20)
    trainer_of(whole).train()
    kept = {}
    first = trainer_of(rows_of(table, 20), checkpoint_every=1)
    first.save = lambda step, tensors, facts: kept.setdefault(step, (tensors, facts))
    first.train()
    assert [*kept] == [*range(first.steps_per_epoch, first.steps + 1, first.steps_per_epoch)]
    for step in [*kept][:-1]:
        again = rows_of(table, 20)
        trainer = trainer_of(again)
        trainer.resume(Checkpoint(tmp_path, *kept[step]))
        trainer.train()
        for name, value in whole.network.state_dict().items():
            found = again.network.state_dict()[name]
            torch.testing.assert_close(found, value, rtol=0, atol=0)


def test_stacked_seeds_read_what_they_read_alone(table):
    both = rows_of(table, 20, ensemble_size=2)
    trainer_of(both).train()
    for member in (0, 1):
        alone = prepare(stream_table(table, window=20, **options()), small(seed=member), CPU)
        trainer_of(alone).train()
        for name, value in alone.network.state_dict().items():
            found = member_state(both.network, member)[name]
            torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_of_other_rows_or_another_window_is_refused(table, tmp_path):
    stored = run_identity(rows_of(table, 20))
    check_identity(table, stored, run_identity(rows_of(table, 20)))
    with pytest.raises(
        CheckpointError, match="trained with stream_window=20, now stream_window=30"
    ):
        check_identity(table, stored, run_identity(rows_of(table, 30)))
    changed = pq.read_table(table).to_pandas()
    changed.loc[5, "x0"] += 1
    pq.write_table(
        pa.Table.from_pandas(changed, preserve_index=False),
        tmp_path / "b.parquet",
        row_group_size=GROUP,
    )
    with pytest.raises(CheckpointError, match="was trained on other rows"):
        check_identity(table, stored, run_identity(rows_of(tmp_path / "b.parquet", 20)))
