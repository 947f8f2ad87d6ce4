"""``hierlearn report``: the real command on a study, what it writes and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hierlearn import Hierarchy
from reports.handmade_study import study as study_by_hand


@pytest.fixture
def folder(tmp_path):
    tree = Hierarchy.from_paths(["a/b", "a/c", "d"])
    decided = {"one": [[2, 3, 1]], "two": [[2, 2, 2]]}
    return study_by_hand(tmp_path / "study", tree, [["b"], ["c"], ["d"]], decided).folder


def run(*words, cwd):
    return subprocess.run(
        [sys.executable, "-m", "hierlearn", "report", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )


def test_it_writes_the_page_and_says_where(folder):
    done = run("study", cwd=folder.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"wrote {Path('study') / 'report.html'}\n"
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_it_writes_the_plots_beside_the_page(folder, tmp_path):
    done = run("study", "--png", "--out", "new/page.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    names = sorted(path.name for path in (tmp_path / "new" / "figures").iterdir())
    assert names == [f"{n}.{e}" for n in ("levels", "metrics", "severity") for e in ("png", "svg")]
    assert (tmp_path / "new" / "page.html").is_file()
    assert not (folder / "report.html").exists()
    for name in names:
        assert name in done.stdout


def test_a_page_elsewhere_is_replaced_only_by_force(folder, tmp_path, call):
    page = tmp_path / "page.html"
    page.write_text("mine")
    said = call("report study --out page.html", 2)
    assert said == "hierlearn: page.html exists; pass --force to replace it"
    assert page.read_text() == "mine"
    assert call("report study --out page.html --force") == "wrote page.html\n"
    assert page.read_text(encoding="utf-8") != "mine"


def test_a_page_in_the_study_is_replaced(folder, call):
    (folder / "report.html").write_text("an older one")
    call("report study")
    assert (folder / "report.html").read_text(encoding="utf-8") != "an older one"


def test_what_is_no_study_is_refused(tmp_path, call):
    said = call("report nowhere", 2)
    assert said == "hierlearn: nowhere holds no study: there is no study.json in it"
    assert not list(tmp_path.iterdir())


def test_a_study_without_a_finished_loss_is_refused(folder, call):
    (folder / "runs.jsonl").unlink()
    assert call("report study", 2) == (
        "hierlearn: study has no finished loss to report on yet; run hierlearn compare again, "
        "which continues from there"
    )
    assert not (folder / "report.html").exists()
