"""ServedModel: a model that answers joined requests, and grows by making a new one of itself."""

from __future__ import annotations

import copy
import json
import threading
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.datasets.tables.write import CodedColumn
from hierlearn.decoding import CALIBRATED, calibratable
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.names import joined_titles
from hierlearn.memory import Remembered
from hierlearn.networks.memories import memory_heads, remembered
from hierlearn.pipeline.answers import (
    AnswerFormatter,
    Layout,
    first_classes,
    label_sep_of,
    level_column_names,
)
from hierlearn.pipeline.evaluate import predictions
from hierlearn.pipeline.explain import explain, has_parts, reasons
from hierlearn.pipeline.remember import Growth, remember
from hierlearn.service.rows import Inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from hierlearn.datasets import Dataset
    from hierlearn.metrics.answers import Answers
    from hierlearn.pipeline import Pipeline
    from hierlearn.service.rows import Columns

MOST_KEPT = 64  # different options of requests whose decoders are kept


@dataclass(frozen=True)
class Options:
    """What a request asks for beside the answer.

    Attributes:
        top: how many of the most probable terminal classes.
        by_level: the class of every level.
        decoder: how to decide, by name; None for the decoder of the model.
        threshold: of the decoder.
        risk: the fraction of wrong answers to allow; finds the threshold.
    """

    top: int = 0
    by_level: bool = False
    decoder: str | None = None
    threshold: float | None = None
    risk: float | None = None


@dataclass(frozen=True)
class Task:
    """Some rows of a request.

    Attributes:
        columns: their cells.
        options: what is asked for.
        first: the number of the first row in its request.
    """

    columns: Columns
    options: Options = Options()
    first: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


class ServedModel:
    """A model that does not change, for many requests at once.

    Args:
        pipeline: the model; nobody else may change it.
        calibration: labeled rows that it has not seen, by which it keeps a risk; None where there
            are none.
    """

    def __init__(self, pipeline: Pipeline, calibration: Dataset | None = None) -> None:
        self.pipeline, self.calibration = pipeline, calibration
        self.inputs = Inputs.of(pipeline)
        self.label_sep = label_sep_of(pipeline)
        self._formatters: dict[Options, AnswerFormatter] = {}
        self._lock = threading.Lock()
        self._hierarchy: bytes | None = None
        pipeline.network.eval()

    # ------------------------------------------------------------------ predicting

    def formatter(self, options: Options) -> AnswerFormatter:
        """Return what makes the answers to options; raise on those that the model cannot meet."""
        with self._lock:
            formatter = self._formatters.get(options)
        if formatter is not None:
            return formatter
        pipeline = self.pipeline
        if options.risk is None:
            more = {} if options.threshold is None else {"threshold": options.threshold}
            decoder: Any = pipeline.make_decoder(options.decoder, **more)
        elif options.threshold is not None:
            raise HierlearnError("risk finds the threshold itself; leave threshold out")
        elif self.calibration is None:
            raise HierlearnError(
                "the server has no rows to keep a risk by; start it with --calibrate, or give a "
                "threshold instead of risk"
            )
        else:
            name = options.decoder or CALIBRATED
            decoder = calibratable(pipeline.make_decoder(name), name)
            rows = self.calibrating
            decoder = decoder.calibrate(rows.p, rows.targets, options.risk)
        layout = Layout(level_column_names(pipeline) if options.by_level else (), options.top)
        layout.check(pipeline)
        formatter = AnswerFormatter(pipeline, decoder, self.label_sep, layout)
        with self._lock:
            while len(self._formatters) >= MOST_KEPT:
                self._formatters.pop(next(iter(self._formatters)))
            self._formatters[options] = formatter
        return formatter

    @cached_property
    def calibrating(self) -> Answers:
        """What the model predicts for the rows by which it keeps a risk."""
        assert self.calibration is not None
        dataset = self.calibration
        if dataset.hierarchy != self.pipeline.hierarchy:  # which has grown since
            dataset = replace(dataset, hierarchy=self.pipeline.hierarchy)
        return predictions(self.pipeline, dataset)

    def probabilities(self, inputs: Any) -> Tensor:
        """Return (n, C) probabilities; a few rows do not wait for a tile to be filled up."""
        return torch.cat([*self.pipeline.stream_probabilities(inputs, tiled=False)])

    def columns(self, p: Tensor, options: Options) -> dict[str, list[Any]]:
        """Return the answers to (n, C) probabilities as columns of plain values."""
        return {name: plain(cells) for name, cells in self.formatter(options)(p).items()}

    def predict(self, tasks: Sequence[Task]) -> list[list[dict[str, Any]]]:
        """Return the answers of all tasks, one object per row, computed as one batch."""
        columns, first = tasks[0].columns, tasks[0].first
        if len(tasks) > 1:
            first = 0
            columns = {
                name: list(chain.from_iterable(one.columns[name] for one in tasks))
                for name in columns
            }
        chunk = self.inputs.chunk(columns, first)
        p = self.probabilities(chunk.inputs)
        parts = torch.split(p, [len(task) for task in tasks])
        alike: dict[Options, list[int]] = {}
        for number, task in enumerate(tasks):
            alike.setdefault(task.options, []).append(number)
        answers: list[list[dict[str, Any]]] = [[] for _ in tasks]
        for options, numbers in alike.items():
            own = p if len(alike) == 1 else torch.cat([parts[number] for number in numbers])
            rows = as_objects(self.columns(own, options))
            begin = 0
            for number in numbers:
                answers[number] = rows[begin : begin + len(tasks[number])]
                begin += len(tasks[number])
        return answers

    # ------------------------------------------------------------------ explaining

    @property
    def has_memory(self) -> bool:
        """Whether answers come from remembered rows."""
        return bool(memory_heads(self.pipeline.network))

    @property
    def remembered_rows(self) -> int:
        """How many rows are remembered."""
        return len(remembered(self.pipeline.network) or ())

    def explain(self, task: Task, count: int) -> list[dict[str, Any]]:
        """Return the answer to each row with what it rests on: rows, or words and cells.

        Args:
            task: the rows.
            count: how many rows, words or cells at most.
        """
        chunk = self.inputs.chunk(task.columns, task.first)
        p = self.probabilities(chunk.inputs)
        objects = as_objects(self.columns(p, task.options))
        name, hierarchy = "rows", self.pipeline.hierarchy
        evidence: list[list[dict[str, Any]]]
        if not self.has_memory and has_parts(self.pipeline):
            name = "parts"
            chosen = first_classes(p, self.formatter(task.options).decoder)
            every = reasons(self.pipeline, chunk.inputs, chosen, count)
            evidence = [[vars(one) for one in own] for own in every]
        else:
            evidence = [[] for _ in objects]
            for rows, remembered in zip(
                evidence, explain(self.pipeline, chunk.inputs, count), strict=True
            ):
                for one in remembered:
                    row = {"id": one.id, "weight": one.weight, "labels": list(one.labels)}
                    if hierarchy.has_titles:
                        row["titles"] = joined_titles(hierarchy, one.labels, self.label_sep)
                    if one.text is not None:
                        row["text"] = one.text
                    rows.append(row)
        return [{**answer, name: own} for answer, own in zip(objects, evidence, strict=True)]

    # ------------------------------------------------------------------ growing

    def grown(
        self, columns: Columns, labels: Sequence[Sequence[str]], ids: Sequence[str] | None
    ) -> tuple[ServedModel, Growth]:
        """Return a model that remembers more rows, and what was added; this one stays as it is.

        Args:
            columns: the cells of the rows.
            labels: of each row.
            ids: of the rows.
        """
        chunk = self.inputs.chunk(columns, learns=True)
        pipeline = copied(self.pipeline)
        growth = remember(pipeline, chunk.inputs, labels, ids=ids)
        return ServedModel(pipeline, self.calibration), growth

    # ------------------------------------------------------------------ describing

    def describe(self) -> dict[str, Any]:
        """Return what the model is and reads."""
        pipeline, config = self.pipeline, self.pipeline.config
        hierarchy = pipeline.hierarchy
        return {
            "name": config.get("name", "model"),
            "license": config.get("license"),
            "inputs": self.inputs.kind,
            "columns": self.inputs.kinds if self.inputs.named else {},
            "classes": len(hierarchy),
            "levels": hierarchy.depth,
            "decoder": pipeline.decoder,
            "remembered_rows": self.remembered_rows,
            "fingerprint": hierarchy.fingerprint,
            "versions": config.get("versions", {}),
        }

    def hierarchy_json(self) -> bytes:
        """Return the classes: path, title, level and parents of each."""
        if self._hierarchy is None:
            own = self.pipeline.hierarchy
            terminal = self.pipeline.label_space.is_terminal.tolist()
            classes = [
                {
                    "path": name,
                    "title": own.titles[number],
                    "level": level,
                    "parents": [own.names[one] for one in own.parents(number)],
                    "terminal": terminal[number],
                }
                for number, (name, level) in enumerate(
                    zip(own.names, own.levels.tolist(), strict=True)
                )
            ]
            content = {"fingerprint": own.fingerprint, "sep": own.sep, "classes": classes}
            self._hierarchy = to_json(content)
        return self._hierarchy


def plain(column: Any) -> list[Any]:
    """Return a column as Python values, None where a value is masked."""
    if isinstance(column, CodedColumn):
        return [column.values[code] for code in column.codes.tolist()]
    values: list[Any] = column.tolist() if hasattr(column, "tolist") else list(column)
    return values


def as_objects(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return columns as one object per row."""
    names = tuple(columns)
    return [dict(zip(names, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def to_json(content: Any) -> bytes:
    """Return what a response holds."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def copied(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline that can be changed apart; weights and remembered rows are shared."""
    memo: dict[int, Any] = {}
    for module in pipeline.network.modules():
        held = (*vars(module).values(), *module._parameters.values(), *module._buffers.values())
        shared = (one for one in held if isinstance(one, (torch.Tensor, Remembered)))
        memo |= {id(one): one for one in shared}
    return replace(
        pipeline,
        network=copy.deepcopy(pipeline.network, memo),
        config=copy.deepcopy(pipeline.config),
        decoder_options=dict(pipeline.decoder_options),
    )
