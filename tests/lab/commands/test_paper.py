"""``hierlearn paper``: the tables of the paper from end to end, and what it passes on."""

import json
import os
from pathlib import Path

import pytest

from hierlearn.lab import paper
from hierlearn.lab.study import Study

DATA = Path(
    os.environ.get("HIERLEARN_DATA") or Path(__file__).parents[4] / "shared" / "data" / "hmc"
)
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the benchmark files are not in {DATA}")


@pytest.mark.slow
@needs_data
@pytest.mark.filterwarnings("ignore::hierlearn.losses.hcl.CollapseWarning")
def test_the_papers_tables_from_end_to_end(call, tmp_path, monkeypatch):
    # In this process, and without the kernels of fourteen losses, whose compilation takes longer
    # than the trainings; tests/kernels and tests/training use them.
    monkeypatch.setattr("hierlearn.kernels.choose.has_numba", lambda: False)
    said = call(f"paper --data-dir {DATA} --seeds 2 --epochs 1 --device cpu --jobs 1 --out p")
    assert "wrote paper.md and one study per dataset to p" in said
    text = (tmp_path / "p" / "paper.md").read_text()
    summaries = {}
    for name in ("diatoms", "imclef07d"):
        summary = json.loads((tmp_path / "p" / name / "summary.json").read_text())
        assert len(summary["candidates"]) == 14
        number = summary["candidates"].index("hcl")
        mean = 100 * summary["figures"]["hit@1"][number]["mean"]
        (line,) = (line for line in text.splitlines() if line.startswith("| recipe hcl |"))
        assert f"{mean:.2f} ±" in line
        assert (tmp_path / "p" / name / "report.html").is_file()
        assert set(summary["selected"]) >= {"hcl-paper", "hcl-cl", "hcl"}
        assert "hcl-hier" not in summary["selected"]
        summaries[name] = summary
    assert "| 74.45 |" in text  # the printed figure beside ours
    told = paper.verdict(summaries)
    assert len(told.splitlines()) == 10
    assert told in text
    assert told in said


@needs_data
@pytest.mark.filterwarnings("ignore::hierlearn.losses.hcl.CollapseWarning")
def test_seeds_epochs_and_the_folder(call, tmp_path, monkeypatch):
    monkeypatch.setattr("hierlearn.kernels.choose.has_numba", lambda: False)
    monkeypatch.setattr(paper, "ROWS", paper.ROWS[:1])
    monkeypatch.setattr(paper, "EPOCHS", {"diatoms": 85})
    line = f"paper --data-dir {DATA} --seeds 1 --seed 4 --epochs 1 --device cpu --jobs 1"
    said = call(line)
    assert "diatoms: 1 row, 1 seed each" in said
    study = Study.open(tmp_path / "paper" / "diatoms")
    assert study.seeds == [4]
    assert study.config["settings"]["epochs"] == 1
    assert study.config["settings"]["device"] == "cpu"
    again = call(line.replace("--seeds 1", "--seeds 2"), code=2, begun=True)
    assert "holds another study" in again
    assert "2 seeds each" in call(line.replace("--seeds 1", "--seeds 2 --force"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data-dir nowhere", "--data-dir names nowhere, which is no folder"),
        ("--epochs 0", "--epochs"),
        ("--seeds 0", "--seeds must be at least 1, not 0"),
        ("--methods bce", "--methods"),
    ],
)
def test_what_is_refused(call, words, message):
    assert message in call(f"paper {words}", code=2)
