"""Recipes: named combinations of loss, link, decoder and settings, and which one fits the data.

quick      a memory that answers by the labels of similar training rows, trained in seconds
neighbors  the same, wider and trained longer; see rules.py
nearest    a memory of embeddings as they are, in which nothing is trained
linear     a linear model of the classes below each parent: for texts and sparse rows
paper      the paper's HCL as printed: independent sigmoids, floor 0, the best of all classes
softmax    cross entropy over the terminal classes, summed upward: for images, and backbones
hcl        HCL on a coherent link: softmax over the terminal classes, ancestors, floor 0.3
max        half cross entropy, half MCLoss, read by the maximum over descendants
kernel     a kernel machine: similarity to training rows, solved by least squares
estimator  any scikit-learn classifier, flat or divided along the taxonomy
flat       cross entropy, read by the maximum over descendants: the baseline to beat

The systems of the literature are in ``hierlearn.lab.baselines``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.losses import LOSSES
from hierlearn.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.losses import Loss
    from hierlearn.training.choose import Facts


STEPS = 1600  # fewest for rows with one path, unless that takes more than MOST_EPOCHS
MOST_EPOCHS = 200
MORE_STEPS = 3200  # where that takes no more than EPOCHS
EPOCHS = 40
FEWEST_EPOCHS = 4  # however many rows there are
PLAIN_STEPS = 8000  # of a network with logits, unless that takes more than PLAIN_EPOCHS
PLAIN_EPOCHS = 100
SEVERAL_EPOCHS = 20  # of the same, and of levels, for numbers with several labels per row,
SEVERAL_STEPS = 300  # unless these are fewer steps
LINEAR_EPOCHS = 10
LINEAR_STEPS = 240  # fewest of a linear model
QUICK_STEPS = 200  # of a memory that is trained in seconds, for rows with one path
QUICK_BATCH = 512  # rows that are compared with each other in a step; twice as many
QUICK_MANY = 4000  # of so many rows
MANY = 10_000  # texts, from which on rare n-grams get no column
PENALTY = 0.5  # of a linear model: 1 / C of scikit-learn for rows of length 1, as texts are
SEVERAL_PENALTY = 2.0  # where rows have several labels, which are noisy
QUICK_IMAGES = 800  # steps of a memory of images
LONG_IMAGES = 1600
IMAGE_EPOCHS = 60  # at most, of the fewer steps
SHORT_EPOCHS = 6  # for rows with several labels
SHORT_STEPS = 60  # fewest for these
TREES = 200
TREE_LEAVES = 2_000_000  # of all trees of a forest, about


def neighbors(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of a memory.

    One path per row: joint heads make the embedding better, and training is long. Several labels,
    or none, per row: labels are noisy, so training is short, and numbers are encoded by quantiles.
    Texts become a few hundred numbers first.
    """
    if facts.kind == "images":
        return images(facts)
    several = not facts.one_path
    numbers = facts.kind != "sparse"
    latent = "latent" if facts.kind == "texts" else None
    steps = facts.steps_per_epoch
    if several:
        return {
            "preprocessing": "piecewise-linear" if facts.kind == "numbers" else latent,
            "network_options": {"dropout": 0.4, "input_dropout": 0.1} if numbers else {},
            "head_options": {"distance": "squared", "scale": 8.0, "candidates": 2048},
            "settings": {"epochs": max(SHORT_EPOCHS, -(-SHORT_STEPS // steps))},
        }
    epochs = max(
        min(round(STEPS / steps), MOST_EPOCHS),
        min(round(MORE_STEPS / steps), EPOCHS),
        FEWEST_EPOCHS,
    )
    wide = {"width": 2000, "dropout": 0.5, "input_dropout": 0.1}
    joint = {"bce": 1.0, "soft-labels": 3.0} if facts.is_tree else {"bce": 1.0}
    return {
        "preprocessing": latent,
        "network_options": wide if numbers else {},
        "head_options": {
            "distance": "euclidean",
            "scale": 1.0,
            "candidates": min(3000, max(128, facts.rows // 2)),
        },
        "joint": joint,
        "settings": {"epochs": epochs},
    }


def quick(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of a memory that is trained in seconds.

    One path per row: as ``neighbors``, but narrower, without further heads, and the rows of large
    batches are compared with each other, which encodes every row once and needs fewer steps at a
    higher rate. Several labels: training is short anyway.
    """
    if facts.kind == "images":
        return quick_images(facts)
    found = dict(neighbors(facts))
    if not facts.one_path:
        return found
    size = QUICK_BATCH * (1 + (facts.rows >= QUICK_MANY))
    batches = max(round(facts.rows / size), 1)  # of equal size: few rows are not compared alone
    size, epochs = -(-facts.rows // batches), max(round(QUICK_STEPS / batches), FEWEST_EPOCHS)
    options = {"width": 512, "dropout": 0.25, "input_dropout": 0.1}
    return {
        **found,
        "network_options": options if facts.kind != "sparse" else {},
        "head_options": {**found["head_options"], "candidates": 0, "size": 128},
        "joint": {},
        "settings": {"epochs": epochs, "learning_rate": 8e-3, "batch_size": size},
    }


def nearest(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of a memory of vectors as they are, in which nothing is trained."""
    return {
        "preprocessing": "latent" if facts.kind == "texts" else None,
        "settings": {"optimizer": "none", "epochs": 1},
    }


def images(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of a memory of images: a small CNN, trained on changed images.

    One path per row: a softmax trains the same CNN, and training is long; it helps from about a
    thousand steps on.
    """
    one_path = facts.one_path
    return {
        **quick_images(facts),
        "joint": {"leaf-ce": 1.0} if one_path else {},
        "settings": image_settings(facts, LONG_IMAGES),
    }


def quick_images(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of a memory of images that is trained in half the steps."""
    return {
        "network_options": {"augment": "light"},
        "head_options": {
            "distance": "euclidean",
            "scale": 1.0,
            "candidates": min(256, max(128, facts.rows // 2)),
        },
        "settings": image_settings(facts, QUICK_IMAGES),
    }


def image_settings(facts: Facts, steps: int) -> Mapping[str, Any]:
    """Return the epochs that take some steps, within bounds, and the learning rate."""
    epochs = min(round(steps / facts.steps_per_epoch), IMAGE_EPOCHS * steps // QUICK_IMAGES)
    return {"epochs": max(epochs, FEWEST_EPOCHS), "learning_rate": 3e-3}


def plain(facts: Facts, several_steps: int = SEVERAL_STEPS) -> Mapping[str, Any]:
    """Return the settings of a network with logits: the more rows, the fewer epochs.

    Several labels, or none, per row of numbers: such labels are noisy, so training is short.
    """
    epochs = min(round(PLAIN_STEPS / facts.steps_per_epoch), PLAIN_EPOCHS)
    if facts.kind == "numbers" and not facts.one_path:
        epochs = min(epochs, max(SEVERAL_EPOCHS, round(several_steps / facts.steps_per_epoch)))
    return {"settings": {"epochs": max(epochs, FEWEST_EPOCHS)}}


def linear(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of linear SVMs, solved on all rows at once; see SparseLinearHead.

    One path per row: on trees one per child of every parent, and the answer is right at as many
    levels as can be expected; on DAGs one per terminal class. Several labels, or none, per row: one
    per class. The loss, rates and epochs are for rows that come in batches, such as streams:
    convex, so a high rate and few epochs do.
    """
    epochs = max(LINEAR_EPOCHS, -(-LINEAR_STEPS // facts.steps_per_epoch))
    penalty = PENALTY if facts.one_path else SEVERAL_PENALTY
    settings = {"l2_penalty": penalty, "learning_rate": 0.1, "epochs": epochs}
    found: dict[str, Any] = {}
    found["preprocessing_options"] = ngrams(facts)
    if not facts.one_path:
        words = "a linear SVM per class"
        return {**found, "loss": "bce", "description": words, "settings": settings}
    if not facts.is_tree:
        words = "a linear SVM per terminal class"
        return {**found, "loss": "leaf-ce", "description": words, "settings": settings}
    words = "linear SVMs below each parent"
    found |= {"loss": "hinge", "decoder": "balanced"}
    return {**found, "description": words, "settings": settings}


def trees(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of a forest: several labels per row are noisy, so leaves are larger."""
    several = not facts.one_path
    least = max(4 if several else 1, facts.rows * TREES // TREE_LEAVES)
    features = "sqrt" if facts.is_wide else 1.0 if several else 0.5
    options = {"trees": TREES, "min_samples_leaf": least, "max_features": features}
    return {
        "preprocessing": "latent" if facts.kind == "texts" else None,
        "network_options": options,
        "settings": {"optimizer": "trees", "epochs": 1},
    }


def ngrams(facts: Facts) -> dict[str, Any]:
    """Return the n-grams of texts that a linear model reads: words, pairs, and characters."""
    if facts.kind != "texts" and not facts.columns.get("text"):
        return {}
    rare = {"min_df": 1 + (facts.rows >= MANY), "char_min_df": max(2, facts.rows // MANY)}
    return {"ngrams": 2, "char_ngrams": 5, "strip_accents": False, **rare}


def estimator(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of a scikit-learn estimator: flat where a row has one path."""
    return {
        "preprocessing_options": ngrams(facts),
        "network_options": {"strategy": "flat" if facts.one_path else "per-class"},
        "settings": {"optimizer": "estimator", "epochs": 1},
    }


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
        "linear SVMs of the classes below each parent or of all classes: for texts, sparse rows",
        network="linear",
        head="sparse-linear",
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
    "kernel": Recipe(
        "leaf-ce",
        "a kernel machine, by similarity to training rows: for numbers with one path per row",
        network="kernel",
        settings={"optimizer": "kernel", "epochs": 1},
    ),
    "estimator": Recipe(
        "bce",
        "a scikit-learn classifier, flat or divided along the taxonomy",
        network="estimator",
        rule=estimator,
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
