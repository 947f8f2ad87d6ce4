"""Settings: how to train, as plain values that a configuration file can hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

Schedule = Literal["cosine", "constant", "linear"]
Precision = Literal["float32", "bf16"]


@dataclass(frozen=True)
class Settings:
    """How to train a network.

    Attributes:
        epochs: passes over the training rows.
        batch_size: rows a step, over all processes together.
        learning_rate: of AdamW, at its peak.
        weight_decay: of AdamW.
        schedule: the learning rate falls to 0 as a "cosine" or "linear"ly, or stays "constant".
        warmup: share of all steps over which the learning rate rises from 0.
        max_grad_norm: the largest norm of the gradient of a model; None for no limit.
        precision: "float32", or "bf16" for matrix products in bfloat16.
        prior_bias: begin with the last bias at the class priors.
        seed: of the first model; model k has seed + k.
        ensemble_size: how many models are trained at once, stacked.
        metric: of METRICS, computed on the validation rows after an epoch.
        patience: stop after this many epochs without a better metric, and keep the best weights;
            None trains to the end and keeps the last.
        validate_every: epochs between two validations.
        checkpoint_every: steps between two checkpoints; None for one after each epoch.
        keep_checkpoints: how many checkpoints stay.
        device: "auto", or a device of torch.
    """

    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: Schedule = "cosine"
    warmup: float = 0.0
    max_grad_norm: float | None = None
    precision: Precision = "float32"
    prior_bias: bool = True
    seed: int = 0
    ensemble_size: int = 1
    metric: str = "au-prc"
    patience: int | None = None
    validate_every: int = 1
    checkpoint_every: int | None = None
    keep_checkpoints: int = 2
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "ensemble_size", "validate_every", "keep_checkpoints"):
            self._refuse(name, self._whole(name) < 1, "at least 1")
        for name in ("patience", "checkpoint_every"):
            if getattr(self, name) is not None:
                self._refuse(name, self._whole(name) < 1, "at least 1, or None")
        self._refuse("seed", self._whole("seed") < 0, "at least 0")
        self._refuse("learning_rate", not 0 < self.learning_rate < float("inf"), "above 0")
        self._refuse("weight_decay", not 0 <= self.weight_decay < float("inf"), "at least 0")
        self._refuse("warmup", not 0 <= self.warmup < 1, "in [0, 1)")
        if self.max_grad_norm is not None:
            self._refuse("max_grad_norm", not self.max_grad_norm > 0, "above 0, or None")
        if not isinstance(self.prior_bias, bool):
            raise HierlearnError(f"prior_bias must be true or false, not {self.prior_bias!r}")
        for name, choices in (("schedule", get_args(Schedule)), ("precision", get_args(Precision))):
            if getattr(self, name) not in choices:
                raise HierlearnError(unknown_name(name, str(getattr(self, name)), choices))
        from hierlearn.metrics import METRICS

        if self.metric not in METRICS:
            raise HierlearnError(unknown_name("metric", str(self.metric), METRICS))
        entry = METRICS[self.metric]
        if entry.by_level or entry.direction not in ("up", "down"):
            raise HierlearnError(
                f"metric {self.metric!r} is no single number to improve; use au-prc or hit@1"
            )

    def _whole(self, name: str) -> int:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise HierlearnError(f"{name} must be a whole number, not {value!r}")
        return value

    def _refuse(self, name: str, wrong: bool, rule: str) -> None:
        if wrong:
            raise HierlearnError(f"{name} must be {rule}, not {getattr(self, name)}")

    def check_validation(self, possible: bool) -> None:
        """Refuse early stopping where there are no validation rows."""
        if self.patience is not None and not possible:
            raise HierlearnError(
                "early stopping (patience) needs validation rows; name a split or a share for them"
            )

    def with_changes(self, **changes: Any) -> Self:
        """Return the settings with some of them changed."""
        check_names(changes)
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make settings of plain values; whole numbers are taken where floats are asked for."""
        check_names(values)
        hints = get_type_hints(cls)
        taken: dict[str, Any] = {
            name: float(value) if hints[name] is float and type(value) is int else value
            for name, value in values.items()
        }
        try:
            return cls(**taken)
        except TypeError:
            wrong = [f"{name}={value!r}" for name, value in taken.items()]
            raise HierlearnError(f"a setting is no number: {', '.join(wrong)}") from None


def check_names(values: Mapping[str, Any]) -> None:
    """Refuse a setting that does not exist."""
    known = [field.name for field in fields(Settings)]
    for name in values:
        if name not in known:
            raise HierlearnError(unknown_name("setting", name, known))


def learning_rate(settings: Settings, step: int, steps: int) -> float:
    """Return the learning rate of a step, counted from 0, out of all steps."""
    import math

    rising = int(settings.warmup * steps)
    if step < rising:
        return settings.learning_rate * (step + 1) / rising
    done = (step - rising) / max(steps - rising, 1)
    share = {"constant": 1.0, "linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done))}
    return settings.learning_rate * share[settings.schedule]
