"""Step: the gradient of one batch, computed part by part where it does not fit into memory.

A loss is a sum of means over rows or entries. The mean of a batch is that of its parts, each by its
share of what the mean divides by:

    l = sum over parts p and terms t of l_pt n_pt / sum over parts of n_pt

Under several processes every process cuts its own rows, and the sum runs over all of them. Dropout
of hierlearn's own draws for the whole batch, so that the cut changes nothing.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hierlearn.networks.ensemble import clip_grad_norm
from hierlearn.networks.layers import Share
from hierlearn.training.optimizer import set_learning_rate
from hierlearn.training.seeding import derive
from hierlearn.training.settings import learning_rate

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor

    from hierlearn.training.trainer import Trainer

NOISE = "noise 0"  # what all processes draw alike


class Taken(NamedTuple):
    """What a step leaves beside the weights.

    Attributes:
        losses: (M,) of the batch.
        selection: (C,) or (M, C) bool, the classes that a curriculum selected; None without one.
    """

    losses: Tensor
    selection: Tensor | None


def set_step(trainer: Trainer, step: int) -> None:
    """Set what the steps of a training differ in, beside rows and noise."""
    set_learning_rate(trainer.optimizer, rate_at(trainer, step))
    trainer.loss.set_progress(step / trainer.steps)


def rate_at(trainer: Trainer, step: int) -> float:
    """Return the learning rate of a step, by its place in its stage of the training."""
    return learning_rate(trainer.settings, *trainer.stages.place(step, trainer.steps))


def update(trainer: Trainer, index: Tensor) -> Taken:
    """Take a step on a whole batch in one process; its noise has been seeded."""
    trainer.optimizer.zero_grad(set_to_none=True)
    value = part_loss(trainer, index, 0, 0, None)
    value.sum().backward()  # type: ignore[no-untyped-call]
    apply_gradients(trainer)
    return Taken(value.detach(), trainer.loss.selection)


def apply_gradients(trainer: Trainer) -> None:
    """Clip the gradients and let the optimizer use them."""
    if trainer.settings.max_grad_norm is not None:
        clip_grad_norm(trainer.network, trainer.settings.max_grad_norm)
    trainer.optimizer.step()


def compute_gradients(trainer: Trainer, index: Tensor, epoch: int, place: int) -> Tensor:
    """Add the gradients of a batch to those of the parameters, and return (M,) its losses.

    Args:
        trainer: whose network is trained.
        index: (n,) the rows of this process, or (M, n) for the members of an ensemble.
        epoch: the number of the epoch, from 0.
        place: the number of the batch in it, from 0.
    """
    parts = cut(index, count_parts(trainer, place))
    trainer.timeline.enter("loss")
    totals = summed_counts(trainer, parts) if len(parts) > 1 else None
    losses = None
    for number, part in enumerate(parts):
        with unsynced(trainer) if number + 1 < len(parts) else nullcontext():
            trainer.timeline.enter("network")
            seed_noise(trainer, place, [one.shape[-1] for one in parts], number)
            value = part_loss(trainer, part, epoch, place, totals)
            value.sum().backward()  # type: ignore[no-untyped-call]
        losses = value.detach() if losses is None else losses + value.detach()
    assert losses is not None
    return losses


def count_parts(trainer: Trainer, place: int) -> int:
    """Return into how many parts each process cuts a batch: all of them into the same number."""
    settings, world = trainer.settings, trainer.processes.world
    count = min(settings.batch_size, len(trainer.rows) - place * settings.batch_size)
    return min(settings.accumulate, -(-count // world))


def cut(index: Tensor, parts: int) -> list[Tensor]:
    """Return the rows of a batch in parts of nearly equal size."""
    return list(torch.tensor_split(index, parts, dim=-1))


def unsynced(trainer: Trainer) -> AbstractContextManager[Any]:
    """Keep processes from exchanging gradients, which they do once per batch."""
    held: Any = trainer.forward
    found: AbstractContextManager[Any] = (
        held.no_sync() if hasattr(held, "no_sync") else nullcontext()
    )
    return found


def summed_counts(trainer: Trainer, parts: list[Tensor]) -> Tensor:
    """Return what the mean of each term of the loss divides by, over all parts and processes."""
    shape = (len(trainer.seeds),) if trainer.is_ensemble else ()
    device = trainer.rows.device
    found = []
    for part in parts:
        where = part.to(device)
        targets = trainer.rows.targets(where)
        mask = trainer.stages.mask(targets, trainer.rows.mask(where))
        weight = None if trainer.rows.weights is None else trainer.rows.weights[where]
        counts = [
            torch.as_tensor(count, dtype=torch.float64).to(device).expand(shape)
            for count in trainer.loss.counts(targets, mask, weight)
        ]
        found.append(torch.stack(counts))
    return trainer.processes.total(torch.stack(found).sum(dim=0))


def part_loss(
    trainer: Trainer, index: Tensor, epoch: int, place: int, totals: Tensor | None
) -> Tensor:
    """Return (M,) what some rows add to the loss of each member; 0 for one that has stopped.

    Args:
        trainer: whose network is trained.
        index: the rows.
        epoch: the number of the epoch, from 0.
        place: the number of the batch in it.
        totals: what the means of the whole batch divide by; None where the rows are all of it.
    """
    rows, settings = trainer.rows, trainer.settings
    trainer.timeline.enter("input")
    extra: dict[str, Any] = {"apart": True} if trainer.is_ensemble else {}
    if trainer.sampler is None:
        x, targets, mask = rows.batch(index)
    else:
        begin = place * settings.batch_size
        x, targets, mask, extra["candidates"] = trainer.sampler.batch(
            index, trainer.step, epoch, begin
        )
    mask = trainer.stages.mask(targets, mask)
    weight = None if rows.weights is None else rows.weights[index.to(rows.device)]
    trainer.timeline.enter("network")
    half = settings.precision == "bf16"
    with torch.autocast(rows.device.type, torch.bfloat16) if half else nullcontext():
        output = trainer.forward(x, **extra)
    trainer.timeline.watch(output)
    trainer.timeline.enter("loss")  # the backward pass, too, until it reaches the output
    value: Tensor
    if trainer.processes.world == 1 and totals is None:
        value = trainer.loss(output, targets, mask, weight)
    else:
        terms = trainer.loss.terms(output, targets, mask, weight)
        value = trainer.processes.part_of_mean(terms, totals)
    if not trainer.is_ensemble:
        return value[None]
    if settings.patience is not None:  # else nobody stops
        value = torch.where(trainer.stopped_on_device, 0.0, value)
    return value


def seed_noise(trainer: Trainer, place: int, sizes: list[int], number: int) -> None:
    """Seed the noise of a part: drawn for the global batch, of which the part uses its own.

    Args:
        trainer: whose network is trained.
        place: the number of the batch.
        sizes: the rows of each part in this process.
        number: of the part.
    """
    size, here = trainer.settings.batch_size, trainer.processes
    count = min(size, len(trainer.rows) - place * size)
    drawn = 0 if trainer.sampler is None else trainer.sampler.size
    share = here.part_of_noise(count, drawn)
    if len(sizes) > 1:
        every = torch.arange(count + drawn)
        begin = sum(sizes[:number])
        own = here.share(every[:count])[begin : begin + sizes[number]]
        share = Share(torch.cat([own, every[count:]]).to(here.device), count + drawn)
    # Networks of others draw from torch's generator, which knows nothing of shares.
    name = f"noise {here.rank}" + (f" part {number}" if number else "")
    seeds = torch_own = noise_seeds(trainer, trainer.step)
    if name != NOISE:
        torch_own = noise_seeds(trainer, trainer.step, name)
    trainer.noise.seed(seeds, torch_own, share)


def noise_seeds(trainer: Trainer, step: int, name: str = NOISE) -> list[int]:
    """Return the seed of each member's noise in a step."""
    return [derive(seed, name, step) for seed in trainer.seeds]
