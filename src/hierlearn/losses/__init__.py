"""Stage 4: losses, composed of link, base, constraint, curriculum and reduction."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hierlearn.losses.bases import BASES, BCE, FocalBase, zero_one
from hierlearn.losses.composed import ComposedLoss
from hierlearn.losses.conditional_softmax import ConditionalSoftmax
from hierlearn.losses.constraint import constrain
from hierlearn.losses.cross_entropy import CrossEntropy
from hierlearn.losses.curriculum import select_classes
from hierlearn.losses.focal import Focal
from hierlearn.losses.hcl import CollapseWarning, HCLLoss
from hierlearn.losses.hxe import HXE
from hierlearn.losses.lca_cost import LCACost
from hierlearn.losses.leaf_cross_entropy import LeafCrossEntropy
from hierlearn.losses.level_weighted import LevelWeighted
from hierlearn.losses.linear_hcl import LinearHCLLoss
from hierlearn.losses.loss import Loss
from hierlearn.losses.lyu import LyuCurriculumLoss
from hierlearn.losses.mcloss import MCLoss
from hierlearn.losses.mixed import MixedLoss
from hierlearn.losses.soft_labels import SoftLabels

if TYPE_CHECKING:
    from collections.abc import Callable

LOSSES: dict[str, Callable[..., Loss]] = {
    "bce": CrossEntropy,
    "focal": Focal,
    "hxe": HXE,
    "soft-labels": SoftLabels,
    "hcl-hier": partial(HCLLoss, curriculum=None),
    "hcl-cl": partial(HCLLoss, scope=None),
    "hcl": HCLLoss,
    "hcl-paper": partial(HCLLoss, floor=0.0),
    "lyu": LyuCurriculumLoss,
    "leaf-ce": LeafCrossEntropy,
    "mcloss": MCLoss,
    "cond-softmax": ConditionalSoftmax,
    "level-weighted": LevelWeighted,
    "lca-cost": LCACost,
    "mixed": MixedLoss,
}

__all__ = [
    "BASES",
    "BCE",
    "HXE",
    "LOSSES",
    "CollapseWarning",
    "ComposedLoss",
    "ConditionalSoftmax",
    "CrossEntropy",
    "Focal",
    "FocalBase",
    "HCLLoss",
    "LCACost",
    "LeafCrossEntropy",
    "LevelWeighted",
    "LinearHCLLoss",
    "Loss",
    "LyuCurriculumLoss",
    "MCLoss",
    "MixedLoss",
    "SoftLabels",
    "constrain",
    "select_classes",
    "zero_one",
]
