"""Stage 10: settings, recipes, the trainer, checkpoints; in one process or in many."""

from hierlearn.training.plan import Plan
from hierlearn.training.recipes import RECIPES, Recipe
from hierlearn.training.settings import Settings

__all__ = ["RECIPES", "Plan", "Recipe", "Settings"]
