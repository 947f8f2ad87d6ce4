"""``hierlearn train``: from rows and a taxonomy to a model folder."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, Union, get_args, get_origin

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import (
    FOLDER,
    LISTS,
    NAMES_AS_KEYS,
    dashed,
    described,
    given,
    given_fields,
    options,
    takes,
)
from hierlearn.errors import HierlearnError, plural, shown, unknown_name
from hierlearn.registry import parse_pairs, parse_value
from hierlearn.training.settings import RUN, Plan, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hierlearn.datasets import Dataset
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.run import TrainingStart


KINDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a string",
    list: "a list of key=value, or a mapping",
}


class ConfigError(HierlearnError):
    """A configuration file does not hold what it should; its keys are named as they stand."""


def option_kinds(command: Callable[..., Any], without: Iterable[str]) -> dict[str, type]:
    """Return the type of each option of a command: str, int, float, bool or list."""
    kinds: dict[str, type] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if name in without:
            continue
        kind = get_args(parameter.annotation)[0]
        if get_origin(kind) is Union:
            kind = next(one for one in get_args(kind) if one is not type(None))
        kind = get_origin(kind) or kind
        kinds[name] = str if kind is Path else kind
    return kinds


def read_config(path: Path, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return the options in a YAML file; raise on keys and values that the command does not take.

    A number that is null is None, unlike one that the file does not name.
    """
    from hierlearn.files.structured import read_yaml

    loaded = read_yaml(path, ConfigError)
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path} must hold option: value lines, not {type(loaded).__name__}")
    values: dict[str, Any] = {}
    for key, value in loaded.items():
        name = str(key).replace("-", "_")
        if name not in kinds:
            raise ConfigError(f"{path}: {unknown_name('key', str(key), kinds)}")
        if name in values:
            raise ConfigError(f"{path} gives {name} twice")
        if value is not None or kinds[name] in (int, float):
            values[name] = None if value is None else as_kind(path, name, value, kinds[name])
    return values


def as_kind(path: Path, name: str, value: Any, kind: type) -> Any:
    """Return a value of the file as the option has it, or raise."""
    texts = value if isinstance(value, list) else [value]
    if any(isinstance(one, str) and "\0" in one for one in texts):
        raise ConfigError(f"{path}: {name} holds a NUL character")
    if kind is list and name in LISTS[1:]:
        return [str(one) for one in value] if isinstance(value, list) else [str(value)]
    if kind is list and isinstance(value, dict):
        return {
            str(key): parse_value(one) if isinstance(one, str) else one
            for key, one in value.items()
        }
    if kind is list and isinstance(value, list):
        try:
            return parse_pairs(map(str, value), name, as_typed=name in NAMES_AS_KEYS)
        except HierlearnError as error:
            raise ConfigError(f"{path}: {error.message}") from None
    if kind is str and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if kind is float and isinstance(value, str):  # YAML reads 1e-3 as a string
        value = parse_value(value)
    if kind is float and type(value) is int and abs(value) < 2**1000:
        value = float(value)
    if type(value) is kind:
        return value
    raise ConfigError(f"{path}: {name} must be {KINDS[kind]}, not {shown(value)}")


WHAT = "What to train"  # a panel of --help
SKIPPED = "skipped-labels.csv"
LENT = ("jobs", "engine", "address")
PER_RUN = ("config", "resume", "force", "mlflow", *LENT)  # not in run.yaml
ROWS = [
    *options(
        WHAT,
        min_rows=(
            int,
            "Leave out classes with fewer training rows; their rows count for the classes above.",
            {"min": 1},
        ),
    ),
    *options(
        RUN,
        stream=(
            bool,
            "Leave Parquet files where they are, and read them by row groups.",
            {"default": None},
        ),
        stream_window=(int, "Rows that each process shuffles together with --stream.", {"min": 1}),
    ),
]
OPTIONS = options(
    RUN,
    out=(FOLDER, "Folder of the model; needed here or in --config."),
    config=(Path, "YAML file of these options; the line wins."),
    resume=(bool, "Resume from the newest checkpoint in --out."),
    force=(bool, "Replace the model in --out."),
    mlflow=(bool, "Also log a run and the model to MLflow, by MLFLOW_TRACKING_URI."),
    name=(str, "Name on the model card."),
    license=(str, "License on the model card."),
)


@takes(
    *OPTIONS,
    *ROWS,
    *shared.SOURCE,
    *described(Plan, WHAT),
    *described(Settings, shared.HOW),
    *shared.where("Trainings of --effort best at a time; one if none.", RUN),
)
def train(
    data: Annotated[Optional[str], typer.Argument(help=shared.DATA)] = None, **options: Any
) -> None:
    """Train a model; also under torchrun, and on from a checkpoint with --resume.

    What is not given comes from a recipe, which may set other defaults than those shown under
    "How to train"; the command prints what it chose and why.

    Examples:
        train rows.csv --label class --split part --out model
        train notes.csv --label class --text note --out model
        train rows.csv --label class --out model --loss hxe --loss-option alpha=0.3 --epochs 50
    """
    from hierlearn.cli.evaluate import print_metrics
    from hierlearn.cli.generate import input_names
    from hierlearn.cli.output import advise, counted, resume_line, writes
    from hierlearn.cli.rows import check_goes_with, is_table
    from hierlearn.datasets.describe import single_row_classes
    from hierlearn.files.writing import check_output_folder
    from hierlearn.hierarchy.labels import labels_of_rows
    from hierlearn.pipeline import train as run
    from hierlearn.pipeline.folder import check_free
    from hierlearn.pipeline.run import Reporting
    from hierlearn.pipeline.train import was_restarted
    from hierlearn.registry import find_entry_point
    from hierlearn.terminal import Console, print_plain

    chosen = resolve({"data": data, **options})
    plan = make_plan(chosen)
    if chosen.get("effort") != "best":
        check_goes_with(options, LENT, "--effort best")
    where = {name: options[name] for name in LENT}
    lent: Any = nullcontext()
    if any(where.values()):
        find_entry_point("hierlearn.engines", "check")(options)
        where["device"] = chosen.get("device")
        lent = find_entry_point("hierlearn.engines", "lend")(where)
    resume, force = options["resume"], options["force"]
    tracked: Any = nullcontext()
    if options["mlflow"]:
        tracking = find_entry_point("hierlearn.trackers", "mlflow")
        tracked = tracking(chosen.get("name"), enabled=writes())
    console = Console(quiet=not writes())
    folder = Path(chosen["out"])
    named = [chosen.get(name) or options.get(name) for name in input_names(train)]
    check_output_folder(folder, force, [one for one in named if one is not None])
    if writes() and not (resume or was_restarted(folder)):
        check_free(folder, force)  # before the data is read, which may take long
    dataset, note = prune_rows(open_rows(chosen), chosen.get("min_rows"))
    if chosen.get("valid_fraction") and len(dataset.splits.get("valid", ())):
        raise HierlearnError(
            f"{dataset.name} has a split 'valid' already; leave --valid-fraction out"
        )
    if chosen.get("stream"):
        inputs: Any = dataset.inputs
        chosen["stream_window"] = inputs.window
    header = [rows_and_classes(dataset)]
    if is_table(chosen["data"]):  # a class with one row may be misspelled
        single = single_row_classes(labels_of_rows(dataset.labels, dataset.hierarchy))
        names = [dataset.hierarchy.names[number] for number in single]
        header += [f"classes with one row: {counted(names)}"] if names else []
    header += [note] if note else []

    def say(text: str) -> None:
        print_plain(console, *header, *text.split("\n"))
        header.clear()  # before the first message only

    advise(lambda: resume_line(folder))
    reporting = Reporting(
        on_message=say,
        on_prepared=lambda beginning: write_config(folder, chosen, beginning, dataset),
    )
    with tracked as tracker, lent:
        model = run(
            dataset,
            plan,
            folder,
            resume=resume,
            force=force,
            metadata=metadata(chosen),
            reporting=reporting if tracker is None else tracker.reporting(reporting),
        )
        if tracker is not None:
            tracker.log_result(model, folder)
    print_metrics(console, model.config["metrics"], model)
    print_plain(console, *written(folder, model, dataset))


def resolve(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the line, and of the configuration file where the line is silent."""
    from hierlearn.errors import HierlearnError

    chosen: dict[str, Any] = {}
    if options["config"] is not None:
        chosen = read_config(options["config"], option_kinds(train, without=PER_RUN))
    chosen |= given(options, [name for name in options if name not in PER_RUN])
    if "data" not in chosen:
        raise HierlearnError("there is nothing to train on; name a dataset or a file")
    if "out" not in chosen:
        raise HierlearnError("name the folder of the model with --out")
    for name, value in chosen.items():
        try:
            str(value).encode()
        except UnicodeEncodeError:  # other bytes of the command line are surrogates
            raise HierlearnError(
                f"{dashed(name)} {value!r} is not valid UTF-8, as the files of a model are; "
                f"rename it"
            ) from None
    if isinstance(chosen.get("dataset_option"), dict):  # from a file
        chosen["dataset_option"] = [f"{k}={v}" for k, v in chosen["dataset_option"].items()]
    return chosen


def make_plan(chosen: Mapping[str, Any]) -> Plan:
    """Return the plan of the options; raise on a wrong one before the data is read."""
    return Plan(**given_fields(Plan, chosen), settings=given_fields(Settings, chosen))


def open_rows(chosen: Mapping[str, Any]) -> Dataset:
    """Open what the options point at, in memory or to be streamed."""
    from hierlearn.cli.rows import open_dataset
    from hierlearn.errors import HierlearnError

    if "stream_window" in chosen and not chosen.get("stream"):
        raise HierlearnError("--stream-window goes with --stream; leave it out")
    return open_dataset(
        chosen["data"],
        chosen,
        stream=bool(chosen.get("stream")),
        window=chosen.get("stream_window"),
    )


def prune_rows(dataset: Dataset, min_rows: int | None) -> tuple[Dataset, str]:
    """Return the rows without rare classes where that is asked for, and a sentence about them."""
    from hierlearn.datasets.dataset import prune, without_rows

    if min_rows is None:
        return dataset, without_rows(dataset).replace("min_rows=", "--min-rows ")
    pruned = prune(dataset, min_rows)
    return pruned, (
        f"{len(dataset.hierarchy) - len(pruned.hierarchy):,} of {len(dataset.hierarchy):,} classes "
        f"have fewer than {plural(min_rows, 'training row')} and are left out"
    )


def rows_and_classes(dataset: Dataset) -> str:
    """Describe the training data in one line."""
    from hierlearn.errors import plural

    hierarchy = dataset.hierarchy
    splits = ", ".join(f"{name} {len(rows):,}" for name, rows in dataset.splits.items())
    kind = "a tree" if hierarchy.is_tree else "a DAG"
    what = plural(len(dataset), {"texts": "text", "images": "image"}.get(dataset.kind, "row"))
    if dataset.kind not in ("texts", "images"):
        column = "column" if dataset.kind == "table" else "number"
        width = len(dataset.feature_names) or dataset.inputs.shape[1]  # type: ignore[union-attr]
        what += f" of {plural(width, column)}"
    classes = plural(len(hierarchy), "class", "classes")
    line = (
        f"{dataset.name}: {what}{f' ({splits})' if splits else ''}, "
        f"{classes} in {plural(hierarchy.depth, 'level')}, {kind}"
    )
    inputs: Any = dataset.inputs
    if not hasattr(inputs, "window"):
        return line
    largest = int(max(b - a for a, b in pairwise(inputs.file.group_offsets)))
    return (
        f"{line}; streamed by row groups of up to {plural(largest, 'row')}, "
        f"shuffled in windows of {max(inputs.window, largest):,}"
    )


def write_config(
    folder: Path, chosen: Mapping[str, Any], beginning: TrainingStart, dataset: Dataset
) -> None:
    """Write run.yaml: the options, and every setting that the recipe and the defaults gave.

    A file that is there already belongs to the training that is resumed. Labels that were skipped
    are written to a file of their own.
    """
    import yaml

    from hierlearn import __version__
    from hierlearn.files.locations import without_secrets
    from hierlearn.files.writing import atomic_write
    from hierlearn.pipeline.folder import training_folder

    folder = training_folder(folder)
    if (folder / "run.yaml").exists():
        return
    if dataset.label_report is not None and dataset.label_report.skipped:
        dataset.label_report.write(folder / SKIPPED)
    comment = f"hierlearn {__version__}: hierlearn train --config run.yaml\n{beginning.summary}"
    lines = [f"# {line}" for line in comment.splitlines()]
    values = (
        chosen if chosen.get("effort") == "best" else {**chosen, **beginning.settings.to_dict()}
    )
    values = {**values, "data": without_secrets(values["data"])}
    with atomic_write(folder / "run.yaml") as file:
        body = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
        file.write("\n".join([*lines, body]))


def metadata(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else the model should know: its name, its license, its columns."""
    of_the_file = ("hierarchy", "delimiter")
    names = [name for name in shared.COLUMN_NAMES if name not in of_the_file]
    columns = {name: chosen[name] for name in names if name in chosen}
    return {
        **{name: chosen[name] for name in ("name", "license") if name in chosen},
        "columns": columns,
    }


def written(folder: Path, model: Pipeline, dataset: Dataset) -> list[str]:
    """Say where everything is, and what is missing."""
    from hierlearn.pipeline.memory_files import MANIFEST, SHARD
    from hierlearn.pipeline.seen_rows import ROWS_FILE

    files = f"wrote {folder}: model.safetensors, hierarchy.json, config.json, README.md, run.yaml"
    others = (ROWS_FILE, SHARD.format(1), MANIFEST, SKIPPED)
    files += "".join(f", {name}" for name in others if (folder / name).is_file())
    if (folder / "log.jsonl").is_file():
        files += ", log.jsonl, checkpoints"
    if model.config["metrics"] or model.config.get("metrics_before"):
        return [files]
    if model.config["data"].get("validation_rows") or len(dataset.splits.get("test", ())):
        return ["no rows could be evaluated, so there are no metrics", files]
    return ["no rows were held out, so there are no metrics; see --valid-fraction", files]
