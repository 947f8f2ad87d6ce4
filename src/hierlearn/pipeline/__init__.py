"""Stage 11: the trained pipeline: save, load, predict, evaluate, export."""

from hierlearn.pipeline.evaluate import evaluate
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.pipeline.train import train

__all__ = ["Pipeline", "evaluate", "train"]
