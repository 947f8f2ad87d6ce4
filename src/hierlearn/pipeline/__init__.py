"""Stage 11: the trained pipeline: train, save, load, predict, evaluate, export."""

from hierlearn.pipeline.evaluate import evaluate
from hierlearn.pipeline.pipeline import Pipeline, load
from hierlearn.pipeline.train import train

__all__ = ["Pipeline", "evaluate", "load", "train"]
