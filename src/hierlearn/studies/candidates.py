"""Candidates: what a study compares. A loss with its options, or a recipe.

Written on the command line as ``bce``, ``hxe:alpha=0.3``, ``recipe:max``, or
``hcl:link=softmax+scope=ancestors+floor=0.3``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.losses import LOSSES
from hierlearn.options import parse_pairs
from hierlearn.training.recipes import RECIPES, find_recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Candidate:
    """One row of the table.

    Attributes:
        key: how it is written; unique in a study.
        loss: a name of LOSSES; None for a recipe.
        options: of the loss.
        recipe: a name of RECIPES; None for a loss.
        label: how tables call it.
    """

    key: str
    loss: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    label: str = ""

    @property
    def title(self) -> str:
        """The label, or the key where there is none."""
        return self.label or self.key

    @property
    def file_name(self) -> str:
        """The key, with characters that are not safe in a file name replaced."""
        return "".join(c if c.isalnum() or c in "-._" else "_" for c in self.key)

    @property
    def loss_name(self) -> str:
        """The name of its loss; of a recipe, the recipe's."""
        return self.loss if self.loss is not None else find_recipe(self.recipe or "").loss

    @property
    def loss_options(self) -> dict[str, Any]:
        """The options of its loss; of a recipe, the recipe's."""
        return dict(find_recipe(self.recipe).loss_options if self.recipe else self.options)

    @property
    def uses_hierarchy(self) -> bool:
        """Whether its loss looks at the hierarchy."""
        return bool(LOSSES[self.loss_name].uses_hierarchy)

    @property
    def search_space(self) -> dict[str, tuple[Any, ...]]:
        """Values worth trying of the options of its loss that it leaves open."""
        space = LOSSES[self.loss_name].search_space
        return {name: values for name, values in space.items() if name not in self.loss_options}

    def plan(self, loss_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return its choices of a training plan; a loss is read by its own link.

        Args:
            loss_options: options of the loss that replace or extend its own.
        """
        options = {**self.loss_options, **(loss_options or {})}
        if self.recipe is None:
            return {"loss": self.loss, "loss_options": options, "link": "from-loss"}
        if not loss_options:
            return {"recipe": self.recipe}
        return {"recipe": self.recipe, "loss": self.loss_name, "loss_options": options}


def parse_candidate(text: str) -> Candidate:
    """Read a candidate as it is written."""
    name, _, rest = text.strip().partition(":")
    if name == "recipe":
        find_recipe(rest)
        return Candidate(text.strip(), recipe=rest, label=f"recipe {rest}")
    if name not in LOSSES:
        raise HierlearnError(unknown_name("loss", name, [*LOSSES, "recipe:<name>"]))
    options = parse_pairs(filter(str.strip, rest.split("+")), f"loss {name}")
    shown = ", ".join(f"{key} {value}" for key, value in options.items())
    return Candidate(text.strip(), name, options, label=f"{name} ({shown})" if shown else name)


def parse_candidates(given: str | Sequence[str | Candidate]) -> list[Candidate]:
    """Return the candidates of a study, each once.

    Args:
        given: candidates, or how they are written; "all" is every loss and every recipe.
    """
    given = [given] if isinstance(given, str) else list(given)
    if given == ["all"]:
        given = [*LOSSES, *(f"recipe:{name}" for name in RECIPES)]
    candidates = [one if isinstance(one, Candidate) else parse_candidate(one) for one in given]
    keys = [candidate.key for candidate in candidates]
    for key in keys:
        if keys.count(key) > 1:
            raise HierlearnError(f"{key!r} is listed twice")
    if not candidates:
        raise HierlearnError("name at least one loss to study")
    return candidates
