"""The real command in a subprocess on real files: what it prints, writes and refuses."""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from hierlearn import Hierarchy

REPO = Path(__file__).parents[2]


def run(*args, cwd=None, **env):
    return subprocess.run(
        [sys.executable, "-m", "hierlearn", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", **env},
        check=False,
    )


def refused(*args, **kwargs):
    """Run a command that must fail with one line on standard error and exit code 2."""
    done = run(*args, **kwargs)
    assert done.returncode == 2, done
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("hierlearn: ")
    return lines[0]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "tree.csv").write_text("parent,child\n,animal\nanimal,dog\nanimal,cat\n")
    (tmp_path / "rows.csv").write_text("x,y\n1,dog\n2,animal/cat\n3,\n")
    return tmp_path


def test_help_lists_the_commands_quickly():
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = run("--help")
        times.append(time.perf_counter() - start)
    assert done.returncode == 0
    assert "inspect" in done.stdout
    assert "data" in done.stdout
    assert min(times) < 2.0  # the promise is 0.5 s; a busy test machine gets some room


def test_inspect_draws_and_writes(files):
    done = run("inspect", "tree.csv", "--svg", "t.svg", "--json", "t.json", cwd=files)
    assert done.returncode == 0, done.stderr
    assert "└── dog" in done.stdout
    assert "3 classes, tree" in done.stdout
    ET.fromstring((files / "t.svg").read_text())
    written = Hierarchy.from_json((files / "t.json").read_text())
    assert written.names == ("animal", "animal/cat", "animal/dog")
    assert written.fingerprint[:16] in done.stdout


def test_describe_a_table_with_its_own_hierarchy(files):
    args = ("--label", "y", "--hierarchy", "tree.csv", "--out", "facts")
    done = run("data", "describe", "rows.csv", *args, cwd=files)
    assert done.returncode == 0, done.stderr
    facts = json.loads((files / "facts" / "facts.json").read_text())
    assert facts["rows"] == 3
    assert facts["labels"]["rows_without_label"] == 1
    assert "wrote facts.json, hierarchy.json, hierarchy.svg to facts" in done.stdout


def test_describe_a_named_dataset_with_options():
    done = run("data", "describe", "synthetic", "--set", "rows=50", "--set", "label-noise=0.1")
    assert done.returncode == 0, done.stderr
    assert "50 (train 30, valid 10, test 10)" in done.stdout


def test_list_tells_what_is_at_hand(tmp_path):
    done = run("data", "list", HIERLEARN_CACHE=str(tmp_path), HIERLEARN_DATA="")
    assert done.returncode == 0, done.stderr
    assert "icd10cm (default)" in done.stdout
    line = next(line for line in done.stdout.splitlines() if "imclef07d" in line)
    assert " no " in line
    assert "verified" in line
    assert "needs --trust" in next(line for line in done.stdout.splitlines() if "enron" in line)


def test_fetch_refuses_an_unrecorded_checksum(tmp_path):
    message = refused("data", "fetch", "enron", HIERLEARN_CACHE=str(tmp_path), HIERLEARN_DATA="")
    assert "--trust" in message
    assert list(tmp_path.iterdir()) == []


def test_errors_are_one_line_that_names_the_place(files):
    assert "no such file" in refused("inspect", "absent.csv", cwd=files)
    assert "did you mean 'icd10cm'" in refused("inspect", "icd10", cwd=files)
    assert "did you mean 'diatoms'" in refused("data", "describe", "diatom", cwd=files)
    (files / "loop.csv").write_text("parent,child\na,b\nb,a\n")
    message = refused("inspect", "loop.csv", cwd=files)
    assert "loop.csv: cycle: 'a' -> 'b' -> 'a'; remove one of these edges" in message
    message = refused("data", "describe", "rows.csv", cwd=files)
    assert "label" in message
    message = refused("data", "describe", "synthetic", "--set", "rows", cwd=files)
    assert "an option is written key=value, not 'rows'" in message
    assert "is neither a dataset nor a file" in refused("data", "describe", "a.xlsx", cwd=files)


def test_nothing_is_written_after_an_error(files):
    before = sorted(path.name for path in files.iterdir())
    refused("data", "describe", "rows.csv", "--label", "z", "--out", "facts", cwd=files)
    refused("inspect", "rows.csv", "--depth", "0", "--svg", "t.svg", cwd=files)
    assert sorted(path.name for path in files.iterdir()) == before


def test_debug_shows_the_traceback(files):
    done = run("--debug", "inspect", "absent.csv", cwd=files)
    assert done.returncode != 0
    assert "Traceback" in done.stderr


def test_names_are_printed_as_they_are(tmp_path):
    (tmp_path / "h.txt").write_text("[red]a[/red]\n:smile:\n")
    done = run("inspect", "h.txt", "--sep", ">", cwd=tmp_path)
    assert "[red]a[/red]" in done.stdout
    assert ":smile:" in done.stdout
