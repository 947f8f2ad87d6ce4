"""HCL, the hierarchical class-based curriculum loss: one definition, and forms by kernels."""

from hierlearn.losses.hcl.functional import constrain, select_classes
from hierlearn.losses.hcl.linear import LinearHCLLoss
from hierlearn.losses.hcl.loss import CollapseWarning, HCLLoss

__all__ = ["CollapseWarning", "HCLLoss", "LinearHCLLoss", "constrain", "select_classes"]
