"""hierlearn: classification whose labels form a taxonomy.

The public names are loaded when first used, so that the command line answers without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierlearn.datasets import DATASETS, Dataset, load_dataset
    from hierlearn.decoding import DECODERS
    from hierlearn.errors import HierlearnError
    from hierlearn.estimator import HierarchicalClassifier
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.links import LINKS
    from hierlearn.losses import LOSSES, HCLLoss
    from hierlearn.metrics import METRICS

__version__ = "0.1.0"

_HOMES = {
    "DATASETS": "hierlearn.datasets",
    "DECODERS": "hierlearn.decoding",
    "Dataset": "hierlearn.datasets",
    "HCLLoss": "hierlearn.losses",
    "HierarchicalClassifier": "hierlearn.estimator",
    "Hierarchy": "hierlearn.hierarchy",
    "HierlearnError": "hierlearn.errors",
    "LINKS": "hierlearn.links",
    "LOSSES": "hierlearn.losses",
    "METRICS": "hierlearn.metrics",
    "LabelSpace": "hierlearn.hierarchy",
    "Labels": "hierlearn.hierarchy.labels",
    "load_dataset": "hierlearn.datasets",
}

__all__ = [
    "DATASETS",
    "DECODERS",
    "LINKS",
    "LOSSES",
    "METRICS",
    "Dataset",
    "HCLLoss",
    "HierarchicalClassifier",
    "Hierarchy",
    "HierlearnError",
    "LabelSpace",
    "Labels",
    "load_dataset",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hierlearn' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
