"""Publish: the tables, the closing paragraph and the figures of a study as files in its folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hierlearn.files import atomic_write
from hierlearn.studies import noise_figures
from hierlearn.studies.noise_verdict import what_noise_does
from hierlearn.studies.summary import summarize
from hierlearn.studies.tables import as_csv, as_latex, as_markdown
from hierlearn.studies.verdict import does_it_help

if TYPE_CHECKING:
    from pathlib import Path

    from hierlearn.studies.study import Study


def publish(study: Study) -> tuple[dict[str, Any], list[Path]]:
    """Write summary.json, table.csv, table.md and table.tex; return the summary and the paths."""
    summary = summarize(study)
    summary["words"] = does_it_help(summary)
    texts = {
        "summary.json": json.dumps(summary, indent=2, ensure_ascii=False) + "\n",
        "table.csv": as_csv(summary),
        "table.md": f"{as_markdown(summary)}\n{summary['words']}\n",
        "table.tex": as_latex(summary),
    }
    for name, text in texts.items():
        with atomic_write(study.folder / name) as file:
            file.write(text)
    return summary, [study.folder / name for name in texts]


def publish_noise(summary: dict[str, Any], folder: Path) -> list[Path]:
    """Write noise.json, noise.csv and noise.md; put the words into the summary."""
    summary["words"] = what_noise_does(summary)
    texts = {
        "noise.json": json.dumps(summary, indent=2, ensure_ascii=False) + "\n",
        "noise.csv": noise_figures.as_csv(summary),
        "noise.md": f"{noise_figures.as_markdown(summary)}\n{summary['words']}\n",
    }
    for name, text in texts.items():
        with atomic_write(folder / name) as file:
            file.write(text)
    return [folder / name for name in texts]
