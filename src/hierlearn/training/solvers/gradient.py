"""The gradient loop: AdamW in batches, from the first step to the last; it resumes at any step.

From top to bottom: ``Trainer`` sets up, ``train`` loops over epochs, ``train_epoch`` over batches,
and ``train_step`` takes a step, as a CUDA graph where ``captured`` has recorded one. Records,
checks, validation and checkpoints follow. The members of an ensemble train at once. Each has its
own order of rows and its own early stopping, so that the k-th of them equals the network that is
trained alone with its seed. All random numbers depend on the seed and the step alone (seeding.py);
so a checkpoint needs no state of a generator to resume bit for bit on the CPU.

A batch may be cut into microbatches. A loss is a sum of means over rows or entries; the mean of a
batch is that of its parts, each by its share of what the mean divides by:

    l = sum over parts p and terms t of l_pt n_pt / sum over parts of n_pt

Under several processes each cuts its own rows, and the sum runs over all of them. Dropout of
hierlearn's own draws for the whole batch, so that neither changes anything.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from hierlearn.errors import HierlearnError, arg
from hierlearn.networks.ensemble import Noise, clip_grad_norm, finite_members, staged_networks
from hierlearn.networks.layers import Share
from hierlearn.networks.memories import candidates_of
from hierlearn.networks.network import read_output
from hierlearn.training.checkpoint import (
    Checkpoint,
    check_shapes,
    split_parts,
)
from hierlearn.training.inference import memorize, non_finite_member
from hierlearn.training.processes import Processes, is_loss, lost
from hierlearn.training.rows import CandidateSampler
from hierlearn.training.seeding import derive
from hierlearn.training.settings import learning_rate
from hierlearn.training.solvers.captured import CapturedSteps, StepResult, captured_steps
from hierlearn.training.solvers.solver import (
    EarlyStopping,
    Fitted,
    NonFiniteLossError,
    Run,
    Timeline,
    check_training,
    member_values,
    refusing_others,
)
from hierlearn.training.solvers.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hierlearn.links import HeadOutput
    from hierlearn.losses import Loss
    from hierlearn.losses.joint import JointLoss
    from hierlearn.training.prepare import Prepared
    from hierlearn.training.rows import Batches, Rows
    from hierlearn.training.settings import Settings

CHECK_EVERY = 50  # steps between two checks of the losses, each of which synchronizes a GPU
MOST_ROWS = 8  # that a message names
NOISE = "noise 0"  # what all processes draw alike


class GradientSolver:
    """Train a network in batches; see ``Solver``."""

    def steps(self, prepared: Prepared) -> int:
        settings = prepared.decision.settings
        return settings.epochs * -(-len(prepared.rows) // settings.batch_size)

    def fit(self, prepared: Prepared, run: Run) -> Fitted:
        """Train from the start, or from a checkpoint."""
        trainer = Trainer(
            prepared.network,
            prepared.loss,
            prepared.rows,
            prepared.decision.settings,
            valid=prepared.valid,
            read=prepared.read,
            processes=run.processes,
        )
        if run.checkpoint is not None:
            trainer.resume(run.checkpoint)
        trainer.save, trainer.timeline = run.save, run.timeline
        trainer.on_epoch, trainer.on_step = run.on_epoch, run.on_step
        trainer.train()
        state = optimizer_tensors(trainer.optimizer)
        return Fitted(trainer.step, trainer.stopping, state, trainer.selections)


class AdamW:
    """torch's AdamW by its function, on a CPU: making torch's class imports its compiler, a second.

    Args:
        parameters: what is trained.
        lr: the learning rate.
        weight_decay: how much weights shrink, per step and rate.
    """

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, weight_decay: float) -> None:
        group = {"params": list(parameters), "lr": lr, "weight_decay": weight_decay}
        self.param_groups: list[dict[str, Any]] = [group]
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Change every parameter that has a gradient."""
        (group,) = self.param_groups
        moved = [one for one in group["params"] if one.grad is not None]
        for one in moved:
            if one not in self.state:
                zeros = {name: torch.zeros_like(one) for name in ("exp_avg", "exp_avg_sq")}
                self.state[one] = {"step": torch.zeros(()), **zeros}
        states = [self.state[one] for one in moved]
        adamw(
            moved,
            [one.grad for one in moved],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=1e-8,
            maximize=False,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state by the number of the parameter, as torch does."""
        numbers = {one: number for number, one in enumerate(self.param_groups[0]["params"])}
        return {"state": {numbers[one]: dict(state) for one, state in self.state.items()}}

    def load_state_dict(self, held: Mapping[str, Any]) -> None:
        """Take what ``state_dict`` returned."""
        parameters = self.param_groups[0]["params"]
        self.state = {
            parameters[number]: {
                name: torch.as_tensor(value, dtype=torch.float32 if name == "step" else one.dtype)
                .detach()
                .clone()
                for name, value in state.items()
            }
            for number, state in held["state"].items()
            for one in [parameters[number]]
        }


def optimizer_tensors(optimizer: Any) -> dict[str, Tensor]:
    """Return the state of an optimizer by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: Any, tensors: Mapping[str, Tensor]) -> None:
    """Load into an optimizer the state that ``optimizer_tensors`` returned.

    Fused kernels do not compare shapes: a state of another size would be read beyond its end.
    """
    whole = optimizer.state_dict()
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = value
    for place, values in state.items():
        if not 0 <= place < len(parameters):
            raise HierlearnError(f"optimizer/{place} is of no parameter")
        own = tuple(parameters[place].shape)
        expected = {"step": (), "exp_avg": own, "exp_avg_sq": own}
        check_shapes(f"optimizer/{place}.", values, expected)
    optimizer.load_state_dict({**whole, "state": state})


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
    """

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
        members = check_training(network, rows, settings, validates=valid is not None)
        self.is_ensemble = members is not None
        self.processes = processes or Processes(0, 1, rows.device)
        self.rows, self.valid, self.settings = rows, valid, settings
        self.network = network.to(rows.device)
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
        if not any(one.requires_grad for one in self.network.parameters()):
            raise HierlearnError(
                f"this {type(self.network).__name__} has no parameters to train; give it a head or "
                f"an encoder that learns"
            )
        make: Any = AdamW if rows.device.type == "cpu" else partial(torch.optim.AdamW, fused=True)
        self.optimizer: torch.optim.Optimizer | AdamW = make(
            self.network.parameters(),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
        )
        count = candidates_of(network)
        self.sampler = None
        if count is not None:
            self.sampler = CandidateSampler(rows, self.seeds, count, apart=self.is_ensemble)
        rows.shards = self.processes.world if count is None else 1  # all read all candidates
        self.whole: Tensor | None = None  # the rows of a batch of which parts are computed
        self.noise = Noise(self.network, rows.device)
        self.stages: Stages | None = None
        if staged_networks(self.network):
            self.stages = Stages(self.network, self.loss, settings.epochs, rows.device)
            self.stopping.begin = self.stages.last
            self.stages.enter(0)
        self.forward: nn.Module = self._wrapped()
        self.stopped_on_device = torch.zeros(len(self.seeds), dtype=torch.bool, device=rows.device)
        self.captured: CapturedSteps | None = None
        if rows.device.type == "cuda" and self.processes.world == 1:
            for group in self.optimizer.param_groups:  # a captured step reads the rate there
                group["lr"] = torch.tensor(group["lr"], dtype=torch.float32, device=rows.device)
            self.captured = captured_steps(self) if settings.cuda_graphs else None
        self.batches: dict[int, Batches] = {}  # of the next epoch, made ahead
        self.losses: list[Tensor] = []  # (M,) per step of the epoch so far
        self.selected: Tensor | None = None  # (R, C) how often, of the members that still learn
        self.selections: list[Tensor] = []  # (C,) per epoch, if there is a curriculum
        self.on_epoch: Callable[[dict[str, Any]], None] | None = None
        self.on_step: Callable[[int], None] | None = None
        self.save: Callable[[int, dict[str, Tensor], dict[str, Any]], object] | None = None
        self.timeline = Timeline()

    # ---------------------------------------- the loop

    @property
    def epoch(self) -> int:
        """The number of completed epochs."""
        return self.step // self.steps_per_epoch

    def train(self) -> None:
        """Train to the end, and restore the best weights if early stopping is on."""
        try:
            # Other networks draw from torch's own generators: leave those unchanged.
            with torch.random.fork_rng() if self.noise.uses_torch else nullcontext():
                while self.step < self.steps and not all(self.stopping.stopped):
                    self.train_epoch()
        except (RuntimeError, torch.distributed.DistError) as error:
            if self.processes.world == 1 or not is_loss(error):
                raise
            raise lost(self.processes.rank, error, f" in epoch {self.epoch + 1}") from error
        self.forward = self.network  # drop the reference to the process group
        if self.stages is not None:
            self.stages.leave()
        if self.captured is not None:
            self.captured.reset()
        self.stopping.restore()
        memorize(self.network, self.rows)
        if self.valid is None:
            wrong = non_finite_member(self.network, self.rows, self.read)
            if wrong is not None:
                self.saved = None  # its checkpoint holds the same weights
                self._refuse_member(wrong, "probabilities")

    def train_epoch(self) -> None:
        self.timeline.begin_epoch()
        number = self.epoch
        batches = self.batches.pop(number, None) or self.order_of(number)
        if self.stages is not None and self.stages.enter(number):
            self.forward = self._wrapped()  # other gradients
            if self.captured is not None:
                self.captured.reset()
        self.network.train()
        self.stopped_on_device.copy_(torch.tensor(self.stopping.stopped))
        if self.captured is not None:
            self.captured.begin_epoch(self)
        started = time.perf_counter()
        for place in range(self.step % self.steps_per_epoch, self.steps_per_epoch):
            index, self.whole = batches.share(place), None
            if self.processes.world > 1 or self.settings.accumulate > 1:
                whole = batches.whole(place)
                self.whole = whole if self.is_ensemble else whole[0]
            self.train_step(index if self.is_ensemble else index[0], number, place)
            if self.on_step is not None:
                self.on_step(self.step)
            every = None if self.rows.streamed else self.settings.checkpoint_every
            if every is not None and self.step % every == 0 and place + 1 < self.steps_per_epoch:
                self._check_finite(number)
                if self.processes.world > 1:  # what the checkpoint holds is of all processes
                    losses = torch.stack(self.losses)
                    mean = self.processes.total(losses) / self.processes.world
                    self.losses = list(mean.to(losses.dtype))
                self._checkpoint()
        if self.captured is not None and self.step < self.steps:  # while the GPU is busy
            self.batches = {number + 1: self.order_of(number + 1)}
        self._check_finite(number)
        self._check_weights()
        self.loss.end_epoch()
        means = self.processes.total(torch.stack(self.losses).double().mean(dim=0))
        record: dict[str, Any] = {
            "epoch": number + 1,
            "step": self.step,
            "learning_rate": self.rate_at(self.step - 1),
            "loss": self.stopping.mask_stopped((means / self.processes.world).tolist()),
            "seconds": round(time.perf_counter() - started, 4),
        }
        if self.selected is not None:  # a curriculum has selected classes
            selected = self.selected.mean(dim=0).cpu() / len(self.losses)
            self.selections.append(selected)
            levels = torch.split(selected, list(self.loss.label_space.hierarchy.level_sizes))
            record["selected_by_level"] = [round(float(one.mean()), 6) for one in levels]
        self.losses, self.selected = [], None
        last = (number + 1) % self.settings.validate_every == 0 or self.step == self.steps
        if self.valid is not None and last and number >= self.stopping.begin:
            record["valid"] = self._validate(number)
        if self.on_epoch is not None and self.processes.writes:
            self.on_epoch(record)
        self._checkpoint()
        self.timeline.end_epoch()

    def _wrapped(self) -> nn.Module:
        """Return the network, under torchrun a copy whose gradients all processes average."""
        if self.processes.world == 1:
            return self.network
        return nn.parallel.DistributedDataParallel(self.network)

    def order_of(self, number: int) -> Batches:
        """Return which rows every step of an epoch takes."""
        return self.rows.batches(self.seeds, number, self.settings.batch_size, self.processes)

    # ---------------------------------------- a step

    def train_step(self, index: Tensor, epoch: int, place: int) -> None:
        """Take one step on the rows ``index``: (n,), or (M, n) for the members of an ensemble.

        Args:
            index: the rows of this process.
            epoch: the number of the epoch, from 0.
            place: the number of the batch in it, from 0.
        """
        if self.captured is not None and not self.timeline.measuring:
            result = self.captured.take(self, index)
        else:
            result = self.plain_step(index, epoch, place)
        self.timeline.enter("other")
        self.losses.append(result.losses)
        selection = result.selection
        if selection is not None:  # (C,), or (M, C): those of the members that still learn
            selection = selection.expand(len(self.seeds), -1)
            if any(self.stopping.stopped):
                learning = [not stopped for stopped in self.stopping.stopped]
                selection = selection[torch.tensor(learning, device=selection.device)]
            now = selection.to(torch.float32)
            self.selected = now if self.selected is None else self.selected.add_(now)
        self.step += 1
        if self.rows.device.type != "cpu" and self.step % CHECK_EVERY == 0:
            self._check_finite(epoch)

    def plain_step(self, index: Tensor, epoch: int, place: int) -> StepResult:
        """Take one step without a graph; the arguments are those of ``train_step``."""
        self.timeline.enter("optimizer")
        self.set_step(self.step)
        self.network.zero_grad()
        microbatches = self.split_microbatches(index, place)
        self.timeline.enter("loss")
        totals = self.summed_counts(microbatches) if len(microbatches) > 1 else None
        found: list[Tensor] = []
        for number, part in enumerate(microbatches):
            forward: Any = self.forward
            last = number + 1 == len(microbatches)
            # Processes exchange gradients once per batch.
            wait = not last and hasattr(forward, "no_sync")
            with forward.no_sync() if wait else nullcontext():
                self.timeline.enter("network")
                self.seed_noise(place, [one.shape[-1] for one in microbatches], number)
                value = self.part_loss(part, epoch, place, totals)
                value.sum().backward()  # type: ignore[no-untyped-call]
            found.append(value.detach())
        losses = sum(found[1:], start=found[0])
        self.timeline.enter("optimizer")
        if self.rows.device.type == "cpu" and not bool(losses.isfinite().all()):
            self._refuse_loss(losses, epoch, place)
        self.apply_gradients()
        return StepResult(losses, self.loss.selection)

    def split_microbatches(self, index: Tensor, place: int) -> list[Tensor]:
        """Return the rows of a batch in parts of nearly equal size, as many in every process."""
        size = self.settings.batch_size
        count = min(size, len(self.rows) - place * size)
        parts = min(self.settings.accumulate, -(-count // self.processes.world))
        return list(torch.tensor_split(index, parts, dim=-1))

    def update(self, index: Tensor) -> StepResult:
        """Take a step on a whole batch in one process, as a graph records it; noise is seeded."""
        self.network.zero_grad()
        value = self.part_loss(index, 0, 0, None)
        value.sum().backward()  # type: ignore[no-untyped-call]
        self.apply_gradients()
        return StepResult(value.detach(), self.loss.selection)

    def set_step(self, step: int) -> None:
        """Set what the steps of a training differ in, beside rows and noise."""
        rate = self.rate_at(step)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self.loss.set_progress(step / self.steps)

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, by its place in its stage of the training."""
        steps = self.steps
        if self.stages is not None:
            step, steps = self.stages.place(step, steps)
        return learning_rate(self.settings, step, steps)

    def apply_gradients(self) -> None:
        """Clip the gradients and let the optimizer use them."""
        if self.settings.max_grad_norm is not None:
            clip_grad_norm(self.network, self.settings.max_grad_norm)
        self.optimizer.step()

    def summed_counts(self, parts: list[Tensor]) -> Tensor:
        """Return what each term of the loss divides by, over all parts and processes."""
        shape = (len(self.seeds),) if self.is_ensemble else ()
        device = self.rows.device
        found = []
        for part in parts:
            where = part.to(device)
            targets = self.rows.targets(where)
            mask = self.rows.mask(where)
            if self.stages is not None:
                mask = self.stages.mask(targets, mask)
            weight = None if self.rows.weights is None else self.rows.weights[where]
            counts = [
                torch.as_tensor(count, dtype=torch.float64).to(device).expand(shape)
                for count in self.loss.counts(targets, mask, weight)
            ]
            found.append(torch.stack(counts))
        return self.processes.total(torch.stack(found).sum(dim=0))

    def part_loss(self, index: Tensor, epoch: int, place: int, totals: Tensor | None) -> Tensor:
        """Return (M,) what some rows add to the loss of each member; 0 for one that has stopped.

        Args:
            index: the rows.
            epoch: the number of the epoch, from 0.
            place: the number of the batch in it.
            totals: what the means of the whole batch divide by; None where the rows are all of it.
        """
        rows = self.rows
        self.timeline.enter("input")
        extra: dict[str, Any] = {"apart": True} if self.is_ensemble else {}
        if self.sampler is None:
            x, targets, mask = rows.batch(index)
        else:
            begin = place * self.settings.batch_size
            x, targets, mask, extra["candidates"] = self.sampler.batch(
                index, self.step, epoch, begin, self.whole
            )
        if self.stages is not None:
            mask = self.stages.mask(targets, mask)
        weight = None if rows.weights is None else rows.weights[index.to(rows.device)]
        self.timeline.enter("network")
        half = self.settings.precision == "bf16"
        with torch.autocast(rows.device.type, torch.bfloat16) if half else nullcontext():
            output = self.forward(x, **extra)
        self.timeline.watch(output)
        self.timeline.enter("loss")  # the backward pass, too, until it reaches the output
        value: Tensor
        if self.processes.world == 1 and totals is None:
            value = self.loss(output, targets, mask, weight)
        else:
            terms = self.loss.terms(output, targets, mask, weight)
            counts = self.loss.counts(targets, mask, weight)
            value = self.processes.part_of_mean([*zip(terms, counts, strict=True)], totals)
        if not self.is_ensemble:
            return value[None]
        if self.settings.patience is not None:  # else nobody stops
            value = torch.where(self.stopped_on_device, 0.0, value)
        return value

    def seed_noise(self, place: int, sizes: list[int], number: int) -> None:
        """Seed the noise of a part: drawn for the global batch, of which the part uses its own.

        Args:
            place: the number of the batch.
            sizes: the rows of each part in this process.
            number: of the part.
        """
        here, share = self.processes, None
        if here.world > 1 or len(sizes) > 1:
            count = min(self.settings.batch_size, len(self.rows) - place * self.settings.batch_size)
            drawn = 0 if self.sampler is None else self.sampler.size  # every process needs these
            every = torch.arange(count + drawn)
            begin = sum(sizes[:number])
            own = here.share(every[:count])[begin : begin + sizes[number]]
            # Candidates that are the rows of the batch have the noise that these have.
            is_batch = self.sampler is not None and not self.sampler.count
            others = every[:count] if is_batch else every[count:]
            share = Share(torch.cat([own, others]).to(here.device), count + drawn)
        # Networks of others draw from torch's generator, which knows nothing of shares.
        name = f"noise {here.rank}" + (f" part {number}" if number else "")
        own_seeds = None if name == NOISE else self.noise_seeds(self.step, name)
        self.noise.seed(self.noise_seeds(self.step), own_seeds, share)

    def noise_seeds(self, step: int, name: str = NOISE) -> list[int]:
        """Return the seed of each member's noise in a step."""
        return [derive(seed, name, step) for seed in self.seeds]

    # ---------------------------------------- records and checks

    def _check_finite(self, epoch: int) -> None:
        """Read back the losses of this epoch so far, and raise if one is not finite."""
        losses = self.losses
        if self.rows.device.type == "cpu" or not losses:  # there every step is checked
            return
        wrong = (~torch.stack(losses).isfinite()).any(dim=1).nonzero()
        if len(wrong):
            first = int(wrong[0])
            place = self.step % self.steps_per_epoch or self.steps_per_epoch
            self._refuse_loss(losses[first], epoch, place - len(losses) + first)

    def _refuse_loss(self, total: Tensor, epoch: int, place: int, what: str = "loss") -> None:
        member = int((~total.isfinite()).nonzero()[0])
        size, here = self.settings.batch_size, self.processes
        rows = self.rows.batches([self.seeds[member]], epoch, size, here, load=False).whole(place)
        shown = ", ".join(map(str, rows[0, :MOST_ROWS].tolist()))
        more = ", ..." if rows.shape[1] > MOST_ROWS else ""
        before = "there is no checkpoint from before"
        if self.saved is not None:
            before = f"the last checkpoint with finite weights is that of step {self.saved}"
        rate = self.rate_at(epoch * self.steps_per_epoch + place)
        raise NonFiniteLossError(
            f"the {what} became {float(total[member])} in epoch {epoch + 1}, batch {place + 1} of "
            f"{self.steps_per_epoch}, with {type(self.loss).__name__} at learning rate {rate:.3g} "
            f"(seed {self.seeds[member]}, training rows {shown}{more}); lower the learning rate or "
            f"set {arg('max_grad_norm')}, and check those rows; {before}"
        )

    def _refuse_member(self, member: int, what: str) -> None:
        """Raise on a member that has diverged by the last step."""
        wrong = torch.zeros(len(self.seeds))
        wrong[member] = float("nan")
        self._refuse_loss(wrong, *divmod(self.step - 1, self.steps_per_epoch), what)

    def _check_weights(self) -> None:
        """Raise on weights that are not finite, before they are evaluated or saved."""
        finite = finite_members(self.network).tolist()  # the host waits once
        for member, stopped in enumerate(self.stopping.stopped):
            if not stopped and not finite[member]:
                self._refuse_member(member, "weights")

    def _validate(self, number: int) -> dict[str, list[float | None]]:
        """Return the metric of each member on the validation rows, and remember the best."""
        assert self.valid is not None
        self.timeline.enter("metrics")
        if self.processes.writes:
            memorize(self.network, self.rows)
        *values, wrong = member_values(
            self.network,
            self.valid,
            self.read,
            self.stopping,
            self.loss.label_space,
            self.processes,
        )
        if wrong:
            self._refuse_member(int(wrong) - 1, "probabilities")
        record = self.stopping.mask_stopped(values)
        self.stopping.update(values, number + 1)
        self.timeline.enter("other")
        return {self.settings.metric: record}

    # ---------------------------------------- checkpoints

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
            parts["epoch"] = {"losses": torch.stack(self.losses)}
            if self.selected is not None:
                parts["epoch"] = {**parts["epoch"], "selected": self.selected}
        return {
            f"{part}/{name}": value.clone()
            for part, tensors in parts.items()
            for name, value in tensors.items()
        }

    def metadata(self) -> dict[str, Any]:
        """Return where the training is, ready for JSON."""
        return {"step": self.step, "epoch": self.epoch, "best": self.stopping.state_dict()}

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue the training where a checkpoint left it."""
        parts = split_parts(checkpoint.tensors)
        device = self.rows.device
        if self.captured is not None:
            self.captured.reset()
        checkpoint.check(len(self.stopping.epoch), self.steps)
        with refusing_others(checkpoint):
            self.network.load_state_dict(parts["network"])
            self.loss.load_state_dict(parts.get("loss", {}))
            restore_optimizer(self.optimizer, parts.get("optimizer", {}))
            best, weights = checkpoint.metadata["best"], parts.get("best", {})
            self.stopping.load_state_dict(best, weights, device)
            self.step = self.saved = checkpoint.metadata["step"]
            epoch = parts.get("epoch", {})
            steps = len(epoch["losses"]) if "losses" in epoch and epoch["losses"].dim() else 0
            learning = self.stopping.stopped.count(False)
            shapes = {
                "losses": (steps, len(self.seeds)),
                "selected": (learning, len(self.loss.label_space)),
            }
            check_shapes("epoch/", epoch, {k: v for k, v in shapes.items() if k in epoch})
            self.losses = list(epoch["losses"].to(device)) if "losses" in epoch else []
            self.selected = epoch["selected"].to(device) if "selected" in epoch else None
