"""Whether a network that a folder describes is the one whose weights it holds.

A description can ask for more memory than there is. So numbers are compared with the size of the
weights first, and the network is made without memory, on torch's meta device, to compare shapes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.backbones.size import check_numbers
from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import CheckpointError
from hierlearn.networks.build import build_network
from hierlearn.networks.heads import HEADS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor, nn

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.networks.build import NetworkSpec

LOOPS = ("depth", "layers", "members")  # options that count parts with tensors of their own
FREE = 1 << 16  # numbers up to this one need no weights
MOST_PARTS = 100  # of a blend


def check_network(
    folder: Path, spec: NetworkSpec, label_space: LabelSpace, weights: Mapping[str, Tensor]
) -> None:
    """Raise where a network is not the one whose weights are stored, before memory is taken.

    Args:
        folder: of the model, for errors.
        spec: how to build the network.
        label_space: what can be predicted.
        weights: the tensors that are stored.
    """
    stored = {name: tuple(value.shape) for name, value in weights.items()}
    total = sum(map(math.prod, stored.values()))
    if len(spec.parts) > MOST_PARTS:
        raise CheckpointError(
            f"{folder}: a blend has at most {MOST_PARTS} parts, not {len(spec.parts):,}"
        )
    layers = 0
    for name, value in numbers_of(spec):
        most = max(total, FREE)
        if name.rpartition(".")[2] in LOOPS:
            layers += value
            value, most = layers, len(stored) + 1  # those of all parts of a blend together
        if value > most:
            raise CheckpointError(
                f"{folder}: the network {spec.name!r} with {name} {value:,} is not the one that "
                f"was saved, which has {total:,} weights in {len(stored):,} tensors"
            )
    try:
        check_descriptions(spec, stored)
        check_heads(spec)
        with torch.device("meta"):
            network = build_network(spec, label_space)
        built = network.state_dict()
    except HierlearnError as error:
        raise CheckpointError(f"{folder}: {error.message}") from None
    except Exception as error:
        if spec.foreign:  # which may not be made for the meta device
            return
        reason = " ".join(str(error).split())[:160]
        raise CheckpointError(
            f"{folder}: the network {spec.name!r} cannot be built ({reason})"
        ) from error
    made = {name: tuple(value.shape) for name, value in built.items()}
    made |= {name: stored[name] for name in sized_by_data(network) if name in stored}
    for name in {**made, **stored}:
        if made.get(name) != stored.get(name):
            raise CheckpointError(
                f"{folder}: the network {spec.name!r} is not the one that was saved ({name} is "
                f"{stored.get(name, 'absent')}, the network has {made.get(name, 'none')})"
            )


def sized_by_data(network: nn.Module) -> Iterator[str]:
    """Yield the names of tensors of any size, which a module checks as they are loaded."""
    for prefix, module in network.named_modules():
        for name in getattr(module, "sized_by_data", ()):
            yield f"{prefix}.{name}" if prefix else name


def check_descriptions(spec: NetworkSpec, stored: Mapping[str, tuple[int, ...]]) -> None:
    """Raise where a backbone is described with numbers that are too large for the weights."""
    check_numbers(spec.options.get("description", {}), stored)
    for part in spec.parts:
        check_descriptions(part.network, stored)


def check_heads(spec: NetworkSpec) -> None:
    """Raise on options that no saved head has, such as a file that it would read."""
    for head in spec.heads.values():
        check: Any = getattr(HEADS.get(head.kind), "check_saved", None)
        if check is not None:
            check(head.options)
    for part in spec.parts:
        check_heads(part.network)


def numbers_of(spec: NetworkSpec) -> Iterator[tuple[str, int]]:
    """Yield the integers by which a network is sized, with what they are called."""
    if spec.members is not None:
        yield "ensemble_size", spec.members
    yield from integers(spec.options, "")
    for name, head in spec.heads.items():
        yield from integers(head.options, f"{name}.")
    for part in spec.parts:
        yield from numbers_of(part.network)


def integers(options: Mapping[str, Any], begin: str) -> Iterator[tuple[str, int]]:
    """Yield the integers among options, also those in lists."""
    for name, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, (int, float)) and not isinstance(one, bool) and one == one:
                yield f"{begin}{name}", int(min(max(one, -(2**63)), 2**63))
