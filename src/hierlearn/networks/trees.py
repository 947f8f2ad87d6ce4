"""Trees: a forest whose leaves hold the labels of training rows.

    p_j(x) = 1 / T  sum over trees t of  sum over rows i in the leaf of x in t of  s_ti y_ij

with T trees, y the closed targets and s the weights of the rows of a leaf, which sum to 1. p is a
convex mixture of closed label sets: coherent on every tree and every DAG, without a link. The trees
are grown by ``training/solvers/forest.py``; they have no gradients. "extra": random thresholds, and
splits that lessen the variance of the closed targets (Geurts, Ernst and Wehenkel, "Extremely
randomized trees", 2006). "forest": the best threshold for telling label sets apart, on rows drawn
with replacement (Breiman, "Random forests", 2001).

Partial labels: as in a memory, sums go over the rows whose label is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.links import Head, HeadOutput
from hierlearn.links.output import safe_log
from hierlearn.memory.head import normalized
from hierlearn.memory.store import DENSE, mixture, mixture_in_blocks
from hierlearn.networks.layers import check_size
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.networks.inputs import InputSpec

EXTRA, FOREST = "extra", "forest"
ENTRIES = 1 << 24  # weights of label sets that are held at once
KINDS = {"threshold": torch.float32, "shares": torch.float32, "partial": torch.bool}


class ForestHead(Head):
    """Look the answer up in the leaves of T trees.

    The left child of an inner node is the next node; the right child of a leaf is the leaf itself.

    Args:
        features: D, how many numbers a row has.
        label_space: what can be predicted, or a Hierarchy.
        trees: T, how many to grow.
        min_samples_leaf: the fewest training rows of a leaf.
        max_features: the fraction of the features among which a node chooses; "sqrt" for the
            square root of their number.
        kind: "extra" or "forest".
        projections: of the targets, by which splits are chosen; fewer are faster.

    Attributes:
        roots: (T,) the first node of every tree.
        feature, threshold, right: (nodes,) x goes left where x[feature] <= threshold.
        offsets: (nodes + 1,) where the label sets of a leaf begin; inner nodes have none.
        sets, shares: the numbers of the label sets of a leaf, and their weights.
        set_offsets, set_classes: CSR, the most specific classes of every label set.
        partial: whether classes below a label are unknown, not absent.
    """

    roots: Tensor
    feature: Tensor
    threshold: Tensor
    right: Tensor
    offsets: Tensor
    sets: Tensor
    shares: Tensor
    partial: Tensor
    sized_by_data: ClassVar[tuple[str, ...]] = (
        *("roots", "feature", "threshold", "right", "offsets", "sets", "shares"),
        *("set_offsets", "set_classes"),
    )

    def __init__(
        self,
        features: int,
        label_space: LabelSpace | Hierarchy,
        *,
        trees: int = 200,
        min_samples_leaf: int = 1,
        max_features: float | str = 0.5,
        projections: int = 64,
        kind: str = "extra",
    ) -> None:
        super().__init__()
        check_size(trees=trees, min_samples_leaf=min_samples_leaf, projections=projections)
        if kind not in (EXTRA, FOREST):
            raise HierlearnError(unknown_name("kind", str(kind), (EXTRA, FOREST)))
        if max_features != "sqrt" and (
            not isinstance(max_features, (int, float)) or not 0 < max_features <= 1
        ):
            raise HierlearnError(f"max_features must be in (0, 1] or 'sqrt', not {max_features!r}")
        self.kind = kind
        self.label_space = LabelSpace.of(label_space)
        self.width = features
        self.trees = trees
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features if max_features == "sqrt" else float(max_features)
        self.projections = projections
        for name in self.sized_by_data:
            self.register_buffer(name, torch.empty(0, dtype=KINDS.get(name, torch.int32)))
        self.register_buffer("partial", torch.tensor(False))
        self._read()

    # ------------------------------------------------------------------ what it holds

    def set(self, arrays: Mapping[str, Any], *, partial: bool) -> None:
        """Replace the trees.

        Args:
            arrays: NumPy arrays by the names of ``sized_by_data``.
            partial: whether classes below a label are unknown.
        """
        device = self.partial.device
        for name in self.sized_by_data:
            kind = KINDS.get(name, torch.int32)
            setattr(self, name, torch.from_numpy(np.asarray(arrays[name])).to(device, kind))
        self.partial.fill_(partial)
        self._read()

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Take trees of any size, and check them."""
        for name in self.sized_by_data:
            found = state.get(prefix + name)
            if found is not None:
                setattr(self, name, getattr(self, name).new_empty(found.shape))
        super()._load_from_state_dict(state, prefix, *rest)
        self._read()

    def _read(self) -> None:
        """Derive what is needed to answer; raise where arrays do not describe trees."""
        self._dense: tuple[Tensor, Tensor | None] | None = None  # targets and mask of all sets
        self.depth = self.largest = 0  # levels, and label sets of a leaf, at most
        self.labels: Labels | None = None
        if self.roots.is_meta or not self.roots.numel():
            return
        held = {name: getattr(self, name).cpu().numpy() for name in self.sized_by_data}
        self.depth = checked_depth(held, self.width)
        self.largest = int(np.diff(held["offsets"]).max())
        policy: Any = "ignore" if bool(self.partial) else "negative"
        offsets, classes = (held[f"set_{name}"].astype(np.int64) for name in ("offsets", "classes"))
        self.labels = Labels.from_numbers(offsets, classes, self.label_space.hierarchy, policy)

    def forward(self, features: Tensor) -> HeadOutput:
        """Return the node log-probabilities of (N, D) numbers."""
        if self.labels is None:
            raise HierlearnError("no trees have been grown, so there is nothing to answer from")
        if torch.compiler.is_compiling():
            return self.answer(features)
        rows = max(1, ENTRIES // len(self.labels))
        parts = [self.answer(part) for part in torch.split(features, rows)]
        if len(parts) == 1:
            return parts[0]
        log_p, log_not_p = (torch.cat(one) for one in zip(*(p.pair for p in parts), strict=True))
        return HeadOutput(log_p, log_not_p)

    def answer(self, x: Tensor) -> HeadOutput:
        """Return the answers to a few rows."""
        p, q = self.mix(self.set_weights(self.leaves(x)).to(x.dtype))
        hierarchy = self.label_space.hierarchy if self._is_partial else None
        p, q = normalized(p, q, hierarchy)
        return HeadOutput(safe_log(p), safe_log(q))

    def leaves(self, x: Tensor) -> Tensor:
        """Return (N, T) the node of every tree in which a row ends."""
        node = self.roots.long().expand(x.shape[0], -1)
        for _ in range(self.depth):
            right = self.right[node].long()
            goes_left = x.gather(1, self.feature[node].long()) <= self.threshold[node]
            node = torch.where(goes_left & (right > node), node + 1, right)
        return node

    def set_weights(self, leaves: Tensor) -> Tensor:
        """Return (N, S) the weight of every label set, in double precision."""
        begin, end = self.offsets[leaves].long(), self.offsets[leaves + 1].long()
        last = len(self.sets) - 1
        assert self.labels is not None
        shape = (leaves.shape[0], len(self.labels))  # len would fix the rows of an exported graph
        held = torch.zeros(shape, dtype=torch.float64, device=leaves.device)
        count = self.largest
        if not torch.compiler.is_compiling():
            count = int((end - begin).max()) if leaves.numel() else 0
        for number in range(count):
            place = (begin + number).clamp_max(last)
            share = torch.where(begin + number < end, self.shares[place].double(), 0.0)
            held = held.scatter_add(1, self.sets[place].long(), share)
        return held / len(self.roots)

    @property
    def _is_partial(self) -> bool:
        return self.labels is not None and self.labels.unlabeled_descendants == "ignore"

    def mix(self, held: Tensor) -> tuple[Tensor, Tensor]:
        """Return (N, C) the weight of the sets that have each class, and of those that lack it."""
        assert self.labels is not None
        classes, partial = len(self.label_space), self._is_partial
        if len(self.labels) * classes <= DENSE:
            if self._dense is None or self._dense[0].device != held.device:
                mask = self.labels.mask().to(held.device) if partial else None
                self._dense = (self.labels.targets().to(held.device), mask)
            return mixture(held, *self._dense)
        return mixture_in_blocks(held, self.labels, np.arange(len(self.labels)))

    def extra_repr(self) -> str:
        """Show the size when the module is printed."""
        return f"{len(self.roots)} of {self.trees} trees, {len(self.feature):,} nodes"


def checked_depth(held: Mapping[str, Any], features: int) -> int:
    """Return the depth of trees; raise where arrays are damaged.

    Args:
        held: arrays by name, see ForestHead.
        features: D, how many numbers a row has.
    """
    nodes = held["feature"].size
    for name, values in held.items():
        if values.ndim != 1 or (name in ("threshold", "right") and len(values) != nodes):
            raise HierlearnError(f"{name} does not describe the trees of a forest")
    right, roots = held["right"].astype(np.int64), held["roots"].astype(np.int64)
    inner = right != np.arange(nodes)
    last = len(held["set_offsets"]) - 1
    places = np.arange(nodes) + inner  # children come after their parents, so that paths end

    checks = {
        "roots": bool(np.all((roots >= 0) & (roots < nodes))),
        "threshold": bool(np.isfinite(held["threshold"]).all()),
        "right": bool(np.all(((right > places) | ~inner) & (right < nodes))),
        "feature": nodes == 0 or 0 <= held["feature"].min() <= held["feature"].max() < features,
        "offsets": is_csr(held["offsets"], nodes, len(held["sets"])),
        "shares": len(held["shares"]) == len(held["sets"])
        and bool(np.all(np.isfinite(held["shares"]) & (held["shares"] >= 0))),
        "set_offsets": is_csr(held["set_offsets"], last, len(held["set_classes"])),
        "sets": bool(np.all((held["sets"] >= 0) & (held["sets"] < last))),
    }
    for name, valid in checks.items():
        if not valid:
            raise HierlearnError(f"{name} does not describe the trees of a forest")
    depth, level = 0, roots[inner[roots]]
    while len(level):
        below = np.concatenate([level + 1, right[level]])
        depth, level = depth + 1, np.unique(below[inner[below]])
    return depth


def is_csr(offsets: Any, rows: int, entries: int) -> bool:
    """Whether offsets divide entries into rows."""
    if not len(offsets) or len(offsets) != rows + 1 or offsets[0] != 0 or offsets[-1] != entries:
        return False
    return bool(np.all(np.diff(offsets) >= 0))


def trees(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    trees: int = 200,
    min_samples_leaf: int = 1,
    max_features: float | str = 0.5,
    projections: int = 64,
    kind: str = EXTRA,
) -> Network:
    """Return a forest; see ForestHead."""
    if inputs.kind != "numbers":
        raise HierlearnError(
            f"the network trees reads dense numbers, not inputs of kind {inputs.kind!r}; use "
            f"another network, or preprocessing that gives numbers, such as 'latent' for texts"
        )
    head = ForestHead(
        inputs.width,
        label_space,
        trees=trees,
        min_samples_leaf=min_samples_leaf,
        max_features=max_features,
        projections=projections,
        kind=kind,
    )
    return Network(nn.Identity(), head)


trees.solver = "trees"  # type: ignore[attr-defined]  # they are grown, not trained
