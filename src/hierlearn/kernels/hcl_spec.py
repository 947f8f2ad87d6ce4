"""KernelSpec: what the kernels of HCL compute, and whether they can be launched at all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hierlearn.kernels.tree_layout import TreeLayout


@lru_cache(maxsize=1)
def has_triton() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def interpreted() -> bool:
    """Whether Triton interprets kernels instead of compiling them, for tests without a GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@dataclass(frozen=True)
class BaseOptions:
    """The elementwise loss: bce times a scale, or focal.

    Attributes:
        scale: multiplies bce.
        focal: whether the loss is focal.
        positive: the weight of entries whose target is 1, for focal.
        negative: the weight of entries whose target is 0, for focal.
        gamma: the exponent of focal.
    """

    scale: float = 1.0
    focal: bool = False
    positive: float = 1.0
    negative: float = 1.0
    gamma: float = 0.0


@dataclass(frozen=True)
class SelectionOptions:
    """How the kernels select classes.

    Attributes:
        floor: the weight of unselected classes.
        by_rows: whether class losses and e_h are means over rows.
        fixed: whether a threshold is given instead of C + e_h.
    """

    floor: float
    by_rows: bool
    fixed: bool


@dataclass(frozen=True)
class KernelSpec:
    """What the kernels compute for every batch.

    Attributes:
        sizes: the number of classes of each level; one level where there is no constraint.
        base: the elementwise loss.
        mean: whether the loss is divided by the number of known entries.
        selection: how the kernels select, or None where the caller supplies weights.
        tree: the tree, for the softmax link and scope "ancestors".
        softmax: whether logits are read by a softmax over the terminal classes of the tree.
        bound: whether the classes of the tree are bound by their ancestors.
    """

    sizes: tuple[int, ...]
    base: BaseOptions
    mean: bool
    selection: SelectionOptions | None
    tree: TreeLayout | None = None
    softmax: bool = False
    bound: bool = False
