"""Plan: what was asked for, as plain values; whatever it leaves open, ``choose`` decides."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (read at run time by settings_of)
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hierlearn.errors import HierlearnError, arg, unknown_name
from hierlearn.training.fields import check_fields, documented, setting
from hierlearn.training.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        "How much to try: quick trains one model, chosen by rule; best trains several, and blends "
        "them by how well they predict rows left out of training.",
        study=False,
    )
    time_limit: float | None = setting(
        None, "Seconds that effort best may take.", above=0, study=False
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
        "hf:PATH_OR_NAME for a text encoder of transformers, timm:NAME for an image encoder of "
        "timm.",
        registry="hierlearn.networks:NETWORKS",
        backbones=True,
    )
    network_options: Mapping[str, Any] = setting({}, "Options of the network, such as width=800.")
    encoder: Mapping[str, Any] = setting(
        {}, "Frozen backbones that encode columns, such as title=hf:PATH.", study=False
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
        "training rows that a second training leaves out, which takes as long as the first.",
        panel=HOW,
        study=False,
    )
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.time_limit is not None and self.effort != "best":
            raise HierlearnError(
                f"{arg('time_limit')} is for effort 'best'; set that, or leave it out"
            )
        if self.loss_options and self.loss is None:
            raise HierlearnError(f"{arg('loss_options')} needs a loss; name it with {arg('loss=')}")
        Settings.from_dict(self.settings)
        self._check_option_names()

    def _check_option_names(self) -> None:
        """Raise on an option that a loss, network or decoder named here does not take."""
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
        for value in self.encoder.values():
            from hierlearn.backbones import find_backbone, parse_encoder

            find_backbone(parse_encoder(value)["source"])
        check_joint(self.joint)
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


def check_joint(joint: Mapping[str, Any]) -> None:
    """Raise on a further head whose loss is not known, or whose weight is no weight."""
    if not joint:
        return
    from hierlearn.losses import LOSSES

    for name, weight in joint.items():
        if name not in LOSSES:
            raise LOSSES.unknown(name, "loss of a further head")
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not number or not 0 <= weight < float("inf"):
            raise HierlearnError(
                f"the weight of the further head {name!r} must be a number of at least 0, not "
                f"{weight!r}"
            )
