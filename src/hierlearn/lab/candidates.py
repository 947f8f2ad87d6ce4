"""Candidates: what a study compares. A recipe, or a loss under the study's own protocol.

hcl, max, neighbors   a recipe: what ``hierlearn train --recipe`` trains
hcl:floor=0.5         a recipe with other options of its loss
flat:schedule=1cycle  a recipe, or a loss, with a setting of its own
auto, best            what ``hierlearn train`` trains with no recipe named, and with effort best
bce, hxe:alpha=0.3    a loss
loss:hcl:floor=0.5    a loss whose name is a recipe's too
mine.losses:Mine      a loss or a recipe of your own, package.module:name; options follow as above
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.losses import LOSSES
from hierlearn.registry import imported, is_spelled, parse_pairs
from hierlearn.training.fields import settings_of
from hierlearn.training.recipes import RECIPES, Recipe
from hierlearn.training.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# What "all" compares beside every loss and every recipe: the baseline trained otherwise.
VARIANTS = ("flat:schedule=cyclic", "flat:schedule=1cycle", "flat:head_init=patterns")
# Names that train whole pipelines, as ``hierlearn train`` does: what each changes in a Plan.
PIPELINES: dict[str, dict[str, Any]] = {"auto": {}, "best": {"effort": "best"}}
OF_THE_STUDY = ("seed", "ensemble_size", "device")  # settings that no candidate has of its own
FIRST = "flat"  # of "all": what the others are tested against
LOSS = "loss:"  # before the name of a loss that is also a recipe's


@dataclass(frozen=True)
class Candidate:
    """One row of the table.

    Attributes:
        key: how it is written; unique in a study.
        loss: a name of LOSSES; None for a recipe.
        options: of the loss.
        recipe: a name of RECIPES or PIPELINES; None for a loss.
        label: how tables call it.
        settings: what it trains with, in place of what the study or the recipe says.
    """

    key: str
    loss: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The label, or the key where there is none."""
        return self.label or self.key

    @property
    def file_name(self) -> str:
        """The key, with characters that are not safe in a file name replaced."""
        return "".join(c if c.isalnum() or c in "-._" else "_" for c in self.key)

    @property
    def is_pipeline(self) -> bool:
        """Whether it trains a whole pipeline per seed, which chooses its own loss."""
        return self.recipe in PIPELINES

    @property
    def loss_name(self) -> str | None:
        """The name of its loss; of a recipe, the recipe's; None where the rows decide."""
        return self.loss if self.loss is not None else loss_of(self.recipe or "")

    @property
    def loss_options(self) -> dict[str, Any]:
        """The options of its loss, those of its recipe included."""
        own = {} if self.recipe is None or self.is_pipeline else RECIPES[self.recipe].loss_options
        return {**own, **self.options}

    @property
    def uses_hierarchy(self) -> bool:
        """Whether its loss looks at the hierarchy; what chooses by the rows does."""
        return self.loss_name is None or bool(LOSSES[self.loss_name].uses_hierarchy)

    @property
    def search_space(self) -> dict[str, tuple[Any, ...]]:
        """Values worth trying of the options of its loss that it leaves open."""
        space = {} if self.loss_name is None else LOSSES[self.loss_name].search_space
        return {name: values for name, values in space.items() if name not in self.loss_options}

    def plan(self, loss_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return its choices of a training plan; a loss is read by its own link.

        Args:
            loss_options: options of the loss that replace or extend its own.
        """
        if self.is_pipeline:
            return dict(PIPELINES[self.recipe or ""])
        options = {**self.loss_options, **(loss_options or {})}
        if self.recipe is None:
            return {"loss": self.loss, "loss_options": options, "link": "from-loss"}
        if not self.options and not loss_options:
            return {"recipe": self.recipe}
        return {"recipe": self.recipe, "loss": self.loss_name, "loss_options": options}


def parse_candidate(text: str) -> Candidate:
    """Read a candidate as it is written."""
    written = text.strip()
    is_loss = written.startswith(LOSS)
    name, colon, rest = split_name(written.removeprefix(LOSS))
    is_recipe = not is_loss and (name in PIPELINES or name in tuple(RECIPES))
    if not is_loss and is_spelled(name):  # what is imported may be a loss as well
        is_recipe = isinstance(imported(name), Recipe)
    if not is_recipe and name not in LOSSES:
        if is_loss:
            raise LOSSES.unknown(name)
        raise LOSSES.unknown(name, "loss or recipe", (*PIPELINES, *RECIPES))
    if name in PIPELINES and not is_loss and colon:
        raise HierlearnError(
            f"{name} chooses its loss by the rows, so {written!r} names an option of nothing; name "
            f"a recipe or a loss, such as hcl:floor=0.3"
        )
    kind = "recipe" if is_recipe else "loss"
    given = parse_pairs(filter(str.strip, rest.split("+")), f"{kind} {name}")
    shown = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in given.items())
    options, settings = apart(given, name if kind == "loss" else loss_of(name))
    if kind == "recipe":
        label = f"{name} ({shown})" if shown else name
        return Candidate(written, None, options, name, label, settings)
    unique = loss_key(name)
    label = f"{unique} ({shown})" if shown else unique
    return Candidate(f"{unique}{colon}{rest}", name, options, None, label, settings)


def split_name(text: str) -> tuple[str, str, str]:
    """Return the name of a loss or recipe, a colon, and the options after it."""
    name, colon, rest = text.partition(":")
    if name in PIPELINES or name in tuple(RECIPES):
        return name, colon, rest
    found = LOSSES.split(text)
    if is_spelled(found[0]) and "." not in name and find_spec(name) is None:
        return name, colon, rest  # no module, but a name with a typing error
    return found


def loss_of(recipe: str) -> str | None:
    """Return the name of the loss of a recipe; None where the rows decide."""
    return None if recipe in PIPELINES else RECIPES[recipe].loss


def apart(given: Mapping[str, Any], loss: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return which options are those of a loss, and which are settings of the training.

    Args:
        given: options as they are written.
        loss: a name of LOSSES, whose own options come first.

    Raises:
        HierlearnError: where a setting is one of the whole study.
    """
    known = [] if loss is None else LOSSES[loss].option_names()
    for name in given:
        if name in OF_THE_STUDY and name not in known:
            raise HierlearnError(
                f"{name} is a setting of the whole study, so no method has one of its own; set it "
                f"for all"
            )
    settings = {
        name: value
        for name, value in given.items()
        if name not in known and name in settings_of(Settings)
    }
    return {name: value for name, value in given.items() if name not in settings}, settings


def loss_key(name: str) -> str:
    """Return how a loss is written: with a prefix where its name is a recipe's too."""
    both = name in PIPELINES or (not is_spelled(name) and name in RECIPES)
    return f"{LOSS}{name}" if both else name


def parse_candidates(given: str | Sequence[str | Candidate]) -> list[Candidate]:
    """Return the candidates of a study, each once.

    Args:
        given: candidates, or how they are written; "all" is every recipe, every loss and VARIANTS.
    """
    given = [given] if isinstance(given, str) else list(given)
    if given == ["all"]:
        given = [
            FIRST,
            *(one for one in RECIPES if one != FIRST),
            *map(loss_key, LOSSES),
            *VARIANTS,
        ]
    candidates = [one if isinstance(one, Candidate) else parse_candidate(one) for one in given]
    keys = [candidate.key for candidate in candidates]
    for key in keys:
        if keys.count(key) > 1:
            raise HierlearnError(f"{key!r} is listed twice")
    if not candidates:
        raise HierlearnError("name at least one loss or recipe to study")
    return candidates
