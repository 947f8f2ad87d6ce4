"""Settings: how to train, as plain values that a configuration file can hold.

A field added here becomes an option of ``hierlearn train``, ``compare`` and ``noise``, a key of
``--config`` and a parameter of ``HierarchicalClassifier``, checked and documented.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hierlearn.errors import HierlearnError, arg
from hierlearn.training.fields import check_fields, check_names, documented, setting
from hierlearn.training.schedules import SCHEDULES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

Precision = Literal["float32", "bf16"]
Optimizer = Literal["adamw", "lbfgs", "none", "trees"]
# What only training in batches uses.
OF_BATCHES = (
    "epochs",
    "batch_size",
    "accumulate",
    "learning_rate",
    "weight_decay",
    "schedule",
    "warmup",
    "max_grad_norm",
    "precision",
    "patience",
)
RUN = "The run"  # the panel of --help for what does not change the model


def is_one_number(metric: Any) -> bool:
    """Whether a metric is a single number that can improve."""
    return not metric.by_level and metric.direction in ("up", "down")


@documented
@dataclass(frozen=True)
class Settings:
    """How to train a network."""

    optimizer: Optimizer = setting(
        "adamw",
        "How to train: adamw in batches, lbfgs a linear network on all rows at once, none fills a "
        "memory and trains nothing, trees grows those of the network trees.",
    )
    l2_penalty: float = setting(
        0.3, "Penalty of lbfgs on squared weights, beside the summed loss of the rows.", above=0
    )
    epochs: int = setting(100, "Passes over the training rows, at most.", at_least=1)
    batch_size: int = setting(128, "Rows per step, over all processes together.", at_least=1)
    accumulate: int = setting(
        1, "Parts that a batch is cut into, so that it fits into memory.", at_least=1
    )
    learning_rate: float = setting(1e-3, "Learning rate of AdamW, at its peak.", above=0)
    weight_decay: float = setting(0.0, "Weight decay of AdamW.", at_least=0)
    schedule: str = setting(
        "cosine",
        "How the learning rate falls to 0, if it does; cyclic and 1cycle rise, too.",
        registry="hierlearn.training.schedules:SCHEDULES",
    )
    warmup: float = setting(
        0.0, "Fraction of the steps over which the learning rate rises from 0.", at_least=0, below=1
    )
    max_grad_norm: float | None = setting(None, "Clip gradients to this norm.", above=0)
    precision: Precision = setting("float32", "Precision of matrix products.")
    prior_bias: bool = setting(True, "Initialize the last bias to the class priors.")
    head_init: str = setting(
        "random",
        "How the last weights start; patterns gives every label set a hidden unit of its own.",
        registry="hierlearn.training.initialize:INITIALIZERS",
    )
    seed: int = setting(
        0,
        "Seed of the first network; network k has seed + k.",
        at_least=0,
        study=False,
        estimator=False,
    )
    ensemble_size: int = setting(
        1,
        "Networks to train; their probabilities are averaged.",
        at_least=1,
        below=1_001,
        study=False,
    )
    metric: str = setting(
        "au-prc",
        "Metric of the validation rows, for early stopping.",
        registry="hierlearn.metrics:METRICS",
        only=is_one_number,
        excluded="not a single number to improve",
    )
    patience: int | None = setting(
        None,
        "Stop after this many epochs without improvement and keep the best weights.",
        at_least=1,
    )
    validate_every: int = setting(1, "Epochs between two validations.", at_least=1)
    checkpoint_every: int | None = setting(
        None,
        "Steps between two checkpoints; one per epoch if none.",
        at_least=1,
        panel=RUN,
        study=False,
        estimator=False,
    )
    keep_checkpoints: int = setting(
        2, "Checkpoints to keep.", at_least=1, panel=RUN, study=False, estimator=False
    )
    parallel: Literal["ddp", "fsdp"] = setting(
        "ddp",
        "Under torchrun: ddp copies the network into every process, fsdp shards its weights.",
        panel=RUN,
        study=False,
        estimator=False,
    )
    device: str = setting("auto", "Device of torch: auto, cpu, cuda.", panel=RUN)
    cuda_graphs: bool = setting(
        True, "On a GPU, replay steps as CUDA graphs where they can be captured.", panel=RUN
    )

    def __post_init__(self) -> None:
        if self.parallel == "classes":  # type: ignore[comparison-overlap]  # of earlier versions
            raise HierlearnError(
                "parallel classes is gone; a last layer of a million classes fits on one device "
                "with hierlearn.losses.LinearHCLLoss, and other losses train with parallel ddp"
            )
        check_fields(self)
        if self.optimizer == "lbfgs" and self.accumulate > 1:
            raise HierlearnError(
                f"accumulate {self.accumulate} cuts batches, and lbfgs has none; leave it out, or "
                f"use optimizer 'adamw'"
            )

    def check_validation(self, possible: bool) -> None:
        """Raise on early stopping where there are no validation rows."""
        if self.patience is not None and not possible:
            raise HierlearnError(
                f"{arg('patience')} needs validation rows; name a split 'valid' or set "
                f"{arg('valid_fraction')}"
            )

    def with_changes(self, **changes: Any) -> Self:
        """Return the settings with some of them changed."""
        check_names(type(self), changes)
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make settings from plain values."""
        check_names(cls, values)
        return cls(**values)


def merge_settings(*layers: Mapping[str, Any]) -> Settings:
    """Return the settings of several layers; the only place where they merge, and later ones win.

    The layers, from the weakest:

    1. the defaults of Settings;
    2. the recipe, and what its rule takes from the training rows;
    3. a backbone, for the way in which it is tuned;
    4. an ingredient of effort "best";
    5. a configuration file;
    6. options of the command line, or arguments in Python;
    7. the solver that ``choose`` finds for all of these.

    Layers 3 to 6 arrive merged, as ``Plan.settings``.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= layer
    return Settings.from_dict(merged)


def learning_rate(settings: Settings, step: int, steps: int) -> float:
    """Return the learning rate of a step, counted from 0, out of all steps."""
    rising = int(settings.warmup * steps)
    if step < rising:
        return settings.learning_rate * (step + 1) / rising
    schedule = SCHEDULES[settings.schedule]
    return settings.learning_rate * schedule(step - rising, max(steps - rising, 1))
