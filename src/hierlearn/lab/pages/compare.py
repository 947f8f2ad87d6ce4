"""Compare: run a study, and write what it found into its folder, as ``hierlearn compare`` does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hierlearn.lab import compare as running
from hierlearn.lab.pages.page import write_report
from hierlearn.lab.publish import publish

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hierlearn.datasets import Dataset
    from hierlearn.lab.candidates import Candidate
    from hierlearn.lab.protocol import Protocol
    from hierlearn.lab.study import Study


@dataclass(frozen=True)
class Written:
    """What was written of a study.

    Attributes:
        summary: what ``summarize`` returned, with the verdict.
        paths: summary.json, table.csv, table.md, table.tex and report.html.
    """

    summary: dict[str, Any]
    paths: list[Path]


def write_study(study: Study) -> Written:
    """Write the tables, the summary and the page of a study into its folder."""
    summary, paths = publish(study)
    return Written(summary, [*paths, write_report(study.folder, summary=summary)])


def compare(
    dataset: Dataset,
    candidates: Sequence[str | Candidate],
    out: Path | str,
    protocol: Protocol | None = None,
    **options: Any,
) -> Study:
    """Run a study, or resume one that was interrupted, and write its tables and its page.

    Args:
        dataset: with a split "test".
        candidates: what to compare, as on the command line ("bce", "hxe:alpha=0.3", "loss:hcl",
            "hcl", "auto", "package.module:name") or Candidates; the first is what the others are
            tested against.
        out: the study's folder; summary.json, table.csv, table.md, table.tex and report.html are
            in it when this returns.
        protocol: how to train and evaluate them; the defaults of Protocol if None.
        options: of ``hierlearn.lab.compare.compare``, which writes no tables: force, executor,
            metadata and on_step.
    """
    study = running.compare(dataset, candidates, out, protocol, **options)
    write_study(study)
    return study
