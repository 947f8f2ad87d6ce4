"""Page: one HTML file from a study folder, which needs no network and no other file.

Style, script and data are inside it. Names and texts are data: on the page they are escaped, in the
script they only ever become text, and the page's content security policy runs no script but ours.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.files.reading import guarded
from hierlearn.files.writing import atomic_write
from hierlearn.lab.evidence import evidence_of
from hierlearn.lab.pages import sections, selection
from hierlearn.lab.pages.plots import curriculum_plot, level_panels, metric_panels
from hierlearn.lab.study import Study, StudyError
from hierlearn.lab.summary import summarize
from hierlearn.reports import plots
from hierlearn.reports.decisions import (
    Decisions,
    icicle_figures,
    icicle_tree,
    numbered,
    texts_of,
    worst_mistakes,
)
from hierlearn.reports.markup import asset, embed, heights, page_script, safe, script_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.lab.candidates import Candidate
    from hierlearn.reports.decisions import Truth

NAME = "report.html"
EXACT, TERMINAL = "exact", "terminal-accuracy"


def write_report(
    study_folder: Path | str,
    out: Path | str | None = None,
    *,
    summary: Mapping[str, Any] | None = None,
) -> Path:
    """Write the page of a study.

    Args:
        study_folder: the folder of a study, complete or not.
        out: the file to write; by default report.html in the folder.
        summary: what ``summarize`` returned for the study, where it is known already.

    Returns:
        The file.
    """
    with guarded(study_folder, "is a damaged study", StudyError, "run hierlearn compare again"):
        study, summary = read(study_folder, summary)
        text = page(study, summary)
    out = Path(out) if out is not None else study.folder / NAME
    with atomic_write(out) as file:
        file.write(text)
    return out


def read(
    study_folder: Path | str, summary: Mapping[str, Any] | None = None
) -> tuple[Study, Mapping[str, Any]]:
    """Return a study and its summary; raise for one without a finished loss."""
    study = Study.open(study_folder)
    if not study.finished:
        raise HierlearnError(
            f"{study.folder} has no finished loss to report on yet; run hierlearn compare again, "
            f"which continues from there"
        )
    return study, exact_first(study, summarize(study) if summary is None else summary)


def exact_first(study: Study, summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a summary whose first metric is the exact answers, where the table has them.

    Where terminal-accuracy is that figure in every run, it is not shown twice.
    """
    names = list(summary["metrics"])
    if EXACT in names and TERMINAL in names:
        runs = [run["test"] for run in study.runs()]
        if all(run[EXACT] == run[TERMINAL] for run in runs):
            names.remove(TERMINAL)
    return {**summary, "metrics": sorted(names, key=lambda name: name != EXACT)}


def page(study: Study, summary: Mapping[str, Any]) -> str:
    """Return the page's text."""
    candidates = finished(study, summary)
    truth = study.truth()
    script = page_script("script.js")
    name = study.config["dataset"]["name"] or "own data"
    return Template(asset("template.html", "hierlearn.lab.pages")).substitute(
        title=safe(f"hierlearn study: {name}"),
        name=safe(name),
        headline=sections.headline(study, summary, len(truth)),
        policy=script_policy(script),
        style=asset("style.css"),
        table=sections.figures(summary),
        answer=sections.answer(summary),
        tests=sections.tests(summary),
        first=safe(summary["labels"][0]),
        panels=metric_panels(summary),
        severity=plots.severity_bars(summary),
        severity_legend=plots.severity_legend(study.hierarchy.depth),
        levels=level_panels(summary, by_level(study, candidates)),
        curriculum=curriculum(study, candidates),
        options=sections.options(summary["labels"]),
        heights=heights(study.hierarchy.root_height),
        settings=sections.settings(study),
        data=embed(interactive(study, summary, truth)),
        script=script,
    )


def finished(study: Study, summary: Mapping[str, Any]) -> list[Candidate]:
    """Return the candidates of the summary."""
    by_key = {candidate.key: candidate for candidate in study.candidates}
    return [by_key[key] for key in summary["candidates"]]


def by_level(study: Study, candidates: list[Candidate]) -> dict[str, list[list[float | None]]]:
    """Return the accuracy of each level, one list per seed, by candidate."""
    runs = study.runs()
    return {
        one.key: [run["test"]["accuracy"] for run in study.runs_of(one, runs)] for one in candidates
    }


def curricula(study: Study, candidates: list[Candidate]) -> dict[str, list[dict[str, Any]]]:
    """Return the epochs of the candidates that select classes, by label."""
    found = {}
    for candidate in candidates:
        epochs = [one for one in study.log(candidate) if "selected_by_level" in one]
        if epochs:
            found[candidate.title] = epochs
    return found


def curriculum(study: Study, candidates: list[Candidate]) -> str:
    """Return the section of the curricula; nothing where no loss has one."""
    logs = curricula(study, candidates)
    panels = []
    for candidate in candidates:
        label = candidate.title
        if label not in logs:
            continue
        parts = [f'<figure class="panel">{curriculum_plot(logs[label])}</figure>']
        shares = study.selected(candidate)
        if shares is not None:
            drawn = selection.selection_map(shares, study.hierarchy)
            parts.append(f'<figure class="panel">{drawn}</figure>')
            parts.append(selection.least_selected(shares, study.hierarchy))
        head = f"<h3>{safe(label)}</h3>"
        panels.append(f'<div class="course">{head}<div>{"".join(parts)}</div></div>')
    if not panels:
        return ""
    return Template(asset("curriculum.html", "hierlearn.lab.pages")).substitute(
        panels="\n".join(panels)
    )


def interactive(study: Study, summary: Mapping[str, Any], truth: Truth) -> dict[str, Any]:
    """Return what the script draws: the icicle and the mistakes."""
    found = []
    shown: set[int] = set()
    for candidate, label in zip(finished(study, summary), summary["labels"], strict=True):
        decisions = Decisions.read(truth, study.rows(candidate))
        worst = worst_mistakes(decisions)
        shown.update(row for row, *_ in worst)
        one = {"label": label, **icicle_figures(truth, decisions), "worst": worst}
        stored = study.evidence(candidate)
        if stored is not None:
            one["evidence"] = evidence_of(worst, decisions, stored, truth.hierarchy)
        found.append(one)
    return {
        **icicle_tree(truth.hierarchy, truth),
        "seeds": len(study.seeds),
        "candidates": found,
        "texts": texts_of(shown, study.texts()),
        "row": "test row",
        "rows": texts_of(shown, study.names() or numbered(len(truth), "test")),
    }


def report_study(folder: Path, out: Path, options: Mapping[str, Any]) -> list[Path]:
    """Write the page of a study, and its plots if asked for."""
    from hierlearn.lab.pages.figures import report_pngs

    _, summary = read(folder)
    written = [write_report(folder, out, summary=summary)]
    if options["png"]:
        written += report_pngs(folder, out.parent / "figures", summary=summary)
    return written
