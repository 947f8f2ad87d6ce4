"""``hierlearn noise``: what suffers least from wrong labels and a wrong taxonomy?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import FOLDER, described, options, takes
from hierlearn.errors import plural
from hierlearn.lab.commands.compare import (
    CANDIDATES,
    HOW,
    PLAN,
    TEST_FRACTION,
    bar,
    make_protocol,
    set_aside,
)
from hierlearn.lab.protocol import EARLY, KINDS, Noise, Protocol
from hierlearn.service.command import check_where, executor_of
from hierlearn.training.settings import Settings

if TYPE_CHECKING:
    from hierlearn.terminal import Console

WHAT = "What to compare"  # a panel of --help
SEEDS = 2  # of each candidate in each draw, unless asked for others
DEFAULTS = "By default eight losses and the recipes that auto chooses among."
RATES = ",".join(f"{rate:g}" for rate in Noise().rates)
OPTIONS = [
    *options(
        WHAT,
        methods=(str, f"{CANDIDATES} {DEFAULTS}"),
        rates=(str, "Fractions of labels or edges that are wrong.", {"default": RATES}),
        kinds=(str, "What is wrong: labels, hierarchy.", {"default": ",".join(KINDS)}),
        draws=(
            int,
            "Independent repetitions with other noise and other training seeds.",
            {"default": Noise().draws, "min": 1},
        ),
        noise_seed=(int, "Seed of the noise of the first draw.", {"default": 0, "min": 0}),
    ),
    *options(
        out=(FOLDER, "Folder of the study.", {"default": Path("noise")}),
        force=(bool, "Replace another study in --out."),
    ),
]


@takes(
    *OPTIONS,
    *(one for one in described(Protocol, HOW, seeds=SEEDS) if one.name != "trials"),
    TEST_FRACTION,
    *described(Settings, HOW, study=True, **EARLY),
    *PLAN,
    *shared.WHERE,
    *shared.SOURCE,
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
    from hierlearn.cli.sources import open_dataset, split_names
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
    from hierlearn.terminal import Console, print_plain

    check_where(options)
    need_matplotlib()  # before hours of training
    check_folder(options["out"])
    named = None if options["methods"] is None else split_names(options["methods"])
    # Wrong names fail before any data is read.
    candidates = parse_candidates(["bce"] if named is None else named)
    rates = check_rates(numbers(options["rates"]))
    kinds = check_kinds(split_names(options["kinds"]))
    protocol = make_protocol(options, seeds=SEEDS)
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
    from hierlearn.cli.sources import split_names
    from hierlearn.errors import HierlearnError

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
    from hierlearn.terminal import Table, Text

    for kind in summary["kinds"]:
        for metric in main_metrics(summary, kind):
            table = Table(title=f"{TITLES[kind]}: {metric}")
            table.add_column("")
            for rate in summary["rates"]:
                table.add_column(percent(rate), justify="right")
            for number, label in enumerate(summary["labels"]):
                row = [Text(label)]
                for column in summary["figures"][kind][metric]:
                    figure = column[number]
                    style = "bold" if better(summary, metric, figure) else ""
                    mean = shown(metric, figure["mean"])
                    cell = Text(mean, style=style)
                    cell.append(with_interval(metric, figure, "").replace("± ", "±"), style="dim")
                    row.append(cell)
                table.add_row(*row)
            console.print(table)
