"""Trainer: one training, from the first step to the last, that can stop and go on at any step.

Several models may train at once, stacked (see models/network.py). Each has its own loss object,
its own order of rows and its own early stopping, so that the k-th of them ends as the model that is
trained alone with its seed. All random numbers depend on the seed and the step alone
(seeds.py); so a checkpoint needs no state of a generator to go on bit for bit on the CPU.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.measure import compute
from hierlearn.networks.network import Network
from hierlearn.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    optimizer_tensors,
    restore_optimizer,
)
from hierlearn.training.clip import clip_members
from hierlearn.training.early_stopping import Best
from hierlearn.training.epoch import Epoch, curricula
from hierlearn.training.member_losses import MemberLosses
from hierlearn.training.passes import member_probabilities
from hierlearn.training.processes import Processes, is_loss, lost
from hierlearn.training.seeding import derive
from hierlearn.training.settings import learning_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hierlearn.links import Link
    from hierlearn.losses import Loss
    from hierlearn.training.rows import Rows
    from hierlearn.training.settings import Settings

GLANCES = 50  # steps between two looks at the losses on a device that the host must wait for


class NonFiniteLossError(HierlearnError):
    """The loss became infinite or NaN."""


class Trainer:
    """Train a network, or several stacked ones.

    Args:
        network: gives (N, C) logits, or (M, N, C) where M models are stacked.
        losses: the loss of each model.
        rows: the training rows.
        settings: how to train.
        link: how to read the logits when validating.
        valid: the validation rows, if any.
        terminals: the terminal classes, for metrics that ask for them.
        processes: which process this is of how many.
        alike: whether the losses were made with the same options; one call then does for all.
        on_epoch: called after each epoch with its record.
        on_step: called after each step with the step's number from 1.
        save: called with the step, tensors and facts whenever a checkpoint is due.
    """

    def __init__(
        self,
        network: nn.Module,
        losses: Sequence[Loss],
        rows: Rows,
        settings: Settings,
        *,
        link: Link,
        valid: Rows | None = None,
        terminals: Sequence[int] | None = None,
        processes: Processes | None = None,
        alike: bool = False,
        on_epoch: Callable[[dict[str, Any]], None] | None = None,
        on_step: Callable[[int], None] | None = None,
        save: Callable[[int, dict[str, Tensor], dict[str, Any]], object] | None = None,
    ) -> None:
        if not len(rows):
            raise HierlearnError("there are no training rows")
        settings.check_validation(valid is not None)
        members = network.members if isinstance(network, Network) else None
        if len(losses) != (members or 1):
            raise HierlearnError(
                f"{len(losses)} seeds need a network of {len(losses)} stacked models, but this "
                f"{type(network).__name__} holds {members or 1}; use one of NETWORKS, or one seed"
            )
        self.processes = processes or Processes(0, 1, rows.device)
        self.network = network.to(rows.device)
        self.losses = nn.ModuleList(losses).to(rows.device)
        self._means = MemberLosses(losses, self.processes, alike=alike)
        self._curricula = [one for loss in losses for one in curricula(loss)]
        self._shown = [next(iter(curricula(loss)), None) for loss in losses]  # of a mixed loss one
        self.rows = rows
        self.valid = valid
        self.settings = settings
        self.link = link.to(rows.device)
        self.terminals = terminals
        self.on_epoch = on_epoch
        self.on_step = on_step
        self.save = save
        self.seeds = [settings.seed + number for number in range(len(losses))]
        self.steps_an_epoch = -(-len(rows) // settings.batch_size)
        self.steps = settings.epochs * self.steps_an_epoch
        self.step = 0  # steps done
        self.best = Best(network, len(losses), settings.metric, settings.patience)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._noise: list[torch.Generator] = []
        if isinstance(network, Network):
            self._noise = [torch.Generator(rows.device) for _ in self.seeds]
            network.draw_noise_from(self._noise)
        self._forward: nn.Module = network
        if self.processes.world > 1:
            self._forward = DistributedDataParallel(network)
        self.so_far = Epoch()
        self.selections: list[Tensor] = []  # (C,) of each epoch, where a curriculum selects

    # ------------------------------------------------------------------ the loop

    @property
    def epoch(self) -> int:
        """The number of whole epochs done."""
        return self.step // self.steps_an_epoch

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.step >= self.steps or all(self.stopped)

    @property
    def stopped(self) -> list[bool]:
        """Which models have stopped early."""
        return self.best.stopped

    @property
    def best_value(self) -> list[float | None]:
        """The metric of the best weights of each model, where early stopping was asked for."""
        return self.best.value

    @property
    def best_epoch(self) -> list[int]:
        """The epoch of the best weights of each model, from 1."""
        return self.best.epoch

    @property
    def improved_last(self) -> list[bool]:
        """Which models had their best metric so far when they were validated last."""
        return self.best.improved_last

    def train(self) -> None:
        """Train to the end, and take the best weights if early stopping was asked for."""
        try:
            while not self.finished:
                self.train_epoch()
        except (RuntimeError, torch.distributed.DistError) as error:
            if self.processes.world == 1 or not is_loss(error):
                raise
            raise lost(self.processes.rank, error, f" in epoch {self.epoch + 1}") from error
        self._forward = self.network  # nothing is left that holds the group of processes
        self.best.restore()

    def train_epoch(self) -> None:
        """Go through the rows once, or through what is left of an epoch."""
        number = self.epoch
        order = self.rows.order(self.seeds, number)
        if self.rows.at_hand:  # sent once, not a part a step
            order = order.to(self.rows.device)
        if not self._is_stacked:
            order = order[0]
        self.network.train()
        begun = time.perf_counter()
        for place in range(self.step % self.steps_an_epoch, self.steps_an_epoch):
            begin = place * self.settings.batch_size
            index = order[..., begin : begin + self.settings.batch_size]
            self.train_step(self.processes.share(index), number, place)
            if self.on_step is not None:
                self.on_step(self.step)
            every = self.settings.checkpoint_every
            if every is not None and self.step % every == 0 and place + 1 < self.steps_an_epoch:
                self._look_at_losses(number)
                self._checkpoint()
        self._look_at_losses(number)
        self._check_weights()
        for curriculum in self._curricula:
            curriculum.end_epoch()
        record = self._record(number, time.perf_counter() - begun)
        self.so_far = Epoch()
        if self.valid is not None and (
            (number + 1) % self.settings.validate_every == 0 or self.step == self.steps
        ):
            record["valid"] = self._validate(number)
        if self.on_epoch is not None and self.processes.writes:
            self.on_epoch(record)
        self._checkpoint()

    def train_step(self, index: Tensor, epoch: int, place: int) -> None:
        """Take one step on the rows ``index``: (n,), or (M, n) for stacked models."""
        rate = learning_rate(self.settings, self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self._seed_noise()
        x, targets, mask = self.rows.batch(index)
        half = self.settings.precision == "bf16"
        kind = self.rows.device.type
        with torch.autocast(kind, torch.bfloat16) if half else nullcontext():
            logits = self._forward(x)
        if not self._is_stacked:
            logits, targets = logits[None], targets[None]
            mask, index = None if mask is None else mask[None], index[None]
        for curriculum in self._curricula:
            curriculum.set_progress(self.step / self.steps)
        weights = self.rows.weights
        if weights is not None:
            weights = weights[index.to(self.rows.device)]
        total = self._means(logits, targets, mask, weights, self.stopped)
        if kind == "cpu" and not bool(total.isfinite().all()):
            self._refuse_loss(total.detach(), epoch, place)
        self.optimizer.zero_grad(set_to_none=True)
        total.sum().backward()  # type: ignore[no-untyped-call]
        if self.settings.max_grad_norm is not None:
            self._clip(self.settings.max_grad_norm)
        self.optimizer.step()
        shown = [
            one for one, over in zip(self._shown, self.stopped, strict=True) if one and not over
        ]
        self.so_far.add(total.detach(), shown)
        self.step += 1
        if kind != "cpu" and self.step % GLANCES == 0:
            self._look_at_losses(epoch)

    @property
    def _is_stacked(self) -> bool:
        return isinstance(self.network, Network) and self.network.members is not None

    def _seed_noise(self) -> None:
        """Let this step's dropout depend on the seed, the step and the process alone."""
        purpose = f"noise {self.processes.rank}"
        for seed, noise in zip(self.seeds, self._noise, strict=False):
            noise.manual_seed(derive(seed, purpose, self.step))
        if not self._noise:  # a network from elsewhere draws from torch's own generator
            torch.manual_seed(derive(self.seeds[0], purpose, self.step))

    def _clip(self, limit: float) -> None:
        """Scale down the gradient of each model whose norm exceeds the limit."""
        if self._is_stacked:
            clip_members(self.network.parameters(), limit)
        else:
            nn.utils.clip_grad_norm_(self.network.parameters(), limit)

    # ------------------------------------------------------------------ what an epoch tells

    def _record(self, number: int, seconds: float) -> dict[str, Any]:
        """Return the facts of an epoch, ready for JSON."""
        losses = self.processes.total(self.so_far.mean_loss()) / self.processes.world
        record: dict[str, Any] = {
            "epoch": number + 1,
            "step": self.step,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "loss": self.best.of_running(losses.tolist()),
            "seconds": round(seconds, 4),
        }
        hierarchy: Any = self.link.hierarchy
        selected = self.so_far.selected_share()
        if selected is None:
            return record
        self.selections.append(selected)
        levels = torch.split(selected, list(hierarchy.level_sizes))
        by_level = [round(float(level.mean()), 6) for level in levels]
        return {**record, "selected_by_level": by_level}

    def _look_at_losses(self, epoch: int) -> None:
        """Read back the losses of this epoch so far, and stop if one is not finite."""
        first = None if self.rows.device.type == "cpu" else self.so_far.first_wrong()
        if first is not None:
            place = self.step % self.steps_an_epoch or self.steps_an_epoch
            losses = self.so_far.losses
            self._refuse_loss(losses[first], epoch, place - len(losses) + first)

    def _refuse_loss(self, total: Tensor, epoch: int, place: int, what: str = "loss") -> None:
        member = int((~total.isfinite()).nonzero()[0])
        order = self.rows.order([self.seeds[member]], epoch)[0]
        begin = place * self.settings.batch_size
        rows = order[begin : begin + self.settings.batch_size].tolist()
        shown = ", ".join(map(str, rows[:8])) + (", ..." if len(rows) > 8 else "")
        raise NonFiniteLossError(
            f"the {what} became {float(total[member])} in epoch {epoch + 1}, batch {place + 1} of "
            f"{self.steps_an_epoch} (seed {self.seeds[member]}, training rows {shown}); lower the "
            f"learning rate or set max_grad_norm, and check those rows; the last checkpoint is "
            f"untouched"
        )

    # ------------------------------------------------------------------ validation

    def _validate(self, number: int) -> dict[str, list[float | None]]:
        """Return the metric of each model on the validation rows, and remember the best."""
        name = self.settings.metric
        values = torch.zeros(len(self.losses), dtype=torch.float64, device=self.rows.device)
        if self.processes.writes:
            assert self.valid is not None
            targets = self.valid.targets(torch.arange(len(self.valid), device=self.rows.device))
            space = LabelSpace(self.link.hierarchy, self.terminals)
            for member, p in enumerate(member_probabilities(self.network, self.valid, self.link)):
                if self.stopped[member]:
                    continue
                values[member] = compute(name, p, targets, space).to(values.device)
        if self.processes.world > 1:
            torch.distributed.broadcast(values, 0)
        found = self.best.of_running(values.tolist())
        self.best.judge(values.tolist(), number + 1)
        return {name: found}

    # ------------------------------------------------------------------ stopping and going on

    def _checkpoint(self) -> None:
        self._check_weights()
        if self.save is not None and self.processes.writes:
            self.save(self.step, self.tensors(), self.facts())
        self.processes.wait()

    def _check_weights(self) -> None:
        """Refuse weights from which no training can go on, before they are judged or kept."""
        for member, stopped in enumerate(self.stopped):
            state = self.best.state_of(member)
            if not stopped and not all(bool(value.isfinite().all()) for value in state):
                place = (self.step - 1) % self.steps_an_epoch
                wrong = torch.zeros(len(self.losses))
                wrong[member] = float("nan")
                self._refuse_loss(wrong, (self.step - 1) // self.steps_an_epoch, place, "weights")

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor that the training needs to go on."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "network": self.network.state_dict(),
            "best": self.best.weights,
            "optimizer": optimizer_tensors(self.optimizer),
            "loss": self.losses.state_dict(),
        }
        if self.step % self.steps_an_epoch:  # in the midst of an epoch
            parts["epoch"] = self.so_far.tensors()
            parts["ever"] = {str(k): one.ever_selected for k, one in enumerate(self._curricula)}
        return {
            f"{part}/{name}": value.clone()
            for part, tensors in parts.items()
            for name, value in tensors.items()
        }

    def facts(self) -> dict[str, Any]:
        """Return where the training is, ready for JSON."""
        return {"step": self.step, "epoch": self.epoch, "best": self.best.facts()}

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Take up the training where a checkpoint left it."""
        parts: dict[str, dict[str, Tensor]] = {}
        for key, value in checkpoint.tensors.items():
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = value
        device = self.rows.device
        try:
            self.network.load_state_dict(parts["network"])
            self.losses.load_state_dict(parts.get("loss", {}))
            restore_optimizer(self.optimizer, parts.get("optimizer", {}))
            self.best.take_up(checkpoint.facts["best"], parts.get("best", {}), device)
            self.step = checkpoint.facts["step"]
        except (KeyError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise CheckpointError(
                f"{checkpoint.path} does not fit this network, its losses or its optimizer "
                f"({reason}); train anew in another folder"
            ) from None
        self.so_far.take_up(parts.get("epoch", {}), device)
        for number, seen in parts.get("ever", {}).items():
            self._curricula[int(number)].ever_selected.copy_(seen)
