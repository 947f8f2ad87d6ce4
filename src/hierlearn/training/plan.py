"""Plan: what to train, as plain values, and what is decided once the labels are known."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from hierlearn.decoding import DECODERS
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.networks.build import find_factory
from hierlearn.training.recipes import Recipe, choose_recipe, find_recipe
from hierlearn.training.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.hierarchy.labels import Labels


@dataclass(frozen=True)
class Plan:
    """What to train; whatever is None comes from the recipe.

    Attributes:
        recipe: a name of RECIPES, or "auto" to choose by the labels.
        loss: a name of LOSSES.
        loss_options: its options.
        network: a name of NETWORKS; by default "mlp", "token-bag" for texts.
        network_options: its options.
        link: how to read the logits when predicting, a name of LINKS, or "own": the loss's own.
        decoder: a name of DECODERS.
        decoder_options: its options.
        unlabeled_descendants: what is said of the classes below a row's labels; see Labels.
        standardize: bring every number to mean 0 and deviation 1; texts and sparse rows stay.
        valid_fraction: of the training rows, for validation where there is no split "valid".
        settings: changes to the recipe's settings; see Settings.
    """

    recipe: str = "auto"
    loss: str | None = None
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    network: str | None = None
    network_options: Mapping[str, Any] = field(default_factory=dict)
    link: str | None = None
    decoder: str | None = None
    decoder_options: Mapping[str, Any] = field(default_factory=dict)
    unlabeled_descendants: Literal["negative", "ignore"] = "negative"
    standardize: bool = True
    valid_fraction: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.valid_fraction < 1:
            raise HierlearnError(f"valid_fraction must lie in [0, 1), not {self.valid_fraction}")
        if self.network is not None:
            find_factory(self.network)
        if self.decoder is not None and self.decoder not in DECODERS:
            raise HierlearnError(unknown_name("decoder", self.decoder, DECODERS))
        if self.loss_options and self.loss is None:
            raise HierlearnError("loss options go with a loss; name it")
        if self.recipe != "auto":
            find_recipe(self.recipe)
        Settings.from_dict(self.settings)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Decision:
    """The recipe of a plan, with the plan's own choices in it.

    Attributes:
        name: the recipe's, "own" where the plan names a loss and no recipe.
        why: why this one.
        recipe: with the plan's loss, link and decoder.
        settings: the recipe's, with the plan's changes.
    """

    name: str
    why: str
    recipe: Recipe
    settings: Settings


def decide(plan: Plan, labels: Labels) -> Decision:
    """Choose the recipe by the plan, or by the training labels, and put the plan's choices in."""
    if plan.loss is not None and plan.recipe == "auto":
        name, why, recipe = "own", "the loss was named", Recipe(plan.loss, "a loss by name")
    else:
        name, why = (
            choose_recipe(labels) if plan.recipe == "auto" else (plan.recipe, "it was named")
        )
        recipe = find_recipe(name)
    if plan.loss is not None:
        recipe = replace(recipe, loss=plan.loss, loss_options=plan.loss_options)
    if plan.network is not None:
        recipe = replace(recipe, network=plan.network, network_options=plan.network_options)
    elif plan.network_options:
        options = {**recipe.network_options, **plan.network_options}
        recipe = replace(recipe, network_options=options)
    for choice in ("link", "decoder"):
        if getattr(plan, choice) is not None:
            recipe = replace(recipe, **{choice: getattr(plan, choice)})
    settings = Settings.from_dict({**recipe.settings, **plan.settings})
    return Decision(name, why, recipe, settings)
