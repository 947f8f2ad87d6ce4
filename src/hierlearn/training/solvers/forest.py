"""Forest: trees grown one by one by scikit-learn.

Splits of extremely randomized trees are chosen to lessen the variance of the closed targets. With C
classes each split would cost C sums per row, so that of q random projections of the targets stands
in for it (Joly, Geurts and Wehenkel, 2014), drawn again for every tree:

    Z = Y R,    R (C, q) normal,    E |z_i - z_k|^2 = q |y_i - y_k|^2

Those of a random forest tell label sets apart (Gini), on rows drawn with replacement.
Leaves hold the label sets of their rows, not means of C numbers: a forest of N rows takes about
20 N T bytes, whatever the number of classes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.errors import HierlearnError
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.trees import FOREST
from hierlearn.training.seeding import derive

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.networks.trees import ForestHead
    from hierlearn.training.rows import Rows

CHUNK = 4096  # rows whose mask is made at once
PAST = 0.0072  # of the way from a threshold to the next training value
BESIDE = 1e-5  # of the range of a column: as good as the same value


@dataclass(frozen=True)
class Sample:
    """The rows that trees are grown of.

    Attributes:
        x: (n, D) float32.
        targets: (n, C) CSR of scipy; classes that are unknown have the mean of those known.
        label_set: (n,) the number of the label set of each row.
        weights: (n,) how much each row counts; None for all alike.
        columns: (D, n) the numbers of each column in ascending order.
    """

    x: NDArray[np.float32]
    targets: Any
    label_set: NDArray[np.int64]
    weights: NDArray[np.float64] | None
    columns: NDArray[np.float32]

    @classmethod
    def of(cls, rows: Rows) -> Sample:
        """Return the rows of a training that count, and of which something is known."""
        if rows.streamed or isinstance(rows.inputs, SparseRows):
            raise HierlearnError(
                "trees are grown of dense rows in memory, not of sparse rows or streams; use "
                "another recipe, such as linear"
            )
        known = np.ones(len(rows), dtype=bool)
        weights = None if rows.weights is None else rows.weights.double().cpu().numpy()
        if weights is not None:
            known &= weights > 0
        if rows.is_partial:
            known &= np.diff(rows.labels.closed[0]) > 0
        kept = np.flatnonzero(known)
        if not len(kept):
            raise HierlearnError("trees cannot be grown: no training row has a label")
        x = rows.inputs.float().cpu().numpy()[kept]
        return cls(
            x=x,
            targets=expected_targets(rows.labels)[kept],
            label_set=rows.label_sets.of_row[kept],
            weights=None if weights is None else weights[kept],
            columns=np.sort(x.T, axis=1),
        )


def expected_targets(labels: Labels) -> Any:
    """Return (N, C) closed targets as CSR of scipy; what is unknown is the mean of the known."""
    from scipy import sparse

    offsets, classes = labels.closed
    shape = (len(labels), len(labels.hierarchy))
    targets = sparse.csr_array((np.ones(len(classes)), classes, offsets), shape=shape)
    if labels.unlabeled_descendants == "negative":
        return targets
    unknown = [
        sparse.csr_array(~labels.mask(np.arange(begin, min(begin + CHUNK, len(labels)))).numpy())
        for begin in range(0, len(labels), CHUNK)
    ]
    missing = sparse.vstack(unknown, format="csr").astype(np.float64)
    counts = len(labels) - missing.sum(axis=0)
    mean = targets.sum(axis=0) / np.maximum(counts, 1)
    return (targets + missing.multiply(mean[None])).tocsr()


def grow_tree(head: ForestHead, sample: Sample, seed: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of one tree, with nodes counted from 0; see ForestHead."""
    from sklearn.tree import DecisionTreeClassifier, ExtraTreeRegressor

    options: dict[str, Any] = {
        "max_features": head.max_features,
        "min_samples_leaf": head.min_samples_leaf,
        "random_state": seed % (1 << 32),
    }
    classes, draw = sample.targets.shape[1], np.random.default_rng(seed)
    weights: Any = sample.weights
    if head.kind == FOREST:
        count = len(sample.x)
        times = np.bincount(draw.integers(0, count, count), minlength=count)
        weights = times * (1.0 if weights is None else weights)
        grown = DecisionTreeClassifier(**options).fit(sample.x, sample.label_set, weights)
    else:
        if classes <= head.projections:
            split_by = sample.targets.toarray()
        else:
            split_by = sample.targets @ draw.standard_normal((classes, head.projections))
        grown = ExtraTreeRegressor(**options).fit(sample.x, split_by, sample_weight=weights)
    tree = grown.tree_
    own, is_leaf = np.arange(tree.node_count), tree.children_left < 0
    assert np.array_equal(tree.children_left[~is_leaf], own[~is_leaf] + 1)
    feature, threshold = (np.where(is_leaf, 0, one) for one in (tree.feature, tree.threshold))
    if head.kind == FOREST:
        threshold = past_round_values(feature, threshold, ~is_leaf, sample.columns)
    sets = int(sample.label_set.max()) + 1
    seen = np.flatnonzero(np.ones(len(sample.x)) if weights is None else weights)
    leaf = tree.apply(sample.x)[seen]  # no copy of the rows
    keys, place = np.unique(leaf * sets + sample.label_set[seen], return_inverse=True)
    weight = np.bincount(place, None if weights is None else weights[seen])
    node = keys // sets
    whole = np.bincount(node, weight, tree.node_count)
    counts = np.bincount(node, minlength=tree.node_count)
    return {
        "feature": feature,
        "threshold": rounded_down(threshold),
        "right": np.where(is_leaf, own, tree.children_right),
        "counts": counts,
        "sets": keys % sets,
        "shares": weight / whole[node],
    }


def past_round_values(
    feature: NDArray[np.int64],
    threshold: NDArray[np.float64],
    inner: NDArray[np.bool_],
    columns: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Return thresholds a little further up, where no round number is.

    Halfway between training values of 50 and 60 new rows have 55, and then the last digit of a
    float would decide where they go. Training rows go where they went: the values of a node lie
    evenly on both sides of its threshold, so that a single one beside it is of other nodes.

    Args:
        feature: the column of each node.
        threshold: halfway between two training values.
        inner: which nodes have children.
        columns: see ``Sample``.
    """
    moved = threshold.astype(np.float64)
    for column in np.unique(feature[inner]):
        nodes = np.flatnonzero(inner & (feature == column))
        values, old = columns[column].astype(np.float64), moved[nodes]
        near = BESIDE * (values[-1] - values[0])
        first = np.searchsorted(values, old - near)
        above = np.searchsorted(values, old + near, side="right")
        lower = np.where(first < above, np.maximum(values[above - 1], old), old)
        upper = values[np.minimum(above, len(values) - 1)]
        fine = (first < above) & (values[first] < values[above - 1])  # a gap as narrow
        moved[nodes] = np.where(fine, old, lower + PAST * (upper - lower))
    return moved


def rounded_down(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 up to each value: float32 numbers compare with it as with it."""
    near = values.astype(np.float32)
    return np.where(near > values, np.nextafter(near, np.float32(-np.inf)), near)


def grow(
    head: ForestHead, rows: Rows, seed: int, on_tree: Callable[[], None] = lambda: None
) -> None:
    """Grow the trees of a head.

    Args:
        head: what they are for.
        rows: the training rows.
        seed: of the forest.
        on_tree: called after each tree.
    """
    sample = Sample.of(rows)
    parts: list[dict[str, NDArray[Any]]] = []
    seeds = [derive(seed, "tree", number) for number in range(head.trees)]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for tree in pool.map(partial(grow_tree, head, sample), seeds):
            parts.append(tree)
            on_tree()
    arrays = {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}
    sizes = [len(one["feature"]) for one in parts]
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    arrays["roots"] = roots
    arrays["right"] = arrays["right"] + np.repeat(roots, sizes)
    arrays["offsets"] = np.concatenate([[0], np.cumsum(arrays.pop("counts"))])
    sets = rows.label_sets.sets
    arrays["set_offsets"], arrays["set_classes"] = sets.terminal
    head.set(arrays, partial=rows.is_partial)
