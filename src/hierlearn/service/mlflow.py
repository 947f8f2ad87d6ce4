"""MLflow: model folders as ``pyfunc`` models, and trainings as runs.

The artifact is the model folder as it is, safetensors and JSON; nothing is pickled. What MLflow
loads answers a frame with the columns of ``hierlearn predict``.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.hierarchy.names import is_missing
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.folder import FILES, FOLDERS, is_model
from hierlearn.pipeline.run import Reporting
from hierlearn.service.model import Options, ServedModel, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from hierlearn.pipeline.run import TrainingStart

PACKAGES = ("hierlearn", "torch", "numpy", "scipy", "safetensors", "pandas")
TYPES = {"number": "double", "image": "binary"}  # of columns; others are texts
STRICT = ("text", "image")  # kinds of which MLflow checks the type
PARAMS = ("top", "by_level", "decoder", "threshold")
LONGEST = 250  # characters of a parameter of a run
NO_NAME = re.compile(r"[^\w\-. /]")  # what a metric of MLflow may not be called


def find_mlflow() -> Any:
    """Return MLflow, or raise with what to install."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # which MLflow gives about its own types
            import mlflow.pyfunc
        import pandas  # noqa: F401
    except ImportError as error:
        raise HierlearnError(
            f"MLflow needs mlflow-skinny and pandas ({error}); install them with: pip install "
            f"mlflow-skinny pandas"
        ) from None
    return mlflow


# ---------------------------------------- models


def save_model(
    model: Pipeline | Path | str,
    path: Path | str,
    *,
    pip_requirements: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a model as a folder of MLflow.

    Args:
        model: a pipeline, or a model folder.
        path: the folder to write; it must not exist.
        pip_requirements: what the model needs; by default hierlearn and its packages, as installed.
        metadata: of the MLflow model.
    """
    mlflow = find_mlflow()
    with staged(model) as (folder, description):
        mlflow.pyfunc.save_model(
            path=str(path), **flavor(folder, description, pip_requirements, metadata)
        )


def log_model(
    model: Pipeline | Path | str,
    name: str = "model",
    *,
    pip_requirements: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    registered_model_name: str | None = None,
) -> Any:
    """Log a model to the active run of MLflow, and return what MLflow knows of it.

    Args:
        model: a pipeline, or a model folder.
        name: of the artifact.
        pip_requirements: what the model needs; by default hierlearn and its packages, as installed.
        metadata: of the MLflow model.
        registered_model_name: also register it under this name.
    """
    mlflow = find_mlflow()
    with staged(model) as (folder, description):
        return mlflow.pyfunc.log_model(
            name=name,
            registered_model_name=registered_model_name,
            **flavor(folder, description, pip_requirements, metadata),
        )


def load_model(uri: str, *, device: str = "cpu", trust: bool = False) -> Pipeline:
    """Return the pipeline of a model that MLflow holds.

    Args:
        uri: such as ``models:/name/1``, ``runs:/id/model`` or a folder.
        device: where to compute.
        trust: whether a network factory outside of hierlearn may be imported and called.
    """
    mlflow = find_mlflow()
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri))
    described = mlflow.models.Model.load(str(folder)).flavors.get("python_function", {})
    if described.get("loader_module") != __name__:
        raise HierlearnError(
            f"{uri} was not saved by hierlearn but by {described.get('loader_module')}; load it "
            f"with mlflow.pyfunc.load_model"
        )
    return Pipeline.load(folder / described["data"], device=device, trust=trust)


def _load_pyfunc(path: str) -> FrameModel:
    """Return what ``mlflow.pyfunc.load_model`` wraps."""
    return FrameModel(Pipeline.load(path))


class FrameModel:
    """A model that answers frames.

    Args:
        pipeline: the model.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.model = ServedModel(pipeline)

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return a frame of answers, one per row.

        Args:
            model_input: a frame with the columns of the model, a dictionary of columns, or rows.
            params: top, by_level, decoder and threshold, as ``hierlearn predict`` takes them.
        """
        import pandas as pd

        model, options = self.model, read_params(params or {})
        columns = self.columns(model_input)
        count, size = len(next(iter(columns.values()))), model.pipeline.batch_size()
        answers: dict[str, list[Any]] = {name: [] for name in model.formatter(options).names}
        for begin in range(0, count, size):
            some = {name: cells[begin : begin + size] for name, cells in columns.items()}
            p = model.pipeline.probabilities(model.inputs.chunk(some, begin).inputs)
            for name, cells in model.columns(p, options).items():
                answers[name] += cells
        return pd.DataFrame(answers, index=getattr(model_input, "index", None))

    def columns(self, given: Any) -> dict[str, list[Any]]:
        """Return inputs as columns of plain values."""
        wanted = self.model.inputs.kinds
        if hasattr(given, "columns"):
            return {str(name): cells_of(given[name]) for name in given.columns if name in wanted}
        if isinstance(given, dict):
            return {name: cells_of(cells) for name, cells in given.items() if name in wanted}
        return self.model.inputs.columns(
            given.tolist() if hasattr(given, "tolist") else list(given)
        )


def cells_of(column: Any) -> list[Any]:
    """Return the cells of a column as Python values, None where one is missing."""
    cells = column.tolist() if hasattr(column, "tolist") else list(column)
    return [
        cell.tolist() if hasattr(cell, "tolist") else None if is_missing(cell) else cell
        for cell in cells
    ]


def read_params(params: Mapping[str, Any]) -> Options:
    """Return the parameters of a prediction; those that are not given do nothing."""
    for name in params:
        if name not in PARAMS:
            raise HierlearnError(unknown_name("parameter", name, PARAMS))
    threshold = params.get("threshold")
    given = threshold is not None and not math.isnan(threshold)
    return Options(
        top=int(params.get("top") or 0),
        by_level=bool(params.get("by_level")),
        decoder=params.get("decoder") or None,
        threshold=float(threshold) if given and threshold is not None else None,
    )


# ---------------------------------------- what is written


@contextmanager
def staged(model: Pipeline | Path | str) -> Iterator[tuple[Path, ServedModel]]:
    """Yield a folder of the model without checkpoints, and the model itself."""
    with tempfile.TemporaryDirectory(prefix="hierlearn-") as temporary:
        folder = Path(temporary) / "model"
        if isinstance(model, Pipeline):
            model.save(folder)
            yield folder, ServedModel(model)
            return
        source = Path(model)
        if not is_model(source):
            raise HierlearnError(f"{source} is no model folder: it has no {FILES[2]}")
        pipeline = Pipeline.load(source)  # which also completes what was interrupted
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".*", *FOLDERS))
        yield folder, ServedModel(pipeline)


def flavor(
    folder: Path,
    model: ServedModel,
    requirements: Sequence[str] | None,
    metadata: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return what MLflow is told of a model.

    Args:
        folder: its files.
        model: the model.
        requirements: what it needs.
        metadata: more about it.
    """
    import pandas as pd

    described = json.loads(to_json(model.describe()))  # torch's version is more than a text
    inputs, example = model.inputs, None
    if inputs.kind != "images":
        row = inputs.example()
        example = pd.DataFrame([row if inputs.named else {next(iter(inputs.kinds)): row}])
    return {
        "loader_module": __name__,
        "data_path": str(folder),
        "signature": signature_of(model),
        "input_example": example,
        "pip_requirements": list(requirements or installed()),
        "metadata": {"hierlearn": described, **(metadata or {})},
    }


def installed() -> list[str]:
    """Return what a model needs, in the versions that are installed."""
    requirements = []
    for name in (*PACKAGES, "mlflow-skinny", "mlflow"):
        try:
            requirements.append(f"{name}=={version(name).partition('+')[0]}")
        except PackageNotFoundError:
            continue
    return requirements


def signature_of(model: ServedModel) -> Any:
    """Return the columns that a model reads, those of its answers, and its parameters."""
    from mlflow.models import ModelSignature
    from mlflow.types import ParamSchema, ParamSpec, Schema, schema
    from mlflow.types.schema import Array, ColSpec, DataType

    def column(name: str, kind: str) -> Any:
        if kind == "vector":
            return ColSpec(Array(DataType.double), name)
        # A number may come as an integer and a category as a number, which MLflow would refuse.
        if kind not in STRICT:
            return ColSpec(schema.AnyType(), name)
        return ColSpec(DataType[TYPES.get(kind, "string")], name)

    decoder = model.formatter(Options()).decoder
    of_sets = {} if decoder.answers == "class" else {"probability": "string", "level": "string"}
    types = {"probability": "double", "level": "long", "stopped": "boolean", **of_sets}
    answers = [
        ColSpec(DataType[types.get(name, "string")], name)
        for name in model.formatter(Options()).names
    ]
    params = [
        ParamSpec("top", "long", 0),
        ParamSpec("by_level", "boolean", False),
        ParamSpec("decoder", "string", ""),
        ParamSpec("threshold", "double", math.nan),
    ]
    inputs = [column(name, kind) for name, kind in model.inputs.kinds.items()]
    return ModelSignature(Schema(inputs), Schema(answers), ParamSchema(params))


# ---------------------------------------- runs


def tracking(
    name: str | None = None, *, enabled: bool = True
) -> AbstractContextManager[Tracker | None]:
    """Return a context of what logs a training to MLflow: to the active run, or to a new one.

    Args:
        name: of a new run.
        enabled: whether to log at all; other processes of a training do not.
    """
    mlflow = find_mlflow()  # here, before any data is read
    return track(mlflow, name) if enabled else nullcontext()


@contextmanager
def track(mlflow: Any, name: str | None) -> Iterator[Tracker]:
    """Yield what logs to the active run of MLflow, or to a new one."""
    if mlflow.active_run() is not None:
        yield Tracker(mlflow)
        return
    try:
        run = mlflow.start_run(run_name=name)
    except (mlflow.MlflowException, ImportError) as error:
        uri = mlflow.get_tracking_uri()
        raise HierlearnError(
            f"MLflow cannot log to {uri}: {str(error).splitlines()[0]}; set MLFLOW_TRACKING_URI"
        ) from error
    with run:
        yield Tracker(mlflow)


class Tracker:
    """Logs a training: settings as parameters, the figures of every epoch, the model.

    Args:
        mlflow: the package.
    """

    def __init__(self, mlflow: Any) -> None:
        self.mlflow = mlflow

    def reporting(self, reporting: Reporting | None = None) -> Reporting:
        """Return callbacks that also log; those of ``reporting`` are called first."""
        own = reporting or Reporting()

        def on_prepared(beginning: TrainingStart) -> None:
            if own.on_prepared is not None:
                own.on_prepared(beginning)
            values = beginning.settings.to_dict()
            self.mlflow.log_params({one: str(value)[:LONGEST] for one, value in values.items()})
            self.mlflow.set_tag("hierlearn.summary", beginning.summary)

        def on_epoch(record: dict[str, Any]) -> None:
            if own.on_epoch is not None:
                own.on_epoch(record)
            self.log_metrics(scalars(record), record["epoch"])

        return replace(own, on_prepared=on_prepared, on_epoch=on_epoch)

    def log_metrics(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Log numbers under names that MLflow takes; what is not finite is left out."""
        numbers = {
            NO_NAME.sub("_", name): float(value)
            for name, value in values.items()
            if isinstance(value, (int, float)) and math.isfinite(value)
        }
        if numbers:
            self.mlflow.log_metrics(numbers, step=step)

    def log_result(self, pipeline: Pipeline, folder: Path | str | None = None) -> None:
        """Log the metrics of a trained pipeline, its recipe, and the model itself.

        Args:
            pipeline: the trained pipeline.
            folder: where it was written; None saves it again.
        """
        for split, figures in pipeline.config.get("metrics", {}).items():
            values: dict[str, Any] = {}
            for name, value in figures.items():
                if isinstance(value, list):
                    values |= {f"{split}/{name}/level {n}": v for n, v in enumerate(value, 1)}
                else:
                    values[f"{split}/{name}"] = value
            self.log_metrics(values)
        recipe = pipeline.config.get("recipe", {}).get("name")
        if recipe:
            self.mlflow.set_tag("hierlearn.recipe", recipe)
        log_model(pipeline if folder is None else folder)


def scalars(record: dict[str, Any]) -> dict[str, float]:
    """Return the single numbers of a record by name."""
    found = {"learning rate": record["learning_rate"]}
    for name, values in {"loss": record["loss"], **record.get("valid", {})}.items():
        for member, value in enumerate(values):
            if value is not None:  # a member that has stopped
                found[name if len(values) == 1 else f"{name}/{member}"] = value
    for level, value in enumerate(record.get("selected_by_level", ()), start=1):
        found[f"selected/level {level}"] = value
    return found
