"""Kernel: a machine that compares a row with training rows by a Gaussian of their distance.

    f_c(x) = b_c + sum over rows i of a_ic exp(-|x - x_i|^2 / (2 s^2 D)),    q = softmax of k f

c are the terminal classes, D the number of columns. f is fitted by least squares to 1 for the class
of a row and 0 for the others (``training/solvers/kernel.py``), so it is an estimate of q; k, fixed,
makes one of it that is positive. It has no gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.links import Head, HeadOutput, make_link
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.networks.inputs import InputSpec

SLOPE = 8.0  # k, from values between 0 and 1 to logits
ENTRIES = 1 << 24  # similarities that are held at once


class KernelHead(Head):
    """Answer by similarity to some training rows.

    Args:
        features: D, how many numbers a row has.
        label_space: what can be predicted, or a Hierarchy.

    Attributes:
        rows: (S, D) training rows.
        weights: (S, T) what each of them counts for each terminal class.
        bias: (T,) added to the scores.
        width: s.
    """

    rows: Tensor
    weights: Tensor
    bias: Tensor
    width: Tensor
    sized_by_data: ClassVar[tuple[str, ...]] = ("rows", "weights")

    def __init__(self, features: int, label_space: LabelSpace | Hierarchy) -> None:
        super().__init__()
        self.label_space = LabelSpace.of(label_space)
        self.features = features
        self.link = make_link(self.label_space, "softmax")
        classes = len(self.label_space.terminals)
        self.register_buffer("rows", torch.zeros(0, features))
        self.register_buffer("weights", torch.zeros(0, classes))
        self.register_buffer("bias", torch.zeros(classes))
        self.register_buffer("width", torch.tensor(1.0))

    def set(self, rows: Tensor, weights: Tensor, bias: Tensor, width: float) -> None:
        """Replace what it compares with."""
        found = {"rows": rows, "weights": weights, "bias": bias, "width": torch.tensor(width)}
        for name, value in found.items():
            setattr(self, name, value.float().contiguous().to(self.bias.device))

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: object) -> None:
        """Take any number of rows."""
        for name in self.sized_by_data:
            found = state.get(prefix + name)
            if found is not None:
                own = getattr(self, name)
                setattr(self, name, own.new_empty(found.shape[:1] + own.shape[1:]))
        super()._load_from_state_dict(state, prefix, *rest)
        if len(self.rows) != len(self.weights):
            raise HierlearnError("rows and weights do not describe a kernel machine")

    def forward(self, features: Tensor) -> HeadOutput:
        """Return the node log-probabilities of (N, D) numbers."""
        if not len(self.rows):
            raise HierlearnError("no kernel machine has been fitted: there is nothing to compare")
        if torch.compiler.is_compiling():
            return HeadOutput.from_logits(self.logits(features), self.link)
        parts = torch.split(features, max(1, ENTRIES // len(self.rows)))
        return HeadOutput.from_logits(torch.cat([self.logits(one) for one in parts]), self.link)

    def logits(self, x: Tensor) -> Tensor:
        """Return (N, C) logits, 0 for what is no terminal class."""
        scores = self.bias + similarities(x, self.rows, self.width) @ self.weights
        shape = (scores.shape[0], len(self.label_space.hierarchy))  # len fixes the rows of a graph
        found = scores.new_zeros(shape)
        return found.index_copy(1, self.label_space.terminal_ids().to(x.device), SLOPE * scores)

    def extra_repr(self) -> str:
        """Show the size when the module is printed."""
        return f"{len(self.rows):,} rows of {self.features} numbers"


def similarities(x: Tensor, rows: Tensor, width: Tensor | float) -> Tensor:
    """Return (N, S) exp(-|x - row|^2 / (2 width^2 D))."""
    return bumps(squared_distances(x, rows), width, x.shape[1])


def squared_distances(x: Tensor, rows: Tensor) -> Tensor:
    """Return (N, S) |x - row|^2."""
    squared = (x * x).sum(dim=1, keepdim=True) + (rows * rows).sum(dim=1) - 2 * x @ rows.T
    return squared.clamp_min(0)


def bumps(squared: Tensor, width: Tensor | float, columns: int) -> Tensor:
    """Return the similarities of rows of D columns at squared distances."""
    return (squared / (-2 * width**2 * max(columns, 1))).exp()


def kernel(label_space: LabelSpace | Hierarchy, inputs: InputSpec) -> Network:
    """Return a kernel machine of dense numbers; see KernelHead."""
    if inputs.kind != "numbers":
        raise HierlearnError(
            f"the network kernel reads dense numbers, not inputs of kind {inputs.kind!r}; use "
            f"another network, or preprocessing that gives numbers, such as 'latent' for texts"
        )
    return Network(nn.Identity(), KernelHead(inputs.width, label_space))


kernel.solver = "kernel"  # type: ignore[attr-defined]  # it is solved, not trained
