"""Stage 5: losses, composed of base, constraint, curriculum and reduction.

``LOSSES`` names them all: a class or a ``Variant`` of one per entry. One file and one line add one.
"""

from __future__ import annotations

from hierlearn.losses import functional
from hierlearn.losses.bases import BASES, BCE, ComposedLoss, Focal, zero_one
from hierlearn.losses.bce import BCELoss
from hierlearn.losses.cond_softmax import CondSoftmaxLoss
from hierlearn.losses.focal import FocalLoss
from hierlearn.losses.hcl import (
    CollapseWarning,
    HCLLoss,
    LinearHCLLoss,
    constrain,
    select_classes,
)
from hierlearn.losses.hinge import HingeLoss
from hierlearn.losses.hxe import HXELoss
from hierlearn.losses.indices import targets_from_indices
from hierlearn.losses.lca_cost import LCACostLoss
from hierlearn.losses.leaf_ce import LeafCELoss
from hierlearn.losses.level_weighted import LevelWeightedLoss
from hierlearn.losses.loss import ElementwiseLoss, Loss, LossEntry, RowLoss, SoftmaxRowLoss, Variant
from hierlearn.losses.mcloss import MCLoss
from hierlearn.losses.mixed import MixedLoss
from hierlearn.losses.soft_labels import SoftLabelsLoss
from hierlearn.registry import Registry, subclass_of

BUILT_IN: dict[str, LossEntry] = {
    "bce": BCELoss,
    "focal": FocalLoss,
    "hxe": HXELoss,
    "soft-labels": SoftLabelsLoss,
    "hcl-hier": Variant(HCLLoss.paper, search_space={}, curriculum=None),
    "hcl-cl": Variant(HCLLoss.paper, uses_hierarchy=False, scope=None),
    "hcl": HCLLoss,
    "hcl-paper": Variant(HCLLoss.paper, search_space={}),
    "leaf-ce": LeafCELoss,
    "mcloss": MCLoss,
    "cond-softmax": CondSoftmaxLoss,
    "hinge": HingeLoss,
    "level-weighted": LevelWeightedLoss,
    "lca-cost": LCACostLoss,
    "mixed": MixedLoss,
}
LOSSES = Registry(
    "loss",
    BUILT_IN,
    group="hierlearn.losses",
    expected="a subclass of hierlearn.losses.Loss",
    read=lambda name, one: one if isinstance(one, Variant) else subclass_of(Loss)(name, one),
)

__all__ = [
    "BASES",
    "BCE",
    "LOSSES",
    "BCELoss",
    "CollapseWarning",
    "ComposedLoss",
    "CondSoftmaxLoss",
    "ElementwiseLoss",
    "Focal",
    "FocalLoss",
    "HCLLoss",
    "HXELoss",
    "HingeLoss",
    "LCACostLoss",
    "LeafCELoss",
    "LevelWeightedLoss",
    "LinearHCLLoss",
    "Loss",
    "MCLoss",
    "MixedLoss",
    "RowLoss",
    "SoftLabelsLoss",
    "SoftmaxRowLoss",
    "Variant",
    "constrain",
    "functional",
    "select_classes",
    "targets_from_indices",
    "zero_one",
]
