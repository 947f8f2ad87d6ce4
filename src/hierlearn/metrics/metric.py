"""Metric: one entry of METRICS, a function with what tables, studies and sweeps need to know."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.inputs import check_option, read_scores, read_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.metrics.answers import Answers
    from hierlearn.metrics.inputs import Scores, Space, Targets
    from hierlearn.metrics.modules import HierlearnMetric

Direction = Literal["up", "down", "none"]
Takes = Literal["scores", "probabilities"]
Unit = Literal["percent", "levels", "edges", "rank", "count", "score"]


@dataclass(frozen=True)
class Metric:
    """A metric by name, called like every other: ``metric(scores, targets, label_space)``.

    A name and a function are enough: ``METRICS["mine"] = Metric("mine", my_function)``.

    Attributes:
        name: its name in METRICS.
        function: ``function(scores, targets, label_space, **options)`` gets (N, C) tensors and a
            ``LabelSpace``, and returns a number.
        description: what it is, in one sentence without a period.
        direction: "up" if larger is better, "down" if smaller is, "none" if neither.
        unit: how it is shown: a fraction as "percent"; "levels" of the hierarchy, "edges", a
            "rank", a "count", or else a "score".
        options: fixed options of the function, and of the torchmetrics class.
        module_class: its torchmetrics class; by default the one of ``hierlearn.metrics.modules``
            with the same function.
        limits: from a hierarchy to the smallest and the largest value.
        takes: "scores" of any kind, or "probabilities" in [0, 1].
        per_row: whether it is a mean over rows; the function then takes ``reduction="none"``.
        by_level: whether it gives (L,) instead of one number.
        of_terminals: whether it chooses among the terminal classes only.
        of_answers: whether it is about what a decoder answers: the function gets ``Answers``
            instead. Called with probabilities, these are the best terminal classes.
        needs_tree: whether a DAG raises an error.
        min_candidates: how many candidates it needs: classes, or terminal ones with
            ``of_terminals``.
        shown: whether it is measured where no metrics are named.
    """

    name: str
    function: Callable[..., Any]
    description: str = ""
    direction: Direction = "up"
    unit: Unit = "score"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    module_class: Callable[..., HierlearnMetric] | None = None
    limits: Callable[[Hierarchy], tuple[float, float]] | None = None
    takes: Takes = "scores"
    per_row: bool = False
    by_level: bool = False
    of_terminals: bool = False
    of_answers: bool = False
    needs_tree: bool = False
    min_candidates: int = 1
    shown: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise HierlearnError(f"metric {self.name}: {self.function!r} is not a function")
        check_option("direction", self.direction, Direction)
        check_option("unit", self.unit, Unit)
        check_option("takes", self.takes, Takes)
        if self.per_row and self.by_level:
            raise HierlearnError(f"metric {self.name} cannot be both per_row and by_level")

    def __call__(self, scores: Scores, targets: Targets, label_space: Space) -> Tensor:
        """Return the metric as a 0-dim float64 tensor, or (L,) where it is ``by_level``.

        Args:
            scores: (N, C) scores or probabilities, as ``takes`` says, or a ``HeadOutput``.
            targets: (N, C) closed multi-hot, or labels.
            label_space: the taxonomy and its terminal classes; of a ``Hierarchy``, the leaves.
        """
        return self._call(scores, targets, label_space)

    def rows(self, scores: Scores, targets: Targets, label_space: Space) -> Tensor:
        """Return (N,) float64 the value of each row, NaN where a row does not count.

        The arguments are those of a call.
        """
        self.check_per_row()
        return self._call(scores, targets, label_space, reduction="none")

    def check_per_row(self) -> None:
        """Raise unless each row has a value."""
        if not self.per_row:
            raise HierlearnError(f"{self.name} is not a mean over rows, so no row has a value")

    def _call(
        self, scores: Scores, targets: Targets, label_space: Space, **reduction: str
    ) -> Tensor:
        space = LabelSpace.of(label_space)
        if self.of_answers:
            from hierlearn.metrics.answers import Answers  # which has entries of this class

            return self.of(Answers(scores, targets, space), **reduction)
        read = read_scores(scores, space.hierarchy)
        truth = read_targets(targets, space.hierarchy).to(read.device)
        found = self.function(read, truth, space, **self.options, **reduction)
        return torch.as_tensor(found, dtype=torch.float64)

    def of(self, answers: Answers, **reduction: str) -> Tensor:
        """Return a metric ``of_answers``.

        Args:
            answers: answers and truth.
            reduction: ``reduction="none"`` for the value of each row.
        """
        found = self.function(answers, **self.options, **reduction)
        return torch.as_tensor(found, dtype=torch.float64)

    def bounds(self, label_space: Space) -> tuple[float, float]:
        """Return the smallest and the largest value on a label space."""
        if self.limits is not None:
            return self.limits(LabelSpace.of(label_space).hierarchy)
        return (0.0, 1.0) if self.unit == "percent" else (-math.inf, math.inf)

    def unsupported_reason(self, label_space: Space) -> str | None:
        """Return why the metric is not defined on a label space, or None where it is."""
        space = LabelSpace.of(label_space)
        if self.needs_tree and not space.hierarchy.is_tree:
            return f"{self.name} needs a tree"
        count, what = len(space), "classes"
        if self.of_terminals:
            count, what = len(space.terminals), "terminal classes"
        if count < self.min_candidates:
            return f"{self.name} needs {self.min_candidates} {what}, but there are {count}"
        return None

    def module(self, label_space: Space) -> HierlearnMetric:
        """Return the torchmetrics class; without one of its own, one that keeps all scores."""
        from hierlearn.metrics import modules

        twins = [
            one for one in vars(modules).values() if getattr(one, "function", 0) is self.function
        ]
        make: Any = self.module_class or (twins[0] if twins else None)
        if make is None:
            return modules.FunctionMetric(label_space, self)
        made: HierlearnMetric = make(label_space, **self.options)
        return made

    # ------------------------------------------------------------------ figures

    @property
    def scale(self) -> int:
        """What a value is multiplied by where it is shown: 100 for percent, else 1."""
        return 100 if self.unit == "percent" else 1

    def format(self, value: float | None, digits: int | None = None) -> str:
        """Return a value as text, "74.67" for percent, "1.250" otherwise; "n/a" without one.

        Args:
            value: the value, not scaled; None or NaN where there is none.
            digits: after the point; by default 2 for percent, else 3.
        """
        if value is None or math.isnan(value):
            return "n/a"
        if digits is None:
            digits = 2 if self.unit == "percent" else 3
        return f"{self.scale * value:.{digits}f}"


def unit_interval(_: Hierarchy) -> tuple[float, float]:
    """Return the limits of a fraction."""
    return 0.0, 1.0


def not_negative(_: Hierarchy) -> tuple[float, float]:
    """Return the limits of a distance."""
    return 0.0, math.inf
