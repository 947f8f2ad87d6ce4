"""Publish: the tables, the verdict and the figures of a study as files in its folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hierlearn.files.reading import guarded
from hierlearn.files.writing import atomic_write
from hierlearn.lab import noise_figures, ranks
from hierlearn.lab.noise_verdict import noise_verdict
from hierlearn.lab.study import Study, StudyError
from hierlearn.lab.summary import summarize
from hierlearn.lab.tables import as_csv, as_latex, as_markdown
from hierlearn.lab.verdict import study_verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def publish(study: Study) -> tuple[dict[str, Any], list[Path]]:
    """Write summary.json, table.csv, table.md and table.tex; return the summary and the paths."""
    with guarded(study.folder, "is a damaged study", StudyError, "run hierlearn compare again"):
        summary = summarize(study)
    summary["verdict"] = study_verdict(summary)
    texts = {
        "summary.json": as_json(summary),
        "table.csv": as_csv(summary),
        "table.md": f"{as_markdown(summary)}\n{summary['verdict']}\n",
        "table.tex": as_latex(summary),
    }
    return summary, write_texts(study.folder, texts)


def publish_noise(summary: dict[str, Any], folder: Path) -> list[Path]:
    """Write noise.json, noise.csv, runs.csv and noise.md; put the verdict into the summary."""
    summary["verdict"] = noise_verdict(summary)
    texts = {
        "noise.json": as_json(summary),
        "noise.csv": noise_figures.as_csv(summary),
        "runs.csv": noise_figures.as_runs_csv(summary),
        "noise.md": f"{noise_figures.as_markdown(summary)}\n{summary['verdict']}\n",
    }
    return write_texts(folder, texts)


def publish_ranks(summary: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ranks.json and ranks.md."""
    texts = {"ranks.json": as_json(summary), "ranks.md": ranks.as_markdown(summary)}
    return write_texts(folder, texts)


def as_json(summary: Mapping[str, Any]) -> str:
    """Return a summary as JSON."""
    return json.dumps(summary, indent=2, ensure_ascii=False) + "\n"


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write texts by file name into a folder; return the paths."""
    for name, text in texts.items():
        with atomic_write(folder / name) as file:
            file.write(text)
    return [folder / name for name in texts]
