"""HCL, the hierarchical class-based curriculum loss: one definition, several backends."""

from hierlearn.losses.hcl.constraint import constrain
from hierlearn.losses.hcl.curriculum import select_classes
from hierlearn.losses.hcl.linear import LinearHCLLoss
from hierlearn.losses.hcl.loss import CollapseWarning, HCLLoss

__all__ = ["CollapseWarning", "HCLLoss", "LinearHCLLoss", "constrain", "select_classes"]
