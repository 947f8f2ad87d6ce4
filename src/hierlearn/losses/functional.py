"""The losses as pure functions on tensors, unreduced; the modules own buffers and call them."""

from hierlearn.losses.bases import bce_loss, focal_loss, zero_one
from hierlearn.losses.cond_softmax import cond_softmax_loss
from hierlearn.losses.hcl.functional import constrain, hcl_loss, select_classes
from hierlearn.losses.hinge import hinge_loss
from hierlearn.losses.hxe import hxe_loss
from hierlearn.losses.lca_cost import lca_cost_loss
from hierlearn.losses.leaf_ce import leaf_ce_loss
from hierlearn.losses.level_weighted import level_weighted_loss
from hierlearn.losses.mcloss import mcloss
from hierlearn.losses.mixed import mixed_loss
from hierlearn.losses.soft_labels import soft_labels_loss, soft_weights

__all__ = [
    "bce_loss",
    "cond_softmax_loss",
    "constrain",
    "focal_loss",
    "hcl_loss",
    "hinge_loss",
    "hxe_loss",
    "lca_cost_loss",
    "leaf_ce_loss",
    "level_weighted_loss",
    "mcloss",
    "mixed_loss",
    "select_classes",
    "soft_labels_loss",
    "soft_weights",
    "zero_one",
]
