"""Plan: what to train, as plain values; Decision: its recipe once the labels are known."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (read at run time by settings_of)
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.training.fields import check_fields, documented, setting
from hierlearn.training.settings import OF_BATCHES, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.datasets.dataset import Kind
    from hierlearn.features.preprocessor import Produced
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.training.recipes import Recipe

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
            raise HierlearnError("time_limit is for effort 'best'; set that, or leave it out")
        if self.loss_options and self.loss is None:
            raise HierlearnError("loss_options needs a loss; name it with loss=")
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


def default_network(kind: str) -> str:
    """Return the network for a kind of inputs: numbers, images, texts, or sparse rows."""
    return {"numbers": "mlp", "images": "cnn"}.get(kind, "token-bag")


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


def needs_logits(plan: Plan, kind: str) -> bool:
    """Whether a plan makes choices that only go with a head that gives logits."""
    if plan.link is not None or plan.head == "linear":
        return True
    if kind in ("numbers", "images"):
        return plan.network not in (None, default_network(kind))
    return plan.network is not None or bool(plan.network_options)


@dataclass(frozen=True)
class Decision:
    """The recipe of a plan, with the plan's own choices in it.

    Attributes:
        name: the recipe's, "custom" where the plan names a loss and no recipe.
        why: why this one.
        recipe: with the plan's loss, link and decoder.
        settings: the recipe's, with the plan's changes.
    """

    name: str
    why: str
    recipe: Recipe
    settings: Settings


def decide(
    plan: Plan, labels: Labels, kind: Kind | Produced = "numbers", *, logits: bool = False
) -> Decision:
    """Return the recipe of the plan, or of the training labels, with the plan's own choices.

    Args:
        plan: what was asked for.
        labels: of the training rows.
        kind: what their inputs are.
        logits: whether the head must give logits, where the plan itself does not tell.
    """
    from hierlearn.networks.heads import options_from_labels
    from hierlearn.training.recipes import Recipe, choose_recipe, find_recipe
    from hierlearn.training.rules import Facts

    if plan.loss is not None and plan.recipe == "auto":
        name, why = "custom", "the loss was named"
        recipe = Recipe(plan.loss, f"a network trained by {plan.loss}")
    else:
        name, why = plan.recipe, "the recipe was named"
        if plan.recipe == "auto" and plan.network == "embeddings":
            name = "nearest" if plan.head == "neighbors" else "linear"
            why = "inputs are embeddings"
        elif plan.recipe == "auto":
            logits = logits or needs_logits(plan, kind)
            name, why = choose_recipe(labels, kind, logits=logits)
        batch_size = Settings.from_dict(plan.settings).batch_size
        recipe = find_recipe(name).fitted_to(Facts(labels, kind, batch_size))
    if plan.loss is not None:
        recipe = replace(recipe, loss=plan.loss, loss_options=plan.loss_options)
    if plan.network not in (None, recipe.network or default_network(kind)):
        recipe = replace(recipe, network=plan.network, network_options=plan.network_options)
    elif plan.network_options:
        options = {**recipe.network_options, **plan.network_options}
        recipe = replace(recipe, network_options=options)
    if plan.head not in (None, recipe.head):
        recipe = replace(recipe, head=plan.head, head_options=plan.head_options)
    elif plan.head_options:
        recipe = replace(recipe, head_options={**recipe.head_options, **plan.head_options})
    determined = options_from_labels(recipe.head, recipe.head_options, labels)
    recipe = replace(recipe, head_options=determined)
    joint = {name: weight for name, weight in {**recipe.joint, **plan.joint}.items() if weight}
    recipe = replace(recipe, joint=joint)
    for choice in ("link", "decoder", "answer"):
        if getattr(plan, choice) is not None:
            recipe = replace(recipe, **{choice: getattr(plan, choice)})
    chosen = {**recipe.settings, **plan.settings}
    if "optimizer" not in plan.settings and any(one in plan.settings for one in OF_BATCHES):
        chosen["optimizer"] = "adamw"  # otherwise they would have no effect
    return Decision(name, why, recipe, Settings.from_dict(chosen))
