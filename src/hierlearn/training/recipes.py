"""Recipes: named combinations of loss, link, decoder and settings, and which one fits the data.

quick      a memory that answers by the labels of similar training rows, trained in seconds
neighbors  the same, wider and trained longer; see rules.py
nearest    a memory of embeddings as they are, in which nothing is trained
linear     a linear model of the classes below each parent: for texts and sparse rows
paper      the paper's HCL as printed: independent sigmoids, floor 0, the best of all classes
softmax    cross entropy over the terminal classes, summed upward: for images, and backbones
hcl        HCL on a coherent link: softmax over the terminal classes, ancestors, floor 0.3
max        half cross entropy, half MCLoss, read by the maximum over descendants
awx        cross entropy on the link awx: units for the terminal classes only
hmcn-f     a layer per level with local and global outputs; hmcn-r: one cell for all levels
hmc-lmlp   a network per level, trained one after another
early-heads  a deeper network whose early layers learn coarse levels, too
teacher-student  cross entropy of one level per epoch, chosen by a bandit
verma      the memory of quick with a metric per class
clems      label sets as points whose distances are the cost of mistakes; the nearest answers
cnn-hl-li  a loss weighted by level; a random walk on the taxonomy smooths the probabilities
devise     the nearest of label vectors that the taxonomy, or a file, gives
tsle       encodings of rows and of label sets, matched and decoded
flat       cross entropy, read by the maximum over descendants: the baseline to beat
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.losses import LOSSES
from hierlearn.registry import Registry
from hierlearn.training.rules import (
    clems,
    cnn_hl_li,
    devise,
    early,
    hmcn_f,
    hmcn_r,
    levels,
    linear,
    nearest,
    neighbors,
    plain,
    quick,
    tabm,
    trees,
    verma,
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
    "awx": Recipe(
        "bce",
        "cross entropy on AWX: units for the terminal classes, a p-norm above (Masera 2018)",
        loss_options={"link": "awx"},
        rule=plain,
    ),
    "hmcn-f": Recipe(
        "hmcn",
        "HMCN-F: a layer per level, local and global outputs (Wehrmann 2018)",
        network="hmcn-f",
        rule=hmcn_f,
    ),
    "hmcn-r": Recipe(
        "hmcn",
        "HMCN-R: one recurrent cell for all levels, local and global outputs (Wehrmann 2018)",
        network="hmcn-r",
        rule=hmcn_r,
    ),
    "hmc-lmlp": Recipe(
        "bce",
        "HMC-LMLP: a network per level, trained one after another (Cerri 2014, 2016)",
        network="hmc-lmlp",
        link="min",
        rule=levels,
    ),
    "early-heads": Recipe(
        "mixed",
        "a deeper network whose early layers learn coarse levels, too (Alsallakh 2018)",
        network="early-heads",
        rule=early,
    ),
    "teacher-student": Recipe(
        "teacher",
        "cross entropy of one level per epoch, which a bandit chooses (Matiisen 2017)",
        link="max",
        rule=plain,
    ),
    "verma": Recipe(
        "bce",
        "a memory with a metric per class, averaged along paths (Verma 2012)",
        head="neighbors",
        rule=verma,
    ),
    "clems": Recipe(
        "clems",
        "CLEMS: label sets as points by the cost of mistakes, the nearest answers (Huang 2017)",
        head="clems",
        rule=clems,
    ),
    "cnn-hl-li": Recipe(
        "level-weighted",
        "CNN-HL-LI: a loss weighted by level, scores smoothed by a random walk (Wu 2016)",
        rule=cnn_hl_li,
    ),
    "devise": Recipe(
        "devise",
        "DeViSE: the nearest of label vectors from the taxonomy or a file (Frome 2013)",
        head="devise",
        rule=devise,
    ),
    "tsle": Recipe(
        "tsle",
        "TSLE: rows and label sets encoded in one space, by factorization machines (Chen 2019)",
        network="tsle",
        rule=plain,
    ),
    "trees": Recipe(
        "bce",
        "extremely randomized trees whose leaves hold label sets: for numbers, in seconds",
        network="trees",
        rule=trees,
    ),
    "tabm": Recipe(
        "mixed",
        "TabM: 16 members share an MLP, on piecewise-linear encoded numbers (Gorishniy 2025)",
        network="tabm",
        link="max",
        rule=tabm,
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
