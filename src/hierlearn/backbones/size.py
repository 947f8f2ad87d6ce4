"""Whether a description of a backbone is that of the weights stored beside it.

A description can ask for more memory than there is. So its numbers are compared with the size of
the weights first; the network is then made on torch's meta device, which takes no memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import nn

COUNTS = ("layer", "block", "depth", "stage")  # in the names of numbers that a loop runs to
FREE = 1 << 18  # numbers up to this one need no weights


def check_numbers(description: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise on a number that is too large for the weights.

    Args:
        description: what ``Backbone.describe`` returned.
        shapes: of the stored weights.
    """
    total = sum(map(math.prod, shapes.values()))
    for name, value in integers(description):
        most = len(shapes) + 1 if any(one in name for one in COUNTS) else max(total, FREE)
        if value > most:
            raise HierlearnError(
                f"the backbone with {name} {value:,} is not the one that was saved, which has "
                f"{total:,} weights in {len(shapes):,} tensors"
            )


def check_shapes(build: Callable[[], nn.Module], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise where what is built has other weights than those stored.

    Args:
        build: makes the network.
        shapes: of the stored weights.
    """
    with torch.device("meta"):
        made = {name: tuple(value.shape) for name, value in build().state_dict().items()}
    for name in {**made, **shapes}:
        if made.get(name) != shapes.get(name):
            raise HierlearnError(
                f"the backbone is not the one that was saved ({name} is "
                f"{shapes.get(name, 'absent')}, the backbone has {made.get(name, 'none')})"
            )


def integers(values: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """Yield the numbers of a description with their names, and the lengths of its lists."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield from integers(value, str(key))
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from integers(value, name)
    elif isinstance(values, (int, float)) and not isinstance(values, bool) and values == values:
        yield name, int(min(max(values, -(2**63)), 2**63))
