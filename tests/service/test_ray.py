"""hierlearn predict --engine ray: real actors, killed and not, write what one process writes."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from hierlearn.cli import main
from hierlearn.datasets.tables.stream import TableStream
from hierlearn.errors import HierlearnError
from hierlearn.service.clusters import RayEngine
from hierlearn.service.parts import (
    PartFolder,
    PartJob,
    pieces_of,
    predict_parts,
    resources,
    tables_in,
)
from service.slow_predictor import Slow, lines_of, wait_for
from small_models import made_model, write_rows

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ray[data]'")
pytestmark = pytest.mark.filterwarnings("default")
ROWS = 2000
SECONDS = 240  # at most, on a slow machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def cluster():
    """Ray on this machine, for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        path = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))  # for slow_predictor
        with RayEngine(workers=2) as engine:
            yield engine


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Run a command line in ``tmp_path``; return what it printed, or the sentence of its error."""
    monkeypatch.chdir(tmp_path)

    def run(line, code=0):
        monkeypatch.setattr(sys, "argv", ["hierlearn", *shlex.split(line)])
        with pytest.raises(SystemExit) as caught:
            main()
        said = capsys.readouterr()
        assert (caught.value.code or 0) == code, said
        return said.err.strip() if code else said.out

    return run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--engine spark", "unknown engine 'spark'; known: ray"),
        ("--workers 2", "--workers goes with --engine ray; leave it out"),
        ("--engine ray --part-format csv", "--part-format goes with a folder in --out"),
        ("--engine ray --rows test", "rows.csv is a file and does not take --rows"),
        ("--engine ray --address 127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message, folder, call, tmp_path):
    write_rows("numbers", tmp_path / "rows.csv", 20, 3)
    line = f"predict {made_model('numbers', folder)} rows.csv -o out.csv {options}"
    assert message in call(line, code=2)


def test_one_file_is_that_of_one_process_byte_for_byte(cluster, folder, call, tmp_path):
    model = made_model("numbers", folder)
    write_rows("numbers", tmp_path / "rows.csv", ROWS, 3)
    line = f"predict {model} rows.csv --keep a,class --by-level --top 2 --decoder stop"
    first = call(f"{line} -o one.csv")
    second = call(f"{line} -o many.csv --engine ray --workers 2 --part-rows 256")
    assert (tmp_path / "many.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert second.replace("many.csv", "one.csv") == first
    assert f"{ROWS:,}" in first
    assert {path.name for path in tmp_path.iterdir()} == {"rows.csv", "one.csv", "many.csv"}


def test_tables_at_an_address(cluster, folder, call, tmp_path):
    model = made_model("numbers", folder)
    write_rows("numbers", tmp_path / "rows.csv", 700, 3)
    table = pyarrow.csv.read_csv(tmp_path / "rows.csv")
    for name, part in (("b", table.slice(400)), ("a", table.slice(0, 400))):
        pq.write_table(part, tmp_path / f"{name}.parquet", row_group_size=150)
    call(f"predict {model} *.parquet -o one.csv")
    source = f"file://{tmp_path}/*.parquet"
    call(f"predict {model} {source} -o many.csv --engine ray --part-rows 256")
    assert (tmp_path / "many.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert len((tmp_path / "one.csv").read_text().splitlines()) == 701
    assert all(path.is_absolute() for path in tables_in("*.parquet"))  # for any worker


def test_a_folder_of_tables_becomes_a_folder_of_parts(cluster, folder, call, tmp_path):
    model = made_model("mixed", folder)
    (tmp_path / "in").mkdir()
    for number in range(2):
        table = pyarrow.csv.read_csv(write_rows("mixed", tmp_path / "t.csv", 500, number))
        pq.write_table(table, tmp_path / "in" / f"t{number}.parquet", row_group_size=200)
    line = f"predict {model} in -o out --keep sku --engine ray --part-rows 128 --workers 1"
    said = call(line)
    assert said.splitlines()[-1] == "wrote out"
    assert (tmp_path / "out" / "_SUCCESS").exists()
    listed = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert listed["rows"] == 1000
    assert len(listed["parts"]) == 8
    found = pq.read_table(tmp_path / "out")  # as others read a folder of Parquet files
    for number in range(2):
        call(f"predict {model} in/t{number}.parquet -o one{number}.parquet --keep sku")
    expected = pyarrow.concat_tables(
        pq.read_table(tmp_path / f"one{number}.parquet") for number in range(2)
    )
    assert found.equals(expected)
    error = call(line, code=2)
    assert error == "hierlearn: out exists; pass --force to replace it"


def test_when_a_worker_is_killed_nothing_is_lost_and_nothing_doubled(cluster, folder, tmp_path):
    table, log = write_rows("numbers", tmp_path / "rows.csv", ROWS, 3), tmp_path / "log"
    predictor = Slow(made_model("numbers", folder), log=str(log))
    stream = TableStream(table, features=["a", "b", "c"], id_column="id", cells=1024)
    names = ("id", *predictor.model().formatter.names)
    parts = PartFolder(tmp_path / "out", ".csv")
    job = PartJob(predictor, [stream], pieces_of([stream], 256), names, parts)
    assert len(job.pieces) == 8
    parts.begin(job.plan({}), force=False)

    def kill():
        os.kill(wait_for(log, 3, SECONDS), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    seen = []
    records = predict_parts(cluster, job, range(8), seen.append)
    killer.join()
    assert [one.part for one in records] == [*range(8)]
    assert sorted(seen) == records
    assert sum(one.rows for one in records) == ROWS
    begun = [before for _, before in lines_of(log)]
    assert len(begun) > 8, "no part was begun again"
    assert {*begun} == {256 * part for part in range(8)}
    parts.join(tmp_path / "out.csv", records, ",".join(names) + "\n")
    found = (tmp_path / "out.csv").read_text().splitlines()
    ids = [line.split(",")[0] for line in found[1:]]
    assert ids == [f"r{row}" for row in range(ROWS)]
    assert not parts.folder.exists()  # with what the killed process left


def test_a_wrong_row_is_the_error_of_one_process(cluster, folder, call, tmp_path):
    model = made_model("numbers", folder)
    path = write_rows("numbers", tmp_path / "rows.csv", ROWS, 3)
    lines = path.read_text().splitlines()
    for row in (700, 1900):
        lines[row] = f"r{row},many,1.0,1.0,plant/oak"
    path.write_text("\n".join(lines))
    line = f"predict {model} rows.csv -o"
    expected = call(f"{line} one.csv", code=2)
    assert "line 701, column 'a': 'many' is not a finite number" in expected
    engine = "--engine ray --workers 1 --part-rows 512"
    assert call(f"{line} many.csv {engine}", code=2) == expected
    assert not (tmp_path / "many.csv").exists()


@pytest.mark.slow
def test_after_the_command_was_killed_it_goes_on_with_what_is_missing(
    cluster, folder, call, tmp_path
):
    model = made_model("numbers", folder)
    write_rows("numbers", tmp_path / "rows.csv", 20_000, 3)
    line = f"predict {model} rows.csv -o out.csv --engine ray --workers 1 --part-rows 100"
    address = ray.get_runtime_context().gcs_address
    words = [sys.executable, "-m", "hierlearn", *shlex.split(line), "--address", address]
    work = tmp_path / "out.csv.parts" / "_hierlearn"
    with (tmp_path / "errors").open("w") as errors:
        job = subprocess.Popen(words, cwd=tmp_path, stderr=errors)
    end = time.monotonic() + SECONDS
    while len(list(work.glob("part-*.json"))) < 5:
        assert job.poll() is None, (tmp_path / "errors").read_text()
        assert time.monotonic() < end
        time.sleep(0.01)
    job.kill()
    job.wait()
    assert not (tmp_path / "out.csv").exists()
    assert (tmp_path / "errors").read_text() == ""  # neither Ray's log nor a warning
    said = call(line)
    assert " of 200 parts are there already" in said
    assert "20,000" in said
    ids = [line.split(",")[0] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert ids == [f"r{row}" for row in range(20_000)]
    assert not work.parent.exists()


@pytest.mark.parametrize(
    ("cluster_has", "asked", "expected"),
    [
        ({"CPU": 8.0}, ("auto", None, None), (0.0, 8)),
        ({"CPU": 8.0}, ("auto", 3, None), (0.0, 3)),
        ({"CPU": 8.0, "GPU": 2.0}, ("auto", None, None), (1.0, 2)),
        ({"CPU": 8.0, "GPU": 2.0}, ("cpu", None, None), (0.0, 8)),
        ({"CPU": 8.0, "GPU": 2.0}, ("auto", None, 0.5), (0.5, 4)),
        ({"CPU": 3.0, "GPU": 8.0}, ("auto", None, None), (1.0, 3)),
    ],
)
def test_a_worker_per_gpu_or_per_core(cluster_has, asked, expected):
    assert resources(cluster_has, *asked) == expected


def test_more_than_the_cluster_has_is_refused():
    with pytest.raises(HierlearnError, match="workers is 9, but the cluster has 8 cores"):
        resources({"CPU": 8.0}, "auto", 9, None)
    with pytest.raises(HierlearnError, match="gpus_per_worker is 1, but the cluster has 0 GPUs"):
        resources({"CPU": 8.0}, "auto", None, 1.0)
