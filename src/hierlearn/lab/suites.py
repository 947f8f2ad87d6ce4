"""Suites: one study per dataset of a named list, ranks over them, beside the figures in print.

    OUT/<set>/       the study of a dataset, with its page
    OUT/suite.md     methods beside the best figures in print, ranks, seconds, what was left out
    OUT/suite.json   every figure, rank and published figure

A set whose files are not there is listed, not fatal; neither is one that raises an error, nor a
method that cannot be trained on a set. What is finished is not trained again, so a suite goes on
for days with the same command, and takes further methods.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.registry import DATASETS
from hierlearn.errors import DataError, HierlearnError, quoted, unknown_name
from hierlearn.lab.candidates import parse_candidates
from hierlearn.lab.compare import begin, run_studies, write_study
from hierlearn.lab.corpora.clus import CLUS_SETS, locate_clus
from hierlearn.lab.pages.page import NAME
from hierlearn.lab.protocol import TABLE, Protocol
from hierlearn.lab.ranks import notes, rank_studies
from hierlearn.lab.runner import with_test_rows
from hierlearn.lab.statistics import spread
from hierlearn.lab.summary import ARROWS, as_json, capital, markdown_table, write_texts
from hierlearn.metrics.measure import find_metric, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from hierlearn.datasets import Dataset
    from hierlearn.lab.candidates import Candidate
    from hierlearn.lab.compare import Comparison
    from hierlearn.lab.study import Study

FORMAT, VERSION = "hierlearn.suite", 1
SUITE_SEEDS = 5  # of each method, unless asked for others
TEST_FRACTION = 0.2  # of a dataset without a split "test"
TIMES = ("seconds", "cpu_seconds")
SUSPECT = "suspect"  # how the note of a figure begins that no method is measured against


@dataclass(frozen=True)
class Suite:
    """Datasets that are compared on together.

    Attributes:
        name: its key in SUITES.
        description: one sentence.
        datasets: names of DATASETS; one that this version lacks is listed as absent.
        methods: what is compared unless something else is asked for.
        metric: what methods are ranked by, and what the published figures are.
        metrics: of the tables of the single studies.
        published: a file in ``studies/published``; None where there are no figures in print.
        joins_valid: whether validation rows are training rows too, as in the papers; a loss that
            stops early holds rows out again.
        protocol: how methods are trained and evaluated, in a sentence for the reader.
        options: of the loaders of datasets, by name.
    """

    name: str
    description: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    metric: str = "au-prc"
    metrics: tuple[str, ...] = TABLE
    published: str | None = None
    joins_valid: bool = False
    protocol: str = ""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


YEAST = ("cellcycle", "derisi", "eisen", "expr", "gasch1", "gasch2", "seq", "spo")
SUITES: dict[str, Suite] = {
    one.name: one
    for one in (
        Suite(
            "clus",
            "the public sets of Clus: images, e-mails, and yeast genes by FunCat and by GO",
            (
                *("diatoms", "enron", "imclef07a", "imclef07d"),
                *(f"{stem}_{kind}" for kind in ("fun", "go") for stem in YEAST),
            ),
            ("flat", "auto", "neighbors", "hcl", "max"),
            published="clus.csv",
            joins_valid=True,
            protocol="Trained on the training and validation rows, evaluated on the official test "
            "rows; AU(PRC) is pooled over rows and classes, on the sets of GO without its three "
            "top classes, as in print.",
        ),
        Suite(
            "texts",
            "short texts with one path or several",
            ("icd10cm", "naics", "esco", "medline", "cwe"),
            ("flat", "auto", "linear", "hcl", "max"),
            metric="terminal-accuracy",
            protocol="Trained on the training rows and evaluated on the test rows; where a set has "
            "none, a fifth of the rows, drawn once.",
        ),
    )
}


def find_suite(name: str) -> Suite:
    if name not in SUITES:
        raise HierlearnError(unknown_name("suite", name, SUITES))
    return SUITES[name]


def compare_suite(
    suite: Suite | str,
    out: Path | str,
    methods: Sequence[str | Candidate] | None = None,
    protocol: Protocol | None = None,
    *,
    data_dir: Path | str | None = None,
    force: bool = False,
    executor: Executor | int = 1,
    on_message: Callable[[str], None] | None = None,
    on_step: Callable[[int, int, int], None] | None = None,
) -> dict[str, Any]:
    """Compare methods on every set of a suite that is there; resume what was interrupted.

    Args:
        suite: a name of SUITES, or a Suite.
        out: the folder.
        methods: what to compare, as ``compare`` takes candidates; None for those of the suite.
        protocol: how to train and evaluate; 5 seeds if None.
        data_dir: the folder of benchmark files.
        force: replace other studies in the folder.
        executor: where candidates are trained, as ``compare`` takes it; those of all sets at once.
        on_message: called with a sentence on every set.
        on_step: called with the candidate's number among those of all sets, the step and the number
            of steps.

    Returns:
        Every figure, ready for JSON: the content of suite.json.
    """
    suite, out = find_suite(suite) if isinstance(suite, str) else suite, Path(out)
    candidates = parse_candidates(list(methods or suite.methods))
    protocol = protocol or Protocol(seeds=SUITE_SEEDS, metrics=suite.metrics)
    names = dict.fromkeys((*protocol.metrics, suite.metric))
    protocol = protocol.with_changes(metrics=tuple(names))
    protocol.check(candidates)
    absent: dict[str, str] = {}  # why a set was left out
    begun: dict[str, Comparison] = {}

    def studies() -> Iterator[Comparison]:
        for name in suite.datasets:
            try:
                dataset = load_set(suite, name, data_dir)
                if on_message is not None:
                    classes = len(dataset.hierarchy)
                    on_message(f"{name}: {len(dataset):,} rows, {classes:,} classes")
                one = begin(dataset, candidates, out / name, protocol, force=force)
            except HierlearnError as error:
                absent[name] = str(error)
                continue
            one.leaves_out = True
            begun[name] = one
            yield one

    def on_error(study: Comparison, error: HierlearnError) -> None:
        absent[study.study.folder.name] = str(error)

    run_studies(studies(), protocol, executor, on_step, on_error)
    finished: dict[str, Comparison] = {}
    for name, one in begun.items():
        if one.failed:
            continue
        if one.study.finished:
            if one.tasks or not (one.study.folder / NAME).is_file():
                write_study(one.study)
            finished[name] = one
        else:
            reasons = by_reason(one.left_out).items()
            absent[name] = "; ".join(f"{', '.join(keys)}: {why}" for why, keys in reasons)
    if not finished:
        why = "; ".join(f"{quoted(n)}: {w}" for w, n in by_reason(absent).items())
        raise HierlearnError(f"no set of the suite {suite.name} could be run: {why}")
    printed = read_published(suite)
    whole = [one.study.folder for one in finished.values() if not one.left_out]
    ranks, no_ranks = ranks_of([one.study.folder for one in finished.values()], suite.metric)
    summary = {
        "format": FORMAT,
        "version": VERSION,
        "suite": suite.name,
        "description": suite.description,
        "protocol": suite.protocol,
        "metric": suite.metric,
        "candidates": [one.key for one in candidates],
        "labels": [one.title for one in candidates],
        "sets": [
            {
                **set_figures(name, one.study, candidates, suite.metric, printed.get(name, [])),
                "left_out": dict(one.left_out),
            }
            for name, one in finished.items()
        ],
        "absent": absent,
        "ranks": ranks,
        "no_ranks": no_ranks,
        "ranks_of_all": None,
    }
    if 1 < len(whole) < len(finished):  # the sets where no method was left out
        summary["ranks_of_all"], _ = ranks_of(whole, suite.metric)
    write_texts(out, {"suite.json": as_json(summary), "suite.md": as_markdown(summary)})
    return summary


def load_set(suite: Suite, name: str, data_dir: Path | str | None) -> Dataset:
    """Return a set with a split "test"; raise a DataError where it is not there."""
    if name not in DATASETS:
        raise DataError(f"this version of hierlearn has no dataset {name!r}")
    if name in CLUS_SETS and locate_clus(name, data_dir) is None:
        raise DataError(f"its files are not in {data_dir or 'HIERLEARN_DATA, nor in the cache'}")
    entry = DATASETS[name]
    given = {"data_dir": data_dir, "download": False}
    known = {key: value for key, value in given.items() if key in entry.options}
    dataset = entry(**{**known, **suite.options.get(name, {})})
    if suite.joins_valid and "valid" in dataset.splits:
        splits = {key: rows for key, rows in dataset.splits.items() if key != "valid"}
        splits["train"] = np.concatenate([splits["train"], dataset.splits["valid"]])
        dataset = replace(dataset, splits=splits)
    return with_test_rows(dataset, TEST_FRACTION, seed=0)[0]


# ---------------------------------------- figures


def by_reason(absent: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the sets that were left out by the reason."""
    found: dict[str, list[str]] = {}
    for name, why in absent.items():
        found.setdefault(why, []).append(name)
    return found


def ranks_of(folders: Sequence[Path], metric: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return the ranks over some studies, or None and why there are none."""
    try:
        return rank_studies(folders, metric), None
    except HierlearnError as error:  # one set, or one method
        return None, str(error)


def set_figures(
    name: str,
    study: Study,
    candidates: Sequence[Candidate],
    metric: str,
    printed: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the figures of one set: by candidate, and in print."""
    figures: dict[str, Any] = {}
    for one in candidates:
        if not study.is_done(one):
            continue
        values, own = study.values(one, metric), study.runs_of(one)
        about = spread(values)
        figures[one.key] = {
            "mean": plain(about.mean),
            "deviation": None if about.deviation is None else plain(about.deviation),
            "seeds": len(values),
            **{name: float(np.mean([run[name] for run in own])) for name in TIMES},
            **{name: own[0][name] for name in ("parameters", "stored", "recipe")},
        }
    return {
        "name": name,
        "report": f"{name}/report.html",
        "rows": study.config["dataset"]["rows"],
        "figures": figures,
        "published": printed,
        "best_published": best_published(printed),
    }


def read_published(suite: Suite) -> dict[str, list[dict[str, Any]]]:
    """Return the published figures of a suite by dataset, each with its source and notes."""
    found: dict[str, list[dict[str, Any]]] = {}
    if suite.published is None:
        return found
    path = files("hierlearn.lab").joinpath("published").joinpath(suite.published)
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        one: dict[str, Any] = {key: value for key, value in row.items() if key != "dataset"}
        found.setdefault(row["dataset"], []).append({**one, "value": float(row["value"])})
    return found


def best_published(printed: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the highest published figure that is not marked as suspect; None without any."""
    known = [one for one in printed if not one["note"].startswith(SUSPECT)]
    return dict(max(known, key=lambda one: one["value"])) if known else None


# ---------------------------------------- tables


def table(summary: Mapping[str, Any], bold: str = "") -> tuple[list[str], list[list[str]]]:
    """Return the heads and one row per set: every method, and the best figure in print.

    Args:
        summary: the content of suite.json.
        bold: what stands before and after the best figure of a set.
    """
    metric = find_metric(summary["metric"])
    best = min if metric.direction == "down" else max
    printed = any(one["best_published"] for one in summary["sets"])
    rows = []
    for one in summary["sets"]:
        means = [one["figures"].get(key, {}).get("mean") for key in summary["candidates"]]
        first = best((mean for mean in means if mean is not None), default=None)
        cells = ["–" if mean is None else metric.format(mean) for mean in means]
        cells = [
            f"{bold}{cell}{bold}" if mean is not None and mean == first else cell
            for cell, mean in zip(cells, means, strict=True)
        ]
        if printed:
            found = one["best_published"]
            cells.append(f"{metric.format(found['value'])} {found['method']}" if found else "–")
        rows.append([one["name"], *cells])
    return ["", *summary["labels"], *(["best in print"] if printed else [])], rows


def as_markdown(summary: Mapping[str, Any]) -> str:
    """Return figures and ranks, what methods take, what was left out, and the figures in print."""
    metric, sets, found = find_metric(summary["metric"]), summary["sets"], summary["ranks"]
    heads, rows = table(summary, bold="**")
    linked = [[f"[{name}]({name}/report.html)", *cells] for name, *cells in rows]
    lines = [f"{capital(summary['description'])}. {summary['protocol']}", ""]
    lines += [f"{metric.name} {ARROWS[metric.direction]}, bold: the best method", ""]
    lines += [*markdown_table(heads, linked), ""]
    lines += [found["verdict"], *notes(found)] if found else [f"No ranks: {summary['no_ranks']}."]
    whole = summary["ranks_of_all"]
    if whole:
        count = len(whole["datasets"])
        lines += [
            "",
            f"On the {count} sets on which all methods can be trained: {whole['verdict']}",
        ]
    ranks = dict(zip(found["candidates"], found["mean_ranks"], strict=True)) if found else {}
    cost = []
    for key, label in zip(summary["candidates"], summary["labels"], strict=True):
        own = [one["figures"][key] for one in sets if key in one["figures"]]
        means = [
            np.mean([one[name] for one in own])
            if own and None not in [o[name] for o in own]
            else None
            for name in (*TIMES, "parameters", "stored")
        ]
        shown = ["–" if one is None else f"{one:,.1f}" for one in means]
        cost.append([label, f"{ranks[key]:.2f}" if key in ranks else "–", str(len(own)), *shown])
    heads = ["method", "mean rank ↓", "sets", "seconds per run", "of the processor"]
    lines += ["", *markdown_table([*heads, "parameters", "other numbers stored"], cost)]
    left = [(f"{', '.join(names)}", why) for why, names in by_reason(summary["absent"]).items()]
    for one in sets:
        left += [(f"{key} on {one['name']}", why) for key, why in one["left_out"].items()]
    if left:
        lines += ["", "Left out:", "", *(f"- {what}: {why}" for what, why in left)]
    printed = [
        [one["name"], row["method"], metric.format(row["value"]), row["source"], about]
        for one in sets
        for row in one["published"]
        for about in ["; ".join(filter(None, [row["protocol"], row["note"]]))]
    ]
    if printed:
        heads = ["set", "method", metric.name, "source", "note"]
        lines += ["", "In print:", "", *markdown_table(heads, printed, "---")]
    return "\n".join(lines) + "\n"
