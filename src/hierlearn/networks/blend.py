"""Blend: networks of several kinds, whose probabilities are averaged with weights.

    p = sum over parts k and their answers a of w_ka p_ka(x_k)

A part whose probabilities are too timid or too sure beside the others may be sharpened: the masses
q of its terminal classes become q^s, normalized. Every part reads its own columns of the inputs,
since parts differ in their preprocessing, and may be an ensemble. A part with several heads can
answer by any of them. A mixture of coherent probabilities is coherent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.links import HeadOutput, make_link
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.network import read_output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeGuard

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.links import Link
    from hierlearn.networks.build import PartSpec

BLEND = "blend"  # the name in a NetworkSpec
SPREAD = 1e-4  # of a mass, over all classes, before it is raised to a power
SEPARATOR = "."  # between the number of a part and the name of one of its heads


class Blend(nn.Module):
    """A weighted average of the probabilities of several networks.

    Args:
        label_space: what can be predicted.
        specs: what is known of the parts.
        networks: the parts, in the same order.
    """

    def __init__(
        self, label_space: LabelSpace, specs: Sequence[PartSpec], networks: Sequence[nn.Module]
    ) -> None:
        super().__init__()
        total = sum(weight for spec in specs for weight in spec.answers.values())
        if not total > 0:
            raise HierlearnError("the weights of a blend must sum to more than 0")
        self.specs = tuple(specs)
        self.parts = nn.ModuleList(networks)
        self.links = nn.ModuleList(make_link(label_space, spec.link) for spec in specs)
        self.total = float(total)
        sharpens = any(spec.sharpness != 1 for spec in specs)
        self.softmax = make_link(label_space, "softmax") if sharpens else None

    def forward(self, x: Tensor | SparseRows) -> HeadOutput:
        """Return the weighted average of all answers."""
        outputs: list[HeadOutput] = []
        weights: list[float] = []
        for number, (spec, link) in enumerate(zip(self.specs, self.links, strict=True)):
            found = self.parts[number](self.columns(x, number))
            overrides_link = spec.network.takes_link
            for answer, weight in spec.answers.items():
                output = read_output(found, link, overrides_link=overrides_link, answer=answer)  # type: ignore[arg-type]
                mean = output.mean()
                if self.softmax is not None and spec.sharpness != 1:
                    mean = sharpened(mean, self.softmax, spec.sharpness)
                outputs.append(mean)
                weights.append(weight / self.total)
        return HeadOutput.average(outputs, weights)

    def columns(self, x: Tensor | SparseRows, number: int) -> Tensor | SparseRows:
        """Return the columns of the inputs that a part reads."""
        spec = self.specs[number]
        width = spec.network.inputs.width
        if isinstance(x, SparseRows):
            own = x if x.width == width else x.narrow(spec.begin, width)
            return own.dense() if spec.network.inputs.kind == "numbers" else own
        if spec.network.inputs.kind == "images":  # all parts read the same
            return x
        return x[..., spec.begin : spec.begin + width]

    def moved_to(self, label_space: LabelSpace) -> Blend:
        """Return the same networks with links of another label space."""
        return Blend(label_space, self.specs, list(self.parts))

    def named_parts(self) -> list[tuple[str, nn.Module]]:
        """Return the parts with the prefix of the names of their heads."""
        return [(f"{number}{SEPARATOR}", part) for number, part in enumerate(self.parts)]


def sharpened(output: HeadOutput, softmax: Link, power: float) -> HeadOutput:
    """Return probabilities whose terminal masses are raised to a power and normalized.

    Args:
        output: of rows with one path each.
        softmax: the link over the terminal classes.
        power: above 1 makes them surer.
    """
    space, p = softmax.label_space, output.probabilities
    terminals = space.terminal_ids().to(p.device)
    q = p
    if space.has_inner_terminals:  # what the children leave
        structure = space.hierarchy.structure
        below, above = (
            torch.tensor(part, device=p.device)
            for part in (structure.edge_children, structure.parent_ids)
        )
        q = p - torch.zeros_like(p).index_add(1, above, p.index_select(1, below))
    logs = spread_logs(q.index_select(1, terminals).clamp_min(0))
    return softmax.output(torch.zeros_like(p).index_copy(1, terminals, power * logs))


def spread_logs(q: Tensor) -> Tensor:
    """Return the logarithms of (N, T) masses, a little of which is spread evenly."""
    return ((1 - SPREAD) * q + SPREAD / q.shape[1]).log()


def is_blend(network: nn.Module) -> TypeGuard[Blend]:
    """Whether a network is a blend of several."""
    return isinstance(network, Blend)


def memory_shares(blend: Blend) -> dict[str, float]:
    """Return what each head with a memory counts in the answer, by the name of the head.

    What an average of several heads counts is shared by them.
    """
    from hierlearn.networks.ensemble import head_names
    from hierlearn.networks.memories import memory_heads
    from hierlearn.networks.network import AVERAGE, MAIN

    shares: dict[str, float] = {}
    for spec, (prefix, part) in zip(blend.specs, blend.named_parts(), strict=True):
        names = head_names(part)
        for answer, weight in spec.answers.items():
            several = names if answer == AVERAGE else [answer] if len(names) > 1 else [MAIN]
            for name in several:
                if name in memory_heads(part):
                    share = weight / len(several) / blend.total
                    shares[prefix + name] = shares.get(prefix + name, 0.0) + share
    return shares


def memories_alone(blend: Blend, label_space: LabelSpace) -> tuple[Blend, dict[str, str]]:
    """Return the parts of a blend that answer from a memory, without their other heads.

    Returns:
        The blend, and the new name of every head that it keeps, by the old one.

    Raises:
        HierlearnError: where no part does.
    """
    from hierlearn.networks.ensemble import drop_heads, head_names

    shares = memory_shares(blend)
    renamed: dict[str, str] = {}
    specs: list[PartSpec] = []
    networks = []
    for spec, (prefix, part) in zip(blend.specs, blend.named_parts(), strict=True):
        own = {name: shares[prefix + name] for name in head_names(part) if prefix + name in shares}
        if not own:
            continue
        drop_heads(part, [name for name in head_names(part) if name not in own])
        heads = {name: one for name, one in spec.network.heads.items() if name in own}
        renamed |= {prefix + name: f"{len(specs)}{SEPARATOR}{name}" for name in own}
        specs.append(replace(spec, network=replace(spec.network, heads=heads), answers=own))
        networks.append(part)
    if not networks:
        raise HierlearnError("no part of this blend answers from a memory")
    return Blend(label_space, specs, networks).to(next(blend.parameters()).device), renamed
