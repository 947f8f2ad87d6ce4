"""Settings and plans: how to train, and what, as plain values that a configuration file can hold.

A field added to Settings becomes an option of ``hierlearn train``, ``compare`` and ``noise``, a key
of ``--config`` and a parameter of ``HierarchicalClassifier``, checked and documented. Whatever a
Plan leaves open, ``choose`` decides.

A schedule gives the learning rate of every step as a fraction of its peak:

    constant   1
    linear     falls to 0 on a line
    cosine     falls to 0 along half a cosine
    cyclic     five triangles between a tenth and 1 (Smith 2017, "Cyclical learning rates")
    1cycle     rises from 1/25 over the first 30 %, then falls to 4e-6, both along half a cosine
               (Smith and Topin 2019, "Super-convergence"); the momentum stays as it is

``cyclic`` and ``1cycle`` are torch's ``CyclicLR`` (mode "triangular") and ``OneCycleLR`` with their
default fractions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hierlearn.errors import HierlearnError, arg, unknown_name
from hierlearn.training.fields import check_fields, check_names, documented, setting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import Self


# ---------------------------------------- schedules


CYCLES = 5  # triangles of ``cyclic``
LOWEST = 0.1  # of ``cyclic``
FIRST = 1 / 25  # of ``1cycle``
LAST = FIRST / 1e4
RISING = 0.3  # fraction of the steps in which ``1cycle`` rises


def constant(step: int, steps: int) -> float:
    """Return 1."""
    del step, steps
    return 1.0


def linear(step: int, steps: int) -> float:
    """Fall to 0 on a line."""
    return 1 - step / steps


def cosine(step: int, steps: int) -> float:
    """Fall to 0 along half a cosine."""
    return between(1.0, 0.0, step / steps)


def cyclic(step: int, steps: int) -> float:
    """Rise and fall in triangles."""
    half = max(1.0, steps / (2 * CYCLES))
    distance = abs(step / half % 2 - 1)  # from a peak, as a fraction of a half
    return LOWEST + (1 - LOWEST) * (1 - distance)


def one_cycle(step: int, steps: int) -> float:
    """Rise and fall once."""
    peak, last = RISING * steps - 1, steps - 1
    if step <= peak:
        return between(FIRST, 1.0, step / peak if peak > 0 else 1.0)
    return between(1.0, LAST, (step - peak) / (last - peak) if last > peak else 0.0)


def between(start: float, end: float, done: float) -> float:
    """Go from a start to an end along half a cosine, where a fraction is done."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * done))


SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
    "cyclic": cyclic,
    "1cycle": one_cycle,
}


# ---------------------------------------- settings


Precision = Literal["float32", "bf16"]
Optimizer = Literal["adamw", "linear", "none", "trees", "kernel", "estimator"]
INSTEAD_OF_BASE = ("loss", "network", "head", "answer", "link")  # choices that a base replaces
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


@documented
@dataclass(frozen=True)
class Settings:
    """How to train a network."""

    optimizer: Optimizer = setting(
        "adamw",
        "How to train: adamw in batches, linear a head of sparse weights on all rows at once, none "
        "fills a memory and trains nothing, trees, kernel and estimator are those of networks.",
    )
    l2_penalty: float = setting(
        0.5,
        "Penalty of linear on squared weights, times the mean squared length of the rows.",
        above=0,
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
        registry="hierlearn.training.settings:SCHEDULES",
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
        registry="hierlearn.training.prepare:INITIALIZERS",
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
        only=lambda metric: not metric.by_level and metric.direction in ("up", "down"),
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
        "Steps between two checkpoints; one per epoch if none, and for streamed rows.",
        at_least=1,
        panel=RUN,
        study=False,
        estimator=False,
    )
    keep_checkpoints: int = setting(
        2, "Checkpoints to keep.", at_least=1, panel=RUN, study=False, estimator=False
    )
    device: str = setting("auto", "Device of torch: auto, cpu, cuda.", panel=RUN)
    cuda_graphs: bool = setting(
        True, "On a GPU, replay steps as CUDA graphs where they can be captured.", panel=RUN
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.optimizer == "linear" and self.accumulate > 1:
            raise HierlearnError(
                f"accumulate {self.accumulate} cuts batches, and linear has none; leave it out, or "
                f"use optimizer 'adamw'"
            )

    def check_validation(self, possible: bool) -> None:
        """Raise on early stopping where there are no validation rows."""
        if self.patience is not None and not possible:
            raise HierlearnError(
                f"{arg('patience')} needs validation rows; name a split 'valid' or set "
                f"{arg('valid_fraction')}"
            )

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


# ---------------------------------------- what was asked for


HOW = "How to train"  # a panel of --help


@documented
@dataclass(frozen=True)
class Plan:
    """What to train; whatever is None comes from the recipe.

    ``settings`` holds changes to the recipe's settings, see Settings.
    """

    recipe: str = setting(
        "auto",
        "Recipe to follow; auto chooses by labels and inputs.",
        registry="hierlearn.training.recipes:RECIPES",
        also=("auto",),
        study=False,
    )
    effort: Literal["quick", "best"] = setting(
        "quick",
        "How much to try: quick races a few models in seconds, unless options say what to train, "
        "and keeps or blends what predicts rows left out of training; best does the same with a "
        "dozen recipes and several networks each, in minutes.",
        study=False,
    )
    optimize: Literal["balance", "exact", "hier-f1", "au-prc"] = setting(
        "balance",
        "What answers are for: exact ones, hierarchical F1, or a balance of both; au-prc weighs "
        "the models of a race by their ranking of all classes.",
        study=False,
    )
    time_limit: float | None = setting(
        None, "Seconds that effort best may take.", above=0, study=False
    )
    base: str | None = setting(
        None,
        "A scikit-learn classifier to train instead of a network, such as svc, forest or lightgbm; "
        "its arguments are network options.",
        study=False,
    )
    strategy: Literal["flat", "per-parent", "per-level", "per-class"] | None = setting(
        None,
        "How the taxonomy is divided among copies of the base; by default flat, per-class for "
        "rows with several labels.",
        study=False,
    )
    loss: str | None = setting(
        None, "Loss instead of the recipe's.", registry="hierlearn.losses:LOSSES", study=False
    )
    loss_options: Mapping[str, Any] = setting(
        {}, "Options of the loss, such as floor=0.3.", study=False
    )
    network: str | None = setting(
        None,
        "Network; mlp by default, token-bag for texts and sparse rows, cnn for images; "
        "minilm, wordllama or efficientnet for an encoder inside a package; hf:PATH_OR_NAME for a "
        "text encoder of transformers, timm:NAME for an image encoder of timm.",
        registry="hierlearn.networks:NETWORKS",
        backbones=True,
    )
    network_options: Mapping[str, Any] = setting({}, "Options of the network, such as width=800.")
    encoder: Mapping[str, Any] | str = setting(
        {},
        "Frozen backbone of the only input or of all columns of texts, such as minilm; or one per "
        "column, such as title=hf:PATH.",
        study=False,
    )
    head: str | None = setting(
        None,
        "Head: linear gives logits, neighbors looks answers up among the training rows, clems "
        "answers the nearest label set, devise compares with label vectors.",
        registry="hierlearn.networks:HEADS",
        study=False,
    )
    head_options: Mapping[str, Any] = setting(
        {},
        "Options of the head, such as scale=4 or candidates=1024.",
        study=False,
    )
    joint: Mapping[str, Any] = setting(
        {},
        "Losses of further heads that train the same encoder, with weights: soft-labels=3; 0 "
        "leaves out one of the recipe's.",
        study=False,
    )
    answer: str | None = setting(
        None, "The head that answers: main, the loss of a further head, or average.", study=False
    )
    link: str | None = setting(
        None,
        "How to read the logits when predicting; from-loss is the link of the loss.",
        registry="hierlearn.links:LINKS",
        also=("from-loss",),
        study=False,
    )
    decoder: str | None = setting(
        None, "How a decision is made.", registry="hierlearn.decoding:DECODERS", study=False
    )
    decoder_options: Mapping[str, Any] = setting(
        {}, "Options of the decoder, such as threshold=0.5.", study=False
    )
    unlabeled_descendants: Literal["negative", "ignore"] = setting(
        "negative", "What a label says about the classes below it.", study=False
    )
    preprocessing: str | None = setting(
        None,
        "What the inputs go through first; by default what fits them.",
        registry="hierlearn.features:FEATURES",
    )
    preprocessing_options: Mapping[str, Any] = setting(
        {}, "Options of the preprocessing, such as ngrams=2."
    )
    standardize: bool = setting(
        True,
        "Scale numbers to mean 0 and deviation 1; texts and sparse rows are not scaled.",
        study=False,
    )
    valid_fraction: float = setting(
        0.0,
        "Fraction of the training rows for validation, where no split is named valid.",
        at_least=0,
        below=1,
        panel=HOW,
        study=False,  # a study has its own default
    )
    calibration: bool = setting(
        True,
        "Make probabilities as sure as they should be: by validation rows, or by a tenth of the "
        "training rows that a second training leaves out, which takes as long as the first; fifths "
        "of few rows, in up to five trainings.",
        panel=HOW,
        study=False,
    )
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.encoder, str):
            object.__setattr__(self, "encoder", {"": self.encoder})  # of no column
        check_fields(self)
        if self.time_limit is not None and self.effort != "best":
            raise HierlearnError(
                f"{arg('time_limit')} is for effort 'best'; set that, or leave it out"
            )
        if self.loss_options and self.loss is None:
            raise HierlearnError(f"{arg('loss_options')} needs a loss; name it with {arg('loss=')}")
        if self.strategy is not None and self.base is None:
            raise HierlearnError(f"{arg('strategy')} is for a base; name it with {arg('base=')}")
        if self.base is not None:
            own: dict[str, tuple[Any, ...]] = dict.fromkeys(INSTEAD_OF_BASE, (None,))
            own |= {"recipe": ("auto", "estimator"), "effort": ("quick",)}
            for name, usual in own.items():
                if getattr(self, name) not in usual:
                    raise HierlearnError(
                        f"{arg('base')} is trained instead of a network; leave {arg(name)} out"
                    )
        Settings.from_dict(self.settings)
        # Options that a loss, network, head or decoder named here does not take.
        if self.loss is not None and self.loss_options:
            from hierlearn.losses import LOSSES

            known = LOSSES[self.loss].option_names()
            check_known(f"option of {self.loss}", self.loss_options, known)
        if self.network is not None and self.network_options:
            from hierlearn.networks.build import option_names

            taken = option_names(self.network)
            check_known(f"option of network {self.network}", self.network_options, taken)
        if self.head is not None and self.head_options:
            from hierlearn.networks.heads import head_options

            check_known(f"option of head {self.head}", self.head_options, head_options(self.head))
        if self.encoder:
            from hierlearn.backbones import encoders_of, find_backbone, parse_encoder

            for value in encoders_of(self.encoder).values():
                find_backbone(parse_encoder(value)["source"])
        if self.joint:
            from hierlearn.losses import LOSSES

            for name, weight in self.joint.items():
                if name not in LOSSES:
                    raise LOSSES.unknown(name, "loss of a further head")
                number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
                if not number or not 0 <= weight < float("inf"):
                    raise HierlearnError(
                        f"the weight of the further head {name!r} must be a number of at least 0, "
                        f"not {weight!r}"
                    )
        if self.decoder is not None:
            from hierlearn.decoding import check_options

            check_options(self.decoder, self.decoder_options)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self)


def check_known(what: str, options: Mapping[str, Any], known: Sequence[str] | None) -> None:
    """Raise on an option that is not known; None knows any."""
    for name in options:
        if known is not None and name not in known:
            raise HierlearnError(unknown_name(what, name, known))
