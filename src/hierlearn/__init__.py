"""hierlearn: classification whose labels form a taxonomy.

The public names are loaded when first used, so that the command line answers without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierlearn.datasets import DATASETS, Dataset, load_dataset, read_table
    from hierlearn.decoding import DECODERS
    from hierlearn.errors import HierlearnError
    from hierlearn.estimator import HierarchicalClassifier, cross_val_proba, scorer
    from hierlearn.features import FEATURES
    from hierlearn.hierarchy import Hierarchy, LabelSpace, join_levels
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.lab.compare import compare
    from hierlearn.lab.suites import SUITES, compare_suite
    from hierlearn.links import LINKS, HeadOutput, from_similarities
    from hierlearn.losses import LOSSES, HCLLoss, targets_from_indices
    from hierlearn.memory import NeighborHead
    from hierlearn.metrics import METRICS
    from hierlearn.networks import HEADS, NETWORKS
    from hierlearn.pipeline.evaluate import evaluate
    from hierlearn.pipeline.pipeline import Pipeline, load
    from hierlearn.pipeline.predict import Predictor
    from hierlearn.pipeline.train import train
    from hierlearn.pipeline.zero_shot import zero_shot, zero_shot_pipeline
    from hierlearn.training import RECIPES, Plan, Recipe, Settings

__version__ = "0.1.0"

_NAMES = {  # by the module that they are loaded from
    "hierlearn.datasets": ("DATASETS", "Dataset", "load_dataset", "read_table"),
    "hierlearn.decoding": ("DECODERS",),
    "hierlearn.errors": ("HierlearnError",),
    "hierlearn.estimator": ("HierarchicalClassifier", "cross_val_proba", "scorer"),
    "hierlearn.features": ("FEATURES",),
    "hierlearn.hierarchy": ("Hierarchy", "LabelSpace", "join_levels"),
    "hierlearn.hierarchy.labels": ("Labels",),
    "hierlearn.lab.compare": ("compare",),
    "hierlearn.lab.suites": ("SUITES", "compare_suite"),
    "hierlearn.links": ("HeadOutput", "LINKS", "from_similarities"),
    "hierlearn.losses": ("HCLLoss", "LOSSES", "targets_from_indices"),
    "hierlearn.memory": ("NeighborHead",),
    "hierlearn.metrics": ("METRICS",),
    "hierlearn.networks": ("HEADS", "NETWORKS"),
    "hierlearn.pipeline": ("Pipeline", "evaluate", "load", "train"),
    "hierlearn.pipeline.predict": ("Predictor",),
    "hierlearn.pipeline.zero_shot": ("zero_shot", "zero_shot_pipeline"),
    "hierlearn.training": ("Plan", "RECIPES", "Recipe", "Settings"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "DATASETS",
    "DECODERS",
    "FEATURES",
    "HEADS",
    "LINKS",
    "LOSSES",
    "METRICS",
    "NETWORKS",
    "RECIPES",
    "SUITES",
    "Dataset",
    "HCLLoss",
    "HeadOutput",
    "HierarchicalClassifier",
    "Hierarchy",
    "HierlearnError",
    "LabelSpace",
    "Labels",
    "NeighborHead",
    "Pipeline",
    "Plan",
    "Predictor",
    "Recipe",
    "Settings",
    "compare",
    "compare_suite",
    "cross_val_proba",
    "evaluate",
    "from_similarities",
    "join_levels",
    "load",
    "load_dataset",
    "read_table",
    "scorer",
    "targets_from_indices",
    "train",
    "zero_shot",
    "zero_shot_pipeline",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hierlearn' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
