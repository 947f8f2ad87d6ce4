"""Page: one HTML file from a study folder, which needs no network and no other file.

Style, script and data are inside it. Names and texts are data: on the page they are escaped, in the
script they only ever become text, and the page's content security policy runs no script but ours.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, plural
from hierlearn.files.reading import guarded
from hierlearn.files.writing import atomic_write
from hierlearn.lab.pages.plots import (
    between,
    curriculum_plot,
    least_selected,
    level_panels,
    metric_panels,
)
from hierlearn.lab.study import Study, StudyError
from hierlearn.lab.summary import (
    ARROWS,
    cell,
    each_loss,
    is_bold,
    notes,
    overall,
    signed,
    summarize,
)
from hierlearn.metrics.measure import find_metric
from hierlearn.reports import plots
from hierlearn.reports.decisions import (
    Decisions,
    icicle_figures,
    icicle_tree,
    numbered,
    texts_of,
    worst_mistakes,
)
from hierlearn.reports.markup import (
    as_text,
    asset,
    embed,
    heights,
    network_text,
    page_script,
    pairs_table,
    safe,
    script_policy,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        study = Study.open(study_folder)
        if not study.finished:
            raise HierlearnError(
                f"{study.folder} has no finished loss to report on yet; run hierlearn compare "
                f"again, which continues from there"
            )
        text = page(study, exact_first(study, summary or summarize(study)))
    out = Path(out) if out is not None else study.folder / NAME
    with atomic_write(out) as file:
        file.write(text)
    return out


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
    by_key = {candidate.key: candidate for candidate in study.candidates}
    candidates = [by_key[key] for key in summary["candidates"]]
    by_level = {
        one.key: [run["test"]["accuracy"] for run in study.runs_of(one)] for one in candidates
    }
    truth = study.truth()
    script = page_script("script.js")
    name = study.config["dataset"]["name"] or "own data"
    return Template(asset("template.html", "hierlearn.lab.pages")).substitute(
        title=safe(f"hierlearn study: {name}"),
        name=safe(name),
        headline=headline(study, summary, len(truth)),
        policy=script_policy(script),
        style=asset("style.css"),
        table=figures_table(summary),
        answer=answer_section(summary),
        tests=tests_table(summary),
        first=safe(summary["labels"][0]),
        panels=metric_panels(summary),
        severity=plots.severity_bars(summary),
        severity_legend=plots.severity_legend(study.hierarchy.depth),
        levels=level_panels(summary, by_level),
        curriculum=curriculum(study, candidates),
        options="".join(
            f'<option value="{n}">{safe(label)}</option>'
            for n, label in enumerate(summary["labels"])
        ),
        heights=heights(study.hierarchy.root_height),
        settings=settings_section(study),
        data=embed(interactive(study, candidates, truth)),
        script=script,
    )


def curriculum(study: Study, candidates: list[Candidate]) -> str:
    """Return the section of the curricula; nothing where no loss has one."""
    panels = []
    for candidate in candidates:
        epochs = [one for one in study.log(candidate) if "selected_by_level" in one]
        if not epochs:
            continue
        shares = study.selected(candidate)
        least = "" if shares is None else least_selected(shares, study.hierarchy)
        plot = f'<figure class="panel">{curriculum_plot(epochs)}</figure>'
        head = f"<h3>{safe(candidate.title)}</h3>"
        panels.append(f'<div class="course">{head}<div>{plot}{least}</div></div>')
    if not panels:
        return ""
    return Template(asset("curriculum.html", "hierlearn.lab.pages")).substitute(
        panels="\n".join(panels)
    )


def interactive(study: Study, candidates: list[Candidate], truth: Truth) -> dict[str, Any]:
    """Return what the script draws: the icicle and the mistakes."""
    found = []
    shown: set[int] = set()
    for candidate in candidates:
        decisions = Decisions.read(truth, study.rows(candidate))
        worst = worst_mistakes(decisions)
        shown.update(row for row, *_ in worst)
        figures = icicle_figures(truth, decisions)
        found.append({"label": candidate.title, **figures, "worst": worst})
    return {
        **icicle_tree(truth.hierarchy, truth),
        "seeds": len(study.seeds),
        "candidates": found,
        "texts": texts_of(shown, study.texts()),
        "row": "test row",
        "rows": texts_of(shown, study.names() or numbered(len(truth), "test")),
    }


def report_study(folder: Path, out: Path, options: Mapping[str, Any]) -> list[Path]:
    """Write the page of a study, as ``hierlearn report`` asks for it; no option matters."""
    del options
    return [write_report(folder, out)]


# ---------------------------------------- sections


def figures_table(summary: Mapping[str, Any]) -> str:
    """Return the main table; bold only what is significantly better than the first row."""
    heads = ["loss"]
    for metric in summary["metrics"]:
        known = find_metric(metric)
        unit = '<span class="unit"> %</span>' if known.unit == "percent" else ""
        heads.append(
            f'<span title="{safe(known.description)}">{safe(metric)}{unit} '
            f"{ARROWS[summary['directions'][metric]]}</span>"
        )
    rows = []
    for number, (key, label) in enumerate(
        zip(summary["candidates"], summary["labels"], strict=True)
    ):
        star = "&nbsp;*" if summary["still_improving"][key] else ""
        cells = [one_figure(summary, metric, number) for metric in summary["metrics"]]
        rows.append([f"{safe(label)}{star}", *cells])
    below = "".join(f"<p>{safe(note.removeprefix(chr(92)))}</p>" for note in notes(summary))
    return table(heads, rows, kind="figures") + f'<div class="notes">{below}</div>'


def one_figure(summary: Mapping[str, Any], metric: str, number: int) -> str:
    """Return a cell: the figure as the table shows it, and in full as data."""
    figure = summary["figures"][metric][number]
    mean, deviation = cell(metric, figure)
    text = f"<b>{mean}</b>" if is_bold(summary, metric, number) else mean
    if deviation is not None:
        text += f' <span class="deviation">± {deviation}</span>'
    known = "" if figure["mean"] is None else f' data-mean="{figure["mean"]!r}"'
    return f'<td data-metric="{safe(metric)}"{known}>{text}</td>'


def answer_section(summary: Mapping[str, Any]) -> str:
    """Return whether the hierarchy helps: the verdict, then one sentence per loss."""
    sentences = each_loss(summary)
    items = "".join(f"<li>{safe(one)}</li>" for one in sentences)
    return f"<p>{safe(overall(summary))}</p>" + (f"<ul>{items}</ul>" if items else "")


def tests_table(summary: Mapping[str, Any]) -> str:
    """Return difference, p and interval of every figure, folded."""
    heads = ["loss", "metric", f"against {safe(summary['labels'][0])}", "p (Holm)"]
    heads.append("95 % interval over rows")
    rows = []
    for metric in summary["metrics"]:
        for label, figure in zip(summary["labels"], summary["figures"][metric], strict=True):
            change, p = figure.get("difference"), figure["p"]
            known = find_metric(metric)
            text = "" if change is None else signed(known, change).replace("-", "−")
            chance = "" if p is None else "&lt; 0.001" if p < 0.001 else f"{p:.3f}"
            interval = figure["interval"]
            ends = "" if interval is None else " to ".join(known.format(end) for end in interval)
            strong = f"<b>{chance}</b>" if figure["significant"] else chance
            rows.append([safe(label), safe(metric), text, strong, ends])
    inside = table(heads, rows, kind="tests")
    return f"<details><summary>Differences, p-values and intervals</summary>{inside}</details>"


def settings_section(study: Study) -> str:
    """Return what was compared, on what and how."""
    config = study.config
    data = config["dataset"]
    taxonomy = data["hierarchy"]
    splits = ", ".join(f"{name} {count:,}" for name, count in data["splits"].items())
    pairs: dict[str, object] = {
        "dataset": data["name"],
        "source": data["source"],
        "rows": f"{data['rows']:,}" + (f" ({splits})" if splits else ""),
        "classes": f"{taxonomy['classes']:,} in {taxonomy['levels']} levels "
        f"({taxonomy['kind']}, {taxonomy['leaves']:,} leaves)",
        "fingerprint of the hierarchy": taxonomy["fingerprint"],
        "seeds": ", ".join(map(str, config["seeds"])),
        "network": network_text(config["network"]),
        "settings": as_text(config["settings"]),
        "validation fraction": config["valid_fraction"],
    }
    more = ""
    for name, value in config["metadata"].items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            more += folded(name, value)
        else:
            pairs[name] = as_text(value)
    return pairs_table(pairs) + more + "<h3>Each loss</h3>" + each(study)


def folded(name: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Return records as a table that opens on demand."""
    heads = list(dict.fromkeys(key for record in records for key in record))
    rows = [[safe(as_text(record.get(head, ""))) for head in heads] for record in records]
    inside = table([safe(head.replace("_", " ")) for head in heads], rows, kind="tests")
    return f"<details><summary>{safe(name)} ({len(records)})</summary>{inside}</details>"


def each(study: Study) -> str:
    """Return what was chosen for each candidate, and how its runs went."""
    heads = ["loss", "options", "own settings", "best epoch", "seconds per run", "still improving"]
    common = study.config["settings"]
    rows = []
    for candidate in study.candidates:
        own = study.runs_of(candidate)
        if not own:
            rows.append([safe(candidate.title), "not finished", "", "", "", ""])
            continue
        changed = {k: v for k, v in own[0]["settings"].items() if common.get(k) != v}
        epochs = [run["best_epoch"] for run in own]
        seconds = sum(run["seconds"] for run in own) / len(own)
        improving = sum(run["still_improving"] for run in own)
        rows.append(
            [
                safe(candidate.title),
                safe(as_text(own[0]["loss_options"]) or "defaults"),
                safe(as_text(changed) or "as above"),
                between(min(epochs), max(epochs)) if max(epochs) else "last",
                f"{seconds:.1f}",
                f"{improving} of {len(own)}",
            ]
        )
    return table(heads, rows, kind="each")


def headline(study: Study, summary: Mapping[str, Any], rows: int) -> str:
    """Return the line below the title."""
    taxonomy = study.config["dataset"]["hierarchy"]
    parts = [
        plural(rows, "test row"),
        f"{plural(taxonomy['classes'], 'class', 'classes')} in "
        f"{plural(taxonomy['levels'], 'level')}",
        plural(len(summary["candidates"]), "loss", "losses"),
        plural(summary["seeds"], "seed"),
    ]
    return " · ".join(safe(part) for part in parts)
