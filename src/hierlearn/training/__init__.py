"""Stage 8: train, validate, checkpoint, resume; in one process or in many."""

from hierlearn.training.evaluate import evaluate
from hierlearn.training.model import Model
from hierlearn.training.plan import Plan
from hierlearn.training.recipes import RECIPES, Recipe
from hierlearn.training.settings import Settings
from hierlearn.training.train import train

__all__ = ["RECIPES", "Model", "Plan", "Recipe", "Settings", "evaluate", "train"]
