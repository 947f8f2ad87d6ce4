"""Trainer: one training, from the first step to the last, that can stop and resume at any step.

The members of an ensemble train at once (see networks/ensemble.py). Each has its own order of rows
and its own early stopping, so that the k-th of them equals the network that is trained alone with
its seed. All random numbers depend on the seed and the step alone (seeding.py); so a checkpoint
needs no state of a generator to resume bit for bit on the CPU.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hierlearn.errors import HierlearnError
from hierlearn.files.reading import guarded
from hierlearn.files.tensors import CheckpointError
from hierlearn.networks.ensemble import Noise, finite_members, members_of
from hierlearn.networks.memories import candidates_of
from hierlearn.networks.network import read_output
from hierlearn.training.candidates import CandidateSampler
from hierlearn.training.captured import CapturedSteps, captured_steps
from hierlearn.training.checkpoint import Checkpoint, optimizer_tensors, restore_optimizer
from hierlearn.training.divergence import Moment, diverged
from hierlearn.training.early_stopping import EarlyStopping, measure_members
from hierlearn.training.epoch import RunningEpoch, means_by_level, running_selection
from hierlearn.training.memorize import memorize
from hierlearn.training.optimizer import adamw, hold_rate_on
from hierlearn.training.probabilities import member_probabilities, non_finite_member
from hierlearn.training.processes import Processes, is_loss, lost
from hierlearn.training.stages import Stages
from hierlearn.training.step import Taken, apply_gradients, compute_gradients, rate_at, set_step
from hierlearn.training.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hierlearn.links import HeadOutput
    from hierlearn.losses import Loss
    from hierlearn.losses.joint import JointLoss
    from hierlearn.training.batches import Batches
    from hierlearn.training.rows import Rows
    from hierlearn.training.settings import Settings

CHECK_EVERY = 50  # steps between two checks of the losses, each of which synchronizes a GPU


class Trainer:
    """Train a network, or the members of an ensemble.

    Args:
        network: a network, or an ensemble of settings.ensemble_size members.
        loss: takes what the network returns; members share the object, not its state.
        rows: the training rows.
        settings: how to train.
        valid: the validation rows, if any.
        read: turns what the network returns into one output when validating; by default as the
            loss reads it.
        processes: this process among all of them.

    Attributes:
        forward: the network, wrapped where there are several processes.
        noise: the random numbers of a step.
        on_epoch: called after each epoch with its record.
        on_step: called after each step with the step's number from 1.
        timeline: told which part of an epoch begins.
        save: called with the step, tensors and metadata whenever a checkpoint is due.
        sharded: whether the network computes only in all processes together.
    """

    sharded: ClassVar[bool] = False
    compute_gradients = compute_gradients
    apply_gradients = apply_gradients
    snapshot = staticmethod(torch.clone)  # of a tensor in a checkpoint

    def __init__(
        self,
        network: nn.Module,
        loss: Loss | JointLoss,
        rows: Rows,
        settings: Settings,
        *,
        valid: Rows | None = None,
        read: Callable[[Any], HeadOutput] | None = None,
        processes: Processes | None = None,
    ) -> None:
        if not len(rows):
            raise HierlearnError("there are no training rows")
        settings.check_validation(valid is not None)
        members = members_of(network)
        if (members or 1) != settings.ensemble_size:
            raise HierlearnError(
                f"ensemble_size is {settings.ensemble_size}, but this {type(network).__name__} "
                f"holds {members or 1} network{'s' * ((members or 1) > 1)}"
            )
        self.processes = processes or Processes(0, 1, rows.device)
        self.rows, self.valid, self.settings = rows, valid, settings
        self.network = self.place(network)
        self.is_ensemble = members is not None
        self.loss = loss.to(rows.device)
        if members is not None:
            self.loss.set_members(members)
        link = loss.link
        self.read = read or (lambda found: read_output(found, link))
        self.seeds = [settings.seed + number for number in range(members or 1)]
        self.loss.set_seeds(self.seeds)
        self.steps_per_epoch = -(-len(rows) // settings.batch_size)
        self.steps = settings.epochs * self.steps_per_epoch
        self.step = 0  # steps done
        self.saved: int | None = None  # the step of the last checkpoint
        self.stopping = EarlyStopping(
            self.network, len(self.seeds), settings.metric, settings.patience
        )
        self.optimizer = self.make_optimizer()
        count = candidates_of(network)
        self.sampler = None
        if count is not None:
            self.sampler = CandidateSampler(rows, self.seeds, count, apart=self.is_ensemble)
        rows.share_among(self.processes.world if count is None else 1)  # all read all candidates
        self.noise = Noise(self.network, rows.device)
        self.forward: nn.Module = self.network
        self.stages = Stages(self.network, self.loss, settings.epochs, rows.device)
        self.stopping.begin = self.stages.last
        self.stages.enter(0)
        self.distribute()
        self.stopped_on_device = torch.zeros(len(self.seeds), dtype=torch.bool, device=rows.device)
        self.captured: CapturedSteps | None = None
        if rows.device.type == "cuda" and self.processes.world == 1:
            hold_rate_on(rows.device, self.optimizer)
            self.captured = captured_steps(self) if settings.cuda_graphs else None
        self.batches: dict[int, Batches] = {}  # of the next epoch, made ahead
        self.running = RunningEpoch()
        self.selections: list[Tensor] = []  # (C,) per epoch, if there is a curriculum
        self.on_epoch: Callable[[dict[str, Any]], None] | None = None
        self.on_step: Callable[[int], None] | None = None
        self.save: Callable[[int, dict[str, Tensor], dict[str, Any]], object] | None = None
        self.timeline = Timeline()

    def place(self, network: nn.Module) -> nn.Module:
        """Return the network on the device where it is trained."""
        return network.to(self.rows.device)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer of the network's parameters."""
        return adamw(self.network, self.settings)

    def distribute(self) -> None:
        """Average gradients over the processes, where there are several."""
        if self.processes.world > 1:
            self.forward = DistributedDataParallel(self.network)

    def collect(self) -> None:
        """Bring the network back to one piece; nothing to do where it never was in parts."""

    # ------------------------------------------------------------------ the loop

    @property
    def epoch(self) -> int:
        """The number of completed epochs."""
        return self.step // self.steps_per_epoch

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.step >= self.steps or all(self.stopped)

    @property
    def stopped(self) -> list[bool]:
        """Which members have stopped early."""
        return self.stopping.stopped

    @property
    def still_improving(self) -> list[bool]:
        """Which members had their best metric so far when they were validated last."""
        pairs = zip(self.stopped, self.stopping.improved_last, strict=True)
        return [improved and not stopped for stopped, improved in pairs]

    def train(self) -> None:
        """Train to the end, and restore the best weights if early stopping is on."""
        try:
            # Other networks draw from torch's own generators: leave those unchanged.
            with torch.random.fork_rng() if self.noise.uses_torch else nullcontext():
                while not self.finished:
                    self.train_epoch()
        except (RuntimeError, torch.distributed.DistError) as error:
            if self.processes.world == 1 or not is_loss(error):
                raise
            raise lost(self.processes.rank, error, f" in epoch {self.epoch + 1}") from error
        self.forward = self.network  # drop the reference to the process group
        self.stages.leave()
        if self.captured is not None:
            self.captured.reset()
        self.stopping.restore()
        self.collect()
        memorize(self.network, self.rows)
        if self.valid is None:
            wrong = non_finite_member(self.network, self.rows, self.read)
            if wrong is not None:
                self.saved = None  # its checkpoint holds the same weights
                self._refuse_member(wrong, "probabilities")

    def train_epoch(self) -> None:
        """Train one epoch, or the rest of one."""
        self.timeline.begin_epoch()
        number = self.epoch
        batches = self.batches.pop(number, None) or self.batches_of(number)
        self.enter_stage(number)
        self.network.train()
        self.stopped_on_device.copy_(torch.tensor(self.stopped))
        if self.captured is not None:
            self.captured.begin_epoch(self)
        started = time.perf_counter()
        for place in range(self.step % self.steps_per_epoch, self.steps_per_epoch):
            index = batches.share(place)
            self.train_step(index if self.is_ensemble else index[0], number, place)
            if self.on_step is not None:
                self.on_step(self.step)
            every = self.settings.checkpoint_every
            if every is not None and self.step % every == 0 and place + 1 < self.steps_per_epoch:
                self._check_finite(number)
                self.running.average(self.processes)  # what the checkpoint holds is of all
                self._checkpoint()
        if self.captured is not None and self.step < self.steps:  # while the GPU is busy
            self.batches = {number + 1: self.batches_of(number + 1)}
        self._check_finite(number)
        self._check_weights()
        self.loss.end_epoch()
        record = self._record(number, time.perf_counter() - started)
        self.running = RunningEpoch()
        last = (number + 1) % self.settings.validate_every == 0 or self.step == self.steps
        if self.valid is not None and last and self.stages.competes(number):
            record["valid"] = self._validate(number)
        if self.on_epoch is not None and self.processes.writes:
            self.on_epoch(record)
        self._checkpoint()
        self.timeline.end_epoch()

    def enter_stage(self, number: int) -> None:
        """Train the parts of a staged network that an epoch is for."""
        if self.stages.enter(number):
            self.forward = self.network
            self.distribute()  # other gradients
            if self.captured is not None:
                self.captured.reset()

    def batches_of(self, number: int) -> Batches:
        """Return the batches of an epoch."""
        return self.rows.batches(self.seeds, number, self.settings.batch_size, self.processes)

    def train_step(self, index: Tensor, epoch: int, place: int) -> None:
        """Take one step on the rows ``index``: (n,), or (M, n) for the members of an ensemble."""
        if self.captured is not None and not self.timeline.measuring:
            taken = self.captured.take(self, index)
        else:
            taken = self.plain_step(index, epoch, place)
        self.timeline.enter("other")
        stopped = self.stopped if self.is_ensemble else None
        self.running.add(taken.losses, running_selection(taken.selection, stopped))
        self.step += 1
        if self.rows.device.type != "cpu" and self.step % CHECK_EVERY == 0:
            self._check_finite(epoch)

    def plain_step(self, index: Tensor, epoch: int, place: int) -> Taken:
        """Take one step without a graph; the arguments are those of ``train_step``."""
        self.timeline.enter("optimizer")
        set_step(self, self.step)
        self.optimizer.zero_grad(set_to_none=True)
        losses = self.compute_gradients(index, epoch, place)
        self.timeline.enter("optimizer")
        if self.rows.device.type == "cpu" and not bool(losses.isfinite().all()):
            self._refuse_loss(losses, epoch, place)
        self.apply_gradients()
        return Taken(losses, self.loss.selection)

    # ------------------------------------------------------------------ records and checks

    def _record(self, number: int, seconds: float) -> dict[str, Any]:
        """Return the record of an epoch, ready for JSON."""
        losses = self.processes.total(self.running.mean_loss()) / self.processes.world
        record: dict[str, Any] = {
            "epoch": number + 1,
            "step": self.step,
            "learning_rate": rate_at(self, self.step - 1),
            "loss": self.stopping.of_running(losses.tolist()),
            "seconds": round(seconds, 4),
        }
        selected = self.running.selected_fraction()
        if selected is None:
            return record
        self.selections.append(selected)
        return {**record, "selected_by_level": means_by_level(selected, self.loss.label_space)}

    def _check_finite(self, epoch: int) -> None:
        """Read back the losses of this epoch so far, and raise if one is not finite."""
        first = None if self.rows.device.type == "cpu" else self.running.first_non_finite()
        if first is not None:
            place = self.step % self.steps_per_epoch or self.steps_per_epoch
            losses = self.running.losses
            self._refuse_loss(losses[first], epoch, place - len(losses) + first)

    def _refuse_loss(self, total: Tensor, epoch: int, place: int, what: str = "loss") -> None:
        member = int((~total.isfinite()).nonzero()[0])
        size, here = self.settings.batch_size, self.processes
        rows = self.rows.batches([self.seeds[member]], epoch, size, here, load=False).whole(place)
        batch, loss = f"{place + 1} of {self.steps_per_epoch}", type(self.loss).__name__
        rate = rate_at(self, epoch * self.steps_per_epoch + place)
        moment = Moment(epoch + 1, batch, loss, rate, self.seeds[member], self.saved)
        raise diverged(what, float(total[member]), moment, rows[0].tolist())

    def _refuse_member(self, member: int, what: str) -> None:
        """Raise on a member that has diverged by the last step."""
        wrong = torch.zeros(len(self.seeds))
        wrong[member] = float("nan")
        self._refuse_loss(wrong, *divmod(self.step - 1, self.steps_per_epoch), what)

    def _check_weights(self) -> None:
        """Raise on weights that are not finite, before they are evaluated or saved."""
        finite = finite_members(self.network).tolist()  # the host waits once
        for member, stopped in enumerate(self.stopped):
            if not stopped and not finite[member]:
                self._refuse_member(member, "weights")

    def valid_probabilities(self) -> list[Tensor]:
        """Return (N, C) what each member predicts for the validation rows, where it is needed."""
        assert self.valid is not None
        memorize(self.network, self.rows)
        network = self.forward if self.sharded else self.network
        return member_probabilities(network, self.valid, self.read)

    def _validate(self, number: int) -> dict[str, list[float | None]]:
        """Return the metric of each member on the validation rows, and remember the best."""
        self.timeline.enter("metrics")
        name = self.settings.metric
        found = self.valid_probabilities() if self.processes.writes or self.sharded else []
        if found:
            assert self.valid is not None
            values = measure_members(name, found, self.valid, self.stopped, self.loss.label_space)
        else:  # another process tells
            values = torch.zeros(len(self.seeds) + 1, dtype=torch.float64, device=self.rows.device)
        if self.processes.world > 1:
            torch.distributed.broadcast(values, 0)
        *found_values, wrong = values.tolist()
        if wrong:
            self._refuse_member(int(wrong) - 1, "probabilities")
        record = self.stopping.of_running(found_values)
        self.stopping.update(found_values, number + 1)
        self.timeline.enter("other")
        return {name: record}

    # ------------------------------------------------------------------ checkpoints

    def _checkpoint(self) -> None:
        self.timeline.enter("checkpoints")
        if self.save is not None:
            self._check_weights()
            if self.processes.writes:
                self.save(self.step, self.tensors(), self.metadata())
            self.saved = self.step
        self.processes.wait()

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor that the training needs to resume."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "network": self.network.state_dict(),
            "best": self.stopping.tensors(),
            "optimizer": optimizer_tensors(self.optimizer),
            "loss": self.loss.state_dict(),
        }
        if self.step % self.steps_per_epoch:  # in the middle of an epoch
            parts["epoch"] = self.running.state_dict()
            parts["selected"] = self.loss.epoch_state()
        return {
            f"{part}/{name}": self.snapshot(value)
            for part, tensors in parts.items()
            for name, value in tensors.items()
        }

    def metadata(self) -> dict[str, Any]:
        """Return where the training is, ready for JSON."""
        best, shards = self.stopping.state_dict(), self.rows.shards(self.epoch)
        return {"step": self.step, "epoch": self.epoch, "shards": shards, "best": best}

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue the training where a checkpoint left it."""
        parts: dict[str, dict[str, Tensor]] = {}
        for key, value in checkpoint.tensors.items():
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = value
        device = self.rows.device
        if self.captured is not None:
            self.captured.reset()
        checkpoint.check(len(self.stopping.epoch), self.steps)
        what = "does not fit this network, its losses or its optimizer"
        remedy = "train again in another folder"
        with guarded(checkpoint.path, what, CheckpointError, remedy):
            self.network.load_state_dict(parts["network"])
            self.loss.load_state_dict(parts.get("loss", {}))
            restore_optimizer(self.optimizer, parts.get("optimizer", {}))
            best, weights = checkpoint.metadata["best"], parts.get("best", {})
            self.stopping.load_state_dict(best, weights, device)
            self.step = self.saved = checkpoint.metadata["step"]
            if self.step % self.steps_per_epoch:  # the epoch ends with the batches it began with
                self.rows.share_among(checkpoint.metadata.get("shards", 1), self.epoch)
            epoch, classes = parts.get("epoch", {}), len(self.loss.label_space)
            self.running.load_state_dict(epoch, device, self.stopping.stopped, classes)
            self.loss.load_epoch_state(parts.get("selected", {}))
