"""A job in parts, each run alone and in any order: together they are what one process writes."""

import pickle
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from hierlearn.datasets.tables.stream import TableStream
from hierlearn.errors import DataError, HierlearnError
from hierlearn.pipeline.answers import Layout, answer_file, file_names
from hierlearn.pipeline.predict import Predictor
from hierlearn.service.engine import Engine
from hierlearn.service.parts import (
    PartFolder,
    PartJob,
    check_alike,
    header_of,
    pieces_of,
    predict_parts,
    tables_in,
)
from small_models import KINDS, made_model, write_rows

ROWS = 1300


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs")


def make_job(kind, folder, tables, out, ending=".csv", **more):
    """A job on tables, with an id and a kept column, and the predictor of one process."""
    predictor = Predictor(made_model(kind, folder), **more)
    model = predictor.model()
    ((given, columns),) = model.inputs.items()
    given = {"kinds": "features"}.get(given, given)
    key = "sku" if kind == "mixed" else "id"
    streams = [
        TableStream(one, id_column=key, keep=["class"], cells=600, **{given: columns})
        for one in tables
    ]
    names = ("id", *model.formatter.names)
    return PartJob(predictor, streams, pieces_of(streams, 100), names, PartFolder(out, ending))


def written_at_once(job, path, numbers=None):
    """The file of one process, over all tables."""
    with answer_file(path, job.names, job.streams[0].keep) as file:
        before = 0
        for stream in job.streams:
            done = file.rows
            for columns, kept in job.predictor.answers(stream, stream.path, before):
                file.append(columns, kept)
            before += file.rows - done
    return path


def run_all(job, order):
    """Run the parts in an order, each as a worker does that got the job by a wire."""
    job.folder.begin(job.plan({}), force=False)
    sent = pickle.dumps(job)
    records = [pickle.loads(sent).run(number) for number in order]
    return sorted(records)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_together_are_the_file_of_one_process_byte_for_byte(kind, folder, tmp_path):
    table = write_rows(kind, tmp_path / "rows.csv", ROWS, 3)
    more = {"neighbors": 2} if kind == "neighbors" else {"layout": Layout(scores=True)}
    job = make_job(kind, folder, [table], tmp_path / "parts", **more)
    assert len(job.pieces) > 5
    records = run_all(job, reversed(range(len(job.pieces))))
    assert sum(one.rows for one in records) == ROWS
    expected = written_at_once(job, tmp_path / "one.csv")
    out = tmp_path / "out.csv"
    header = file_names(out, job.names, job.streams[0].keep, escape=False)
    job.folder.join(out, records, header_of(out, header))
    assert out.read_bytes() == expected.read_bytes()


def test_several_tables_are_one(folder, tmp_path):
    (tmp_path / "in").mkdir()
    write_rows("numbers", tmp_path / "in" / "a.csv", 300, 3)
    second = pyarrow.csv.read_csv(write_rows("numbers", tmp_path / "b.csv", 250, 4))
    pq.write_table(second, tmp_path / "in" / "b.parquet", row_group_size=70)
    for name in ("_manifest.json", ".hidden.csv", "_x.csv"):
        (tmp_path / "in" / name).write_text("")
    tables = tables_in(str(tmp_path / "in"))
    assert [one.name for one in tables] == ["a.csv", "b.parquet"]
    layout = Layout(top=2, long=True)
    job = make_job("numbers", folder, tables, tmp_path / "parts", ".parquet", layout=layout)
    records = run_all(job, range(len(job.pieces)))
    assert sum(one.rows for one in records) == 550
    expected = pq.read_table(written_at_once(job, tmp_path / "one.parquet"))
    assert expected["row"].to_pylist() == [row for row in range(1, 551) for _ in range(2)]
    found = pa.concat_tables(pq.read_table(job.folder.path(one.part)) for one in records)
    assert found.equals(expected)
    job.folder.join(tmp_path / "out.parquet", records, "")
    assert pq.read_table(tmp_path / "out.parquet").equals(expected)


def test_a_part_that_is_written_again_replaces_itself(folder, tmp_path):
    table = write_rows("numbers", tmp_path / "rows.csv", 200, 3)
    job = make_job("numbers", folder, [table], tmp_path / "parts")
    first = run_all(job, [0, 1, 1, 0])
    assert first[0] == first[1]
    assert first[2] == first[3]
    parts = [one for one in job.folder.folder.iterdir() if one.name.startswith("part-")]
    assert sorted(one.name for one in parts) == ["part-00000.csv", "part-00001.csv"]


class Dying(Engine):
    """Its workers die on a part; the other parts are written."""

    killed_errors = (BrokenProcessPool,)

    def submit(self, fn, /, function, number, data, args, threads):
        future = Future()
        if args == (1,):
            future.set_exception(BrokenProcessPool())
        else:
            future.set_result(fn(function, number, data, args, threads))
        return future


def test_a_part_on_which_every_worker_dies_is_given_up(folder, tmp_path):
    table = write_rows("numbers", tmp_path / "rows.csv", 200, 3)
    job = make_job("numbers", folder, [table], tmp_path / "parts")
    job.folder.begin(job.plan({}), force=False)
    size = job.pieces[0].part.rows + 1
    with pytest.raises(HierlearnError, match=f"rows from {size} on: all workers died on this part"):
        predict_parts(Dying(), job, [0, 1])
    assert predict_parts(Dying(), job, [0]) == [job.folder.complete(0, size - 1, 0, 0, 0)]


def test_the_plan_tells_jobs_apart(folder, tmp_path):
    table = write_rows("numbers", tmp_path / "rows.csv", 200, 3)
    job = make_job("numbers", folder, [table], tmp_path / "parts")
    same = make_job("numbers", folder, [table], tmp_path / "parts")
    assert job.plan({"threshold": 0.5}) == same.plan({"threshold": 0.5})
    assert job.plan({"threshold": 0.5}) != job.plan({"threshold": 0.6})
    other = make_job("numbers", folder, [table], tmp_path / "parts", layout=Layout(top=1))
    assert job.plan({}) != other.plan({})
    other = make_job("neighbors", folder, [table], tmp_path / "parts")
    assert job.plan({}) != other.plan({})
    known = other.plan({})
    shards = other.predictor.folder / "memory.json"  # remembering changes it, and no other file
    held = shards.read_bytes()
    shards.write_bytes(held + b"\n")
    assert other.plan({}) != known
    shards.write_bytes(held)
    write_rows("numbers", table, 200, 4)
    assert job.plan({}) != same.plan({"x": 1})
    assert make_job("numbers", folder, [table], tmp_path / "parts").plan({}) == job.plan({})


def test_tables_that_do_not_go_together_are_refused(folder, tmp_path):
    with pytest.raises(DataError, match=r"holds no table; files end in .csv"):
        tables_in(str(tmp_path))
    empty = tmp_path / "empty.csv"
    empty.write_text("id,a,b,c,class\n")
    with pytest.raises(DataError, match="has a header but no rows"):
        make_job("numbers", folder, [empty], tmp_path / "parts")
    table = write_rows("numbers", tmp_path / "rows.csv", 20, 3)
    streams = [TableStream(table, features=["a"], keep=[one]) for one in ("id", "class")]
    with pytest.raises(DataError, match="give all tables the same columns"):
        check_alike(streams)
    one_column = tmp_path / "a.csv"
    one_column.write_text("words\na\nb\n")
    with pytest.raises(DataError, match="name it alone, or convert it to Parquet"):
        pieces_of([TableStream(one_column, text="words")] * 2)
