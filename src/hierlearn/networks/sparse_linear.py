"""A linear head whose weights are sparse, and solved on all rows at once instead of trained.

    flat        one score per terminal class; a softmax over them
    per-parent  one score per child, and one for "ends here" where rows end at the parent; a softmax
                among these, multiplied down the path
    per-class   one yes or no per class, for rows with several labels or none; a node has the
                maximum of what lies at or below it

Every score is that of a linear SVM for one question, "this or not?": it should reach 1 where the
answer is yes and -1 elsewhere. It has a *slot*: that of a class is its number, those of "ends here"
come after. Times ``slope`` scores are logits: how sure a margin makes depends on the data, and on
how many classes compete, so the slope is chosen on rows that are left out of a first fit.

Weights are stored by column: a column of a row meets all scores that it changes in one place.
``training/solvers/linear.py`` finds them; they have no gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from hierlearn.errors import HierlearnError, arg, unknown_name
from hierlearn.files.tensors import CheckpointError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.propagate import LOG_ZERO
from hierlearn.links import Head, HeadOutput, make_link
from hierlearn.links.siblings import log_steps, sibling_groups
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.trees import is_csr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.labels import Labels

Strategy = Literal["flat", "per-parent", "per-class"]
SPARSE_LINEAR = "sparse-linear"  # its name in HEADS
SLOPE = 4.0  # where there are too few rows to choose it
SHORT = 1 << 15  # slots that have short numbers


class SparseLinearHead(Head):
    """Answer by sparse weights.

    Args:
        features: D, the width of the features.
        label_space: what can be predicted, or a Hierarchy; a tree for "per-parent".
        strategy: which questions are asked.
        slope: by which scores become logits; None to choose it with the weights.

    Attributes:
        offsets: (D + 1,) where the weights of each column begin.
        slots, values: which score a weight belongs to, and the weight.
        bias: (S,) of the scores.
    """

    offsets: Tensor
    slots: Tensor
    values: Tensor
    bias: Tensor
    slope: Tensor
    groups: Tensor
    terminals: Tensor
    ends: Tensor
    solver: ClassVar[str] = "linear"
    sized_by_data: ClassVar[tuple[str, ...]] = ("slots", "values")

    def __init__(
        self,
        features: int,
        label_space: LabelSpace | Hierarchy,
        *,
        strategy: str = "per-parent",
        slope: float | None = None,
    ) -> None:
        super().__init__()
        space = self.label_space = LabelSpace.of(label_space)
        if strategy not in get_args(Strategy):
            raise HierlearnError(unknown_name("strategy", str(strategy), get_args(Strategy)))
        if strategy == "per-parent" and not space.hierarchy.is_tree:
            raise HierlearnError(
                f"{arg('strategy')} {strategy} needs a tree, and some classes have several "
                f"parents; use flat"
            )
        if slope is not None and not 0 < slope < float("inf"):
            raise HierlearnError(f"slope must be a number above 0, not {slope}")
        self.features, self.strategy = features, strategy
        self.fits_slope = slope is None
        self.link = make_link(space, "max" if strategy == "per-class" else "softmax")
        inner = np.flatnonzero(space.is_terminal & (np.asarray(space.hierarchy.heights) > 0))
        inner = inner if strategy == "per-parent" else inner[:0]
        count = len(space) + len(inner)
        kind = torch.int16 if count < SHORT else torch.int32
        self.register_buffer("offsets", torch.zeros(features + 1, dtype=torch.int64))
        self.register_buffer("slots", torch.empty(0, dtype=kind))
        self.register_buffer("values", torch.empty(0))
        self.register_buffer("bias", torch.zeros(count))
        self.register_buffer("slope", torch.tensor(SLOPE if slope is None else float(slope)))
        # Of each slot, the number of what it competes in; of each terminal class, where it is.
        ends = torch.tensor(inner)
        groups = torch.cat([sibling_groups(space.hierarchy), ends + 1])
        self.register_buffer("ends", ends, persistent=False)
        self.register_buffer("groups", groups, persistent=False)
        self.register_buffer("terminals", space.terminal_ids(), persistent=False)
        self._dense: Tensor | None = None

    @classmethod
    def options_from_labels(cls, labels: Labels, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the strategy that fits training labels, unless one was chosen."""
        if options.get("strategy") is not None:
            return {}
        if (labels.terminal_counts != 1).any():
            return {"strategy": "per-class"}
        return {"strategy": "per-parent" if labels.hierarchy.is_tree else "flat"}

    # ------------------------------------------------------------------ what it holds

    def set(self, offsets: Any, slots: Any, values: Any, bias: Any) -> None:
        """Replace the weights; NumPy arrays, see the attributes."""
        for name, found in zip(
            ("offsets", "slots", "values", "bias"), (offsets, slots, values, bias), strict=True
        ):
            own = getattr(self, name)
            setattr(self, name, torch.from_numpy(found).to(own.device, own.dtype))
        self._dense = None

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Take weights of any number, and check them."""
        for name in self.sized_by_data:
            found = state.get(prefix + name)
            if found is not None:
                setattr(self, name, getattr(self, name).new_empty(found.shape))
        super()._load_from_state_dict(state, prefix, *rest)
        self._dense = None
        if self.offsets.is_meta:
            return
        slots = self.slots.cpu().numpy()
        valid = is_csr(self.offsets.cpu().numpy(), self.features, len(slots))
        valid &= self.values.shape == self.slots.shape and self.slots.dim() == 1
        if not valid or not np.all((slots >= 0) & (slots < len(self.bias))):
            raise CheckpointError("the stored weights of a sparse linear head do not fit together")

    def dense(self) -> Tensor:
        """Return (D, S) weights."""
        if self._dense is None or self._dense.device != self.values.device:
            columns = torch.repeat_interleave(
                torch.arange(self.features, device=self.slots.device), self.offsets.diff()
            )
            full = self.values.new_zeros(self.features, len(self.bias))
            self._dense = full.index_put_((columns, self.slots.long()), self.values)
        return self._dense

    # ------------------------------------------------------------------ answers

    def scores(self, features: Tensor | SparseRows) -> Tensor:
        """Return (N, S) scores."""
        if not isinstance(features, SparseRows):
            weights = self.dense().to(features.dtype)
            return features @ weights + self.bias.to(features.dtype)
        from hierlearn.kernels.linear_numba import score

        x, own = (
            [one.cpu().numpy() for one in parts]
            for parts in (
                (features.offsets, features.columns, features.values.float()),
                (self.offsets, self.slots, self.values.float()),
            )
        )
        found = self.bias.float().cpu().repeat(len(features), 1)  # a copy, of one row, too
        score((x[0], x[1], x[2]), own[0], own[1], own[2], found.numpy())
        return found.to(features.values.device)

    def forward(self, features: Tensor | SparseRows) -> HeadOutput:
        """Return logits with their link."""
        return HeadOutput.from_logits(self.logits(self.scores(features)), self.link)

    def logits(self, scores: Tensor) -> Tensor:
        """Return (N, C) logits of (N, S) scores; per parent the log masses of terminal classes."""
        scaled = scores * self.slope
        if self.strategy != "per-parent":
            return scaled
        classes = len(self.label_space)
        steps = log_steps(scaled, self.groups)
        inside = self.label_space.hierarchy.sum_down(steps[..., :classes])
        if len(self.ends):
            here = inside[..., self.ends] + steps[..., classes:]
            inside = inside.index_copy(-1, self.ends, here)
        empty = torch.full_like(inside, LOG_ZERO)
        return empty.index_copy(-1, self.terminals, inside[..., self.terminals])

    def extra_repr(self) -> str:
        """Show the size when the module is printed."""
        return f"{self.strategy}, {len(self.bias):,} scores, {len(self.values):,} weights"
