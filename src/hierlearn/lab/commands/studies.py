"""The commands of studies.

compare   which loss makes the better mistakes here, and how certain is that?
noise     what suffers least from wrong labels and a wrong taxonomy?
paper     the tables of the paper, and what of them holds
rank      which loss ranks best over several datasets, and is that more than chance?
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

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
from hierlearn.errors import HierlearnError, plural, quoted
from hierlearn.lab.protocol import EARLY, KINDS, TEST_SHARE, Noise, Protocol
from hierlearn.service.command import check_where, executor_of
from hierlearn.terminal import Console, Table, Text, print_plain, print_table, progress
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
TEST_FRACTION = option(
    "test_fraction",
    float,
    f"Fraction of the rows to test on, where no split is named test; {TEST_SHARE} if none.",
    panel=HOW,
)
TRAINING = [
    TEST_FRACTION,
    *described(Settings, HOW, study=True, **EARLY),
    *described(Plan, HOW, study=True),
    *shared.WHERE,
    *shared.SOURCE,
]


def folder(name: str) -> list[Any]:
    """Return the options on where a study is written."""
    return options(
        out=(FOLDER, "Folder of the study.", {"default": Path(name)}),
        force=(bool, "Replace another study in --out."),
    )


@takes(
    *options(
        WHAT,
        methods=(str, CANDIDATES, {"default": METHODS}),
        metrics=(str, "Metrics of the table: hit@1,mrr."),
        suite=(
            str,
            "Every set of a suite that is there, one study each: clus (--data-dir), texts.",
        ),
    ),
    *folder("study"),
    *options(
        HOW,
        tune=(
            int,
            "Trials of every method over its learning rate and the options of its loss, first.",
            {"default": 0, "min": 0},
        ),
    ),
    *described(Protocol, HOW),
    *TRAINING,
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
    from hierlearn.cli.rows import open_dataset, split_names

    check_where(options)
    console = Console()
    if options["suite"] is not None:
        compare_sets(data, options, console)
        return
    from hierlearn.lab.candidates import parse_candidates
    from hierlearn.lab.compare import write_study
    from hierlearn.lab.pages.page import exact_first
    from hierlearn.lab.runner import unseen_classes
    from hierlearn.lab.study import check_folder

    if data is None:
        small = ["size=small", *(options["dataset_option"] or [])]
        data, options = "icd10cm", {**options, "dataset_option": small}
    check_folder(options["out"])
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
    study = run(dataset, candidates, protocol, options)
    summary, paths = write_study(study)
    print_study(console, exact_first(study, summary))  # in the order of the page
    print_plain(console, *summary["verdict"].splitlines())
    names = ", ".join(path.name for path in paths)
    print_plain(console, f"wrote {names} to {study.folder}")


def set_aside(dataset: Dataset, options: Mapping[str, Any], seed: int) -> tuple[Dataset, str]:
    """Return the dataset with test rows, and what was done; raise on a fraction of no use."""
    from hierlearn.lab.runner import with_test_rows

    fraction = options["test_fraction"]
    for name, split in (("test_fraction", "test"), ("valid_fraction", "valid")):
        if options[name] and len(dataset.splits.get(split, ())):
            raise HierlearnError(
                f"{dataset.name} has a split {split!r} already; leave {dashed(name)} out"
            )
    return with_test_rows(dataset, TEST_SHARE if fraction is None else fraction, seed)


def make_protocol(options: Mapping[str, Any], **defaults: Any) -> Protocol:
    from hierlearn.cli.rows import split_names

    chosen = given(options)
    metrics = {} if options.get("metrics") is None else {"metrics": split_names(options["metrics"])}
    parts: dict[str, Any] = {  # the name and the options of a network or a preprocessing
        what: {"name": chosen.get(what), "options": chosen.get(f"{what}_option", {})}
        for what in ("network", "preprocessing")
        if chosen.get(what) or chosen.get(f"{what}_option")
    }
    return Protocol(
        **{**defaults, **metrics, **given_fields(Protocol, chosen)},
        settings=given_fields(Settings, chosen),
        **parts,
    )


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
        chosen: dict[str, Any] = {"by_candidate": {}, "trials": []}
        if options.get("tune"):
            chosen = tune(
                dataset,
                candidates,
                options["tune"],
                protocol,
                executor=executor,
                out=options["out"],
                on_trial=on_trial,
            )
        by_candidate = {**protocol.by_candidate, **chosen["by_candidate"]}
        return run_study(
            dataset,
            candidates,
            options["out"],
            protocol.with_changes(by_candidate=by_candidate),
            force=options["force"],
            executor=executor,
            metadata={"tune": options.get("tune", 0), "trials": chosen["trials"]},
            on_step=on_step,
        )


@contextmanager
def bar(
    candidates: int,
) -> Iterator[tuple[Callable[[int, int], None], Callable[[int, int, int], None]]]:
    """Show one bar over all runs with the time left; yield the callbacks of tune and compare."""
    from hierlearn.cli.output import AGAIN, advise

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


def compare_sets(data: str | None, options: Mapping[str, Any], console: Console) -> None:
    """Compare methods on the sets of a suite, and write one page over all of them."""
    from hierlearn.cli.rows import check_data_dir, check_not_given, split_names

    asked = {**options, "data": data, "tune": options["tune"] or None}
    refused = ("data", *shared.COLUMN_NAMES, "tune")
    refused += ("test_fraction", "dataset_option")
    check_not_given(f"--suite {options['suite']}", "a list of named datasets", asked, *refused)
    check_data_dir(options["data_dir"])
    from hierlearn.lab.candidates import parse_candidates
    from hierlearn.lab.study import check_collection
    from hierlearn.lab.suites import SUITE_SEEDS, by_reason, compare_suite, find_suite, table
    from hierlearn.lab.summary import ARROWS
    from hierlearn.metrics.measure import find_metric

    check_collection(options["out"])
    suite = find_suite(options["suite"])
    methods = suite.methods if options["methods"] == METHODS else split_names(options["methods"])
    candidates = parse_candidates(list(methods))
    protocol = make_protocol(options, seeds=SUITE_SEEDS, metrics=suite.metrics)
    count = f"{plural(len(candidates), 'method')}, {plural(protocol.seeds, 'seed')} each"
    jobs = len(candidates) * len(suite.datasets)
    with executor_of(options, jobs) as executor, bar(jobs) as (_, on_step):
        summary = compare_suite(
            suite,
            options["out"],
            candidates,
            protocol,
            data_dir=options["data_dir"],
            force=options["force"],
            executor=executor,
            on_message=lambda text: print_plain(console, f"{text}; {count}"),
            on_step=on_step,
        )
    for why, names in by_reason(summary["absent"]).items():
        print_plain(console, f"left out: {', '.join(names)}: {why}")
    for one in summary["sets"]:
        for why, keys in by_reason(one["left_out"]).items():
            print_plain(console, f"left out of {one['name']}: {', '.join(keys)}: {why}")
    metric, (heads, rows) = find_metric(summary["metric"]), table(summary)
    title = f"{metric.name} {ARROWS[metric.direction]}"
    print_table(console, [Text(head) for head in heads], rows, title)
    ranks = summary["ranks"]
    print_plain(console, ranks["verdict"] if ranks else f"no ranks: {summary['no_ranks']}")
    print_plain(console, f"wrote suite.md, suite.json and one study per set to {options['out']}")


def print_study(console: Console, summary: Mapping[str, Any]) -> None:
    """Print the table of a study: bold is significantly better than the first row.

    Where the terminal is narrow, the spread is left out, which table.md has.
    """
    from hierlearn.lab.summary import ARROWS, cell, is_bold, notes

    for narrow in (False, True):
        look: dict[str, Any] = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0)} if narrow else {}
        table = Table(**look)
        table.add_column("")
        for metric in summary["metrics"]:
            head = f"{metric} {ARROWS[summary['directions'][metric]]}".strip()
            head = head.replace("-", "-\n").replace(" ", "\n") if narrow else head
            table.add_column(head, justify="right", no_wrap=narrow)
        for number, label in enumerate(summary["labels"]):
            mark = " *" if summary["still_improving"][summary["candidates"][number]] else ""
            row = [Text(f"{label}{mark}")]
            for metric in summary["metrics"]:
                mean, deviation = cell(metric, summary["figures"][metric][number])
                row.append(Text(mean, style="bold" if is_bold(summary, metric, number) else ""))
                if deviation is not None and not narrow:
                    row[-1].append(f" ±{deviation}", style="dim")
            table.add_row(*row)
        if narrow or Console(width=10_000).measure(table).maximum <= console.width:
            break
    console.print(table)
    for note in notes(summary):
        note = note.replace("Mean ± standard deviation", "Mean") if narrow else note
        print_plain(console, note.replace("\\*", "*"))


# ---------------------------------------- noise


NOISE_SEEDS = 2  # of each candidate in each draw, unless asked for others
NOISE_METHODS = "By default eight losses and the recipes that auto chooses among."
RATES = ",".join(f"{rate:g}" for rate in Noise().rates)


@takes(
    *options(
        WHAT,
        methods=(str, f"{CANDIDATES} {NOISE_METHODS}"),
        rates=(str, "Fractions of labels or edges that are wrong.", {"default": RATES}),
        kinds=(str, "What is wrong: labels, hierarchy.", {"default": ",".join(KINDS)}),
        draws=(
            int,
            "Independent repetitions with other noise and other training seeds.",
            {"default": Noise().draws, "min": 1},
        ),
        noise_seed=(int, "Seed of the noise of the first draw.", {"default": 0, "min": 0}),
    ),
    *folder("noise"),
    *described(Protocol, HOW, seeds=NOISE_SEEDS),
    *TRAINING,
)
def noise(
    data: Annotated[str, typer.Argument(help=shared.DATA)] = "synthetic", **options: Any
) -> None:
    """Train on corrupted labels or a corrupted taxonomy, and test on clean rows.

    Interrupt it at any time: the same command continues with what is missing.

    Examples:
        noise synthetic --methods bce,hcl --rates 0,0.2,0.4
        noise rows.csv --label class --kinds labels --draws 5
    """
    from hierlearn.cli.rows import open_dataset, split_names
    from hierlearn.lab.candidates import parse_candidates
    from hierlearn.lab.noise import (
        cells,
        check_folder,
        check_kinds,
        check_rates,
        default_candidates,
        noise_study,
    )
    from hierlearn.lab.noise_figures import publish_noise
    from hierlearn.lab.pages.figures import need_matplotlib, noise_curves

    check_where(options)
    need_matplotlib()  # before hours of training
    check_folder(options["out"])
    named = None if options["methods"] is None else split_names(options["methods"])
    # Wrong names fail before any data is read.
    candidates = parse_candidates(["bce"] if named is None else named)
    rates = check_rates(numbers(options["rates"]))
    kinds = check_kinds(split_names(options["kinds"]))
    protocol = make_protocol(options, seeds=NOISE_SEEDS)
    protocol.check(candidates)
    dataset = open_dataset(data, options)
    if named is None:
        candidates = parse_candidates(default_candidates(dataset))
    dataset, made = set_aside(dataset, options, protocol.seed)
    draws = options["draws"]
    trainings = len(cells(kinds, rates, draws)) * len(candidates)
    console = Console()
    print_plain(
        console,
        f"{dataset.name}: {len(dataset):,} rows, {len(dataset.hierarchy):,} classes; "
        f"{plural(draws, 'draw')}, {plural(trainings, 'training')} of "
        f"{plural(protocol.seeds, 'seed')} each{made}",
    )
    with executor_of(options, trainings) as executor, bar(trainings) as (_, on_step):
        summary = noise_study(
            dataset,
            candidates,
            options["out"],
            protocol,
            noise=Noise(kinds, rates, options["noise_seed"], draws),
            force=options["force"],
            executor=executor,
            on_step=on_step,
        )
    written = publish_noise(summary, options["out"]) + noise_curves(summary, options["out"])
    print_noise(console, summary)
    print_plain(console, *summary["verdict"].splitlines())
    names = ", ".join(path.name for path in written)
    print_plain(console, f"wrote {names} to {options['out']}")


def numbers(text: str) -> list[float]:
    """Read a comma-separated list of numbers."""
    from hierlearn.cli.rows import split_names

    found = []
    for word in split_names(text):
        try:
            found.append(float(word))
        except ValueError:
            raise HierlearnError(f"--rates takes numbers with commas, not {word!r}") from None
    return found


def print_noise(console: Console, summary: dict[str, Any]) -> None:
    """Print one table per kind and metric; bold is better than the first row beyond noise."""
    from hierlearn.lab.noise_figures import (
        TITLES,
        better,
        main_metrics,
        percent,
        shown,
        with_interval,
    )

    heads = ["", *map(percent, summary["rates"])]
    for kind in summary["kinds"]:
        for metric in main_metrics(summary, kind):
            rows = [[Text(label)] for label in summary["labels"]]
            for column in summary["figures"][kind][metric]:
                for row, figure in zip(rows, column, strict=True):
                    style = "bold" if better(summary, metric, figure) else ""
                    row.append(Text(shown(metric, figure["mean"]), style=style))
                    spread = with_interval(metric, figure, "").replace("± ", "±")
                    row[-1].append(spread, style="dim")
            print_table(console, heads, rows, f"{TITLES[kind]}: {metric}")


# ---------------------------------------- paper


@takes(
    *folder("paper"),
    *(one for one in described(Protocol, shared.HOW) if one.name in ("seeds", "seed")),
    *options(
        shared.HOW,
        epochs=(
            int,
            "Passes over the training rows; if none, 85 on Diatoms and 60 on ImCLEF07D.",
            {"min": 1},
        ),
    ),
    shared.DEVICE,
    shared.DATA_DIR,
    *shared.WHERE,
)
def paper(**options: Any) -> None:
    """Train the rows of the paper's tables on Diatoms and ImCLEF07D; say what holds.

    Interrupt it at any time: the same command continues with what is missing.

    Examples:
        paper --data-dir DATA
        paper --data-dir DATA --seeds 3 --device cpu --out mine
    """
    from hierlearn.cli.rows import open_named
    from hierlearn.lab import paper
    from hierlearn.lab.compare import write_study
    from hierlearn.lab.study import check_collection
    from hierlearn.lab.summary import write_texts

    check_where(options)
    console, out = Console(), options["out"]
    check_collection(out)
    settings = given(options, ("epochs", "device"))
    asked = given_fields(Protocol, given(options))
    protocols = {name: paper.protocol(name, settings=settings, **asked) for name in paper.EPOCHS}
    summaries = {}
    for name, protocol in protocols.items():
        dataset = open_named(name, data_dir=options["data_dir"])
        seeds = plural(protocol.seeds, "seed")
        print_plain(console, f"{name}: {plural(len(paper.ROWS), 'row')}, {seeds} each")
        own = {**options, "out": out / name}
        study = run(dataset, paper.candidates(), protocol, own)
        summaries[name], _ = write_study(study)
    titles = {1: "Table 1, the ablation", 2: "Table 2, the results", 0: "What the paper lacks"}
    tables = "\n".join(
        f"## {title}\n\n{paper.as_markdown(summaries, number)}" for number, title in titles.items()
    )
    said = paper.verdict(summaries)
    write_texts(out, {"paper.md": f"## What holds\n\n{said}\n\n{tables}"})
    print_plain(console, *tables.splitlines(), "", *said.splitlines())
    print_plain(console, f"wrote paper.md and one study per dataset to {out}")


# ---------------------------------------- rank


RANK_FILES = ("ranks.json", "ranks.md", "critical-difference.png", "critical-difference.svg")


@takes(
    *options(
        metric=(str, "Metric to rank by.", {"default": "au-prc"}),
        out=(FOLDER, "Folder to write.", {"default": Path("ranks")}),
    ),
    shared.FORCE,
)
def rank(
    studies: Annotated[
        list[Path], typer.Argument(help="Folders of studies, from hierlearn compare.")
    ],
    **options: Any,
) -> None:
    """Rank losses over datasets: Friedman's test, Nemenyi's critical difference and its plot.

    Examples:
        rank study-a study-b study-c --metric hit@1
        rank study-a study-b study-c --out ranks --force
    """
    from hierlearn.files.writing import check_output
    from hierlearn.lab.pages.figures import critical_difference
    from hierlearn.lab.ranks import notes, publish_ranks, rank_studies, rows
    from hierlearn.lab.summary import ARROWS

    out = options["out"]
    for name in RANK_FILES:
        check_output(out / name, options["force"])
    summary = rank_studies(studies, options["metric"])
    written = critical_difference(summary, out) + publish_ranks(summary, out)
    console = Console()
    heads = ["", "mean rank ↓", *map(Text, summary["datasets"])]
    title = f"{summary['metric']} {ARROWS[summary['direction']]}"
    print_table(console, heads, rows(summary), title)
    for text in (summary["verdict"], *notes(summary)):
        print_plain(console, text)
    print_plain(console, f"wrote {', '.join(path.name for path in written)} to {out}")
