"""Protocol: how a study trains and evaluates its candidates.

Losses train under one schedule, early stopping on validation rows. A recipe is a way to train as
well: it keeps its own schedule and trains on all training rows, as ``hierlearn train`` does, unless
the settings of the protocol say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (read at run time by settings_of)
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hierlearn.training.fields import check_fields, documented, setting
from hierlearn.training.settings import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from hierlearn.lab.candidates import Candidate

TABLE = (
    *("exact", "severity", "hit@1", "mrr", "hier-dist", "lca-height", "terminal-accuracy"),
    *("mean-level", "au-prc"),
)
KINDS = ("labels", "hierarchy")  # of noise
# How losses train, unless the settings say otherwise.
TEST_SHARE = 0.2  # of the rows, where none are set apart for testing
EARLY = {"epochs": 100, "patience": 10, "metric": "au-prc"}
VALID_FRACTION = 0.15


@documented
@dataclass(frozen=True)
class Protocol:
    """How every candidate of a study is trained and evaluated.

    ``metrics`` are the names of METRICS in the table. ``settings`` holds changes to how everything
    trains, and ``by_candidate`` changes for single candidates by key: settings, and
    ``loss_options``. ``network`` is the ``name`` and the ``options`` of the network,
    ``preprocessing`` those of the preprocessing.
    """

    seeds: int = setting(10, "Runs of each candidate.", at_least=1)
    seed: int = setting(0, "First seed.", at_least=0)
    valid_fraction: float | None = setting(
        None,
        "Fraction of the training rows to stop early on, where no split is named valid; if none, "
        f"{VALID_FRACTION} for losses and none for recipes, which train as train does.",
        at_least=0,
        below=1,
    )
    metrics: tuple[str, ...] = TABLE
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_candidate: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)
    preprocessing: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        from hierlearn.metrics.measure import check_metrics

        check_metrics(self.metrics)

    @property
    def training(self) -> dict[str, Any]:
        """The settings that losses are trained with."""
        return {**EARLY, **self.settings, "seed": self.seed, "ensemble_size": self.seeds}

    def training_of(self, candidate: Candidate) -> dict[str, Any]:
        """Return the settings that a candidate is trained with; a recipe keeps its own."""
        if candidate.recipe is None:
            return self.training
        size = 1 if candidate.is_pipeline else self.seeds
        return {**self.settings, "seed": self.seed, "ensemble_size": size}

    def valid_fraction_of(self, candidate: Candidate, settings: Mapping[str, Any]) -> float:
        """Return the fraction of the training rows that a candidate is validated on."""
        if self.valid_fraction is not None:
            return self.valid_fraction
        return VALID_FRACTION if candidate.recipe is None or settings.get("patience") else 0.0

    def plan(self, candidate: Candidate, changes: Mapping[str, Any] | None = None) -> Plan:
        """Return how a candidate is trained.

        Args:
            candidate: which.
            changes: further changes to its settings, and ``loss_options``.
        """
        parts = [self.by_candidate.get(candidate.key, {}), changes or {}]
        options = {name: v for part in parts for name, v in part.get("loss_options", {}).items()}
        changed = {name: v for part in parts for name, v in part.items() if name != "loss_options"}
        settings = {**self.training_of(candidate), **candidate.settings, **changed}
        return Plan(
            **candidate.plan(options),
            network=self.network.get("name"),
            network_options=self.network.get("options", {}),
            preprocessing=self.preprocessing.get("name"),
            preprocessing_options=self.preprocessing.get("options", {}),
            valid_fraction=self.valid_fraction_of(candidate, settings),
            settings=settings,
        )

    def check(self, candidates: Sequence[Candidate]) -> None:
        """Raise on names and settings that no candidate can be trained with, before any data."""
        for candidate in candidates:
            self.plan(candidate)

    def with_changes(self, **changes: Any) -> Self:
        """Return the protocol with some of its fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Noise:
    """Which noise a study adds.

    Attributes:
        kinds: names of KINDS.
        rates: fractions of the labels, or of the edges, that are wrong.
        seed: decides which ones in the first draw; draw k has seed + k.
        draws: independent repetitions, each with noise and training seeds of its own.
    """

    kinds: Sequence[str] = KINDS
    rates: Sequence[float] = (0.0, 0.1, 0.2, 0.4)
    seed: int = 0
    draws: int = 3
