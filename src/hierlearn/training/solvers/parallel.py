"""How a network is spread over the processes: copies (DDP), or shares of its weights (FSDP2).

Under FSDP every process holds a part of each parameter, its gradient and its state of the
optimizer; torch's ``fully_shard`` gathers the parameters of one transformer block when it is
computed, and frees them after. What is written is whole: checkpoints and models are those of one
process, and any number of processes may resume from them. The network that was passed in waits in
the memory of the host, and gets the weights at the end.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hierlearn.errors import HierlearnError, arg
from hierlearn.links import HeadOutput
from hierlearn.networks.ensemble import finite_members
from hierlearn.networks.memories import memory_heads
from hierlearn.training.solvers.stages import staged_networks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hierlearn.training.processes import Processes
    from hierlearn.training.settings import Settings
    from hierlearn.training.solvers.solver import EarlyStopping


def check_sharding(network: nn.Module, settings: Settings) -> None:
    """Raise on what cannot be trained with sharded weights."""
    if settings.optimizer != "adamw":
        raise HierlearnError(
            f"parallel fsdp is for optimizer adamw, not {settings.optimizer}; use parallel ddp"
        )
    if settings.ensemble_size > 1:
        raise HierlearnError(
            f"parallel fsdp trains one network, not {settings.ensemble_size}; use "
            f"{arg('ensemble_size')} 1 "
            f"or parallel ddp"
        )
    if staged_networks(network):
        raise HierlearnError(
            "parallel fsdp cannot train a network part by part, which changes what is trained; use "
            "parallel ddp"
        )
    if any(getattr(one, "used_by_loss", False) for one in network.modules()):
        raise HierlearnError(
            "parallel fsdp cannot train weights that the loss computes with, as those of the "
            "network tsle; use parallel ddp"
        )
    if memory_heads(network):
        raise HierlearnError(
            "parallel fsdp cannot train a memory, which compares rows outside of the network; use "
            "head linear or parallel ddp"
        )


class Replicas:
    """A network in one process, or a copy in each of several (DDP).

    Args:
        network: what is trained.
        processes: this process among all of them.

    Attributes:
        network: what is optimized, on the device where it is trained.
        together: whether it computes, and is saved, only in all processes at once.
    """

    together = False

    def __init__(self, network: nn.Module, processes: Processes) -> None:
        self.network = network.to(processes.device)
        self.processes = processes

    def wrap(self) -> nn.Module:
        """Return the network as steps call it: gradients are averaged over the processes."""
        if self.processes.world == 1:
            return self.network
        return DistributedDataParallel(self.network)

    def finite_members(self) -> list[bool]:
        """Return which members have finite weights; the host waits."""
        found: list[bool] = finite_members(self.network).tolist()
        return found

    def whole(self, value: Tensor) -> Tensor:
        """Return a copy of a tensor of the training for a checkpoint."""
        return value.clone()

    def own(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return what this process loads of a checkpoint."""
        return tensors

    def collect(self, stopping: EarlyStopping) -> nn.Module:
        """Return the trained network in one piece, after the best weights are restored."""
        del stopping
        return self.network


class Shards(Replicas):
    """A copy of a network whose weights are spread over the processes (FSDP2)."""

    together = True

    def __init__(self, network: nn.Module, processes: Processes) -> None:
        self.given = network
        super().__init__(deepcopy(network), processes)
        self.outer = shard(self.network, processes.world)

    def wrap(self) -> nn.Module:
        """Return what gathers the weights, and averages their gradients."""
        return self.outer

    def finite_members(self) -> list[bool]:
        """Return whether the weights of all processes are finite."""
        return [
            all(bool(whole(one).isfinite().all()) for one in self.network.state_dict().values())
        ]

    def whole(self, value: Tensor) -> Tensor:
        """Return a tensor with the parts of all processes, which all must ask for it."""
        return whole(value.clone())

    def own(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return this process's part of a checkpoint of any number of processes."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        own = self.network.state_dict()
        parameters = list(self.network.parameters())
        found = {}
        for key, value in tensors.items():
            part, _, name = key.partition("/")
            like: Any = None
            if part == "network":
                like = own.get(name)
            elif part == "best":
                like = own.get(name.partition("/")[2])
            elif part == "optimizer":
                number = int(name.partition(".")[0])
                like = parameters[number] if number < len(parameters) else None
            if isinstance(like, DTensor) and value.shape == like.shape:
                value = distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
            found[key] = value
        return found

    def collect(self, stopping: EarlyStopping) -> nn.Module:
        """Give all weights back to the network that was passed in."""
        state = {name: whole(value) for name, value in self.network.state_dict().items()}
        self.given.load_state_dict(state)
        self.network = stopping.network = self.given.to(self.processes.device)
        stopping.weights = {}  # restored already
        del self.outer  # which holds the parts, and the process group
        return self.network


class TensorOutputs(nn.Module):
    """A network that returns plain tensors, by whose gradients torch notices the backward pass.

    Args:
        network: returns a HeadOutput, several by name, or logits.

    Attributes:
        rebuild: makes of the tensors what the network returned.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.rebuild: Callable[[Any], Any] = list

    def forward(self, x: Any, **extra: Any) -> Any:
        tensors, self.rebuild = taken_apart(self.network(x, **extra))
        return tensors


class Rebuilt(nn.Module):
    """The same network with outputs as it returns them.

    Args:
        inner: shared out among the processes.
    """

    def __init__(self, inner: TensorOutputs) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any, **extra: Any) -> Any:
        """Return the output of the network."""
        tensors = self.inner(x, **extra)
        return self.inner.rebuild(tensors)


def taken_apart(found: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the tensors of an output, and what puts them together again."""
    if isinstance(found, dict):
        parts = {name: taken_apart(one) for name, one in found.items()}
        return (
            {name: tensors for name, (tensors, _) in parts.items()},
            lambda given: {name: make(given[name]) for name, (_, make) in parts.items()},
        )
    if not isinstance(found, HeadOutput):
        return found, lambda given: given
    return found.tensors, found.rebuilt


def shard(network: nn.Module, world: int) -> Rebuilt:
    """Share out the parameters of a network: block by block, then the rest.

    Args:
        network: on the device where it is trained; its parameters are replaced in place.
        world: how many processes there are.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    device = next(network.parameters()).device
    mesh = init_device_mesh(device.type, (world,))
    for block in blocks(network):
        fully_shard(block, mesh=mesh)
    outer = TensorOutputs(network)
    fully_shard(outer, mesh=mesh)
    return Rebuilt(outer)


def blocks(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of every list of layers of one kind, inner ones first."""
    for module in reversed(list(network.modules())):
        if not isinstance(module, (nn.ModuleList, nn.Sequential)) or len(module) < 2:
            continue
        kinds = {type(one).__name__.removeprefix("FSDP") for one in module}
        if len(kinds) == 1 and all(any(True for _ in one.parameters()) for one in module):
            yield from module


def whole(value: Tensor) -> Tensor:
    """Return a tensor with the parts of all processes, which all must ask for it."""
    from torch.distributed.tensor import DTensor  # takes a second to import

    return value.full_tensor() if isinstance(value, DTensor) else value
