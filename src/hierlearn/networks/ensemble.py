"""Ensembles: M networks of the same kind that are trained together and averaged.

    StackedEnsemble   weights stacked along a first dimension: one batched matmul for all members
    LoopedEnsemble    one member after another: for any module

Networks that are made of stackable parts are stacked; all others loop. In either case a
member equals the network that is trained alone with its seed. The functions below accept a single
network too.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from hierlearn.links import HeadOutput
from hierlearn.networks.blend import Blend
from hierlearn.networks.layers import Dropout, Share, StepSeeds
from hierlearn.networks.network import Auxiliary, Network, StagedNetwork

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.memory import Candidates

H = TypeVar("H", bound=nn.Module)
# Elementwise modules of torch without weights, which accept a leading axis.
ELEMENTWISE = (nn.Identity, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid)
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
TINY = 1e-6  # torch's own, in clip_grad_norm_


class Ensemble(nn.Module):
    """Base of the ensembles: ``forward(x, candidates=None, apart=False)``.

    By default all members read the same rows; with ``apart`` each reads its own, and the first axis
    of x is that of the members.

    Attributes:
        members: M.
    """

    members: int


class StackedEnsemble(Ensemble):
    """Members with stacked weights.

    Args:
        networks: the members; each must be stackable.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = len(networks)
        self.network = stacked(networks)

    def forward(self, x: Any, candidates: Candidates | None = None, *, apart: bool = False) -> Any:
        """Return the outputs of all members, (M, N, C); see ``Ensemble``."""
        del apart  # rows of each member have a leading axis, or SparseRows.members
        return self.network(x) if candidates is None else self.network(x, candidates)


class LoopedEnsemble(Ensemble):
    """Members one after another.

    Args:
        networks: the members.

    Attributes:
        noise_seeds: seeds of torch's generator, one per member, set before a step.
    """

    noise_seeds: Sequence[int] | None

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = len(networks)
        self.networks = nn.ModuleList(networks)
        self.noise_seeds = None

    def forward(self, x: Any, candidates: Candidates | None = None, *, apart: bool = False) -> Any:
        """Return the outputs of all members, (M, N, C); see ``Ensemble``."""
        found = []
        for number, network in enumerate(self.networks):
            if self.training and self.noise_seeds is not None:
                torch.manual_seed(self.noise_seeds[number])
            own = rows_of(x, number) if apart else x
            extra = () if candidates is None else (candidates.member(number),)
            found.append(network(own, *extra))
        return joined(found)


def rows_of(x: Any, member: int) -> Any:
    """Return the rows of one member."""
    return x[member] if isinstance(x, Tensor) else x.member(member)


def joined(outputs: Sequence[Any]) -> Any:
    """Stack the outputs of the members along a first axis."""
    first = outputs[0]
    if isinstance(first, dict):
        return {name: joined([one[name] for one in outputs]) for name in first}
    if isinstance(first, Tensor):
        return torch.stack(list(outputs))
    return HeadOutput.stack(outputs)


def ensemble_of(networks: Sequence[nn.Module]) -> Ensemble:
    """Return the members as one module: stacked where they can be, else looped over."""
    if all(is_stackable(network) for network in networks):
        return StackedEnsemble(networks)
    return LoopedEnsemble(networks)


# ---------------------------------------- stacking


def is_stackable(module: nn.Module) -> bool:
    """Whether a module and all its parts can be computed for M members at once."""
    own = vars(type(module))  # not inherited: a subclass may compute something else
    if "stack" in own or type(module) in ELEMENTWISE:
        return True
    if not (own.get("stackable", False) or type(module) in CONTAINERS):
        return False
    if module._parameters or any(buffer is not None for buffer in module._buffers.values()):
        return False
    return all(is_stackable(child) or is_shared(child) for child in module.children())


def is_shared(module: nn.Module) -> bool:
    """Whether a part has no weights, so that all members can use one, as they do a link."""
    return not any(True for _ in module.parameters()) and not module.state_dict()


def stacked(modules: Sequence[nn.Module]) -> nn.Module:
    """Return one module that computes several at once; they are left as they are."""
    first = modules[0]
    own: Any = getattr(type(first), "stack", None)
    if own is not None and "stack" in vars(type(first)):
        made: nn.Module = own(modules)
        return made
    if is_shared(first) and not any(isinstance(part, Dropout) for part in first.modules()):
        return first
    new = copy.copy(first)
    new._modules = {
        name: None if child is None else stacked([one._modules[name] for one in modules])  # type: ignore[misc]
        for name, child in first._modules.items()
    }
    return new


# ---------------------------------------- one network or several


def members_of(network: nn.Module) -> int | None:
    """Return M of an ensemble; None for a network alone."""
    return network.members if isinstance(network, Ensemble) else None


def member_state(network: nn.Module, member: int) -> dict[str, Tensor]:
    """Return the tensors of one member, named as in a network alone, to be changed in place."""
    if isinstance(network, LoopedEnsemble):
        return dict(network.networks[member].state_dict())
    if isinstance(network, StackedEnsemble):
        return {name: value[member] for name, value in network.network.state_dict().items()}
    return dict(network.state_dict())


def finite_members(network: nn.Module) -> Tensor:
    """Return (M,) bool, which members have finite weights; (1,) for a network alone."""
    if isinstance(network, StackedEnsemble):
        state = network.network.state_dict().values()
        finite = [are_finite(value.reshape(len(value), -1)) for value in state]
        return torch.stack(finite).all(dim=0)
    states = [member_state(network, member).values() for member in range(members_of(network) or 1)]
    return torch.stack(
        [torch.cat([are_finite(value.reshape(1, -1)) for value in state]).all() for state in states]
    )


def are_finite(rows: Tensor) -> Tensor:
    """Return (M,) bool, which rows of (M, n) are finite; isfinite would copy them."""
    if not rows.shape[1] or not rows.is_floating_point():
        return rows.new_ones(len(rows), dtype=torch.bool)
    least, most = rows.aminmax(dim=1)  # NaN where one is
    return least.isfinite() & most.isfinite()


def clip_grad_norm(network: nn.Module, limit: float) -> None:
    """Scale down the gradient of each member whose norm exceeds the limit.

        g <- g min(1, limit / (|g| + 1e-6))

    as torch's ``clip_grad_norm_`` does for a network alone; members are clipped apart.
    """
    if isinstance(network, LoopedEnsemble):
        for one in network.networks:
            nn.utils.clip_grad_norm_(one.parameters(), limit)
        return
    if not isinstance(network, StackedEnsemble):
        nn.utils.clip_grad_norm_(network.parameters(), limit)
        return
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    norms = torch.stack([g.reshape(len(g), -1).norm(dim=1) for g in gradients]).norm(dim=0)  # (M,)
    scale = (limit / (norms + TINY)).clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))


def networks_in(network: nn.Module) -> list[nn.Module]:
    """Return the modules that hold heads: one, or one per member that is looped over."""
    if isinstance(network, LoopedEnsemble):
        return list(network.networks)
    return [network.network if isinstance(network, StackedEnsemble) else network]


def heads_of(network: nn.Module, kind: type[H]) -> list[H]:
    """Return the heads of a kind in a network, or in every member of an ensemble."""
    return [
        head
        for one in networks_in(network)
        if isinstance(one, Network)
        for head in one.heads.values()
        if isinstance(head, kind)
    ]


def staged_networks(network: nn.Module) -> list[StagedNetwork]:
    """Return what is trained part by part in a network or an ensemble; empty for other networks."""
    return [one for one in networks_in(network) if isinstance(one, StagedNetwork)]


def head_names(network: nn.Module) -> list[str]:
    """Return the names of the heads that answer; empty where there are none."""
    first = networks_in(network)[0]
    if not isinstance(first, Network):
        return []
    return [name for name in first.heads if name not in first.auxiliary]


def auxiliary_heads(network: nn.Module) -> dict[str, Auxiliary]:
    """Return what trains the heads that only help others to learn, by their names."""
    first = networks_in(network)[0]
    return first.auxiliary if isinstance(first, Network) else {}


def drop_heads(network: nn.Module, names: Sequence[str]) -> None:
    """Remove heads from a network, or from every member."""
    for one in networks_in(network):
        for name in names:
            del one.heads[name]  # type: ignore[union-attr, operator]


class Noise:
    """The random numbers of a network's dropout, for each member its own, seeded at every step.

    On a GPU dropout draws from seeds that are tensors; otherwise, and for other noise of the
    inputs, from generators. Other modules draw from torch's own generator, which is then seeded
    instead.

    Args:
        network: a network or an ensemble.
        device: where its noise is drawn.

    Attributes:
        generators: one per member.
        seeds: (M,) int64 on a GPU; None elsewhere.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        count = members_of(network) or 1
        self.network = network
        self.uses_torch = not is_native(network)
        self.generators = [torch.Generator(device) for _ in range(count)]
        self.layers = [one for one in network.modules() if isinstance(one, Dropout)]
        on_gpu = device.type == "cuda"
        self.seeds = torch.zeros(count, dtype=torch.int64, device=device) if on_gpu else None
        self.draws: list[StepSeeds] = []
        self.needs_generators = not on_gpu or any(one.needs_generators for one in self.layers)
        if not isinstance(network, LoopedEnsemble):
            self.hand_out(network, slice(0, count))
            return
        for number, one in enumerate(network.networks):
            self.hand_out(one, slice(number, number + 1))

    @property
    def drawn_generators(self) -> list[torch.Generator]:
        """The generators that layers draw from."""
        return self.generators if self.needs_generators else []

    def hand_out(self, network: nn.Module, members: slice) -> None:
        """Let the dropout layers of a network draw the noise of some members."""
        draws = None if self.seeds is None else StepSeeds(self.seeds[members])
        if draws is not None:
            self.draws.append(draws)
        for layer in network.modules():
            if isinstance(layer, Dropout):
                layer.generators, layer.seeds = self.generators[members], draws

    def seed(
        self, seeds: Sequence[int], own: Sequence[int] | None = None, share: Share | None = None
    ) -> None:
        """Seed the noise of the next step.

        Args:
            seeds: one per member, the same in all processes.
            own: those of torch's generator, which knows nothing of other processes; by default
                ``seeds``.
            share: the rows of this process, where there are several.
        """
        own = seeds if own is None else own
        if self.seeds is not None:
            waiting = torch.tensor(seeds, pin_memory=True)  # so that the host need not wait
            self.seeds.copy_(waiting, non_blocking=True)
        for draws in self.draws:
            draws.calls = 0
        for generator, seed in zip(self.drawn_generators, seeds, strict=False):
            generator.manual_seed(seed)
        for layer in self.layers:
            layer.share = share
        if isinstance(self.network, LoopedEnsemble):
            self.network.noise_seeds = list(own)
        elif self.uses_torch:
            torch.manual_seed(own[0])


def is_native(network: nn.Module) -> bool:
    """Whether all randomness of a network is that of our own Dropout."""
    if isinstance(network, Blend):
        return all(is_native(part) for part in network.parts)
    if isinstance(network, Ensemble):
        return isinstance(network, StackedEnsemble)
    return is_stackable(network)
