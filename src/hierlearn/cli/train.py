"""``hierlearn train``: from rows and a taxonomy to a model folder."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hierlearn.cli import shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.datasets import Dataset
    from hierlearn.pipeline import Pipeline
    from hierlearn.training import Plan

WHAT, HOW, RUN = "What to train", "How to train", "The run"
COLUMNS = ("label", "levels", "features", "text", "split", "label_sep", "sep")
OF_THIS_RUN = ("config", "resume", "force", "tensorboard")  # no part of the configuration


def train(
    data: Annotated[Optional[str], typer.Argument(help=shared.DATA)] = None,
    out: Annotated[
        Optional[Path],
        typer.Option("--out", "-o", help="The folder of the model.", rich_help_panel=RUN),
    ] = None,
    config: Annotated[
        Optional[Path],
        typer.Option(help="A YAML file of these options; the line wins.", rich_help_panel=RUN),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on from the newest checkpoint in --out.", rich_help_panel=RUN
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace the model in --out.", rich_help_panel=RUN),
    ] = False,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Also log for TensorBoard.", rich_help_panel=RUN),
    ] = False,
    name: Annotated[
        Optional[str], typer.Option(help="What the model card calls it.", rich_help_panel=RUN)
    ] = None,
    license: Annotated[
        Optional[str], typer.Option(help="The license on the model card.", rich_help_panel=RUN)
    ] = None,
    device: Annotated[
        Optional[str],
        typer.Option(help="cpu, cuda, or auto for what is there.", rich_help_panel=RUN),
    ] = None,
    stream: Annotated[
        Optional[bool],
        typer.Option(
            "--stream", help="Read a Parquet file that does not fit memory.", rich_help_panel=RUN
        ),
    ] = None,
    stream_window: Annotated[
        Optional[int],
        typer.Option(help="Rows shuffled together with --stream.", rich_help_panel=RUN),
    ] = None,
    recipe: Annotated[
        Optional[str],
        typer.Option(help="paper, hcl, max, flat; by default auto chooses.", rich_help_panel=WHAT),
    ] = None,
    loss: Annotated[
        Optional[str], typer.Option(help="A loss by name, as hcl.", rich_help_panel=WHAT)
    ] = None,
    loss_option: Annotated[
        Optional[list[str]],
        typer.Option(help="An option of the loss: floor=0.3.", rich_help_panel=WHAT),
    ] = None,
    network: Annotated[
        Optional[str], typer.Option(help="mlp, token-bag or linear.", rich_help_panel=WHAT)
    ] = None,
    network_option: Annotated[
        Optional[list[str]],
        typer.Option(help="An option of the network: width=800.", rich_help_panel=WHAT),
    ] = None,
    link: Annotated[
        Optional[str],
        typer.Option(help="How to read the logits when predicting.", rich_help_panel=WHAT),
    ] = None,
    decoder: Annotated[
        Optional[str], typer.Option(help="How a decision is made.", rich_help_panel=WHAT)
    ] = None,
    decoder_option: Annotated[
        Optional[list[str]],
        typer.Option(help="An option of the decoder: threshold=0.5.", rich_help_panel=WHAT),
    ] = None,
    unlabeled_descendants: Annotated[
        Optional[str],
        typer.Option(
            help="Classes below a row's labels are negative or ignored.", rich_help_panel=WHAT
        ),
    ] = None,
    standardize: Annotated[
        Optional[bool],
        typer.Option(help="Bring numbers to mean 0, deviation 1.", rich_help_panel=WHAT),
    ] = None,
    epochs: Annotated[
        Optional[int], typer.Option(help="Passes over the rows.", rich_help_panel=HOW)
    ] = None,
    batch_size: Annotated[
        Optional[int],
        typer.Option(help="Rows a step, over all processes.", rich_help_panel=HOW),
    ] = None,
    learning_rate: Annotated[
        Optional[float], typer.Option(help="Of AdamW, at its peak.", rich_help_panel=HOW)
    ] = None,
    weight_decay: Annotated[
        Optional[float], typer.Option(help="Of AdamW.", rich_help_panel=HOW)
    ] = None,
    schedule: Annotated[
        Optional[str], typer.Option(help="cosine, linear or constant.", rich_help_panel=HOW)
    ] = None,
    warmup: Annotated[
        Optional[float],
        typer.Option(help="Share of the steps with a rising rate.", rich_help_panel=HOW),
    ] = None,
    max_grad_norm: Annotated[
        Optional[float], typer.Option(help="Largest norm of the gradient.", rich_help_panel=HOW)
    ] = None,
    precision: Annotated[
        Optional[str], typer.Option(help="float32 or bf16.", rich_help_panel=HOW)
    ] = None,
    prior_bias: Annotated[
        Optional[bool],
        typer.Option(help="Begin with the bias at the class priors.", rich_help_panel=HOW),
    ] = None,
    seed: Annotated[
        Optional[int], typer.Option(help="Of the first model.", rich_help_panel=HOW)
    ] = None,
    ensemble_size: Annotated[
        Optional[int],
        typer.Option(help="Models trained at once and averaged.", rich_help_panel=HOW),
    ] = None,
    valid_fraction: Annotated[
        Optional[float],
        typer.Option(help="Share of the rows for validation.", rich_help_panel=HOW),
    ] = None,
    metric: Annotated[
        Optional[str],
        typer.Option(help="Watched on the validation rows.", rich_help_panel=HOW),
    ] = None,
    patience: Annotated[
        Optional[int],
        typer.Option(help="Epochs without a better metric before the end.", rich_help_panel=HOW),
    ] = None,
    validate_every: Annotated[
        Optional[int], typer.Option(help="Epochs between validations.", rich_help_panel=HOW)
    ] = None,
    checkpoint_every: Annotated[
        Optional[int],
        typer.Option(help="Steps between checkpoints; else an epoch.", rich_help_panel=HOW),
    ] = None,
    keep_checkpoints: Annotated[
        Optional[int], typer.Option(help="Checkpoints that stay.", rich_help_panel=HOW)
    ] = None,
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
    """Train a model; also under torchrun, and on from a checkpoint with --resume."""
    given = dict(locals())
    from rich.console import Console

    from hierlearn.cli.show import print_metrics, print_plain, writes
    from hierlearn.pipeline import train as run
    from hierlearn.pipeline.pipeline import check_free
    from hierlearn.pipeline.train import was_restarted
    from hierlearn.training.log import find_tensorboard

    chosen = resolve(given)
    plan = make_plan(chosen)
    if tensorboard:
        find_tensorboard()
    console = Console(quiet=not writes())
    folder = Path(chosen["out"])
    if writes() and not (resume or was_restarted(folder)):
        check_free(folder, force, clear=False)  # before the data is read, which may take long
    dataset = open_rows(chosen)
    if chosen.get("stream"):
        inputs: Any = dataset.inputs
        chosen["stream_window"] = inputs.window

    def say(sentence: str) -> None:
        print_plain(console, f"{rows_and_classes(dataset)}\n{sentence}")

    def store(prepared: Any) -> None:
        keep_configuration(folder, chosen, prepared)

    model = run(
        dataset,
        plan,
        out=folder,
        resume=resume,
        force=force,
        tensorboard=tensorboard,
        say=say,
        ready=store,
        about=about(chosen),
    )
    print_metrics(console, model.config["metrics"])
    print_plain(console, last_words(folder, model))


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the line, and of the configuration file where the line is silent."""
    from hierlearn.cli.config import option_kinds, pairs_of, read_config
    from hierlearn.errors import HierlearnError

    chosen: dict[str, Any] = {}
    if given["config"] is not None:
        chosen = read_config(given["config"], option_kinds(train, without=OF_THIS_RUN))
    for name, value in given.items():
        if name in OF_THIS_RUN or value is None or value == []:
            continue
        if isinstance(value, list) and name != "set":
            chosen[name] = pairs_of(name.replace("_", "-"), value)
        else:
            chosen[name] = str(value) if isinstance(value, Path) else value
    if "data" not in chosen:
        raise HierlearnError("there is nothing to train on; name a dataset or a file")
    if "out" not in chosen:
        raise HierlearnError("name the folder of the model with --out")
    if isinstance(chosen.get("set"), dict):  # from a file
        chosen["set"] = [f"{key}={value}" for key, value in chosen["set"].items()]
    return chosen


def make_plan(chosen: Mapping[str, Any]) -> Plan:
    """Return the plan of the options; what is wrong with one is told before the data is read."""
    from dataclasses import fields

    from hierlearn.training import Plan, Settings

    settings = {one.name for one in fields(Settings)}
    plain = (
        "recipe",
        "loss",
        "network",
        "link",
        "decoder",
        "unlabeled_descendants",
        "standardize",
        "valid_fraction",
    )
    words: dict[str, Any] = {name: chosen[name] for name in plain if name in chosen}
    for name in ("loss", "network", "decoder"):
        words[f"{name}_options"] = chosen.get(f"{name}_option", {})
    changes = {name: value for name, value in chosen.items() if name in settings}
    return Plan(**words, settings=changes)


def open_rows(chosen: Mapping[str, Any]) -> Dataset:
    """Open what the options point at, whole or to be streamed."""
    from hierlearn.cli.sources import open_dataset
    from hierlearn.errors import HierlearnError

    if "stream_window" in chosen and not chosen.get("stream"):
        raise HierlearnError("--stream-window goes with --stream; leave it out")
    folder = chosen.get("data_dir")
    return open_dataset(
        chosen["data"],
        chosen.get("set", ()),
        data_dir=None if folder is None else Path(folder),
        stream=bool(chosen.get("stream")),
        window=chosen.get("stream_window"),
        hierarchy=chosen.get("hierarchy"),
        **{name: chosen.get(name) for name in COLUMNS},
    )


def rows_and_classes(dataset: Dataset) -> str:
    """Tell what there is to learn from."""
    hierarchy = dataset.hierarchy
    splits = ", ".join(f"{name} {len(rows):,}" for name, rows in dataset.splits.items())
    kind = "a tree" if hierarchy.is_tree else "a DAG"
    what = "texts" if dataset.is_text else f"rows of {len(dataset.feature_names):,} numbers"
    told = (
        f"{dataset.name}: {len(dataset):,} {what}{f' ({splits})' if splits else ''}, "
        f"{len(hierarchy):,} classes in {hierarchy.depth} levels, {kind}"
    )
    inputs: Any = dataset.inputs
    if not hasattr(inputs, "window"):
        return told
    largest = int(max(b - a for a, b in pairwise(inputs.source.offsets)))
    return (
        f"{told}; streamed by row groups of up to {largest:,} rows, "
        f"shuffled in windows of {max(inputs.window, largest):,}"
    )


def keep_configuration(folder: Path, chosen: Mapping[str, Any], prepared: Any) -> None:
    """Write run.yaml: the options, and every setting that the recipe and the defaults gave.

    What is there already is that of the training that goes on.
    """
    from hierlearn import __version__
    from hierlearn.cli.config import to_yaml
    from hierlearn.files import atomic_write
    from hierlearn.pipeline.prepare import summary

    if (folder / "run.yaml").exists():
        return
    settings = {
        name: value
        for name, value in prepared.decision.settings.to_dict().items()
        if value is not None
    }
    comment = f"hierlearn {__version__}: hierlearn train --config run.yaml\n{summary(prepared)}"
    with atomic_write(folder / "run.yaml") as file:
        file.write(to_yaml({**chosen, **settings}, comment))


def about(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else the model should know: its name, its license, its columns."""
    told = {name: chosen[name] for name in ("name", "license") if name in chosen}
    columns = {name: chosen[name] for name in COLUMNS if name in chosen}
    return {**told, "columns": columns}


def last_words(folder: Path, model: Pipeline) -> str:
    """Tell where everything is, and what to mind."""
    held = model.config["metrics"]
    lines = [f"wrote {folder}: model.safetensors, hierarchy.json, config.json, README.md, run.yaml"]
    if (folder / "log.jsonl").is_file():
        lines[0] += ", log.jsonl, checkpoints"
    if not held:
        lines.insert(
            0, "no rows were held out, so nothing is known of new ones; see --valid-fraction"
        )
    return "\n".join(lines)
