"""Sections: the parts of the page that are tables: figures, tests, settings and versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.errors import plural
from hierlearn.lab.tables import ARROWS, cell, is_bold, notes, signed
from hierlearn.lab.verdict import each_loss, overall
from hierlearn.metrics.measure import find_metric
from hierlearn.reports.markup import as_text, network_text, pairs_table, safe, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.lab.study import Study


def figures(summary: Mapping[str, Any]) -> str:
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


def answer(summary: Mapping[str, Any]) -> str:
    """Return whether the hierarchy helps: the verdict, then one sentence per loss."""
    sentences = each_loss(summary)
    items = "".join(f"<li>{safe(one)}</li>" for one in sentences)
    return f"<p>{safe(overall(summary))}</p>" + (f"<ul>{items}</ul>" if items else "")


def tests(summary: Mapping[str, Any]) -> str:
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


def settings(study: Study) -> str:
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
    runs = study.runs()
    rows = []
    for candidate in study.candidates:
        own = study.runs_of(candidate, runs)
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


def between(low: int, high: int) -> str:
    """Return a range of integers as text."""
    return f"{low} to {high}" if low < high else str(low)


def options(labels: Sequence[str]) -> str:
    """Return the choices of a loss for a select element."""
    return "".join(f'<option value="{n}">{safe(label)}</option>' for n, label in enumerate(labels))
