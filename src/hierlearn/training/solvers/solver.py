"""What every solver shares: the protocol, the best weights so far, validation, and how it ends.

A solver fits the network of what ``prepare`` returned to its rows:

    fitted = SOLVERS[settings.optimizer].fit(prepared, run)

Early stopping belongs to each member of an ensemble: one may stop while the others train on.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from hierlearn.errors import HierlearnError, arg
from hierlearn.files.reading import guarded
from hierlearn.files.tensors import CheckpointError
from hierlearn.metrics import METRICS
from hierlearn.metrics.measure import compute
from hierlearn.networks.ensemble import heads_of, member_state, members_of
from hierlearn.training.checkpoint import check_shapes, split_parts
from hierlearn.training.inference import member_probabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.links import Head, HeadOutput
    from hierlearn.training.checkpoint import Checkpoint
    from hierlearn.training.prepare import Prepared
    from hierlearn.training.processes import Processes
    from hierlearn.training.rows import Rows
    from hierlearn.training.settings import Settings


class NonFiniteLossError(HierlearnError):
    """The loss, the weights or the probabilities of a network became infinite or NaN."""


class Timeline:
    """What a trainer enters the parts of an epoch into; this one measures nothing.

    Attributes:
        measuring: whether parts are measured now, and each must be over before the next begins.
    """

    measuring: bool = False

    def begin_epoch(self) -> None:
        """Begin an epoch, in the part "input"."""

    def enter(self, part: str) -> None:
        """End the current part, and begin another one of PARTS."""

    def watch(self, output: Any) -> None:
        """Notice where the backward pass of what a network returned leaves the loss."""

    def end_epoch(self) -> None:
        """End an epoch."""


@dataclass
class Run:
    """Where a solver begins, and what it reports to.

    Attributes:
        processes: this process among all of them.
        checkpoint: where to go on; None begins at the first step.
        save: called with the step, tensors and metadata whenever a checkpoint is due.
        on_epoch: called after each epoch with its record, in the process that writes.
        on_step: called after each step with the step's number from 1.
        timeline: told which part of an epoch begins.
    """

    processes: Processes
    checkpoint: Checkpoint | None = None
    save: Callable[[int, dict[str, Tensor], dict[str, Any]], object] | None = None
    on_epoch: Callable[[dict[str, Any]], None] | None = None
    on_step: Callable[[int], None] | None = None
    timeline: Timeline = field(default_factory=Timeline)


@dataclass
class Fitted:
    """What a solver leaves beside the weights of the network.

    Attributes:
        steps: how many were taken.
        stopping: the best metric of each member, and which stopped early.
        optimizer: its state, for a training that goes on with more rows; empty without one.
        selections: (C,) per epoch, how often a curriculum selected each class.
    """

    steps: int
    stopping: EarlyStopping
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    selections: list[Tensor] = field(default_factory=list)


class Solver(Protocol):
    """What fits a network to prepared rows."""

    def steps(self, prepared: Prepared) -> int:
        """Return how many steps it takes at most, as a progress bar counts them."""
        ...

    def fit(self, prepared: Prepared, run: Run) -> Fitted:
        """Fit the network of ``prepared``, in place."""
        ...


class HeadSolver:
    """Fit the heads of a kind, each at once; see ``Solver``.

    Args:
        kind: of the heads.
        fit_head: ``(head, rows, seed)`` fits one of them; that of a forest also takes what it calls
            after each tree.
    """

    def __init__(self, kind: type[Head], fit_head: Callable[..., None]) -> None:
        self.kind, self.fit_head = kind, fit_head

    def steps(self, prepared: Prepared) -> int:
        """Return how many trees there are, or heads without any."""
        return sum(getattr(head, "trees", 1) for head in heads_of(prepared.network, self.kind))

    def fit(self, prepared: Prepared, run: Run) -> Fitted:
        """Fit all heads, unless a checkpoint holds them."""
        heads, settings = heads_of(prepared.network, self.kind), prepared.decision.settings
        if not heads:
            solver = settings.optimizer
            raise HierlearnError(f"optimizer {solver} fits the network {solver} alone; use adamw")
        steps, done = self.steps(prepared), itertools.count(1)

        def on_step() -> None:
            number = next(done)
            if run.on_step is not None and number < steps:  # the last one is reported at the end
                run.on_step(number)

        def solve() -> None:
            by_tree = (on_step,) if hasattr(heads[0], "trees") else ()
            for number, head in enumerate(heads):
                self.fit_head(head, prepared.rows, settings.seed + number, *by_tree)

        return fit_at_once(prepared, run, solve, steps)


def fit_at_once(
    prepared: Prepared,
    run: Run,
    solve: Callable[[], Sequence[float | None] | None],
    steps: int = 1,
) -> Fitted:
    """Fit a network in one epoch, unless a checkpoint holds it; validate, report and save it.

    Args:
        prepared: whose network is fitted; every process does the same.
        run: the callbacks.
        solve: fits the network, and returns the loss of each member, None where there is none.
        steps: how many the epoch counts as.
    """
    network, loss, rows = prepared.network, prepared.loss, prepared.rows
    settings, timeline = prepared.decision.settings, run.timeline
    members = check_training(network, rows, settings, validates=prepared.valid is not None)
    network.to(rows.device)
    loss.to(rows.device)
    if members is not None:
        loss.set_members(members)
    stopping = EarlyStopping(network, members or 1, settings.metric, settings.patience)
    if run.checkpoint is not None:
        run.checkpoint.check(members or 1, steps)
        parts = split_parts(run.checkpoint.tensors)
        with refusing_others(run.checkpoint):
            network.load_state_dict(parts["network"])
            best = run.checkpoint.metadata["best"]
            stopping.load_state_dict(best, parts.get("best", {}), rows.device)
        if run.checkpoint.metadata["step"] == steps:
            stopping.restore()
            return Fitted(steps, stopping)
    timeline.begin_epoch()
    timeline.enter("optimizer")
    started = time.perf_counter()
    record: dict[str, Any] = {"epoch": 1, "step": steps, "learning_rate": 0.0}
    record["loss"] = list(solve() or [None] * (members or 1))
    record["seconds"] = round(time.perf_counter() - started, 4)
    weights = [one for one in network.state_dict().values() if one.is_floating_point()]
    if not all(bool(one.isfinite().all()) for one in weights):
        raise NonFiniteLossError("the weights are not finite; check the values of the rows")
    if prepared.valid is not None:
        timeline.enter("metrics")
        *values, wrong = member_values(
            network, prepared.valid, prepared.read, stopping, loss.label_space, run.processes
        )
        if wrong:
            raise NonFiniteLossError(
                "the probabilities of validation rows are not finite; check their values"
            )
        record["valid"] = {settings.metric: stopping.mask_stopped(values)}
        stopping.update(values, 1)
        timeline.enter("other")
    if run.on_step is not None:
        run.on_step(steps)
    if run.on_epoch is not None and run.processes.writes:
        run.on_epoch(record)
    timeline.enter("checkpoints")
    if run.save is not None and run.processes.writes:
        named = {"network": network.state_dict(), "best": stopping.tensors()}
        tensors = {
            f"{part}/{name}": value.clone()
            for part, held in named.items()
            for name, value in held.items()
        }
        best = stopping.state_dict()
        run.save(steps, tensors, {"step": steps, "epoch": 1, "best": best})
    run.processes.wait()
    timeline.end_epoch()
    stopping.restore()
    return Fitted(steps, stopping)


def check_training(
    network: nn.Module, rows: Rows, settings: Settings, *, validates: bool
) -> int | None:
    """Return how many members an ensemble has, None for one network; raise on what cannot be."""
    if not len(rows):
        raise HierlearnError("there are no training rows")
    settings.check_validation(validates)
    members = members_of(network)
    if (members or 1) != settings.ensemble_size:
        raise HierlearnError(
            f"{arg('ensemble_size')} is {settings.ensemble_size}, but this "
            f"{type(network).__name__} "
            f"holds {members or 1} network{'s' * ((members or 1) > 1)}"
        )
    return members


def refusing_others(checkpoint: Checkpoint) -> Any:
    """Raise a CheckpointError where what is read does not fit the training."""
    what = "does not fit this network, its losses or its optimizer"
    return guarded(checkpoint.path, what, CheckpointError, "train again in another folder")


# ---------------------------------------- validation


def member_values(
    network: nn.Module,
    valid: Rows,
    read: Callable[[Any], HeadOutput],
    stopping: EarlyStopping,
    space: LabelSpace,
    processes: Processes,
) -> list[float]:
    """Return the metric of each member on the validation rows, 0 where it has stopped.

    The last value is 1 + the first member whose probabilities are not finite, or 0.

    Args:
        network: predicts; a memory is filled.
        valid: the validation rows.
        read: turns what the network returns into one output.
        stopping: knows the metric, and which members have stopped.
        space: what can be predicted.
        processes: of which the first one predicts, and tells the others.
    """
    values = torch.zeros(len(stopping.stopped) + 1, dtype=torch.float64, device=valid.device)
    if processes.writes:
        every = torch.arange(len(valid), device=valid.device)
        targets, mask = valid.targets(every), valid.mask(every)
        found = member_probabilities(network, valid, read)
        finite = torch.stack([p.isfinite().all() for p in found]).tolist()
        for member, p in enumerate(found):
            if not stopping.stopped[member] and finite[member]:
                value = compute(stopping.metric, p, targets, space, mask)
                values[member] = value.to(values.device)
            elif not stopping.stopped[member]:
                values[-1] = values[-1] or member + 1
    if processes.world > 1:
        torch.distributed.broadcast(values, 0)
    listed: list[float] = values.tolist()
    return listed


STATE = ("value", "epoch", "peak", "stopped", "improved_last")


class EarlyStopping:
    """The best metric and weights of each member.

    Args:
        network: holds the members.
        members: how many there are.
        metric: a name of METRICS.
        patience: epochs without improvement after which a member stops; None: never, and no
            weights are stored.

    Attributes:
        value: the metric of the best weights of each member; None before there are any.
        epoch: their epoch, from 1; 0 before there are any.
        peak: the best metric of each member so far, with patience or without.
        stopped: which members have stopped.
        improved_last: which members were at their peak when last evaluated.
        weights: the best weights of each member by name.
        begin: the epochs before the first one that competes.
    """

    def __init__(self, network: nn.Module, members: int, metric: str, patience: int | None) -> None:
        self.network, self.metric = network, metric
        self.sign = 1 if METRICS[metric].direction == "up" else -1
        self.patience = patience
        self.value: list[float | None] = [None] * members
        self.epoch = [0] * members
        self.peak: list[float | None] = [None] * members
        self.stopped = [False] * members
        self.improved_last = [False] * members
        self.weights: dict[int, dict[str, Tensor]] = {}
        self.begin = 0

    def update(self, values: Sequence[float], epoch: int) -> None:
        """Update each member after an epoch: store the best weights, stop without improvement.

        Args:
            values: the metric of each member; NaN never counts as an improvement.
            epoch: the number of the epoch, from 1.
        """
        for member, value in enumerate(values):
            if self.stopped[member]:
                continue
            peak = self.peak[member]
            better = value == value and (peak is None or self.sign * (value - peak) > 0)
            self.improved_last[member] = better
            if better:
                self.peak[member] = value
            if self.patience is None:
                continue
            keep = better
            if better:
                self.value[member], self.epoch[member] = value, epoch
            elif epoch - max(self.epoch[member], self.begin) >= self.patience:
                self.stopped[member] = True
                keep = not self.epoch[member]  # without a best epoch, the last weights stay
            if keep:
                state = member_state(self.network, member)
                self.weights[member] = {name: held.clone() for name, held in state.items()}

    def mask_stopped(self, values: Sequence[float]) -> list[float | None]:
        """Return the values of the members that have not stopped, None for the others."""
        pairs = zip(values, self.stopped, strict=True)
        return [None if stopped else value for value, stopped in pairs]

    def restore(self) -> None:
        """Load the best weights of each member; a member without any keeps its own."""
        for member, best in self.weights.items():
            for name, value in member_state(self.network, member).items():
                value.copy_(best[name])

    def state_dict(self) -> dict[str, Any]:
        """Return all but the weights, ready for JSON."""
        return {name: getattr(self, name) for name in STATE}

    def tensors(self) -> dict[str, Tensor]:
        """Return the best weights by member and name."""
        return {
            f"{member}/{name}": value
            for member, best in self.weights.items()
            for name, value in best.items()
        }

    def load_state_dict(
        self, state: Mapping[str, Any], tensors: Mapping[str, Tensor], device: torch.device
    ) -> None:
        """Restore what ``state_dict`` and ``tensors`` returned."""
        for name in STATE:
            setattr(self, name, state[name])
        self.weights = {}
        for key, value in tensors.items():
            member, _, name = key.partition("/")
            self.weights.setdefault(int(member), {})[name] = value.to(device)
        for number, weights in self.weights.items():
            own = member_state(self.network, number)
            shapes = {name: tuple(value.shape) for name, value in own.items()}
            check_shapes(f"best/{number}/", weights, shapes)
