"""Captured steps: a training step is recorded once as a CUDA graph and replayed for every batch.

A step of a small network is bound by its launches, which a replay makes all at once. What changes
from step to step is read from tensors on the device: the numbers of the rows, the learning rate,
the progress of the loss, the seeds of the noise and which members have stopped.

Nothing is assumed to be capturable. A step is recorded with the values of another step; then one
step is taken plainly and once more by replaying, from the same state. Where a step waits for the
device, cannot be recorded or ends with other weights, the training goes on without graphs.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hierlearn.training.solvers.gradient import Trainer

WARM_UP = 2  # plain steps of a batch size before it is captured
FEWEST = 40  # steps that must be left for a capture to pay
ATTEMPTS = (
    4  # captures of a batch size: again where plain values change, or sums are not repeatable
)
LARGEST = 1 << 28  # bytes of parameters, beyond which the GPU is busy without graphs
OF_SIZE, OF_CHANGE = 1e-6, 1e-3  # how far a replayed step may be from a plain one
PLAIN = (bool, int, float, str, type(None))

log = logging.getLogger(__name__)


class StepResult(NamedTuple):
    """What a step leaves beside the weights.

    Attributes:
        losses: (M,) of the batch.
        selection: (C,) or (M, C) bool, the classes that a curriculum selected; None without one.
    """

    losses: Tensor
    selection: Tensor | None


class Recorder(Protocol):
    """What runs and records steps; see ``CudaRecorder``."""

    def run(self, step: Callable[[], StepResult], *, strict: bool = False) -> StepResult:
        """Take a step plainly; ``strict`` raises a RuntimeError where it waits for the device."""
        ...

    def record(self, step: Callable[[], StepResult]) -> tuple[Callable[[], object], StepResult]:
        """Record a step without taking it; return what replays it, and what it writes to."""
        ...


class CapturedStep(NamedTuple):
    """A recorded step of one batch size.

    Attributes:
        rows: their numbers, which the step reads.
        replay: takes the step.
        result: what it writes to.
    """

    rows: Tensor
    replay: Callable[[], object]
    result: StepResult


def captured_steps(trainer: Trainer) -> CapturedSteps | None:
    """Return what captures the steps of a training on a GPU; None where that is of no use."""
    reason = unsupported_reason(trainer)
    if reason is not None:
        log.debug("training without CUDA graphs: %s", reason)
        return None
    return CapturedSteps(CudaRecorder(trainer.rows.device, trainer.noise.drawn_generators))


def unsupported_reason(trainer: Trainer) -> str | None:
    """Return why steps of a training cannot be captured, or need not; None if they may."""
    rows = trainer.rows
    if trainer.processes.world > 1:
        return "several processes train together"
    if trainer.settings.accumulate > 1:
        return "batches are cut into parts"
    if trainer.sampler is not None:
        return "candidates are drawn on the host"
    held = isinstance(rows.inputs, Tensor) and rows.inputs.device.type == rows.device.type
    if not (held and rows.in_memory):
        return "the rows are not dense tensors on the device"
    size = sum(one.nbytes for one in trainer.network.parameters())
    if size > LARGEST:
        return f"the parameters take {size >> 20} MiB, more than {LARGEST >> 20}"
    return None


class CapturedSteps:
    """Take the steps of a training: by replaying them, after some of the same batch size.

    It does not hold the trainer, which holds it.

    Args:
        recorder: what records them.

    Attributes:
        steps: the captured steps by shape of the batch.
        replayed: how many steps were replayed.
        refusal: why there are no graphs; None as long as there may be.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.replayed = 0
        self.refusal: str | None = None
        self.reset()

    def reset(self) -> None:
        """Forget what was captured: the training has ended, or goes on with other tensors."""
        self.steps: dict[tuple[int, ...], CapturedStep] = {}
        self.seen: Counter[tuple[int, ...]] = Counter()
        self.attempts: Counter[tuple[int, ...]] = Counter()
        self.values: list[dict[str, Any]] = []

    def begin_epoch(self, trainer: Trainer) -> None:
        """Forget the graphs where plain values of network or loss, which they hold, changed."""
        if self.steps and self.values != plain_values(trainer):
            self.steps.clear()

    def take(self, trainer: Trainer, index: Tensor) -> StepResult:
        """Take the next step.

        Args:
            trainer: whose network is trained; ``unsupported_reason`` must be None.
            index: (n,) the numbers of the rows, or (M, n) for the members of an ensemble.
        """
        shape = tuple(index.shape)
        set_all(trainer, trainer.step)
        found = self.steps.get(shape)
        if found is not None:
            found.rows.copy_(index)
            found.replay()
            self.replayed += 1
            return StepResult(found.result.losses.clone(), found.result.selection)
        self.seen[shape] += 1
        few = trainer.steps - trainer.step < FEWEST
        if self.refusal is not None or few or self.seen[shape] <= WARM_UP:
            return self.recorder.run(lambda: trainer.update(index))
        return self.capture(trainer, index)

    def capture(self, trainer: Trainer, index: Tensor) -> StepResult:
        """Take the next step plainly and by replaying; keep the graph if both agree."""
        shape = tuple(index.shape)
        self.attempts[shape] += 1
        if self.attempts[shape] > ATTEMPTS:
            self.refuse("replayed steps differ, or plain values of network or loss change")
        found = []
        for progress in (0.0, 0.5, 1.0, trainer.step / trainer.steps):
            trainer.loss.set_progress(progress)
            found.append(plain_values(trainer))
        if self.refusal is None and any(one != found[0] for one in found):
            self.refuse("the progress of the training changes plain values of the loss")
        if self.refusal is not None:
            return self.recorder.run(lambda: trainer.update(index))
        before = self.snapshot(trainer)
        if before is None:
            return self.recorder.run(lambda: trainer.update(index))
        try:
            plain = self.recorder.run(lambda: trainer.update(index), strict=True)
        except RuntimeError as error:
            self.refuse(f"a step waits for the device: {error}")
            before.restore()
            set_all(trainer, trainer.step)  # the noise begins again
            return self.recorder.run(lambda: trainer.update(index))
        after = self.snapshot(trainer)
        if after is None:
            return plain
        before.restore()
        step = self.recorded(trainer, index)
        if step is not None:
            step.rows.copy_(index)
            step.replay()
            replayed = self.snapshot(trainer)
            near = torch.allclose(plain.losses, step.result.losses, rtol=1e-4, atol=1e-6)
            if replayed is not None and near and agree(before, after, replayed):
                self.steps[shape], self.values = step, plain_values(trainer)
                log.debug("captured the step of a batch %s", shape)
        after.restore()
        return plain

    def snapshot(self, trainer: Trainer) -> Snapshot | None:
        """Return copies of what a step changes; refuse where there is no memory for them."""
        try:
            return Snapshot(trainer)
        except torch.OutOfMemoryError:
            self.refuse("there is too little memory to compare steps")
            return None

    def recorded(self, trainer: Trainer, index: Tensor) -> CapturedStep | None:
        """Return the next step, recorded on other rows with the values of another step."""
        rows = torch.zeros_like(index)
        set_all(trainer, 0 if trainer.step > trainer.steps // 2 else trainer.steps - 1)
        try:
            for group in trainer.optimizer.param_groups:
                group["capturable"] = True
            replay, result = self.recorder.record(lambda: trainer.update(rows))
        except Exception as error:  # whatever a network or loss of others raises there
            self.refuse(f"a step cannot be recorded: {error}")
            return None
        finally:
            for group in trainer.optimizer.param_groups:
                group["capturable"] = False
            set_all(trainer, trainer.step)
        return CapturedStep(rows, replay, result)

    def refuse(self, reason: str) -> None:
        """Go on without graphs."""
        log.debug("training goes on without CUDA graphs: %s", reason)
        self.refusal = reason
        self.steps.clear()


def set_all(trainer: Trainer, step: int) -> None:
    """Set all that changes from step to step, but the rows."""
    trainer.set_step(step)
    trainer.noise.seed(trainer.noise_seeds(step))


# ---------------------------------------- is it the same?


class Snapshot:
    """Copies of all tensors that a step changes: of network, optimizer and loss."""

    def __init__(self, trainer: Trainer) -> None:
        optimizer = [
            value
            for state in trainer.optimizer.state.values()
            for value in state.values()
            if isinstance(value, Tensor)
        ]
        network, loss = trainer.network, trainer.loss
        self.tensors = [*network.parameters(), *network.buffers(), *optimizer, *loss.buffers()]
        self.copies = [one.detach().clone() for one in self.tensors]

    @torch.no_grad()
    def restore(self) -> None:
        """Write the copies back."""
        for tensor, copied in zip(self.tensors, self.copies, strict=True):
            tensor.copy_(copied)


def agree(before: Snapshot, plain: Snapshot, replayed: Snapshot) -> bool:
    """Whether a plain and a replayed step, from the same state, lead to the same one.

    The gap must be small beside the tensor or beside what the step changed, by their norms: sums
    that the GPU adds in any order differ a little from step to step.
    """
    if len(plain.copies) != len(replayed.copies):
        return False
    found = []
    for begin, one, other in zip(before.copies, plain.copies, replayed.copies, strict=True):
        if not one.is_floating_point():
            found.append((one == other).all())
            continue
        unset = one.isnan() & other.isnan()  # as in the scores of epochs that are yet to come
        parts = (one - other, one, one - begin)
        gap, size, change = (part.masked_fill(unset, 0).double().norm() for part in parts)
        found.append((gap <= OF_SIZE * size) | (gap <= OF_CHANGE * change))
    return bool(torch.stack(found).all())


def plain_values(trainer: Trainer) -> list[dict[str, Any]]:
    """Return the attributes of network and loss that a graph would hold as constants."""
    modules = [*trainer.network.modules(), *trainer.loss.modules()]
    return [
        {name: value for name, value in vars(one).items() if is_plain(value)} for one in modules
    ]


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a string, None, or a tuple or list of such."""
    if isinstance(value, (tuple, list)):
        return all(is_plain(one) for one in value)
    return isinstance(value, PLAIN)


# ---------------------------------------- CUDA


class CudaRecorder:
    """Run and record steps on a stream of their own.

    Args:
        device: of the training.
        generators: whose noise a step draws, seeded before each replay.
    """

    def __init__(self, device: torch.device, generators: list[torch.Generator]) -> None:
        self.device, self.generators = device, generators
        self.stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def run(self, step: Callable[[], StepResult], *, strict: bool = False) -> StepResult:
        """Take a step on the stream on which it will be recorded."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            if strict:
                with never_waiting():
                    found = step()
            else:
                found = step()
        current.wait_stream(self.stream)
        return found

    def record(self, step: Callable[[], StepResult]) -> tuple[Callable[[], object], StepResult]:
        """Capture a step as a CUDA graph."""
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        current = torch.cuda.current_stream(self.device)
        try:
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                found = step()
        except BaseException:
            torch.cuda.set_stream(current)  # torch leaves its own where the capture fails
            torch.cuda.synchronize(self.device)
            # The failed capture may have left the states of generators unusable.
            default = torch.cuda.default_generators[self.device.index or 0]
            for one in (default, *self.generators):
                fresh = torch.Generator(self.device)
                fresh.set_state(one.get_state())
                one.graphsafe_set_state(fresh.graphsafe_get_state())
            raise
        return graph.replay, found


@contextmanager
def never_waiting() -> Iterator[None]:
    """Raise a RuntimeError where the host waits for the device, which a graph cannot record."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
