"""Stage 4: losses, composed of link, base, constraint, curriculum and reduction."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hierlearn.losses.bases import BASES, BCE, FocalBase, zero_one
from hierlearn.losses.bce import BCELoss
from hierlearn.losses.composed import ComposedLoss
from hierlearn.losses.cond_softmax import CondSoftmaxLoss
from hierlearn.losses.focal import FocalLoss
from hierlearn.losses.hcl.constraint import constrain
from hierlearn.losses.hcl.curriculum import select_classes
from hierlearn.losses.hcl.linear import LinearHCLLoss
from hierlearn.losses.hcl.loss import CollapseWarning, HCLLoss
from hierlearn.losses.hxe import HXELoss
from hierlearn.losses.lca_cost import LCACostLoss
from hierlearn.losses.leaf_ce import LeafCELoss
from hierlearn.losses.level_weighted import LevelWeightedLoss
from hierlearn.losses.loss import Loss
from hierlearn.losses.mcloss import MCLoss
from hierlearn.losses.mixed import MixedLoss
from hierlearn.losses.sample_curriculum import SampleCurriculumLoss
from hierlearn.losses.soft_labels import SoftLabelsLoss

if TYPE_CHECKING:
    from collections.abc import Callable

LOSSES: dict[str, Callable[..., Loss]] = {
    "bce": BCELoss,
    "focal": FocalLoss,
    "hxe": HXELoss,
    "soft-labels": SoftLabelsLoss,
    "hcl-hier": partial(HCLLoss, curriculum=None),
    "hcl-cl": partial(HCLLoss, scope=None),
    "hcl": HCLLoss,
    "hcl-paper": partial(HCLLoss, floor=0.0),
    "sample-curriculum": SampleCurriculumLoss,
    "leaf-ce": LeafCELoss,
    "mcloss": MCLoss,
    "cond-softmax": CondSoftmaxLoss,
    "level-weighted": LevelWeightedLoss,
    "lca-cost": LCACostLoss,
    "mixed": MixedLoss,
}

__all__ = [
    "BASES",
    "BCE",
    "LOSSES",
    "BCELoss",
    "CollapseWarning",
    "ComposedLoss",
    "CondSoftmaxLoss",
    "FocalBase",
    "FocalLoss",
    "HCLLoss",
    "HXELoss",
    "LCACostLoss",
    "LeafCELoss",
    "LevelWeightedLoss",
    "LinearHCLLoss",
    "Loss",
    "MCLoss",
    "MixedLoss",
    "SampleCurriculumLoss",
    "SoftLabelsLoss",
    "constrain",
    "select_classes",
    "zero_one",
]
