"""Candidates: what a study compares. A loss with its options, or a recipe.

Written as words on the command line: ``bce``, ``hxe:alpha=0.3``, ``recipe:max``, or
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
        key: how it is written; unique in a study and fit for a file name once sanitized.
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
    def file_name(self) -> str:
        """The key with signs that file systems mind replaced."""
        return "".join(sign if sign.isalnum() or sign in "-._" else "_" for sign in self.key)

    def plan(self) -> dict[str, Any]:
        """Return the choices of a training plan; a loss is read by its own link."""
        if self.recipe is not None:
            return {"recipe": self.recipe}
        return {"loss": self.loss, "loss_options": dict(self.options), "link": "from-loss"}


def parse_candidate(words: str) -> Candidate:
    """Read a candidate as it is written."""
    name, _, rest = words.strip().partition(":")
    if name == "recipe":
        find_recipe(rest)
        return Candidate(words.strip(), recipe=rest, label=f"recipe {rest}")
    if name not in LOSSES:
        raise HierlearnError(unknown_name("loss", name, [*LOSSES, "recipe:<name>"]))
    options = parse_pairs(filter(str.strip, rest.split("+")), f"loss {name}")
    shown = ", ".join(f"{key} {value}" for key, value in options.items())
    return Candidate(words.strip(), name, options, label=f"{name} ({shown})" if shown else name)


def parse_candidates(words: Sequence[str]) -> list[Candidate]:
    """Read the candidates of a study, each once; "all" is every loss and every recipe."""
    if list(words) == ["all"]:
        words = [*LOSSES, *(f"recipe:{name}" for name in RECIPES)]
    entries = [parse_candidate(one) for one in words]
    for number, entry in enumerate(entries):
        if entry.key in [other.key for other in entries[:number]]:
            raise HierlearnError(f"{entry.key!r} is listed twice")
    if not entries:
        raise HierlearnError("name at least one loss to study")
    return entries
