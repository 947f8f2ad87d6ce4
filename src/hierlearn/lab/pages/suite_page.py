"""The page of a suite: methods x sets as a heat map, beside the best figures in print.

Few methods are columns; many are rows, the best first. One HTML file without scripts that needs no
network. A cell is colored by its difference to the best published figure of its set, or to the best
method where there is none; what the pointer rests on tells the spread over seeds and the seconds.
"""

from __future__ import annotations

import io
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, plural
from hierlearn.files.writing import atomic_write
from hierlearn.lab.pages.figures import need_matplotlib
from hierlearn.lab.pages.page import NAME, write_report
from hierlearn.lab.ranks import notes
from hierlearn.lab.suites import by_reason
from hierlearn.lab.summary import ARROWS, capital
from hierlearn.metrics.measure import find_metric
from hierlearn.reports.markup import asset, safe, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PAGE = "suite.html"
FULL = 0.05  # the difference at which a color is full
MARK = "†"  # of a published figure with a note
FEW = 8  # methods that are columns of the map


def write_suite(summary: Mapping[str, Any], out: Path | str) -> Path:
    """Write suite.html and the reports of the sets that lack one; return the page.

    Args:
        summary: what ``compare_suite`` returned.
        out: the folder of the suite.
    """
    out = Path(out)
    for one in summary["sets"]:
        report, runs = out / one["name"] / NAME, out / one["name"] / "runs.jsonl"
        if not report.is_file() or report.stat().st_mtime < runs.stat().st_mtime:
            write_report(report.parent)
    with atomic_write(out / PAGE) as file:
        file.write(page(summary))
    return out / PAGE


def page(summary: Mapping[str, Any]) -> str:
    metric = summary["metric"]
    return Template(asset("suite.html", "hierlearn.lab.pages")).substitute(
        title=safe(f"hierlearn suite: {summary['suite']}"),
        name=safe(summary["suite"]),
        style=asset("style.css"),
        headline=safe(headline(summary)),
        description=safe(f"{capital(summary['description'])}. {summary['protocol']}"),
        metric=safe(f"{metric} {ARROWS[find_metric(metric).direction]}"),
        against="the best published figure" if has_published(summary) else "the best method",
        map=heat_map(summary),
        marks=marks(summary),
        ranks=ranks(summary),
        methods=methods(summary),
        absent=absent(summary),
        published=published(summary),
    )


def headline(summary: Mapping[str, Any]) -> str:
    """Return what was found in a sentence."""
    sets, labels = summary["sets"], dict(zip(summary["candidates"], summary["labels"], strict=True))
    text = f"{plural(len(labels), 'method')} on {plural(len(sets), 'set')}."
    known = [one for one in sets if one["best_published"] and one["figures"]]
    for key in ordered(summary)[:FEW]:
        own = [one for one in known if key in one["figures"]]
        ahead = sum((difference(summary, one, key) or 0) > 0 for one in own)
        if own:
            text += (
                f" {labels[key]} is ahead of the best published figure on {ahead} of {len(own)}."
            )
    return text


def ordered(summary: Mapping[str, Any]) -> list[str]:
    """Return the methods: as they were named, or where they are many, the best mean rank first."""
    keys: list[str] = list(summary["candidates"])
    if len(keys) <= FEW:
        return keys
    found = ranks_by_method(summary)
    gains = {key: mean_difference(summary, key) for key in keys}
    lowest = min((one for one in gains.values() if one is not None), default=0.0)

    def place(key: str) -> tuple[bool, float, float]:
        gain = gains[key]
        rank = found.get(key)
        return rank is None, rank or 0.0, -(lowest - 1 if gain is None else gain)

    return sorted(keys, key=place)


def ranks_by_method(summary: Mapping[str, Any]) -> dict[str, float]:
    found = summary["ranks"]
    return dict(zip(found["candidates"], found["mean_ranks"], strict=True)) if found else {}


def mean_difference(summary: Mapping[str, Any], key: str) -> float | None:
    """Return the mean difference of a method to the reference of each set; None without any."""
    gains = [difference(summary, one, key) for one in summary["sets"]]
    known = [gain for gain in gains if gain is not None]
    return sum(known) / len(known) if known else None


def has_published(summary: Mapping[str, Any]) -> bool:
    return any(one["best_published"] for one in summary["sets"])


def sign(summary: Mapping[str, Any]) -> int:
    """Return 1 where more is better, else -1."""
    return -1 if find_metric(summary["metric"]).direction == "down" else 1


def reference(summary: Mapping[str, Any], one: Mapping[str, Any]) -> float | None:
    """Return what the methods of a set are compared with: in print, else the best of them."""
    if one["best_published"]:
        return float(one["best_published"]["value"])
    means = [f["mean"] for f in one["figures"].values() if f["mean"] is not None]
    if not means:
        return None
    return float(max(means) if sign(summary) > 0 else min(means))


def difference(summary: Mapping[str, Any], one: Mapping[str, Any], key: str) -> float | None:
    """Return by how much a method is better than the reference of a set; below 0 if worse."""
    base, figure = reference(summary, one), one["figures"].get(key)
    if base is None or figure is None or figure["mean"] is None:
        return None
    return sign(summary) * (float(figure["mean"]) - base)


def heat_map(summary: Mapping[str, Any]) -> str:
    """Return the table of methods, sets, and the best in print."""
    if len(summary["candidates"]) > FEW:
        return map_of_many(summary)
    heads = ["set", *map(safe, summary["labels"])]
    if has_published(summary):
        heads += ["best in print", "method and source"]
    rows = []
    for one in summary["sets"]:
        row = [f'<a href="{safe(one["report"])}">{safe(one["name"])}</a>']
        row += [cell(summary, one, key) for key in summary["candidates"]]
        if has_published(summary):
            row += printed_cells(summary, one["best_published"])
        rows.append(row)
    return table(heads, rows, kind="heat")


def map_of_many(summary: Mapping[str, Any]) -> str:
    """Return the table with one row per method, the best first, and one column per set."""
    labels = dict(zip(summary["candidates"], summary["labels"], strict=True))
    links = [f'<a href="{safe(one["report"])}">{safe(one["name"])}</a>' for one in summary["sets"]]
    rows = [
        [safe(labels[key]), *(cell(summary, one, key) for one in summary["sets"])]
        for key in ordered(summary)
    ]
    if has_published(summary):
        printed = [printed_cells(summary, one["best_published"]) for one in summary["sets"]]
        rows.append(["best in print", *(value for value, _ in printed)])
        rows.append(["its method and source", *(source for _, source in printed)])
    return table(["method", *links], rows, kind="heat")


def cell(summary: Mapping[str, Any], one: Mapping[str, Any], key: str) -> str:
    """Return the cell of a method on a set, colored by its difference to the reference."""
    figure, gain = one["figures"].get(key), difference(summary, one, key)
    if figure is None or figure["mean"] is None or gain is None:
        why = one.get("left_out", {}).get(key, "not finished, or not defined here")
        return f'<td class="number" title="{safe(why)}">–</td>'
    shown = find_metric(summary["metric"]).format
    about = shown(figure["mean"])
    if figure["deviation"] is not None:
        about += f" ± {shown(figure['deviation'])} over {plural(figure['seeds'], 'seed')}"
    else:
        about += " with one seed"
    than = "the best published figure" if one["best_published"] else "the best method"
    about += f"; {gain:+.4f} to {than}; {figure['seconds']:.1f} s per run"
    if figure["recipe"] and figure["recipe"] != key:
        about += f"; recipe {figure['recipe']}"
    means = [f["mean"] for f in one["figures"].values() if f["mean"] is not None]
    is_best = sign(summary) * figure["mean"] == max(sign(summary) * mean for mean in means)
    value = shown(figure["mean"])
    value = f"<b>{value}</b>" if is_best else value
    return f'<td class="number" style="background:{color(gain)}" title="{safe(about)}">{value}</td>'


def color(gain: float) -> str:
    """Return the color of a difference: toward --high above 0, toward --low below."""
    share = round(100 * min(1.0, abs(gain) / FULL))
    return f"color-mix(in srgb, var({'--high' if gain >= 0 else '--low'}) {share}%, var(--mid))"


def printed_cells(summary: Mapping[str, Any], best: Mapping[str, Any] | None) -> list[str]:
    """Return the best published figure of a set and its source."""
    if best is None:
        return ['<td class="number">–</td>', ""]
    about = "; ".join(filter(None, [best["protocol"], best["note"]]))
    mark = f'<sup title="{safe(about)}">{MARK}</sup>' if about else ""
    value = find_metric(summary["metric"]).format(best["value"])
    return [
        f'<td class="number">{value}{mark}</td>',
        f"{safe(best['method'])}, {safe(best['source'])}",
    ]


def marks(summary: Mapping[str, Any]) -> str:
    """Return what the mark of published figures means on this page."""
    found: dict[str, list[str]] = {}
    for one in summary["sets"]:
        best = one["best_published"]
        about = best and "; ".join(filter(None, [best["protocol"], best["note"]]))
        if about:
            found.setdefault(about, []).append(one["name"])
    return "".join(
        f"<p>{MARK} in print: {safe(about)} ({safe(', '.join(names))}).</p>"
        for about, names in found.items()
    )


def ranks(summary: Mapping[str, Any]) -> str:
    """Return the verdict on ranks with its diagram, or why there are none."""
    found = summary["ranks"]
    if found is None:
        shown = f"<p>No ranks: {safe(summary['no_ranks'])}.</p>"
    else:
        text = " ".join([found["verdict"], *notes(found)])
        shown = f"<p>{safe(text)}</p>{diagram(found)}"
    whole = summary.get("ranks_of_all")
    if whole:
        where = f"On the {len(whole['datasets'])} sets on which all methods can be trained:"
        shown += f"<p>{safe(where)} {safe(whole['verdict'])}</p>{diagram(whole)}"
    return shown


def diagram(found: Mapping[str, Any]) -> str:
    """Return the critical-difference diagram as SVG; nothing without matplotlib."""
    try:
        need_matplotlib()
    except HierlearnError as error:
        return f"<p>{safe(error)}</p>"
    import matplotlib as mpl

    from hierlearn.lab.pages.figures import rank_diagram

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "hierlearn"}):
        rank_diagram(found).savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return f'<figure class="ranks">{text[text.index("<svg") :]}</figure>'


def methods(summary: Mapping[str, Any]) -> str:
    """Return one row per method: mean rank, mean difference to the reference, time and size."""
    mean_ranks = ranks_by_method(summary)
    labels = dict(zip(summary["candidates"], summary["labels"], strict=True))
    heads = [
        *("method", "mean rank ↓", "mean difference", "sets"),
        *("seconds per run", "of the processor", "longest"),
        *("parameters", "other numbers stored"),
    ]
    rows = []
    for key in ordered(summary):
        own = [
            (one["figures"][key], one["name"]) for one in summary["sets"] if key in one["figures"]
        ]
        gain = mean_difference(summary, key)
        longest = max(((one["seconds"], name) for one, name in own), default=None)
        rows.append(
            [
                safe(labels[key]),
                f"{mean_ranks[key]:.2f}" if key in mean_ranks else "–",
                f"{gain:+.4f}" if gain is not None else "–",
                str(len(own)),
                mean_text([one["seconds"] for one, _ in own], ".1f"),
                mean_text([one.get("cpu_seconds") for one, _ in own], ".1f"),
                f"{longest[0]:.1f} on {safe(longest[1])}" if longest else "–",
                mean_text([one.get("parameters") for one, _ in own], ",.0f"),
                mean_text([one.get("stored") for one, _ in own], ",.0f"),
            ]
        )
    return table(heads, rows, kind="tests")


def mean_text(values: Sequence[float | None], form: str) -> str:
    """Return the mean of figures over sets as text; a dash where one is missing."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return "–"
    return format(sum(known) / len(known), form)


def absent(summary: Mapping[str, Any]) -> str:
    """Return which sets were left out, which methods of a set, and why."""
    lines = [
        f"<p>{safe(', '.join(names))}: {safe(why)}.</p>"
        for why, names in by_reason(summary["absent"]).items()
    ]
    lines = lines or ["<p>No set was left out.</p>"]
    refused: dict[tuple[str, str], list[str]] = {}  # sets by method and reason
    for one in summary["sets"]:
        for key, why in one.get("left_out", {}).items():
            refused.setdefault((key, why), []).append(one["name"])
    lines += [
        f"<p>{safe(key)} on {safe(', '.join(names))}: {safe(why)}.</p>"
        for (key, why), names in refused.items()
    ]
    return "".join(lines)


def published(summary: Mapping[str, Any]) -> str:
    """Return every published figure of the sets on the page."""
    shown = find_metric(summary["metric"]).format
    rows: Sequence[list[str]] = [
        [
            safe(one["name"]),
            safe(figure["method"]),
            f'<td class="number">{shown(figure["value"])}</td>',
            safe(figure["source"]),
            safe("; ".join(filter(None, [figure["protocol"], figure["note"]]))),
        ]
        for one in summary["sets"]
        for figure in one["published"]
    ]
    if not rows:
        return "<p>This suite has no figures in print.</p>"
    inside = table(["set", "method", safe(summary["metric"]), "source", "note"], list(rows))
    return f"<details><summary>All {len(rows)} figures</summary>{inside}</details>"
