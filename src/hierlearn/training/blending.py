"""Blending: which recipes a blend may be made of, by what the training rows are.

Each is a recipe with changes. A training with several heads gives several answers, each of which
may get a weight of its own; what is of no use gets none, so a blend can only be offered more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.networks.ensemble import head_names
from hierlearn.networks.network import AVERAGE, MAIN
from hierlearn.training.folds import FEW_ROWS
from hierlearn.training.recipes import neighbors
from hierlearn.training.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.training.choose import Facts
    from hierlearn.training.prepare import Prepared
    from hierlearn.training.settings import Plan

FOLD_SEEDS = 2  # networks per fold
SEEDS = 8  # networks of a part in the end, unless ensemble_size says otherwise
TREES = "trees"
SQUARED = {"distance": "squared", "scale": 16.0}
NOISY = {"dropout": 0.7, "input_noise": 0.3}
WIDE = {"width": 2000, "dropout": 0.5, "input_dropout": 0.1}
CHOSEN_BY_BLEND = (  # fields of a plan that a blend decides for itself
    *("recipe", "loss", "loss_options", "network", "network_options", "head", "head_options"),
    *("joint", "answer", "link", "preprocessing"),
)


@dataclass(frozen=True)
class Ingredient:
    """A recipe that a blend may use.

    Attributes:
        recipe: a name of RECIPES.
        changes: fields of a plan that differ from the recipe.
        settings: settings that differ from the recipe's.
        one_solution: whether one network is enough: every seed gives the same, or it is an
            ensemble already.
    """

    recipe: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    one_solution: bool = False

    def plan(self, plan: Plan, ensemble_size: int, *, table: bool = False) -> Plan:
        """Return how to train it under the plan of the blend.

        Args:
            plan: what was asked for; its settings win.
            ensemble_size: how many networks.
            table: whether inputs are a mixed table, where a step for numbers is one of several.
        """
        changes = dict(self.changes)
        if table and "preprocessing" in changes:
            numbers = changes.pop("preprocessing")
            changes["preprocessing_options"] = {**plan.preprocessing_options, "numbers": numbers}
        size = 1 if self.one_solution else ensemble_size
        settings = {**self.settings, **plan.settings, "ensemble_size": size}
        settings.pop("patience", None)  # the held-out rows are for the weights
        if self.recipe == TREES:  # no other can grow them
            settings.pop("optimizer", None)
        return replace(
            plan,
            effort="quick",
            time_limit=None,
            recipe=self.recipe,
            **changes,
            valid_fraction=0.0,
            settings=settings,
        )


SPARSE = {
    "linear": Ingredient("linear", one_solution=True),
    "neighbors": Ingredient("neighbors"),
}


def check_free_choice(plan: Plan) -> None:
    """Raise where a plan decides what a blend decides for itself."""
    empty = type(plan)()
    for name in CHOSEN_BY_BLEND:
        if getattr(plan, name) != getattr(empty, name):
            raise HierlearnError(
                f"effort 'best' chooses among recipes itself, so {name} cannot be set to "
                f"{getattr(plan, name)!r}; leave it out, or use effort 'quick'"
            )


def ingredients(facts: Facts) -> dict[str, Ingredient]:
    """Return what a blend may be made of, the cheapest and best first.

    Args:
        facts: about the training rows.
    """
    if facts.kind == "numbers":
        return numbers_one_path(facts) if facts.one_path else numbers_several(facts)
    if facts.kind == "images":
        return images(facts)
    return SPARSE


def numbers_one_path(facts: Facts) -> dict[str, Ingredient]:
    """Numbers, one path per row: memories whose encoder other heads train too."""
    epochs = int(neighbors(facts)["settings"]["epochs"])
    found = {
        "quick": Ingredient("quick"),
        "neighbors": Ingredient("neighbors"),
        "neighbors-ple": Ingredient("neighbors", {"preprocessing": "piecewise-linear"}),
        "max": Ingredient("max", {"network_options": WIDE}, {"epochs": part_of(epochs, 0.5)}),
    }
    if facts.rows >= FEW_ROWS:  # one fold then does, and leaves time for more
        found |= {
            "neighbors-squared": Ingredient("neighbors", {"head_options": SQUARED}),
            "neighbors-deep": Ingredient("neighbors", {"network_options": {"depth": 2}}),
        }
    return found | forest(facts)


def images(facts: Facts) -> dict[str, Ingredient]:
    """Images: a memory, and logits on the same CNN."""
    other = "hcl" if facts.one_path else "max"
    changed = {"network_options": {"augment": "light"}}
    return {"neighbors": Ingredient("neighbors"), other: Ingredient(other, changed)}


def numbers_several(facts: Facts) -> dict[str, Ingredient]:
    """Numbers, several labels per row, or none: short trainings, since such labels are noisy."""
    epochs = int(neighbors(facts)["settings"]["epochs"])
    mlp = {"network_options": {"dropout": 0.7}}
    ple = {"preprocessing": "piecewise-linear"}
    joint = {"joint": {"bce": 1.0, "mcloss": 1.0}}
    longer = {"epochs": part_of(epochs, 1.5)}
    return {
        "neighbors": Ingredient("neighbors"),
        "neighbors-near": Ingredient("neighbors", {"head_options": {"scale": 4.0}}),
        "neighbors-raw": Ingredient("neighbors", {"preprocessing": "numeric"}),
        "neighbors-joint": Ingredient("neighbors", joint),
        "neighbors-long": Ingredient("neighbors", settings={"epochs": 2 * epochs}),
        "neighbors-noisy": Ingredient("neighbors", {"network_options": NOISY}, longer),
        "max": Ingredient("max", mlp, {"epochs": 3 * epochs}),
        "max-ple": Ingredient("max", {**mlp, **ple}, {"epochs": 2 * epochs}),
        "linear-ple": Ingredient("max", {"network": "linear", **ple}, {"epochs": 3 * epochs}),
        **forest(facts),
        "hmcn-f": Ingredient("hmcn-f"),
    }


def forest(facts: Facts) -> dict[str, Ingredient]:
    """Trees, which are cheap and err elsewhere; none of rows that stay in their file."""
    return {} if facts.streamed else {TREES: Ingredient(TREES, one_solution=True)}


def part_of(epochs: int, share: float) -> int:
    """Return a share of some epochs, at least one."""
    return max(1, round(share * epochs))


def answers_of(prepared: Prepared) -> list[str]:
    """Return the answers that a trained recipe can give.

    The heads of joint losses answer alone or together; those that a network brings itself, as
    HMCN's, only together, since it is built with all of them again.
    """
    joint = prepared.decision.recipe.joint
    if joint:
        return [MAIN, *joint, AVERAGE]
    return [AVERAGE] if len(head_names(prepared.network)) > 1 else [MAIN]


def seeds_of(plan: Plan) -> int:
    """Return how many networks each part of a blend has in the end."""
    given = plan.settings.get("ensemble_size")
    return SEEDS if given is None else Settings.from_dict({"ensemble_size": given}).ensemble_size
