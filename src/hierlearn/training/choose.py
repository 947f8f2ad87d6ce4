"""Choose: from facts about the training rows, and from what was asked for, to what is trained.

``choose`` is a pure function, and the only place that decides; nothing changes a Decision
afterwards. Numbers and images, also mixed tables whose columns become numbers, get a memory; texts
and sparse rows a linear model; where the head must give logits, a network with a loss that fits the
labels. What a recipe takes from the facts, its rule says; see recipes.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.networks.build import find_factory
from hierlearn.networks.ensemble import heads_of
from hierlearn.networks.heads import HEADS
from hierlearn.networks.network import AVERAGE, MAIN
from hierlearn.networks.sparse_linear import SPARSE_LINEAR
from hierlearn.networks.trees import ForestHead
from hierlearn.training.recipes import RECIPES, Recipe
from hierlearn.training.settings import OF_BATCHES, Plan, Settings, merge_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind
    from hierlearn.features.preprocessor import Produced
    from hierlearn.hierarchy.labels import Labels

WIDE = 20_000  # columns
KERNEL_ROWS = 60_000  # of a kernel machine, at most
MEMORY_ROWS = 200_000  # above, auto chooses no memory: a search takes milliseconds per row


@dataclass(frozen=True)
class Facts:
    """What a choice may depend on; held-out rows are never looked at.

    Attributes:
        rows: how many training rows there are.
        kind: what the network reads, once the preprocessing is done.
        columns: how many columns of each kind a mixed table has; empty for any other inputs.
        width: how many columns a table of any kind has; 0 where that is not known.
        several: how many rows have several labels.
        unlabeled: how many rows have none.
        partial: whether classes below a label are unknown, not absent.
        classes: of the taxonomy.
        depth: its levels.
        is_tree: whether every class has one parent at most.
        streamed: whether the rows stay in their file.
        logits: whether the head must give logits, so that training can go on with more rows.
        module: what a module of the user's is; empty where the network is chosen by name.
        device: the type of device that trains.
        batch_size: rows per step.
    """

    rows: int
    kind: Kind | Produced = "numbers"
    columns: Mapping[str, int] = field(default_factory=dict)
    width: int = 0
    several: int = 0
    unlabeled: int = 0
    partial: bool = False
    classes: int = 1
    depth: int = 1
    is_tree: bool = True
    streamed: bool = False
    logits: bool = False
    module: Literal["", "trees", "other"] = ""
    device: str = "cpu"
    batch_size: int = 128

    @classmethod
    def of(
        cls,
        labels: Labels,
        kind: Kind | Produced = "numbers",
        *,
        module: nn.Module | None = None,
        **more: Any,
    ) -> Self:
        """Return the facts about labeled rows.

        Args:
            labels: of the training rows.
            kind: what their inputs are, or become.
            module: a network that was passed in.
            more: the attributes that labels do not tell.
        """
        counts, hierarchy = labels.terminal_counts, labels.hierarchy
        is_a: Any = ""
        if module is not None:
            is_a = "trees" if heads_of(module, ForestHead) else "other"
        return cls(
            rows=len(labels),
            kind=kind,
            several=int(np.sum(counts > 1)),
            unlabeled=int(np.sum(counts == 0)),
            partial=labels.unlabeled_descendants == "ignore",
            classes=len(hierarchy),
            depth=hierarchy.depth,
            is_tree=hierarchy.is_tree,
            module=is_a,
            **more,
        )

    @property
    def is_table(self) -> bool:
        """Whether the inputs are a mixed table."""
        return bool(self.columns)

    @property
    def is_wide(self) -> bool:
        """Whether rows of numbers are so long that a network takes minutes and gigabytes."""
        return self.kind == "numbers" and self.width > WIDE

    @property
    def one_path(self) -> bool:
        """Whether every row has exactly one most specific label."""
        return not self.several and not self.unlabeled

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has."""
        return -(-self.rows // self.batch_size)


@dataclass(frozen=True)
class Decision:
    """What is trained.

    Attributes:
        name: the recipe's, "custom" where the plan names a loss and no recipe.
        why: why this one.
        recipe: with the plan's network, head, loss and link.
        decoder: a name of DECODERS.
        settings: see ``merge_settings``; ``settings.optimizer`` names the solver.
    """

    name: str
    why: str
    recipe: Recipe
    decoder: str
    settings: Settings


def choose(facts: Facts, plan: Plan | None = None) -> Decision:
    """Decide what to train.

    Args:
        facts: about the training rows.
        plan: what was asked for, which always wins; what cannot be done raises.
    """
    plan = plan or Plan()
    facts = replace(facts, batch_size=Settings.from_dict(plan.settings).batch_size)
    if plan.recipe != "auto":
        name, why = plan.recipe, "the recipe was named"
    elif plan.base is not None:
        name, why = "estimator", "a base was named"
    elif plan.loss is not None:
        name, why = "custom", "the loss was named"
    elif plan.head == SPARSE_LINEAR:
        name, why = "linear", "the head was named"
    elif plan.network == "embeddings":
        name = "nearest" if plan.head == "neighbors" else "linear"
        why = "inputs are embeddings"
    else:
        # Some choices only go with a head that gives logits.
        logits = facts.logits or bool(facts.module) or plan.link is not None
        logits |= plan.head == "linear"
        if facts.kind in ("numbers", "images"):
            logits |= plan.network not in (None, default_network(facts.kind))
        else:
            logits |= plan.network is not None or bool(plan.network_options)
        name, why = choose_recipe(facts, logits=logits)
    if name == "custom":
        recipe = Recipe(str(plan.loss), f"a network trained by {plan.loss}")
    elif name in RECIPES:
        recipe = RECIPES[name].fitted_to(facts)
        if recipe.head == SPARSE_LINEAR and plan.head is None and needs_gradients(facts, plan):
            recipe = replace(recipe, head="linear", head_options={})
    else:
        raise RECIPES.unknown(name, also=("auto",))
    recipe = with_choices(recipe, facts, plan)
    solver = choose_solver(recipe, facts, plan)
    settings = merge_settings(recipe.settings, plan.settings, {"optimizer": solver})
    return Decision(name, why, recipe, choose_decoder(facts, recipe, plan), settings)


def choose_recipe(facts: Facts, *, logits: bool = False) -> tuple[str, str]:
    """Return the name of the recipe for some rows, and why; ``logits`` leaves out memories."""
    rows, odd = facts.rows, facts.several or facts.unlabeled
    have = f"{odd:,} of {rows:,} training rows {'has' if odd == 1 else 'have'}"
    if facts.several:
        one_path, why = False, f"{have} several labels"
    elif facts.unlabeled and not facts.partial:
        one_path, why = False, f"{have} no label"
    else:
        labeled = "labeled " * bool(facts.unlabeled)
        one_path, why = True, f"every {labeled}training row has one path"
    dense = facts.kind in ("numbers", "images")
    if facts.is_wide and not logits:
        why = f"{why}, and {facts.width:,} columns are many for a network"
        return ("kernel" if one_path and rows <= KERNEL_ROWS else "trees"), why
    if dense and not logits:
        if rows <= MEMORY_ROWS:
            return "quick", f"inputs are {facts.kind}, and {why}"
        why = f"{why}, and {rows:,} rows are many for a memory"
    if one_path and facts.kind in ("images", "tokens"):
        # In few epochs the curriculum of HCL does not reach most classes; see docs/howto/images.md.
        return "softmax", f"inputs are {facts.kind}, and {why}"
    if dense or logits:
        return ("hcl" if one_path else "max"), why
    return "linear", f"{why}, and inputs are {'texts' if facts.kind == 'texts' else 'sparse'}"


def default_network(kind: str) -> str:
    """Return the network for a kind of inputs: numbers, images, texts, or sparse rows."""
    return {"numbers": "mlp", "images": "cnn"}.get(kind, "token-bag")


def with_choices(recipe: Recipe, facts: Facts, plan: Plan) -> Recipe:
    """Return a recipe with a plan's own choices; options go with what they are options of."""
    changes: dict[str, Any] = {}
    if plan.loss is not None:
        changes |= {"loss": plan.loss, "loss_options": plan.loss_options}
    usual = {"network": recipe.network or default_network(facts.kind), "head": recipe.head}
    for part, own in usual.items():
        asked, options = getattr(plan, part), f"{part}_options"
        given = getattr(plan, options)
        if asked not in (None, own):
            changes |= {part: asked, options: given}
        elif given:
            changes[options] = {**getattr(recipe, options), **given}
    if plan.base is not None:
        asked = {"base": plan.base, "strategy": plan.strategy}
        chosen = {name: value for name, value in asked.items() if value is not None}
        changes["network_options"] = {**recipe.network_options, **chosen, **plan.network_options}
    joint = {**recipe.joint, **plan.joint}
    changes["joint"] = {name: weight for name, weight in joint.items() if weight}
    for part in ("link", "decoder", "answer"):
        if getattr(plan, part) is not None:
            changes[part] = getattr(plan, part)
    recipe = replace(recipe, **changes)
    if facts.module and (recipe.joint or recipe.head != "linear"):
        raise HierlearnError(
            "a module of your own brings its own heads; give it a NeighborHead in a "
            "hierlearn.networks.Network, and name a loss instead of the recipe or the head"
        )
    if plan.link is not None and recipe.head != "linear":
        raise HierlearnError(f"link is for a linear head, and {recipe.head!r} has its own reading")
    known = [MAIN, AVERAGE, *recipe.joint]
    if recipe.answer not in known:
        raise HierlearnError(unknown_name("head that answers", recipe.answer, known))
    return recipe


def choose_decoder(facts: Facts, recipe: Recipe, plan: Plan) -> str:
    """Return the name of the decoder that fits the labels of the rows, and what answers are for."""
    if plan.decoder is not None:
        return plan.decoder
    one_path = not facts.several and (facts.partial or not facts.unlabeled)
    if one_path and plan.optimize in ("exact", "hier-f1"):
        return "hier-f1" if plan.optimize == "hier-f1" and facts.is_tree else "leaf"
    if recipe.decoder is not None:
        return recipe.decoder
    if facts.several:
        return "coherent"
    # A row without a label says that no class applies, which only a decoder that stops can answer.
    return "stop" if facts.unlabeled and not facts.partial else "leaf"


def choose_solver(recipe: Recipe, facts: Facts, plan: Plan) -> str:
    """Return the solver of a recipe: some networks and heads have theirs.

    Raises:
        HierlearnError: where another one was asked for, or a link where there are no logits.
    """
    asked = plan.settings.get("optimizer")
    name = recipe.network or default_network(facts.kind)
    of_network = getattr(find_factory(name), "solver", None)
    of_head = getattr(HEADS.get(recipe.head), "solver", None)
    own = facts.module if facts.module == "trees" else of_network or of_head
    if own is not None and facts.module in ("", "trees"):
        if asked not in (None, own):
            raise HierlearnError(f"{own} has no gradients for {asked}; use optimizer {own!r}")
        if plan.link is not None:
            raise HierlearnError(f"link reads logits, and the network {own} has none; leave it out")
        return str(own)
    if asked is None and any(one in plan.settings for one in OF_BATCHES):
        return "adamw"  # otherwise they would have no effect
    if asked == "linear":
        raise HierlearnError(
            f"linear solves the head {SPARSE_LINEAR!r} alone, and the head is {recipe.head!r}; use "
            f"optimizer adamw"
        )
    return str(asked or recipe.settings.get("optimizer", Settings.optimizer))


def needs_gradients(facts: Facts, plan: Plan) -> bool:
    """Whether a plan, or its rows, go only with a head that is trained in batches."""
    asked, network = plan.settings.get("optimizer"), plan.network
    batches = asked is None and any(one in plan.settings for one in OF_BATCHES)
    batches |= bool(plan.loss is not None or plan.link is not None or plan.joint)
    batches |= asked not in (None, "linear")
    batches |= facts.streamed or facts.logits or bool(facts.module)
    return batches or not (network is None or getattr(find_factory(network), "is_linear", False))
