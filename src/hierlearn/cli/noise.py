"""``hierlearn noise``: which loss suffers least from wrong labels and a wrong taxonomy?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.compare import (
    CANDIDATES,
    HOW,
    JOBS,
    PLAN,
    TEST_FRACTION,
    bar,
    jobs_of,
    make_protocol,
)
from hierlearn.cli.generate import described, flag, option, takes
from hierlearn.errors import plural
from hierlearn.studies.protocol import EARLY, KINDS, Noise, Protocol
from hierlearn.training.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

WHAT = "What to compare"  # a panel of --help
LOSSES = "bce,hxe,soft-labels,mcloss,leaf-ce,hcl-hier,hcl-paper:floor=0.1,loss:hcl"
SEEDS = 5  # of each loss, unless asked for others
RATES = ",".join(f"{rate:g}" for rate in Noise().rates)
OPTIONS = [
    option("losses", str, LOSSES, CANDIDATES, panel=WHAT),
    option("rates", str, RATES, "Fractions of labels or edges that are wrong.", panel=WHAT),
    option("kinds", str, ",".join(KINDS), "What is wrong: labels, hierarchy.", panel=WHAT),
    option("noise_seed", int, 0, "Seed of the noise, for all runs.", panel=WHAT),
    option("out", Path, Path("noise"), "Folder of the study.", "--out", "-o"),
    flag("force", "Replace another study in --out."),
]


@takes(
    *OPTIONS,
    *(one for one in described(Protocol, HOW, seeds=SEEDS) if one.name != "trials"),
    TEST_FRACTION,
    *described(Settings, HOW, study=True, **EARLY),
    *PLAN,
    JOBS,
    *shared.SOURCE,
)
def noise(
    data: Annotated[str, typer.Argument(help=shared.DATA)] = "synthetic", **options: Any
) -> None:
    """Train losses on corrupted labels or a corrupted taxonomy, and test them on clean rows.

    Interrupt it at any time: the same command continues with what is missing.
    """
    from rich.console import Console

    from hierlearn.cli.show import print_plain
    from hierlearn.cli.sources import open_dataset, split_names
    from hierlearn.reports.noise_curves import noise_curves
    from hierlearn.reports.saving import need_matplotlib
    from hierlearn.studies.candidates import parse_candidates
    from hierlearn.studies.noise import cells, check_kinds, check_rates, noise_study
    from hierlearn.studies.publish import publish_noise
    from hierlearn.studies.splits import with_test_rows

    need_matplotlib()  # before hours of training
    candidates = parse_candidates(split_names(options["losses"]))
    rates = check_rates(numbers(options["rates"]))
    kinds = check_kinds(split_names(options["kinds"]))
    protocol = make_protocol(options, seeds=SEEDS)
    protocol.check(candidates)
    dataset = open_dataset(data, options)
    dataset, made = with_test_rows(dataset, options["test_fraction"], protocol.seed)
    trainings = len(cells(kinds, rates)) * len(candidates)
    console = Console()
    print_plain(
        console,
        f"{dataset.name}: {len(dataset):,} rows, {len(dataset.hierarchy):,} classes; "
        f"{plural(trainings, 'training')} of {plural(protocol.seeds, 'seed')} each{made}",
    )
    with bar(trainings) as (_, on_step):
        summary = noise_study(
            dataset,
            candidates,
            options["out"],
            protocol,
            noise=Noise(kinds, rates, options["noise_seed"]),
            force=options["force"],
            jobs=jobs_of(options, len(candidates)),
            on_step=on_step,
        )
    written = publish_noise(summary, options["out"]) + noise_curves(summary, options["out"])
    print_noise(console, summary)
    print_plain(console, summary["verdict"])
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
    from rich.table import Table
    from rich.text import Text

    from hierlearn.studies.noise_figures import MAIN, TITLES, better, percent, shown

    for kind in summary["kinds"]:
        for metric in MAIN:
            table = Table(title=f"{TITLES[kind]}: {metric}", title_justify="left")
            table.add_column("")
            for rate in summary["rates"]:
                table.add_column(percent(rate), justify="right")
            for number, label in enumerate(summary["labels"]):
                row = [Text(label)]
                for column in summary["figures"][kind][metric]:
                    figure = column[number]
                    style = "bold" if better(summary, metric, figure) else ""
                    cell = Text(shown(metric, figure["mean"]), style=style)
                    if figure["deviation"] is not None:
                        cell.append(f" ±{shown(metric, figure['deviation'])}", style="dim")
                    row.append(cell)
                table.add_row(*row)
            console.print(table)
