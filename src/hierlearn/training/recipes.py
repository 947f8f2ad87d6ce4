"""Recipes: named combinations of loss, link, decoder and settings, and which one fits the data.

quick      a memory that answers by the labels of similar training rows, trained in seconds
neighbors  the same, wider and trained longer; see rules.py
nearest    a memory of embeddings as they are, in which nothing is trained
linear     a linear model of the classes below each parent: for texts and sparse rows
paper      the paper's HCL as printed: independent sigmoids, floor 0, the best of all classes
softmax    cross entropy over the terminal classes, summed upward: for images, and backbones
hcl        HCL on a coherent link: softmax over the terminal classes, ancestors, floor 0.3
max        half cross entropy, half MCLoss, read by the maximum over descendants
flat       cross entropy, read by the maximum over descendants: the baseline to beat

The systems of the literature are in ``hierlearn.lab.baselines``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.losses import LOSSES
from hierlearn.registry import Registry
from hierlearn.training.rules import (
    linear,
    nearest,
    neighbors,
    plain,
    quick,
    trees,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.losses import Loss
    from hierlearn.training.choose import Facts


@dataclass(frozen=True)
class Recipe:
    """A network, a loss, how logits are read, how a decision is made, and how to train.

    Attributes:
        loss: a name of LOSSES.
        loss_options: its options.
        preprocessing: a name of FEATURES; None for the step that fits the inputs.
        preprocessing_options: its options.
        network: a name of NETWORKS; None for the one that fits the inputs.
        network_options: its options.
        head: a name of HEADS.
        head_options: its options.
        joint: the losses of further heads, with weights.
        answer: the head that answers: "main", the loss of a further head, or "average".
        link: how to read the logits when predicting; None for the loss's own link, or the max
            link where that is not coherent.
        decoder: a name of DECODERS; None for the leaf of one path per row, the coherent set of
            many, and stopping where rows may have none.
        settings: changes to the default settings.
        description: one sentence.
        rule: what depends on the data: from the facts about the training rows to the attributes
            that it sets. It never sees a row that is held out.
    """

    loss: str
    description: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    preprocessing: str | None = None
    preprocessing_options: Mapping[str, Any] = field(default_factory=dict)
    network: str | None = None
    network_options: Mapping[str, Any] = field(default_factory=dict)
    head: str = "linear"
    head_options: Mapping[str, Any] = field(default_factory=dict)
    joint: Mapping[str, float] = field(default_factory=dict)
    answer: str = "main"
    link: str | None = None
    decoder: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    rule: Callable[[Facts], Mapping[str, Any]] | None = None

    def fitted_to(self, facts: Facts) -> Recipe:
        """Return the recipe for some training rows."""
        return self if self.rule is None else replace(self, **self.rule(facts), rule=None)


BUILT_IN: dict[str, Recipe] = {
    "neighbors": Recipe(
        "bce",
        "a memory of the training rows: answers by the labels of similar ones, with evidence",
        head="neighbors",
        rule=neighbors,
    ),
    "quick": Recipe(
        "bce",
        "a memory of the training rows, trained in seconds: for numbers",
        head="neighbors",
        rule=quick,
    ),
    "nearest": Recipe(
        "bce",
        "a memory of embeddings as they are: for vectors of a frozen backbone, nothing is trained",
        network="embeddings",
        head="neighbors",
        head_options={"size": None, "distance": "cosine", "learn_scale": True},
        rule=nearest,
    ),
    "linear": Recipe(
        "hinge",
        "a linear model of the classes below each parent or of all classes: for texts, sparse rows",
        network="linear",
        rule=linear,
    ),
    "paper": Recipe(
        "hcl-paper",
        "the paper's HCL as printed",
        link="sigmoid",
        decoder="argmax",
        settings={"prior_bias": False, "schedule": "constant"},
    ),
    "hcl": Recipe(
        "hcl",
        "HCL on a softmax over the terminal classes: for one path per row",
        loss_options={
            "link": "softmax",
            "scope": "ancestors",
            "floor": 0.3,
            "normalize": "mean",
        },
        rule=plain,
    ),
    "softmax": Recipe(
        "leaf-ce",
        "cross entropy over the terminal classes: for images and backbones with one path per row",
        rule=plain,
    ),
    "max": Recipe(
        "mixed",
        "half cross entropy, half MCLoss, read by the maximum over descendants: for many labels",
        link="max",
        rule=plain,
    ),
    "trees": Recipe(
        "bce",
        "extremely randomized trees whose leaves hold label sets: for numbers, in seconds",
        network="trees",
        rule=trees,
    ),
    "flat": Recipe(
        "bce",
        "cross entropy, read by the maximum over descendants: the baseline to beat",
        link="max",
        rule=plain,
    ),
}
RECIPES = Registry(
    "recipe",
    BUILT_IN,
    group="hierlearn.recipes",
    expected="a hierlearn.training.Recipe",
    read=lambda _, value: value if isinstance(value, Recipe) else None,
)


def build_loss(name: str, label_space: LabelSpace, **options: Any) -> Loss:
    """Make a loss of LOSSES; raise on an option that it does not take."""
    entry = LOSSES[name]
    asked = ", ".join(f"{option}={value!r}" for option, value in options.items())
    known = entry.option_names()
    for option in options:
        if option not in known:
            raise HierlearnError(unknown_name(f"option of {name}", option, known))
    try:
        return entry(label_space, **options)
    except TypeError as error:
        reason = f" ({error})" if str(error) else ""
        raise HierlearnError(
            f"loss {name} cannot be made with {asked or 'no options'}{reason}"
        ) from None
