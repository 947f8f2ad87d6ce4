"""The real command in a subprocess on real files: what it prints, writes and refuses."""

import json
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hierlearn
import warm
from hierlearn import DATASETS, Hierarchy
from hierlearn.cli import main
from hierlearn.cli.output import number

REPO = Path(__file__).parents[2]


def run(*args, cwd=None, python=None, **env):
    return subprocess.run(
        [*(python or warm.python()), "-m", "hierlearn", *map(str, args)],
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
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("hierlearn: ")
    return done.stderr.strip()


@pytest.fixture
def told(monkeypatch, capsys, tmp_path):
    """Run main in this process, in ``tmp_path``; return what it refuses in one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HIERLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HIERLEARN_DATA", raising=False)

    def call(line):
        monkeypatch.setattr(sys, "argv", ["hierlearn", *shlex.split(line)])
        with pytest.raises(SystemExit) as caught:
            main()
        said = capsys.readouterr()
        assert caught.value.code == 2, said
        assert said.out == ""
        assert said.err.count("\n") == 1, said.err
        assert said.err.startswith("hierlearn: ")
        return said.err.strip()

    return call


@pytest.fixture
def files(tmp_path):
    (tmp_path / "tree.csv").write_text("parent,child\n,animal\nanimal,dog\nanimal,cat\n")
    (tmp_path / "rows.csv").write_text("x,y\n1,dog\n2,animal/cat\n3,\n")
    (tmp_path / "t.arff").write_text(
        "@attribute x numeric\n@attribute c hierarchical a,a/b\n@data\n1,a\n"
    )
    return tmp_path


def test_help_lists_the_commands_quickly():
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run("--help", python=[sys.executable])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert done.returncode == 0
    assert "inspect" in done.stdout
    assert "data" in done.stdout
    assert min(times) < 2.0  # of a processor; the promise is 0.5 s


def test_inspect_draws_and_writes(files):
    done = run("inspect", "tree.csv", "--json", "t.json", cwd=files)
    assert done.returncode == 0, done.stderr
    assert "└── dog" in done.stdout
    assert "3 classes, tree" in done.stdout
    written = Hierarchy.from_json((files / "t.json").read_text())
    assert written.names == ("animal", "animal/cat", "animal/dog")
    assert written.fingerprint[:16] in done.stdout


def test_describe_a_table_with_its_own_hierarchy(files):
    args = ("--label", "y", "--hierarchy", "tree.csv", "--out", "described")
    done = run("data", "describe", "rows.csv", *args, cwd=files)
    assert done.returncode == 0, done.stderr
    found = json.loads((files / "described" / "description.json").read_text())
    assert found["rows"] == 3
    assert found["labels"]["rows_without_label"] == 1
    assert "wrote description.json, hierarchy.json to described" in done.stdout


def test_describe_a_named_dataset_with_options():
    done = run(
        "data",
        "describe",
        "synthetic",
        "--dataset-option",
        "rows=50",
        "--dataset-option",
        "label-noise=0.1",
    )
    assert done.returncode == 0, done.stderr
    assert "50 (train 30, valid 10, test 10)" in done.stdout


def test_list_tells_what_is_at_hand(tmp_path):
    done = run("data", "list", HIERLEARN_CACHE=str(tmp_path), HIERLEARN_DATA="")
    assert done.returncode == 0, done.stderr
    assert "icd10cm (default)" in done.stdout
    line = next(line for line in done.stdout.splitlines() if "imclef07d" in line)
    assert "fetch " in line
    assert "--trust" not in line
    assert "fetch --trust" in next(line for line in done.stdout.splitlines() if "enron" in line)
    line = next(line for line in done.stdout.splitlines() if " cwe " in line)
    assert "fetch, 9.0 MB" in line
    assert "CWE" in line


def test_the_list_can_be_read_at_80_columns(tmp_path):
    """Every word of a description is whole, and no line is wider."""
    done = run("data", "list", HIERLEARN_CACHE=str(tmp_path), HIERLEARN_DATA="", COLUMNS="80")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in done.stdout
    middle = " ".join(line.split("│")[2].strip() for line in lines if line.startswith("│"))
    for entry in DATASETS.values():
        assert entry.description in middle
    assert len(lines) <= 4 * len(DATASETS) + 6


def test_describe_tells_the_license_and_whom_to_name(tmp_path):
    done = run(
        "data", "describe", "icd10cm", "--dataset-option", "size=small", "--out", "d", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "public domain" in done.stdout
    description = json.loads((tmp_path / "d" / "description.json").read_text())
    assert description["license"] == "public domain"
    assert description["attribution"].startswith("ICD-10-CM of the U.S. National Center")


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
    message = refused("data", "describe", "synthetic", "--dataset-option", "rows", cwd=files)
    assert "--dataset-option takes key=value, not 'rows'" in message
    assert "is neither a dataset nor a file" in refused("data", "describe", "a.ods", cwd=files)


def test_nothing_is_written_after_an_error(files):
    before = sorted(path.name for path in files.iterdir())
    refused("data", "describe", "rows.csv", "--label", "z", "--out", "described", cwd=files)
    refused("inspect", "absent.csv", "--json", "t.json", cwd=files)
    refused("inspect", "tree.csv", "--json", "tree.csv/t.json", cwd=files)
    refused("data", "describe", "rows.csv", "--label", "y", "--out", "tree.csv", cwd=files)
    assert sorted(path.name for path in files.iterdir()) == before


@pytest.mark.parametrize("place", [0, 1, 2])
def test_debug_shows_the_traceback_wherever_it_stands(files, place):
    words = ["inspect", "absent.csv"]
    done = run(*words[:place], "--debug", *words[place:], cwd=files)
    assert done.returncode != 0
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--foo", "No such option: --foo; see hierlearn --help"),
        ("frob", "No such command 'frob'; see hierlearn --help"),
        ("inspekt", "Did you mean 'inspect'? see hierlearn --help"),
        ("inspect --depth x", "--depth must be an integer, not 'x'"),
        ("inspect --depth -1", "Invalid value for '--depth': "),
        ("data fetch", "'; see hierlearn data fetch --help"),
        ("inspect tree.csv --json .", "cannot write to ., which is a folder; name a file in it"),
        ("inspect tree.csv --json ''", "which is a folder; name a file in it"),
        ("inspect tree.csv --json tree.csv/a", "cannot write a into tree.csv: that is no folder"),
        ("inspect tree.csv --data-dir .", "tree.csv is a file and does not take --data-dir"),
        ("inspect icd10cm --form nested", "icd10cm is a named dataset and does not take --form"),
        ("inspect t.arff --sep ''", "sep must be a non-empty text, not ''"),
        ("data describe t.arff --sep ''", "sep must be a non-empty text, not ''"),
        ("inspect enron", "hierlearn data fetch enron --trust"),
        ("data describe enron", "hierlearn data fetch enron --trust"),
        ("data describe diatoms --data-dir no", "--data-dir names no, which is no folder"),
        ("data list --data-dir no", "--data-dir names no, which is no folder"),
        (
            "data describe icd10cm --data-dir .",
            "icd10cm is no set of benchmark files and does not",
        ),
        (
            "data fetch icd10cm --trust",
            "icd10cm is no set of benchmark files and does not take --trust",
        ),
        (
            "data describe icd10cm --label foo --levels a,b --text q",
            "icd10cm is a named dataset and does not take --label, --levels, --text; leave that",
        ),
        (
            "data describe rows.csv --label y --dataset-option size=small",
            "is a file and does not take --dataset-option",
        ),
        ("data describe t.arff --hierarchy no.json", "an ARFF file and does not take --hierarchy"),
        ("data describe rows.csv --label y --text y", "column 'y' is named twice, as label and as"),
        ("data describe rows.csv --label y --label-sep /", "--label-sep '/' joins labels and sep"),
        ("data describe rows.csv --label y --label-sep ''", "neither may be empty or part of"),
        ("data describe rows.csv --label y --sep ''", "sep must be a non-empty text, not ''"),
        ("data describe rows.csv --levels y --label-sep +", "--label-sep goes with --label"),
        ("data describe rows.csv --levels ,", "',' names nothing; write names with commas"),
        (
            "data describe icd10cm --dataset-option size=[",
            "unknown size of icd10cm '['; known: full, small",
        ),
        (
            "data describe icd10cm --dataset-option size=",
            "option size of dataset 'icd10cm' must be a text",
        ),
        (
            "data describe synthetic --dataset-option rows=1e3",
            "rows of dataset 'synthetic' must be an integer",
        ),
        (
            "data describe synthetic --dataset-option rows=null",
            "must be an integer, not 'null'",
        ),
        ("data describe synthetic --dataset-option seed=-1", "seed must be at least 0, not -1"),
        ("data describe synthetic --dataset-option decay=x", "must be a finite number, not 'x'"),
        (
            "data describe synthetic --dataset-option decay=nan",
            "must be a finite number, not 'nan'",
        ),
        (
            "data describe synthetic --dataset-option no=1",
            "has no option 'no'; it takes rows, features,",
        ),
        (
            "data describe synthetic --dataset-option seed=1 --dataset-option seed=2",
            "--dataset-option gives seed twice",
        ),
        (
            "data describe diatoms --dataset-option progress=1",
            "--dataset-option does not take progress; use --data-dir",
        ),
    ],
)
def test_each_refusal_is_one_line(files, told, line, message):
    before = sorted(path.name for path in files.iterdir())
    assert message in told(line)
    assert sorted(path.name for path in files.iterdir()) == before


def test_without_a_command_the_guide_is_shown():
    done = run()
    assert done.returncode == 0
    assert "$ hierlearn demo" in done.stdout
    assert done.stderr == ""


def test_without_a_command_of_a_group_its_help_is_shown():
    done = run("data")
    assert done.stdout.startswith("Usage: hierlearn data")
    assert done.returncode == 2
    assert done.stderr == ""


def test_version():
    assert run("--version").stdout == f"hierlearn {hierlearn.__version__}\n"


def test_a_poor_terminal_gets_plain_lines(files):
    (files / "tree.csv").write_text("parent,child\n,animal\nanimal,dög\nanimal,ćat\n")
    done = run("inspect", "tree.csv", cwd=files, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "|-- d\\xf6g" in done.stdout
    assert "`-- \\u0107at" in done.stdout


def test_interrupted_is_130_and_a_closed_pipe_is_quiet(files):
    command = [sys.executable, "-m", "hierlearn"]
    code = "import hierlearn.cli as c, hierlearn.cli.rows as s, signal, sys\n"
    code += "s.open_hierarchy = lambda *a, **k: signal.raise_signal(signal.SIGINT)\n"
    code += "sys.argv = ['hierlearn', 'inspect', 'tree.csv']; c.main()"
    done = subprocess.run(
        [*warm.python(), "-c", code],
        cwd=files,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 130
    assert done.stderr == b"hierlearn: interrupted; run the same command again\n"
    piped = subprocess.run(
        f"{shlex.join([*command, 'inspect', 'icd10cm', '--breadth', '0'])} | head -1",
        shell=True,
        capture_output=True,
        check=False,
    )
    assert piped.stdout.startswith(b"root")
    assert piped.stderr == b""


def test_depth_and_breadth_of_nought_fold_nothing(files):
    paths = "\n".join(f"a/b/c/d{number}" for number in range(20))
    (files / "h.txt").write_text(paths)
    folded = run("inspect", "h.txt", cwd=files).stdout
    assert "b  21 …" in folded
    assert "└── c" not in folded
    whole = run("inspect", "h.txt", "--depth", "0", "--breadth", "0", cwd=files).stdout
    assert "└── d19" in whole


def test_list_survives_a_variable_that_names_no_folder(tmp_path):
    done = run("data", "list", HIERLEARN_DATA="/nowhere", HIERLEARN_CACHE=str(tmp_path))
    assert done.returncode == 0
    assert "icd10cm (default)" in done.stdout
    assert done.stderr == (
        "hierlearn: HIERLEARN_DATA names /nowhere, which is no folder; correct it or leave it out\n"
    )


def test_counts_are_written_in_full():
    assert [number(value) for value in (7, 1234567, 1234567.5, 2.0)] == [
        "7",
        "1,234,567",
        "1,234,567.5",
        "2",
    ]


def test_names_are_printed_as_they_are(tmp_path):
    (tmp_path / "h.txt").write_text("[red]a[/red]\n:smile:\n")
    done = run("inspect", "h.txt", "--sep", ">", cwd=tmp_path)
    assert "[red]a[/red]" in done.stdout
    assert ":smile:" in done.stdout
