"""Solvers: what fits a network to prepared rows; ``settings.optimizer`` names one.

adamw   the gradient loop, in batches: AdamW, over one process or many
linear  the sparse weights of a linear head, on all rows at once
trees   grows the trees of a network
kernel  the optimum of a kernel machine, in closed form
estimator  fits scikit-learn estimators
none    fills a memory and chooses its scale; nothing is trained

They are siblings: none inherits from another, and one line adds one.
"""

from hierlearn.training.solvers.estimator import EstimatorSolver
from hierlearn.training.solvers.forest import ForestSolver
from hierlearn.training.solvers.gradient import GradientSolver
from hierlearn.training.solvers.kernel import KernelSolver
from hierlearn.training.solvers.linear import LinearSolver
from hierlearn.training.solvers.memory import MemorySolver
from hierlearn.training.solvers.solver import Fitted, Run, Solver

__all__ = ["SOLVERS", "Fitted", "Run", "Solver"]

SOLVERS: dict[str, Solver] = {
    "adamw": GradientSolver(),
    "linear": LinearSolver(),
    "trees": ForestSolver(),
    "kernel": KernelSolver(),
    "estimator": EstimatorSolver(),
    "none": MemorySolver(),
}
