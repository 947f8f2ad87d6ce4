"""``hierlearn train``: from rows and a taxonomy to a model folder."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hierlearn.cli import shared
from hierlearn.cli.engines import check_lent, lent_executor, where
from hierlearn.cli.generate import dashed, described, flag, given, given_fields, option, takes
from hierlearn.cli.outputs import FOLDER, output
from hierlearn.errors import HierlearnError, plural
from hierlearn.training.plan import Plan
from hierlearn.training.settings import RUN, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.datasets import Dataset
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.reporting import Beginning

WHAT = "What to train"  # a panel of --help
SKIPPED = "skipped-labels.csv"
PER_RUN = (  # no part of the configuration
    *("config", "resume", "force", "tensorboard", "mlflow"),
    *("jobs", "engine", "address"),
)
ROWS = [
    option(
        "min_rows",
        int,
        None,
        "Leave out classes with fewer training rows; their rows count for the classes above.",
        min=1,
        panel=WHAT,
    ),
    option(
        "stream",
        bool,
        None,
        "Leave Parquet files where they are, and read them by row groups.",
        "--stream",
        panel=RUN,
    ),
    option(
        "stream_window",
        int,
        None,
        "Rows that each process shuffles together with --stream.",
        min=1,
        panel=RUN,
    ),
]
OPTIONS = [
    output(
        "out",
        "Folder of the model; needed here or in --config.",
        "--out",
        "-o",
        kind=FOLDER,
        panel=RUN,
    ),
    option("config", Path, None, "YAML file of these options; the line wins.", panel=RUN),
    flag("resume", "Resume from the newest checkpoint in --out.", panel=RUN),
    flag("force", "Replace the model in --out.", panel=RUN),
    flag("tensorboard", "Also log for TensorBoard.", panel=RUN),
    flag("mlflow", "Also log a run and the model to MLflow, by MLFLOW_TRACKING_URI.", panel=RUN),
    option("name", str, None, "Name on the model card.", panel=RUN),
    option("license", str, None, "License on the model card.", panel=RUN),
]


@takes(
    *OPTIONS,
    *ROWS,
    *shared.SOURCE,
    *described(Plan, WHAT),
    *described(Settings, shared.HOW),
    *where("Trainings of --effort best at a time; one if none.", RUN),
)
def train(
    data: Annotated[Optional[str], typer.Argument(help=shared.DATA)] = None, **options: Any
) -> None:
    """Train a model; also under torchrun, and on from a checkpoint with --resume.

    What is not given comes from a recipe, which may set other defaults than those shown under
    "How to train"; the command prints what it chose and why.
    """
    from hierlearn.cli.figures import print_metrics
    from hierlearn.cli.interrupts import advise, resume_line
    from hierlearn.cli.outputs import input_names
    from hierlearn.cli.show import writes
    from hierlearn.files.outputs import check_output_folder
    from hierlearn.pipeline import train as run
    from hierlearn.pipeline.folder import check_free
    from hierlearn.pipeline.reporting import Reporting
    from hierlearn.pipeline.train import was_restarted
    from hierlearn.registry import find_entry_point
    from hierlearn.terminal import Console, print_plain
    from hierlearn.training.log import find_tensorboard

    chosen = resolve({"data": data, **options})
    plan = make_plan(chosen)
    check_lent(options, chosen)
    resume, force, tensorboard = (options[name] for name in ("resume", "force", "tensorboard"))
    if tensorboard:
        find_tensorboard()
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
    single = single_rows(chosen["data"], dataset)
    header = [rows_and_classes(dataset), *single, *filter(None, [note])]

    def say(text: str) -> None:
        print_plain(console, *header, *text.split("\n"))
        header.clear()  # before the first message only

    advise(lambda: resume_line(folder))
    reporting = Reporting(
        on_message=say,
        on_prepared=lambda beginning: write_config(folder, chosen, beginning, dataset),
        tensorboard=tensorboard,
    )
    with tracked as tracker, lent_executor(options, chosen):
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
    from hierlearn.cli.config import option_kinds, read_config
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
        if isinstance(value, str) and not is_utf8(value):
            raise HierlearnError(
                f"{dashed(name)} {value!r} is not valid UTF-8, as the files of a model are; "
                f"rename it"
            )
    if isinstance(chosen.get("dataset_option"), dict):  # from a file
        chosen["dataset_option"] = [f"{k}={v}" for k, v in chosen["dataset_option"].items()]
    return chosen


def is_utf8(text: str) -> bool:
    """Whether a word of the command line was UTF-8; Python keeps other bytes as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def make_plan(chosen: Mapping[str, Any]) -> Plan:
    """Return the plan of the options; raise on a wrong one before the data is read."""
    return Plan(**given_fields(Plan, chosen), settings=given_fields(Settings, chosen))


def open_rows(chosen: Mapping[str, Any]) -> Dataset:
    """Open what the options point at, in memory or to be streamed."""
    from hierlearn.cli.sources import open_dataset
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
    largest = int(max(b - a for a, b in pairwise(inputs.source.offsets)))
    return (
        f"{line}; streamed by row groups of up to {plural(largest, 'row')}, "
        f"shuffled in windows of {max(inputs.window, largest):,}"
    )


def single_rows(source: str, dataset: Dataset) -> list[str]:
    """Say which classes of a table have one row only: a class may be misspelled."""
    from hierlearn.cli.model_rows import is_table
    from hierlearn.cli.show import counted
    from hierlearn.datasets.describe import single_row_classes
    from hierlearn.hierarchy.shared_labels import labels_of_rows

    if not is_table(source):
        return []
    single = single_row_classes(labels_of_rows(dataset.labels, dataset.hierarchy))
    names = [dataset.hierarchy.names[number] for number in single]
    return [f"classes with one row: {counted(names)}"] if names else []


def write_config(
    folder: Path, chosen: Mapping[str, Any], beginning: Beginning, dataset: Dataset
) -> None:
    """Write run.yaml: the options, and every setting that the recipe and the defaults gave.

    A file that is there already belongs to the training that is resumed. Labels that were skipped
    are written to a file of their own.
    """
    from hierlearn import __version__
    from hierlearn.cli.config import to_yaml
    from hierlearn.files.locations import without_secrets
    from hierlearn.files.writing import atomic_write
    from hierlearn.pipeline.folder import training_folder

    folder = training_folder(folder)
    if (folder / "run.yaml").exists():
        return
    if dataset.label_report is not None and dataset.label_report.skipped:
        dataset.label_report.write(folder / SKIPPED)
    comment = f"hierlearn {__version__}: hierlearn train --config run.yaml\n{beginning.summary}"
    values = (
        chosen if chosen.get("effort") == "best" else {**chosen, **beginning.settings.to_dict()}
    )
    values = {**values, "data": without_secrets(values["data"])}
    with atomic_write(folder / "run.yaml") as file:
        file.write(to_yaml(values, comment))


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
