"""Predictor: the same answers as the command, whatever the batches and however they are given."""

import csv
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from hierlearn import Predictor, load
from hierlearn.datasets.tables.stream import TableStream
from hierlearn.errors import DataError, HierlearnError
from hierlearn.pipeline import pipeline as tiles
from hierlearn.pipeline.answers import NAMES, AnswerFormatter, Layout
from hierlearn.pipeline.predict import predict_chunks
from small_models import KINDS, made_model, write_rows

ROWS = 700


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("predictor")


@pytest.fixture
def model(folder):
    return made_model("numbers", folder)


def table_of(kind, folder, count=ROWS):
    """The rows of a file as Arrow columns, typed as another program would."""
    path = write_rows(kind, folder / f"{kind}.csv", count, 1)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    columns = {name: [row[name] or None for row in rows] for name in rows[0]}
    for name in {"a", "b", "c", "price", "weight"} & set(columns):
        columns[name] = [None if cell is None else float(cell) for cell in columns[name]]
    return path, pa.table(columns)


def inputs_of(pipeline):
    step = pipeline.preprocessor
    if step is not None and step.reads == "table":
        return {"features": step.kinds}
    if step is not None and step.reads == "texts":
        return {"text": "words"}
    return {"features": pipeline.config["feature_names"]}


def answers_of_the_command(folder, path, **more):
    """The columns that ``hierlearn predict`` writes."""
    pipeline = load(folder)
    stream = TableStream(path, **inputs_of(pipeline))
    found = predict_chunks(AnswerFormatter(pipeline, **more), stream, path)
    columns = {}
    for part, _ in found:
        for name, cells in part.items():
            columns.setdefault(name, []).extend(list(cells))
    return columns


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_command_to_the_last_bit_whatever_the_batch(kind, folder):
    model = made_model(kind, folder)
    path, table = table_of(kind, folder)
    expected = answers_of_the_command(model, path)
    predictor = Predictor(model, keep=())
    for size in (1, 3, 100, ROWS):
        rows = min(ROWS, 8 * size)
        parts = [predictor(table.slice(begin, size)) for begin in range(0, rows, size)]
        found = pa.concat_tables(parts).slice(0, rows).to_pydict()
        assert list(found) == list(NAMES)
        for name, cells in found.items():
            assert cells == expected[name][:rows], (size, name)


@pytest.mark.parametrize("threads", [1, 4])
def test_neither_the_threads_of_torch_matter_nor_the_place_in_a_tile(threads, model, folder):
    _, table = table_of("numbers", folder)
    pipeline = load(model)
    inputs = np.stack([table[name].to_numpy() for name in "abc"], axis=1).astype(np.float32)
    whole = pipeline.probabilities(inputs)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = pipeline.probabilities(inputs[::-1][37:])
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found, whole.flip(0)[37:])


def test_a_tile_is_filled_up_with_its_last_row(monkeypatch, model):
    pipeline, sizes = load(model), []
    network = pipeline.network.forward
    monkeypatch.setattr(
        pipeline.network, "forward", lambda rows: (sizes.append(len(rows)), network(rows))[1]
    )
    pipeline.probabilities(np.zeros((tiles.CPU + 1, 3), dtype=np.float32))
    assert sizes == [tiles.CPU, tiles.CPU]


KIND_OF_BATCH = {
    "dict of lists": lambda table: table.to_pydict(),
    "dict of arrays": lambda table: {
        name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names
    },
    "record batch": lambda table: table.combine_chunks().to_batches()[0],
    "table": lambda table: table,
    "frame": lambda table: table.to_pandas().set_index(np.arange(5, 5 + len(table))),
}


@pytest.mark.parametrize("kind", ["numbers", "texts", "mixed"])
@pytest.mark.parametrize("given", KIND_OF_BATCH)
def test_the_result_is_of_the_kind_of_the_batch(given, kind, folder):
    _, table = table_of(kind, folder, 40)
    predictor = Predictor(made_model(kind, folder))
    batch = KIND_OF_BATCH[given](table)
    found = predictor(batch)
    assert type(found) is type(batch)
    expected = predictor(table).to_pydict()
    assert list(expected) == ["input_class" if n == "class" else n for n in table.column_names] + [
        *NAMES
    ]
    if given == "frame":
        assert list(found.index) == list(batch.index)
        assert found["level"].dtype == np.int64
        found = {name: found[name].tolist() for name in found.columns}
    elif given == "dict of arrays":
        assert found["probability"].dtype == np.float64
        found = {name: column.tolist() for name, column in found.items()}
    elif given != "dict of lists":
        found = found.to_pydict()
    for name in NAMES:
        assert found[name] == expected[name]
    assert list(found["input_class"]) == expected["input_class"]


def test_it_is_pickled_as_its_folder_and_options(model, folder):
    _, table = table_of("numbers", folder, 50)
    predictor = Predictor(model, keep=["id"], decoder="stop", decoder_options={"threshold": 0.9})
    expected = predictor(table)
    held = pickle.dumps(predictor)
    assert len(held) < 1000
    again = pickle.loads(held)
    assert again == predictor
    assert again(table).equals(expected)
    assert any(expected["stopped"].to_pylist())
    assert expected.column_names[0] == "id"


def test_several_threads_may_call_it(model, folder):
    _, table = table_of("numbers", folder)
    predictor, expected = Predictor(model), Predictor(model)(table)
    before = torch.get_num_threads()
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(predictor, [table.slice(n, 50) for n in range(0, ROWS, 50)]))
    assert pa.concat_tables(parts).equals(expected.combine_chunks())
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("decoder", ["leaf", "coherent"])
def test_an_empty_batch_has_the_columns_and_types_of_others(decoder, model, folder):
    _, table = table_of("numbers", folder, 30)
    predictor = Predictor(model, decoder=decoder, layout=Layout(levels=("x", "y", "z"), top=2))
    empty, full = predictor(table.slice(0, 0)), predictor(table)
    assert len(empty) == 0
    assert empty.schema.equals(full.schema)
    frame = predictor(table.to_pandas().head(0))
    assert list(frame.columns) == full.column_names


def test_levels_best_classes_scores_and_remembered_rows_are_added(folder):
    model = made_model("neighbors", folder)
    path, table = table_of("neighbors", folder, 60)
    layout = Layout(levels=("x", "y", "z"), scores=True)
    expected = answers_of_the_command(model, path, neighbors=2, layout=layout)
    predictor = Predictor(model, keep=(), layout=layout, neighbors=2)
    parts = [predictor(table.slice(n, 7)) for n in range(0, 60, 7)]
    assert parts[0].schema.equals(predictor(table.slice(0, 0)).schema)
    found = pa.concat_tables(parts).to_pydict()
    for name in found:
        cells = [None if cell is np.ma.masked else cell for cell in expected[name]]
        assert found[name] == cells, name
    assert "neighbor_2_weight" in found


def test_columns_may_have_another_name(model, folder):
    _, table = table_of("numbers", folder, 30)
    expected = Predictor(model, keep=())(table)
    other = table.rename_columns(["id", "one", "two", "three", "class"])
    found = Predictor(model, keep=(), columns=["one", "two", "three"])(other)
    assert found.equals(expected)


def test_images_are_bytes_in_a_column(tmp_path):
    pytest.importorskip("PIL")
    from hierlearn.datasets import read_image_table
    from hierlearn.pipeline import train
    from hierlearn.training import Plan
    from images.picture_files import encoded, picture

    colors = {"a/red": (200, 0, 0), "a/green": (0, 200, 0), "b/blue": (0, 0, 200)}
    names = [*colors] * 4
    held = [encoded(picture(colors[one], seed=n)) for n, one in enumerate(names)]
    table = pa.table({"picture": held, "class": names})
    pq.write_table(table, tmp_path / "rows.parquet")
    dataset = read_image_table(tmp_path / "rows.parquet", image="picture", label="class")
    known = {"columns": {"image": "picture", "label": "class"}}
    model = train(dataset, Plan(settings={"epochs": 1}), out=tmp_path / "model", metadata=known)
    predictor = Predictor(tmp_path / "model", keep=())
    assert predictor(table)["path"].to_pylist() == model.predict(dataset.inputs)
    with pytest.raises(DataError, match="line 1, column 'picture': the cell has no bytes"):
        predictor({"picture": ["a.png"]})


BATCH = {"a": [1.0, 2.0], "b": [1.0, 2.0], "c": [0.0, None]}


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([1, 2], "a batch is a dict of columns, an Arrow table .* not list"),
        ({"a": [1.0]}, "the batch lacks 'b', 'c', which the model reads; it has 'a'"),
        (BATCH | {"a": [1.0]}, "must have the same length"),
        (BATCH | {"b": [1.0, "x"]}, "column 'b' of the batch holds values of several types"),
        (BATCH | {"b": ["1", "x"]}, "the batch, line 2, column 'b': 'x' is not a finite number"),
        (BATCH | {"b": [1.0, None]}, "the batch, line 2, column 'b': the value is missing, but"),
    ],
)
def test_a_wrong_batch_is_refused_in_one_sentence(batch, message, model):
    with pytest.raises(DataError, match=message):
        Predictor(model, missing="error")(batch)


def test_wrong_options_are_refused(model, folder):
    with pytest.raises(DataError, match="the batch: unknown column 'd'"):
        Predictor(model, keep=["d"])(BATCH)
    with pytest.raises(HierlearnError, match="the long layout numbers the rows of a file"):
        Predictor(model, layout=Layout(top=2, long=True))(BATCH)
    with pytest.raises(HierlearnError, match="this model has no memory"):
        Predictor(model, neighbors=2)(BATCH)
    with pytest.raises(HierlearnError, match="leave columns out"):
        Predictor(made_model("mixed", folder), columns=["a"])(BATCH)
    with pytest.raises(HierlearnError, match=r"reads one column \(text\)"):
        Predictor(made_model("texts", folder), columns=["a"])(BATCH)


def test_missing_values_of_frames_and_arrays_are_missing(model):
    expected = Predictor(model)(BATCH)["path"]
    values = {name: np.array(cells, dtype=float) for name, cells in BATCH.items()}
    assert Predictor(model)(values)["path"].tolist() == expected
    assert Predictor(model)(pd.DataFrame(BATCH))["path"].tolist() == expected
