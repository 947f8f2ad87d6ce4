"""The memories of a network, an ensemble or a blend, all of its heads and members at once.

All heads and members of a network remember the same rows; the embeddings differ. A head of a blend
is called after the number of its part: "0.main".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.networks.blend import SEPARATOR, Blend
from hierlearn.networks.ensemble import LoopedEnsemble, members_of, networks_in
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hierlearn.memory import NeighborHead, Remembered


def memory_heads(network: nn.Module) -> dict[str, list[NeighborHead]]:
    """Return the heads with a memory by name; one for every member that is looped over."""
    if isinstance(network, Blend):
        return {
            prefix + name: heads
            for prefix, part in network.named_parts()
            for name, heads in memory_heads(part).items()
        }
    found: dict[str, list[Any]] = {}
    for one in networks_in(network):
        heads = one.heads.items() if isinstance(one, Network) else ()
        for name, head in heads:
            if head.has_memory:
                found.setdefault(name, []).append(head)
    return found


def owner(network: nn.Module, head: str) -> tuple[nn.Module, str]:
    """Return the part of a blend that has a head, and its name there; else the network itself."""
    if not isinstance(network, Blend):
        return network, head
    number, _, name = head.partition(SEPARATOR)
    return network.parts[int(number)], name


def members_of_head(network: nn.Module, head: str) -> int | None:
    """Return how many members a head has embeddings of; None for a network alone."""
    return members_of(owner(network, head)[0])


def candidates_of(network: nn.Module) -> int | None:
    """Return how many candidates a training step needs; None for a network without a memory."""
    counts = [head.candidates for heads in memory_heads(network).values() for head in heads]
    return max(counts, default=None)


def embed(network: nn.Module, x: Any) -> dict[str, Tensor]:
    """Return the embeddings of rows by head, (N, D), or (M, N, D) of an ensemble."""
    if isinstance(network, Blend):
        return {
            prefix + name: found
            for number, (prefix, part) in enumerate(network.named_parts())
            if memory_heads(part)
            for name, found in embed(part, network.columns(x, number)).items()
        }
    parts = [one.embed(x) for one in networks_in(network)]  # type: ignore[operator]
    if not isinstance(network, LoopedEnsemble):
        only: dict[str, Tensor] = parts[0]
        return only
    return {name: torch.stack([part[name] for part in parts]) for name in parts[0]}


def remembered(network: nn.Module) -> Remembered | None:
    """Return what a network remembers; None without a memory, or while it is empty."""
    for heads in memory_heads(network).values():
        return heads[0].memory.rows
    return None


def embeddings_of(network: nn.Module) -> dict[str, Tensor]:
    """Return the embeddings of the remembered rows by head, as ``embed`` returns them."""
    found: dict[str, Tensor] = {}
    for name, heads in memory_heads(network).items():
        looped = isinstance(owner(network, name)[0], LoopedEnsemble)
        parts = [head.memory.held()[0] for head in heads]
        found[name] = torch.stack(parts) if looped else parts[0]
    return found


@torch.no_grad()
def neighbors_of(network: nn.Module, head: str, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Return (M, n, k) the weights of the nearest remembered rows, and their row numbers.

    Args:
        network: a network, where M is 1, an ensemble, or a blend.
        head: the name of a head with a memory.
        embeddings: what ``embed`` returned for that head.
    """
    heads = memory_heads(network)[head]
    if isinstance(owner(network, head)[0], LoopedEnsemble):
        parts = [one.kneighbors(own) for one, own in zip(heads, embeddings, strict=True)]
        return torch.stack([w for w, _ in parts]), torch.stack([index for _, index in parts])
    weights, index = heads[0].kneighbors(embeddings)
    return (weights, index) if weights.dim() == 3 else (weights[None], index[None])


def set_memory(network: nn.Module, embeddings: dict[str, Tensor], rows: Remembered) -> None:
    """Replace what a network remembers.

    Args:
        network: a network, an ensemble or a blend.
        embeddings: by head, (N, D), or (M, N, D) of an ensemble.
        rows: the labels and ids of the rows.
        part: which of the rows the embeddings are, where processes share them; None for all.
    """
    for name, heads in memory_heads(network).items():
        looped = isinstance(owner(network, name)[0], LoopedEnsemble)
        for number, head in enumerate(heads):
            found = embeddings[name][number] if looped else embeddings[name]
            head.memory.set(found, rows)
