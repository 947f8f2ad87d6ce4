"""Service: the model that a server holds, its queues and its metrics."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.files.writing import WriteError
from hierlearn.pipeline.memory_folder import MemoryFolder
from hierlearn.service.batching import Batcher, Limits
from hierlearn.service.metrics import Metrics
from hierlearn.service.model import Task, to_json
from hierlearn.service.openapi import example_row
from hierlearn.service.requests import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hierlearn.service.model import ServedModel


@dataclass(frozen=True)
class ServingSettings:
    """How a server treats requests.

    Attributes:
        limits: of the queue of ``/predict``.
        max_rows: rows of a request.
        max_explained: rows of a request to explain, each of which may cost many predictions.
        max_bytes: of the body of a request.
        body_timeout: seconds in which the body must arrive.
        token: what ``/remember`` asks for; None refuses it.
        save_to: the folder of the model, to which ``/remember`` adds; None keeps it in memory.
        trust: whether that folder may name code to import.
    """

    limits: Limits = field(default_factory=Limits)
    max_rows: int = 10_000
    max_explained: int = 100
    max_bytes: int = 16 << 20
    body_timeout: float = 30.0
    token: str | None = None
    save_to: Path | None = None
    trust: bool = False


@dataclass(frozen=True)
class Question:
    """Some rows of a request, and the model that answers all of the request.

    Attributes:
        model: as it was when the request came.
        task: the rows.
        count: how much is shown of what an answer rests on.
    """

    model: ServedModel
    task: Task
    count: int = 0


@dataclass(frozen=True)
class Addition:
    """A task of ``/remember``."""

    task: Task
    labels: Sequence[Sequence[str]]
    ids: Sequence[str] | None


class Service:
    """What the requests of a server share.

    Args:
        model: the model to begin with.
        settings: how requests are treated.

    Attributes:
        model: the model now. A request takes it once, so that all its answers come from one model,
            the old or the new one.
        ready: whether requests are welcome.
    """

    def __init__(self, model: ServedModel, settings: ServingSettings) -> None:
        self.model, self.settings, self.ready = model, settings, False
        limits = settings.limits
        alone = replace(limits, max_batch=1, max_wait=0.0)
        gauges = {
            "hierlearn_queue_rows": ("Rows that wait to be predicted.", self._waiting),
            "hierlearn_remembered_rows": ("Rows that the model remembers.", self._remembered),
            "hierlearn_ready": ("Whether requests are welcome.", lambda: float(self.ready)),
        }
        self.metrics = Metrics(gauges, self._info)
        self.predicting = Batcher(self._predict, limits, self._counted("predict"))
        self.explaining = Batcher(self._explain, alone, self._counted("explain"))
        self.remembering = Batcher(self._remember, alone, self._counted("remember"))

    def start(self) -> None:
        """Start the threads; called in the event loop."""
        for one in (self.predicting, self.explaining, self.remembering):
            one.start()
        self.ready = True

    def warm_up(self) -> None:
        """Predict an invented row, so that the first request does not wait for imports."""
        model = self.model
        with suppress(HierlearnError):  # the invented row may not fit
            model.predict([Task(model.inputs.columns([example_row(model.inputs)]))])

    def close(self) -> None:
        """End the threads, after what they have accepted."""
        self.ready = False
        for one in (self.predicting, self.explaining, self.remembering):
            one.close(self.settings.limits.timeout)

    def _counted(self, queue: str) -> Any:
        return lambda rows, seconds: self.metrics.batch(queue, rows, seconds)

    def _waiting(self) -> float:
        return self.predicting.rows

    def _remembered(self) -> float:
        return self.model.remembered_rows

    def _info(self) -> dict[str, object]:
        from hierlearn import __version__

        pipeline = self.model.pipeline
        return {
            "name": pipeline.config.get("name", "model"),
            "classes": len(pipeline.hierarchy),
            "fingerprint": pipeline.hierarchy.fingerprint[:12],
            "version": __version__,
        }

    # ------------------------------------------------------------------ in the threads

    def _predict(self, questions: list[Question]) -> list[bytes]:
        """Return the answers as JSON without the brackets of a list."""
        found = [b""] * len(questions)
        for model in {id(one.model): one.model for one in questions}.values():
            places = [place for place, one in enumerate(questions) if one.model is model]
            answers = model.predict([questions[place].task for place in places])
            for place, own in zip(places, answers, strict=True):
                found[place] = to_json(own)[1:-1]
        return found

    def _explain(self, questions: list[Question]) -> list[bytes]:
        return [to_json(one.model.explain(one.task, one.count))[1:-1] for one in questions]

    def _remember(self, tasks: list[Addition]) -> list[dict[str, Any]]:
        """Make a model that remembers more, write it where that is asked for, and swap it in."""
        (one,) = tasks
        model, growth = self.model.grown(one.task.columns, one.labels, one.ids)
        folder = self.settings.save_to
        if folder is not None:
            try:
                # One more shard; what other processes have added to the folder stays there.
                with MemoryFolder.open(folder, trust=self.settings.trust) as memory:
                    rows = self.model.inputs.chunk(one.task.columns).inputs
                    memory.remember(rows, one.labels, ids=one.ids)
            except WriteError as error:
                raise Refusal(500, f"{error}; nothing was remembered") from error
        self.model = model
        return [
            {
                "rows": growth.rows,
                "known": growth.known,
                "new_classes": list(growth.classes),
                "total": growth.total,
                "saved": folder is not None,
            }
        ]
