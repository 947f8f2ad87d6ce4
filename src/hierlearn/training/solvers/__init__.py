"""Solvers: what fits a network to prepared rows; ``settings.optimizer`` names one.

adamw   the gradient loop, in batches: AdamW, over one process or many
linear  the sparse weights of a linear head, on all rows at once
trees   grows the trees of a network
kernel  the optimum of a kernel machine, in closed form
estimator  fits scikit-learn estimators
none    fills a memory and chooses its scale; nothing is trained

They are siblings: none inherits from another, and one line adds one.
"""

from hierlearn.networks.estimator import EstimatorHead
from hierlearn.networks.kernel import KernelHead
from hierlearn.networks.trees import ForestHead
from hierlearn.training.solvers.estimator import fit_head
from hierlearn.training.solvers.forest import grow
from hierlearn.training.solvers.gradient import GradientSolver
from hierlearn.training.solvers.kernel import fit_kernel
from hierlearn.training.solvers.linear import LinearSolver
from hierlearn.training.solvers.memory import MemorySolver
from hierlearn.training.solvers.solver import Fitted, HeadSolver, Run, Solver

__all__ = ["SOLVERS", "Fitted", "Run", "Solver"]

SOLVERS: dict[str, Solver] = {
    "adamw": GradientSolver(),
    "linear": LinearSolver(),
    "trees": HeadSolver(ForestHead, grow),
    "kernel": HeadSolver(KernelHead, fit_kernel),
    "estimator": HeadSolver(EstimatorHead, fit_head),
    "none": MemorySolver(),
}
