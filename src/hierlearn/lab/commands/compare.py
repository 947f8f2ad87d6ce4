"""``hierlearn compare``: which loss makes the better mistakes here, and how certain is that?"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, get_args

import typer
from rich.box import SIMPLE_HEAD

from hierlearn.cli import shared
from hierlearn.cli.generate import (
    FOLDER,
    dashed,
    described,
    given,
    given_fields,
    option,
    options,
    takes,
)
from hierlearn.errors import plural
from hierlearn.lab.protocol import EARLY, Protocol, Tune
from hierlearn.service.command import check_where, executor_of
from hierlearn.terminal import Console, Table, Text, print_plain
from hierlearn.training.settings import Plan, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.lab.candidates import Candidate
    from hierlearn.lab.study import Study

WHAT, HOW = "What to compare", shared.HOW  # panels of --help
METHODS = "bce,focal,hxe,soft-labels,mcloss,hcl-hier,hcl-paper,loss:hcl"
CANDIDATES = (
    "Losses and recipes with commas, or all; the first is what the others are tested against. "
    "hcl, max, auto train as train does; loss:hcl is the loss alone; options and settings as "
    "hxe:alpha=0.3+epochs=50."
)
TEST_SHARE = 0.2
TEST_FRACTION = option(
    "test_fraction",
    float,
    f"Fraction of the rows to test on, where no split is named test; {TEST_SHARE} if none.",
    panel=HOW,
)
PLAN = described(Plan, HOW, study=True)
OPTIONS = [
    *options(
        WHAT,
        methods=(str, CANDIDATES, {"default": METHODS}),
        metrics=(str, "Metrics of the table: hit@1,mrr."),
    ),
    *options(
        out=(FOLDER, "Folder of the study.", {"default": Path("study")}),
        force=(bool, "Replace another study in --out."),
    ),
    *options(
        WHAT,
        suite=(
            str,
            "Every set of a suite that is there, one study each: clus (--data-dir), texts.",
        ),
    ),
    *options(
        HOW,
        tune=(
            str,
            "Search settings first; paper: the network by cross entropy, each: every loss for "
            "itself.",
            {"default": "none", "metavar": f"[{'|'.join(get_args(Tune))}]"},
        ),
    ),
]


@takes(
    *OPTIONS,
    *described(Protocol, HOW),
    TEST_FRACTION,
    *described(Settings, HOW, study=True, **EARLY),
    *PLAN,
    *shared.WHERE,
    *shared.SOURCE,
)
def compare(
    data: Annotated[
        Optional[str],
        typer.Argument(help=f"{shared.DATA} Five chapters of icd10cm if none."),
    ] = None,
    **options: Any,
) -> None:
    """Train several methods over several seeds and compare them, with honest statistics.

    Interrupt it at any time: the same command continues with what is missing.

    Examples:
        compare
        compare rows.csv --label class --methods bce,hxe:alpha=0.3,hcl --seeds 5
        compare --suite clus --data-dir DATA --out clus
    """
    from hierlearn.cli.sources import check_goes_with, open_dataset, split_names
    from hierlearn.terminal import Console, print_plain

    check_where(options)
    console = Console()
    if options["suite"] is not None:
        compare_sets(data, options, console)
        return
    from hierlearn.errors import quoted
    from hierlearn.lab.candidates import parse_candidates
    from hierlearn.lab.runner import unseen_classes
    from hierlearn.lab.study import check_folder

    if data is None:
        small = ["size=small", *(options["dataset_option"] or [])]
        data, options = "icd10cm", {**options, "dataset_option": small}
    check_folder(options["out"])
    if options["tune"] == "none":
        check_goes_with(options, ("trials",), "--tune")
    candidates = parse_candidates(split_names(options["methods"]))
    protocol = make_protocol(options)
    protocol.check(candidates)
    dataset = open_dataset(data, options)
    dataset, made = set_aside(dataset, options, protocol.seed)
    print_plain(
        console,
        f"{dataset.name}: {len(dataset):,} rows, {len(dataset.hierarchy):,} classes; "
        f"{plural(len(candidates), 'method')}, {plural(protocol.seeds, 'seed')} each{made}",
    )
    unseen = unseen_classes(dataset)
    if unseen:
        print_plain(
            console,
            f"{plural(len(unseen), 'class', 'classes')} of test rows without a training row, "
            f"which nothing can learn: {quoted(unseen, most=3)}",
        )
    finish(console, run(dataset, candidates, protocol, options))


def set_aside(dataset: Dataset, options: Mapping[str, Any], seed: int) -> tuple[Dataset, str]:
    """Return the dataset with test rows, and what was done; raise on a fraction of no use."""
    from hierlearn.errors import HierlearnError
    from hierlearn.lab.runner import with_test_rows

    fraction = options["test_fraction"]
    for name, split in (("test_fraction", "test"), ("valid_fraction", "valid")):
        if options[name] and len(dataset.splits.get(split, ())):
            raise HierlearnError(
                f"{dataset.name} has a split {split!r} already; leave {dashed(name)} out"
            )
    return with_test_rows(dataset, TEST_SHARE if fraction is None else fraction, seed)


def make_protocol(options: Mapping[str, Any], **defaults: Any) -> Protocol:
    """Return the protocol of a study's options."""
    from hierlearn.cli.sources import split_names

    chosen = given(options)
    metrics = {} if options.get("metrics") is None else {"metrics": split_names(options["metrics"])}
    return Protocol(
        **{**defaults, **metrics, **given_fields(Protocol, chosen)},
        settings=given_fields(Settings, chosen),
        network=name_and_options(chosen, "network"),
        preprocessing=name_and_options(chosen, "preprocessing"),
    )


def name_and_options(chosen: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the name and the options of a network or a preprocessing; empty if none are given."""
    name, options = chosen.get(what), chosen.get(f"{what}_option", {})
    return {"name": name, "options": options} if name or options else {}


def run(
    dataset: Dataset,
    candidates: Sequence[Candidate],
    protocol: Protocol,
    options: Mapping[str, Any],
) -> Study:
    """Tune and compare under one progress bar."""
    from hierlearn.lab.compare import run_study
    from hierlearn.lab.tune import tune

    with (
        executor_of(options, len(candidates)) as executor,
        bar(len(candidates)) as (on_trial, on_step),
    ):
        chosen = tune(
            dataset,
            candidates,
            options["tune"],
            protocol,
            executor=executor,
            out=options["out"],
            on_trial=on_trial,
        )
        tuned = protocol.with_changes(
            by_candidate={**protocol.by_candidate, **chosen["by_candidate"]},
            network=chosen["network"],
        )
        return run_study(
            dataset,
            candidates,
            options["out"],
            tuned,
            force=options["force"],
            executor=executor,
            metadata={"tune": options["tune"], "trials": chosen["trials"]},
            on_step=on_step,
        )


@contextmanager
def bar(
    candidates: int,
) -> Iterator[tuple[Callable[[int, int], None], Callable[[int, int, int], None]]]:
    """Show one bar over all runs with the time left; yield the callbacks of tune and compare."""
    from hierlearn.cli.errors import AGAIN, advise
    from hierlearn.terminal import Console, progress

    console = Console(stderr=True)
    shown = progress(console, "percent", "left", disable=not console.is_terminal)
    advise(AGAIN)
    with shown:
        task = shown.add_task("comparing", total=float(candidates))
        shares: dict[int, float] = {}  # how much of each loss is done

        def on_trial(done: int, of: int) -> None:
            shown.update(task, description=f"tuning, trial {done} of {of}")

        def on_step(number: int, step: int, of: int) -> None:
            shares[number] = step / of
            whole = sum(share == 1 for share in shares.values())
            text = f"{whole} of {plural(candidates, 'method')} done"
            shown.update(task, completed=sum(shares.values()), description=text)

        yield on_trial, on_step


def finish(console: Console, study: Study) -> None:
    """Write tables and the page, print the table, the verdict and the paths."""
    from hierlearn.lab.commands.compare import print_study
    from hierlearn.lab.compare import write_study
    from hierlearn.lab.pages.page import exact_first
    from hierlearn.terminal import print_plain

    summary, paths = write_study(study)
    print_study(console, exact_first(study, summary))  # in the order of the page
    print_plain(console, *summary["verdict"].splitlines())
    names = ", ".join(path.name for path in paths)
    print_plain(console, f"wrote {names} to {study.folder}")


def compare_sets(data: str | None, options: Mapping[str, Any], console: Console) -> None:
    """Compare methods on the sets of a suite, and write one page over all of them."""
    from hierlearn.cli.sources import check_data_dir, check_not_given, split_names

    asked = {**options, "data": data, "tune": options["tune"] != "none"}
    refused = ("data", *shared.COLUMN_NAMES, "tune", "trials")
    refused += ("test_fraction", "dataset_option")
    check_not_given(f"--suite {options['suite']}", "a list of named datasets", asked, *refused)
    check_data_dir(options["data_dir"])
    from hierlearn.lab.pages import write_suite
    from hierlearn.lab.study import check_collection
    from hierlearn.lab.suites import SUITE_SEEDS, SuiteRun, by_reason, find_suite
    from hierlearn.terminal import print_plain

    check_collection(options["out"])
    suite = find_suite(options["suite"])
    methods = suite.methods if options["methods"] == METHODS else split_names(options["methods"])
    protocol = make_protocol(options, seeds=SUITE_SEEDS, metrics=suite.metrics)
    with executor_of(options, len(methods) * len(suite.datasets)) as executor:
        run = SuiteRun(
            suite,
            options["out"],
            methods,
            protocol,
            options["data_dir"],
            options["force"],
            executor,
        )
        count = f"{plural(len(run.candidates), 'method')}, {plural(protocol.seeds, 'seed')} each"
        with bar(len(run.candidates) * len(suite.datasets)) as (_, on_step):
            studies = run.run(lambda text: print_plain(console, f"{text}; {count}"), on_step)
    for why, names in by_reason(run.absent).items():
        print_plain(console, f"left out: {', '.join(names)}: {why}")
    for name, reasons in run.left_out.items():
        for why, keys in by_reason(reasons).items():
            print_plain(console, f"left out of {name}: {', '.join(keys)}: {why}")
    summary = run.finish(studies)
    page = write_suite(summary, options["out"])
    print_suite(console, summary)
    ranks = summary["ranks"]
    print_plain(console, ranks["verdict"] if ranks else f"no ranks: {summary['no_ranks']}")
    print_plain(console, f"wrote {page.name}, suite.json and one study per set to {options['out']}")


def print_suite(console: Console, summary: Mapping[str, Any]) -> None:
    """Print one row per set: every method, and the best figure in print."""
    from hierlearn.lab.summary import ARROWS
    from hierlearn.metrics.measure import find_metric
    from hierlearn.terminal import Table, Text

    metric = find_metric(summary["metric"])
    table = Table(title=f"{metric.name} {ARROWS[metric.direction]}")
    table.add_column("")
    printed = any(one["best_published"] for one in summary["sets"])
    for label in [*summary["labels"], *(["best in print"] if printed else [])]:
        table.add_column(Text(label), justify="right")
    for one in summary["sets"]:
        figures = [one["figures"].get(key) for key in summary["candidates"]]
        cells = [metric.format(f["mean"]) if f and f["mean"] is not None else "–" for f in figures]
        best = one["best_published"]
        if printed:
            cells.append(f"{metric.format(best['value'])} {best['method']}" if best else "–")
        table.add_row(*map(Text, [one["name"], *cells]))
    console.print(table)


def print_study(console: Console, summary: Mapping[str, Any]) -> None:
    """Print the table of a study: bold is significantly better than the first row."""
    from hierlearn.lab.summary import notes

    table = study_table(summary, narrow=False)
    narrow = Console(width=10_000).measure(table).maximum > console.width
    console.print(study_table(summary, narrow=True) if narrow else table)
    for note in notes(summary):
        if narrow:
            note = note.replace("Mean ± standard deviation", "Mean")
        print_plain(console, note.replace("\\*", "*"))


def study_table(summary: Mapping[str, Any], *, narrow: bool) -> Table:
    """Return the figures of a study; a narrow table leaves out the spread, which table.md has."""
    from hierlearn.lab.summary import ARROWS, cell, is_bold

    look: dict[str, Any] = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0)} if narrow else {}
    table = Table(**look)
    table.add_column("")
    for metric in summary["metrics"]:
        arrow = ARROWS[summary["directions"][metric]]
        name = metric.replace("-", "-\n") if narrow else metric
        gap = "\n" if narrow else " "
        table.add_column(f"{name}{gap}{arrow}".strip(), justify="right", no_wrap=narrow)
    for number, label in enumerate(summary["labels"]):
        mark = " *" if summary["still_improving"][summary["candidates"][number]] else ""
        row = [Text(f"{label}{mark}")]
        for metric in summary["metrics"]:
            mean, deviation = cell(metric, summary["figures"][metric][number])
            bold = "bold" if is_bold(summary, metric, number) else ""
            shown = Text(mean, style=bold)
            if deviation is not None and not narrow:
                shown.append(f" ±{deviation}", style="dim")
            row.append(shown)
        table.add_row(*row)
    return table
