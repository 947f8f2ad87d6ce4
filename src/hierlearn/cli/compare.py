"""``hierlearn compare``: which loss makes the better mistakes here, and how sure is that?"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hierlearn.cli import shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from hierlearn.datasets import Dataset
    from hierlearn.studies.study import Study

WHAT, HOW = "What to compare", shared.HOW
LOSSES = "bce,focal,hxe,soft-labels,mcloss,hcl-hier,hcl-paper,hcl"
SETTINGS = ("epochs", "patience", "metric", "batch_size", "learning_rate", "schedule", "device")


def compare(
    data: Annotated[
        Optional[str],
        typer.Argument(help=f"{shared.DATA} By default icd10cm, five chapters of it."),
    ] = None,
    losses: Annotated[
        str,
        typer.Option(
            help="Losses, or recipe:<name>, with commas, or all; the first is what the others are "
            "tested against. Options as hxe:alpha=0.3.",
            rich_help_panel=WHAT,
        ),
    ] = LOSSES,
    seeds: Annotated[int, typer.Option(help="Runs of each loss.", rich_help_panel=WHAT)] = 10,
    seed: Annotated[int, typer.Option(help="The first seed.", rich_help_panel=WHAT)] = 0,
    metrics: Annotated[
        Optional[str], typer.Option(help="The table's metrics: hit@1,mrr.", rich_help_panel=WHAT)
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The study's folder.")] = Path("study"),
    force: Annotated[
        bool, typer.Option("--force", help="Begin anew where another study is.")
    ] = False,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="The paper's tables on Diatoms and ImCLEF07D.", rich_help_panel=WHAT
        ),
    ] = False,
    tune: Annotated[
        str,
        typer.Option(
            help="none; paper: the network by cross entropy; each: every loss for itself.",
            rich_help_panel=HOW,
        ),
    ] = "none",
    trials: Annotated[int, typer.Option(help="Trials of every search.", rich_help_panel=HOW)] = 6,
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
    """Train several losses over several seeds and compare them, with honest statistics.

    Interrupt it at any time: the same command goes on with what is missing.
    """
    given = dict(locals())
    from rich.console import Console

    console = Console()
    if paper:
        compare_paper(given, console)
        return
    from hierlearn.cli.config import pairs_of
    from hierlearn.cli.show import print_plain
    from hierlearn.cli.sources import open_dataset, split_names
    from hierlearn.errors import quoted
    from hierlearn.reports.sections import plural
    from hierlearn.studies.candidates import parse_candidates
    from hierlearn.studies.splits import unseen_classes, with_test_rows

    if data is None:
        data, set = "icd10cm", ["size=small", *(set or [])]
    entries = parse_candidates(split_names(losses))
    options = pairs_of("network-option", network_option or [])
    columns = ("label", "levels", "features", "text", "split", "hierarchy", "label_sep", "sep")
    dataset = open_dataset(
        data, set or (), data_dir=data_dir, **{name: given[name] for name in columns}
    )
    dataset, made = with_test_rows(dataset, test_fraction, seed)
    settings = settings_of(given)
    wanted = None if metrics is None else split_names(metrics)
    print_plain(
        console,
        f"{dataset.name}: {len(dataset):,} rows, {len(dataset.hierarchy):,} classes; "
        f"{plural(len(entries), 'loss', 'losses')}, {plural(seeds, 'seed')} each{made}",
    )
    unseen = unseen_classes(dataset)
    if unseen:
        print_plain(
            console,
            f"{plural(len(unseen), 'class', 'classes')} of test rows without a training row, "
            f"which nothing can learn: {quoted(unseen, most=3)}",
        )
    study = run(
        dataset,
        entries,
        given,
        settings,
        {"name": network, "options": options} if network or options else {},
        wanted,
    )
    finish(console, study)


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a training that were given; a patience of 0 is none."""
    settings = {name: given[name] for name in SETTINGS if given[name] is not None}
    return {**settings, "patience": None} if given["patience"] == 0 else settings


def run(
    dataset: Dataset,
    entries: list[Any],
    given: dict[str, Any],
    settings: dict[str, Any],
    network: dict[str, Any],
    metrics: list[str] | None,
    folder: Path | None = None,
    by_entry: dict[str, Any] | None = None,
) -> Study:
    """Tune and compare under one progress bar."""
    from hierlearn.studies.compare import TABLE, compare
    from hierlearn.studies.jobs import usual_jobs
    from hierlearn.studies.tune import tune
    from hierlearn.training.processes import find_device

    jobs = given["jobs"] or usual_jobs(len(entries), find_device(given["device"] or "auto"))
    with bar(len(entries)) as (on_trial, on_step):
        chosen = tune(
            dataset,
            entries,
            given["tune"],
            trials=given["trials"],
            settings=settings,
            network=network,
            valid_fraction=given["valid_fraction"],
            on_trial=on_trial,
        )
        return compare(
            dataset,
            entries,
            folder or given["out"],
            seeds=given["seeds"],
            seed=given["seed"],
            metrics=metrics or TABLE,
            settings=settings,
            by_entry={**(by_entry or {}), **chosen["by_entry"]},
            network=chosen["network"],
            valid_fraction=given["valid_fraction"],
            force=given["force"],
            about={"tune": given["tune"], "trials": chosen["trials"]},
            jobs=jobs,
            on_step=on_step,
        )


@contextmanager
def told_when_interrupted(console: Console) -> Iterator[None]:
    """Say on Ctrl-C that nothing finished is lost."""
    try:
        yield
    except KeyboardInterrupt:
        console.print("hierlearn: interrupted; the same command goes on with what is missing")
        raise


@contextmanager
def bar(
    entries: int,
) -> Iterator[tuple[Callable[[int, int], None], Callable[[int, int, int], None]]]:
    """Show one bar over all runs with the time left; give what tuning and training report to."""
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TimeRemainingColumn(),
    )
    shown = rich.Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    )
    with told_when_interrupted(console), shown:
        task = shown.add_task("comparing", total=float(entries))
        shares: dict[int, float] = {}  # how much of each loss is done

        def on_trial(done: int, of: int) -> None:
            shown.update(task, description=f"tuning, trial {done} of {of}")

        def on_step(number: int, step: int, of: int) -> None:
            shares[number] = step / of
            whole = sum(share == 1 for share in shares.values())
            told = f"{whole} of {entries} losses done"
            shown.update(task, completed=sum(shares.values()), description=told)

        yield on_trial, on_step


def finish(console: Console, study: Study) -> None:
    """Write tables and the page, print the table, the answer and the paths."""
    from hierlearn.cli.show import print_plain, print_study
    from hierlearn.reports import write_report
    from hierlearn.studies.publish import publish

    summary, paths = publish(study)
    page = write_report(study.folder, summary=summary)
    print_study(console, summary)
    print_plain(console, summary["words"])
    names = ", ".join(path.name for path in [*paths, page])
    print_plain(console, f"wrote {names} to {study.folder}")


def compare_paper(given: dict[str, Any], console: Console) -> None:
    """Reproduce the paper's tables."""
    from hierlearn.cli.show import print_plain
    from hierlearn.cli.sources import open_named
    from hierlearn.files import atomic_write
    from hierlearn.reports import write_report
    from hierlearn.studies import paper
    from hierlearn.studies.publish import publish

    summaries = {}
    for name, epochs in paper.EPOCHS.items():
        dataset = open_named(name, data_dir=given["data_dir"])
        settings = {**paper.SETTINGS, "epochs": given["epochs"] or epochs}
        if given["device"] is not None:
            settings["device"] = given["device"]
        folder = given["out"] / name
        print_plain(console, f"{name}: {len(paper.ROWS)} rows, {given['seeds']} seeds each")
        study = run(
            dataset,
            paper.entries(),
            {**given, "valid_fraction": 0.0, "tune": "none"},
            settings,
            paper.NETWORK,
            [*paper.METRICS, *paper.ALSO],
            folder,
            paper.BY_ENTRY,
        )
        summaries[name] = publish(study)[0]
        write_report(study.folder, summary=summaries[name])
    titles = {1: "Table 1, the ablation", 2: "Table 2, the results", 0: "What the paper lacks"}
    shown = "\n".join(
        f"## {title}\n\n{paper.as_markdown(summaries, number)}" for number, title in titles.items()
    )
    typeset = "\n".join(
        f"% {title}\n{paper.as_latex(summaries, number)}" for number, title in titles.items()
    )
    for name, text in (("paper.md", shown), ("paper.tex", typeset)):
        with atomic_write(given["out"] / name) as file:
            file.write(text)
    print_plain(console, shown)
    print_plain(console, f"wrote paper.md, paper.tex and a study a dataset to {given['out']}")
