"""Stage 10: settings, recipes, the trainer, checkpoints; in one process or in many.

The names are loaded when first used: settings and plans need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierlearn.training.recipes import RECIPES, Recipe
    from hierlearn.training.settings import Plan, Settings

_HOMES = {
    "Plan": "hierlearn.training.settings",
    "RECIPES": "hierlearn.training.recipes",
    "Recipe": "hierlearn.training.recipes",
    "Settings": "hierlearn.training.settings",
}

__all__ = ["RECIPES", "Plan", "Recipe", "Settings"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hierlearn.training' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
