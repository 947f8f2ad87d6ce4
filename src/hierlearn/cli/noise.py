"""``hierlearn noise``: which loss minds wrong labels and a wrong taxonomy least?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared

if TYPE_CHECKING:
    from rich.console import Console

WHAT = "What to compare"
LOSSES = "bce,hxe,soft-labels,mcloss,leaf-ce,hcl-hier,hcl,recipe:hcl"


def noise(
    data: Annotated[str, typer.Argument(help=shared.DATA)] = "synthetic",
    losses: Annotated[
        str,
        typer.Option(
            help="Losses, or recipe:<name>, with commas; the first is what others are tested "
            "against. Options as hxe:alpha=0.3.",
            rich_help_panel=WHAT,
        ),
    ] = LOSSES,
    rates: Annotated[
        str,
        typer.Option(help="Shares of labels or edges that are wrong.", rich_help_panel=WHAT),
    ] = "0,0.1,0.2,0.4",
    kinds: Annotated[
        str, typer.Option(help="What is wrong: labels, hierarchy.", rich_help_panel=WHAT)
    ] = "labels,hierarchy",
    seeds: Annotated[int, typer.Option(help="Runs of each loss.", rich_help_panel=WHAT)] = 5,
    seed: Annotated[int, typer.Option(help="The first seed.", rich_help_panel=WHAT)] = 0,
    noise_seed: Annotated[
        int, typer.Option(help="Decides what is spoiled, for all runs.", rich_help_panel=WHAT)
    ] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder.")] = Path("noise"),
    force: Annotated[
        bool, typer.Option("--force", help="Begin anew where another study is.")
    ] = False,
    valid_fraction: shared.ValidFraction = 0.15,
    test_fraction: shared.TestFraction = 0.2,
    epochs: shared.Epochs = None,
    patience: shared.Patience = None,
    metric: shared.Metric = None,
    batch_size: shared.BatchSize = None,
    learning_rate: shared.LearningRate = None,
    schedule: shared.Schedule = None,
    network: shared.NetworkName = None,
    network_option: shared.NetworkOption = None,
    device: shared.StudyDevice = None,
    jobs: shared.Jobs = None,
    set: shared.Set = None,
    label: shared.Label = None,
    levels: shared.Levels = None,
    features: shared.Features = None,
    text: shared.Text = None,
    split: shared.Split = None,
    hierarchy: shared.HierarchyFile = None,
    label_sep: shared.LabelSep = None,
    sep: shared.Sep = None,
    data_dir: shared.DataDir = None,
) -> None:
    """Train losses on spoiled labels or a spoiled taxonomy, and judge them on clean rows.

    Interrupt it at any time: the same command goes on with what is missing.
    """
    given = dict(locals())
    from rich.console import Console

    from hierlearn.cli.compare import bar, settings_of
    from hierlearn.cli.config import pairs_of
    from hierlearn.cli.show import print_plain
    from hierlearn.cli.sources import open_dataset, split_names
    from hierlearn.reports.noise_curves import noise_curves
    from hierlearn.reports.saving import need_matplotlib
    from hierlearn.studies.candidates import parse_candidates
    from hierlearn.studies.jobs import usual_jobs
    from hierlearn.studies.noise import cells, check_kinds, check_rates, noise_study
    from hierlearn.studies.publish import publish_noise
    from hierlearn.studies.splits import with_test_rows
    from hierlearn.training.processes import find_device

    need_matplotlib()  # before hours of training
    entries = parse_candidates(split_names(losses))
    wanted_rates, wanted_kinds = check_rates(numbers(rates)), check_kinds(split_names(kinds))
    options = pairs_of("network-option", network_option or [])
    columns = ("label", "levels", "features", "text", "split", "hierarchy", "label_sep", "sep")
    dataset = open_dataset(
        data, set or (), data_dir=data_dir, **{name: given[name] for name in columns}
    )
    dataset, made = with_test_rows(dataset, test_fraction, seed)
    trainings = len(cells(wanted_kinds, wanted_rates)) * len(entries)
    console = Console()
    print_plain(
        console,
        f"{dataset.name}: {len(dataset):,} rows, {len(dataset.hierarchy):,} classes; "
        f"{trainings} trainings of {seeds} seeds each{made}",
    )
    with bar(trainings) as (_, on_step):
        summary = noise_study(
            dataset,
            entries,
            out,
            kinds=wanted_kinds,
            rates=wanted_rates,
            noise_seed=noise_seed,
            on_step=on_step,
            seeds=seeds,
            seed=seed,
            settings=settings_of(given),
            network={"name": network, "options": options} if network or options else {},
            valid_fraction=valid_fraction,
            force=force,
            jobs=jobs or usual_jobs(len(entries), find_device(device or "auto")),
        )
    written = publish_noise(summary, out) + noise_curves(summary, out)
    print_noise(console, summary)
    print_plain(console, summary["words"])
    print_plain(console, f"wrote {', '.join(path.name for path in written)} to {out}")


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
    """Print a table a kind: bold is significantly better than the first row at that rate."""
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
