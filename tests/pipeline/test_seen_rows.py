"""Which rows a model was trained on: digests, what chance explains, and which were held out."""

import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from hierlearn import Dataset, Hierarchy
from hierlearn.datasets.tables.table import Table
from hierlearn.files.tensors import CheckpointError, write_tensors
from hierlearn.pipeline import Pipeline, evaluate, seen_rows, train
from hierlearn.pipeline.remember import forget, remember
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.seen_rows import SeenRows, digests_of, row_digests, table_digests
from hierlearn.training import Plan
from training.datasets import neighbor_plan, plan, problem, texts

QUIET = Reporting(bar=False)


def draw(rows, classes=2**64, seed=0):
    return np.random.default_rng(seed).integers(0, classes, rows, dtype=np.uint64)


# ---------------------------------------------------------------------- digests


def test_numbers_are_told_apart_by_value_place_and_row():
    rows = np.random.default_rng(0).standard_normal((500, 3)).astype(np.float32)
    found = digests_of(rows, None)
    assert len(set(found.tolist())) == 500
    assert np.array_equal(digests_of(rows.astype(np.float64)[::-1], None), found[::-1])
    assert not np.isin(digests_of(rows[:, ::-1], None), found).any()
    odd = np.array([[0.0, np.nan], [-0.0, -np.nan], [0.0, 0.0]], dtype=np.float32)
    first, second, third = digests_of(odd, None).tolist()
    assert first == second != third
    assert digests_of(rows[:0], None).shape == (0,)


def test_sparse_rows_are_told_by_what_is_not_zero():
    rows = np.random.default_rng(0).integers(0, 3, (40, 6)).astype(np.float32)
    stored = csr_array(rows)
    stored.data[0] = 0  # a zero that is stored
    same = csr_array(stored.toarray())
    assert np.array_equal(digests_of(stored, None), digests_of(same, None))
    by_rows = {tuple(row) for row in same.toarray().tolist()}
    assert len(set(digests_of(same, None).tolist())) == len(by_rows)
    empty = csr_array(np.zeros((2, 6), dtype=np.float32))
    assert len(set(digests_of(empty, None).tolist())) == 1


def test_every_column_of_a_mixed_table_counts():
    columns = {
        "size": np.array([1.0, 1.0, np.nan]),
        "word": np.array(["red", "red", ""], dtype=object),
        "day": np.array(["2024-01-01", "2024-01-01", "NaT"], dtype="datetime64[s]"),
    }
    kinds = {"size": "number", "word": "category", "day": "date:%Y-%m-%d"}
    before = table_digests(Table(columns, kinds))
    assert before[0] == before[1] != before[2]
    changes = {"size": 2.0, "word": "blue", "day": np.datetime64("2024-01-02")}
    for name, value in changes.items():
        changed = columns[name].copy()
        changed[1] = value
        after = table_digests(Table({**columns, name: changed}, kinds))
        assert after[0] == before[0] != after[1]


def test_a_million_rows_are_small_and_fast(tmp_path):
    rows = np.random.default_rng(0).standard_normal((1_000_000, 4)).astype(np.float32)
    begun = time.process_time()
    found = digests_of(rows, None)
    SeenRows(found).save(tmp_path / "rows.safetensors")
    overlap = SeenRows.load(tmp_path / "rows.safetensors").overlap(found[:1000])
    assert time.process_time() - begun < 60  # about 1 s on one free core
    assert overlap.known == 1000
    assert (tmp_path / "rows.safetensors").stat().st_size < 8_100_000


# ---------------------------------------------------------------------- overlap


def test_rows_that_were_trained_on_are_counted():
    seen = SeenRows(draw(1000))
    fresh = draw(300, seed=1)
    assert seen.overlap(fresh) == seen_rows.Overlap(300, 0, True)
    assert seen.overlap(draw(1000)[:300]) == seen_rows.Overlap(300, 300, False)
    some = np.concatenate([draw(1000)[:10], fresh])
    assert seen.overlap(some) == seen_rows.Overlap(310, 10, True)  # 3 %: said, not refused
    many = np.concatenate([draw(1000)[:60], fresh])
    assert seen.overlap(many) == seen_rows.Overlap(360, 60, False)
    assert seen.overlap(fresh[:0]) == seen_rows.Overlap(0, 0, True)


@pytest.mark.parametrize("classes", [3, 50, 1000])
def test_rows_of_few_values_are_known_by_chance(classes):
    """Fresh rows of the same source are never refused, the training rows always are."""
    for seed in range(50):
        trained = draw(600, classes, seed)
        distinct = set(trained.tolist())
        for count in (20, 200, 3000):
            fresh = draw(count, classes, seed + 1000)
            overlap = SeenRows(trained).overlap(fresh)
            assert overlap.known == sum(one in distinct for one in fresh.tolist())
            assert overlap.by_chance
        order = np.random.default_rng(seed).permutation(600)
        assert not SeenRows(trained).overlap(trained[order]).by_chance


def test_rows_that_chose_the_weights_count_only_where_asked():
    seen = SeenRows(draw(100), draw(30, seed=1), np.arange(30), selected=True)
    held = draw(30, seed=1)
    assert seen.overlap(held).known == 0
    assert seen.overlap(held, selecting=True) == seen_rows.Overlap(30, 30, False)
    assert replace(seen, selected=False).overlap(held, selecting=True).known == 0


def test_of_very_many_rows_a_sample_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(seen_rows, "MOST", 2000)
    seen = SeenRows(draw(20_000))
    assert len(seen.trained) == 2000
    seen.save(tmp_path / "rows")
    seen = SeenRows.load(tmp_path / "rows")
    assert seen.overlap(draw(20_000)[:5000]) == seen_rows.Overlap(5000, 5000, False)
    half = np.concatenate([draw(20_000)[:5000], draw(5000, seed=1)])
    assert seen.overlap(half).known == pytest.approx(5000, abs=600)
    assert seen.overlap(draw(5000, seed=1)).known == 0
    more = seen.with_rows(draw(5000, seed=1))
    assert len(more.trained) == 2000
    assert more.overlap(draw(5000, seed=1)).known == 5000


# ---------------------------------------------------------------------- held-out rows


def test_the_held_out_rows_are_found_in_any_order():
    rows = draw(200, 60)  # many equal ones
    numbers = np.sort(np.random.default_rng(1).choice(200, 40, replace=False))
    seen = SeenRows(np.delete(rows, numbers), rows[numbers], numbers)
    assert np.array_equal(seen.find_held_out(rows), numbers)
    order = np.random.default_rng(2).permutation(200)
    found = seen.find_held_out(rows[order])
    assert Counter(rows[order][found].tolist()) == Counter(rows[numbers].tolist())
    assert np.array_equal(found, np.sort(found))
    assert len(seen.find_held_out(draw(50, seed=9))) == 0
    assert len(SeenRows(rows).find_held_out(rows)) == 0


def test_a_model_evaluates_the_rows_that_it_held_out(tmp_path):
    dataset = replace(problem(100), splits={})
    fraction = replace(plan(epochs=2), valid_fraction=0.3)
    train(dataset, fraction, out=tmp_path / "m", reporting=QUIET)
    model = Pipeline.load(tmp_path / "m")
    found = model.seen.find_held_out(row_digests(model, dataset.inputs))
    assert len(found) == 30
    assert evaluate(model, dataset.take(found)) == model.config["metrics"]["valid"]
    assert model.seen.overlap(row_digests(model, dataset.take(found).inputs)).known == 0
    assert model.seen.overlap(row_digests(model, dataset.inputs)).known == 70
    assert not model.seen.selected


def test_early_stopping_selects_by_the_held_out_rows():
    found = train(problem(), plan(epochs=2, patience=1), reporting=QUIET)
    assert found.seen.selected
    assert not train(problem(), plan(epochs=2), reporting=QUIET).seen.selected


# ---------------------------------------------------------------------- kinds of training


def test_streams_know_their_rows(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from hierlearn.datasets import read_table, stream_table

    lines = texts(40)
    columns = {"t": [f"{text} {row}" for row, text in enumerate(lines.inputs)]}
    labels = [row[0] for row in lines.labels]
    pq.write_table(pa.table({**columns, "y": labels}), tmp_path / "t.parquet", row_group_size=7)
    columns = {"label": "y", "text": "t", "hierarchy": lines.hierarchy}
    streamed = stream_table(tmp_path / "t.parquet", **columns)
    chosen = replace(plan(epochs=1), valid_fraction=0.25)
    model = train(streamed, chosen, reporting=QUIET)
    again = read_table(tmp_path / "t.parquet", **columns)
    assert model.seen.overlap(row_digests(model, again.inputs)).known == 30
    in_memory = train(again, chosen, reporting=QUIET)
    assert np.array_equal(in_memory.seen.trained, model.seen.trained)
    assert np.array_equal(in_memory.seen.held_out, model.seen.held_out)


def test_blends_are_trained_on_all_rows_but_the_test_rows():
    dataset = problem(80)
    settings = {"epochs": 1, "batch_size": 16, "ensemble_size": 1}
    model = train(dataset, Plan(effort="best", settings=settings), reporting=QUIET)
    digests = row_digests(model, dataset.inputs)
    for name in ("train", "valid"):
        assert not model.seen.overlap(digests[dataset.splits[name]]).by_chance
    assert model.seen.overlap(digests[dataset.splits["test"]]).known == 0


def test_remembered_rows_are_seen_and_forgetting_does_not_undo_that(tmp_path):
    dataset = problem(80)
    model = train(dataset, neighbor_plan(epochs=1), reporting=QUIET)
    new = dataset.split("test")
    assert model.seen.overlap(row_digests(model, new.inputs)).known == 0
    ids = [f"new{row}" for row in range(len(new))]
    remember(model, new.inputs, new.labels, ids=ids)
    model.save(tmp_path / "m")
    loaded = Pipeline.load(tmp_path / "m")
    assert loaded.seen.overlap(row_digests(loaded, new.inputs)).known == len(new)
    forget(loaded, ids)
    assert loaded.seen.overlap(row_digests(loaded, new.inputs)).known == len(new)


def test_a_model_that_does_not_know_its_rows_is_saved_without_them(tmp_path):
    model = train(problem(), plan(epochs=1), reporting=QUIET)
    model.seen = None
    folder = model.save(tmp_path / "m")
    assert not (folder / "rows.safetensors").exists()
    assert Pipeline.load(folder).seen is None


def test_a_damaged_file_is_named(tmp_path):
    write_tensors(tmp_path / "rows.safetensors", {}, {"format": "hierlearn.rows"})
    with pytest.raises(CheckpointError, match=r"rows\.safetensors does not hold the rows of a mod"):
        SeenRows.load(tmp_path / "rows.safetensors")


def test_rows_differ_by_their_inputs_alone():
    tree = Hierarchy.from_paths(["a", "b"])
    dataset = Dataset(["x", "y", "x y"] * 4, [["a"], ["b"], ["a"]] * 4, tree)
    model = train(dataset, plan("leaf-ce", network="linear", epochs=1), reporting=QUIET)
    assert model.seen.overlap(row_digests(model, ["x", "z"])).known == 1
