"""The losses as pure functions on tensors, unreduced; the modules own buffers and call them."""

from hierlearn.losses.bases import bce_loss, focal_loss, zero_one
from hierlearn.losses.clems import clems_loss
from hierlearn.losses.cond_softmax import cond_softmax_loss
from hierlearn.losses.devise import devise_loss
from hierlearn.losses.hcl.constraint import constrain
from hierlearn.losses.hcl.curriculum import select_classes
from hierlearn.losses.hcl.functional import hcl_loss
from hierlearn.losses.hinge import hinge_loss
from hierlearn.losses.hmcn import hmcn_loss
from hierlearn.losses.hxe import hxe_loss
from hierlearn.losses.lca_cost import lca_cost_loss
from hierlearn.losses.leaf_ce import leaf_ce_loss
from hierlearn.losses.level_weighted import level_weighted_loss
from hierlearn.losses.mcloss import mcloss
from hierlearn.losses.mixed import mixed_loss
from hierlearn.losses.sample_curriculum import select_rows
from hierlearn.losses.soft_labels import soft_labels_loss, soft_weights
from hierlearn.losses.teacher import task_probabilities
from hierlearn.losses.tsle import match_loss, rank_loss

__all__ = [
    "bce_loss",
    "clems_loss",
    "cond_softmax_loss",
    "constrain",
    "devise_loss",
    "focal_loss",
    "hcl_loss",
    "hinge_loss",
    "hmcn_loss",
    "hxe_loss",
    "lca_cost_loss",
    "leaf_ce_loss",
    "level_weighted_loss",
    "match_loss",
    "mcloss",
    "mixed_loss",
    "rank_loss",
    "select_classes",
    "select_rows",
    "soft_labels_loss",
    "soft_weights",
    "task_probabilities",
    "zero_one",
]
