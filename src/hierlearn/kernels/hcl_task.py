"""What the kernels of HCL are asked to compute, and whether they can be launched at all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec


@lru_cache(maxsize=1)
def has_triton() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def interpreted() -> bool:
    """Whether Triton interprets kernels instead of compiling them, for tests without a device."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@dataclass(frozen=True)
class Base:
    """An elementwise loss: bce times a scale, or focal with the weights of both kinds of label."""

    scale: float = 1.0
    focal: bool = False
    positive: float = 1.0
    negative: float = 1.0
    gamma: float = 0.0


@dataclass(frozen=True)
class Selection:
    """How one kernel selects classes.

    Attributes:
        floor: the weight of unselected classes.
        by_rows: whether class losses and e_h are means over rows.
        fixed: whether a threshold is given, instead of C + e_h.
    """

    floor: float
    by_rows: bool
    fixed: bool


@dataclass(frozen=True)
class Task:
    """What is computed of every batch.

    Attributes:
        sizes: the classes of each level; one level for no constraint at all.
        base: the elementwise loss.
        mean: whether the loss is divided by the number of known entries.
        selection: how the kernels select, or None where the caller brings weights.
    """

    sizes: tuple[int, ...]
    base: Base
    mean: bool
    selection: Selection | None
