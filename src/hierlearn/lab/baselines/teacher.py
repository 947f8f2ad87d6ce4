"""Teacher-student curriculum: a bandit chooses the task that each epoch trains (Matiisen 2017).

    l(i, j) = w_j bce(i, j),   w_j = 1 for the classes of the chosen task, else floor
    P(task k is chosen) = exp(|r_k| / temperature) / sum over tasks of the same
    r_k = slope of the last scores of task k, divided by the largest slope

Tasks are the levels of the taxonomy, or the subtrees of its top classes. A task whose score changes
is learned, or forgotten, right now: either way it is worth training. The scores are those of the
training rows of an epoch, of every task, chosen or not, so that nothing is computed twice; the
paper measures the accuracy on validation rows.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.losses.bce import BCELoss
from hierlearn.losses.checks import in_transform
from hierlearn.training.recipes import Recipe, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput
    from hierlearn.losses.bce import BCEOptions


Tasks = Literal["levels", "subtrees"]


def tasks_of(hierarchy: Hierarchy, tasks: Tasks) -> list[Tensor]:
    """Return the classes of each task; in a DAG, subtrees may share classes."""
    levels = torch.tensor(hierarchy.levels)
    if tasks == "levels":
        return [(levels == level + 1).nonzero().flatten() for level in range(hierarchy.depth)]
    tops = (levels == 1).nonzero().flatten().tolist()
    return [torch.tensor([top, *hierarchy.descendants(top)]) for top in tops]


def slopes(scores: Tensor) -> Tensor:
    """Return (..., T) the slope of a line through the (..., T, K) scores; NaN is no score.

    With fewer than two scores the slope is 0.
    """
    known = ~scores.isnan()
    count = known.sum(dim=-1, keepdim=True).clamp_min(1)
    times = torch.arange(scores.shape[-1], dtype=scores.dtype, device=scores.device)
    times = torch.where(known, times - (known * times).sum(-1, keepdim=True) / count, 0.0)
    spread = times.square().sum(dim=-1)
    return (times * scores.nan_to_num(0.0)).sum(dim=-1) / torch.where(spread > 0, spread, 1.0)


def task_probabilities(rewards: Tensor, temperature: float) -> Tensor:
    """Return (..., T) how probable each task is: a Boltzmann distribution of the (..., T) rewards.

    Args:
        rewards: of which only the size counts, relative to the largest one.
        temperature: the higher, the closer to equal probabilities.
    """
    sizes = rewards.abs()
    largest = sizes.amax(dim=-1, keepdim=True)
    return torch.softmax(sizes / torch.where(largest > 0, largest, 1.0) / temperature, dim=-1)


class TeacherLoss(BCELoss):
    """Binary cross entropy of the classes of one task, which a bandit chooses for every epoch.

    ``end_epoch`` closes an epoch and chooses again. Members of an ensemble have teachers of their
    own. All processes of torch.distributed choose alike, by the scores of all rows.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        tasks: "levels" of the taxonomy, or "subtrees" of its top classes.
        window: how many epochs the rewards look back, at least 2.
        temperature: of the choice, above 0.
        floor: what the classes of other tasks keep, in [0, 1); 0 is as printed.
        options: ``link``, ``log_base``, ``reduction`` and ``validate``.
    """

    function: ClassVar[Any] = staticmethod(task_probabilities)
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"floor": (0.1, 0.3, 0.5)}
    uses_hierarchy = True
    selected: Tensor
    rewards: Tensor
    scores: Tensor
    seeds: Tensor
    epoch: Tensor
    epoch_losses: Tensor
    epoch_counts: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        tasks: Tasks = "levels",
        window: int = 5,
        temperature: float = 0.5,
        floor: float = 0.3,
        **options: Unpack[BCEOptions],
    ) -> None:
        super().__init__(label_space, **options)
        if tasks not in get_args(Tasks):
            raise HierlearnError(unknown_name("tasks", str(tasks), get_args(Tasks)))
        if not isinstance(window, int) or window < 2:
            raise HierlearnError(f"window must be an integer of at least 2 epochs, not {window!r}")
        if not temperature > 0:
            raise HierlearnError(f"temperature must be above 0, not {temperature}")
        if not 0 <= floor < 1:
            raise HierlearnError(f"floor must lie in [0, 1), not {floor}; 1 would train every task")
        self.tasks, self.window = tasks, window
        self.temperature, self.floor = temperature, floor
        self.classes_of_tasks = tasks_of(self.hierarchy, tasks)
        self.register_buffer("seeds", torch.zeros((), dtype=torch.int64))
        self.set_members(None)

    # ------------------------------------------------------------------ the loss

    def compute(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> Tensor:
        """Gather the scores of all tasks, then reduce the losses of the chosen one."""
        if self.selected.shape[:-1] != output.shape[:-2]:
            self.set_members(output.members)  # an ensemble of another size
        losses = self.losses(output, targets, mask)  # elementwise: members need no flattening
        if torch.compiler.is_compiling() or not in_transform():
            with torch.no_grad():
                self.gather(losses.detach(), mask, weight)
        chosen = self.selected.to(losses.dtype) * (1 - self.floor) + self.floor
        return self.reduce(losses * chosen[..., None, :], targets, mask, weight)

    def gather(self, values: Tensor, mask: Tensor | None, weight: Tensor | None) -> None:
        """Add the losses or errors of a batch, of the shape of the output, to those of the epoch.

        Args:
            values: to add.
            mask: which of them are known.
            weight: what rows count.
        """
        if mask is None:
            known = torch.ones_like(values[..., :1, :]).expand_as(values)
        else:
            known, values = mask.to(values.dtype), torch.where(mask, values, 0.0)
        if weight is not None:
            known, values = (one * weight[..., None] for one in (known, values))
        sums = torch.stack([one.sum(dim=-2, dtype=torch.float64) for one in (values, known)])
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
        self.epoch_losses.add_(sums[0])
        self.epoch_counts.add_(sums[1])

    # ------------------------------------------------------------------ the teacher

    def set_members(self, count: int | None) -> None:
        """Make room for the teachers of ``count`` members; None for a network alone."""
        lead = () if count is None else (count,)
        classes, device = len(self.hierarchy), self.seeds.device
        number, tasks = torch.zeros(lead, dtype=torch.float64), len(self.classes_of_tasks)
        state = {
            "seeds": torch.zeros(lead, dtype=torch.int64),
            "epoch": torch.zeros((), dtype=torch.int64),
            "selected": torch.zeros(*lead, classes, dtype=torch.bool),
            "rewards": number[..., None].repeat_interleave(tasks, dim=-1),
            "scores": torch.full((*lead, tasks, self.window), torch.nan, dtype=torch.float64),
            "epoch_losses": number[..., None].repeat_interleave(classes, dim=-1),
            "epoch_counts": number[..., None].repeat_interleave(classes, dim=-1),
        }
        for name, values in state.items():
            self.register_buffer(name, values.to(device))
        self.choose()

    def set_seeds(self, seeds: Sequence[int]) -> None:
        """Set the seed by which each member's teacher draws; before the first epoch."""
        self.seeds.copy_(torch.tensor(seeds).view(self.seeds.shape))
        self.choose()

    def end_epoch(self) -> None:
        """Close an epoch: score every task, and choose that of the next epoch."""
        sums, counts = (
            torch.stack([one.cpu()[..., task].sum(dim=-1) for task in self.classes_of_tasks], -1)
            for one in (self.epoch_losses, self.epoch_counts)
        )
        score = torch.where(counts > 0, -sums / counts.clamp_min(1e-300), torch.nan)
        self.scores.copy_(torch.cat([self.scores.cpu()[..., 1:], score[..., None]], dim=-1))
        self.rewards.copy_(slopes(self.scores))
        self.epoch_losses.zero_()
        self.epoch_counts.zero_()
        self.epoch.add_(1)
        self.choose()

    @property
    def probabilities(self) -> Tensor:
        """(T,) or (M, T), how probable each task was when that of this epoch was chosen."""
        return task_probabilities(self.rewards, self.temperature)

    def choose(self) -> None:
        """Draw the task of this epoch; the same again for the same seed, epoch and rewards."""
        limits = self.probabilities.cpu().view(-1, len(self.classes_of_tasks)).cumsum(dim=-1)
        selected = torch.zeros(len(limits), len(self.hierarchy), dtype=torch.bool)
        for member, seed in enumerate(self.seeds.view(-1).tolist()):
            drawn = random.Random(f"teacher {seed} {int(self.epoch)}").random()
            task = int((limits[member, :-1] <= drawn).sum())
            selected[member, self.classes_of_tasks[task]] = True
        self.selected.copy_(selected.view(self.selected.shape))

    @property
    def selection(self) -> Tensor:
        """The classes of the tasks of this epoch, (C,) or (M, C) bool."""
        return self.selected

    def extra_repr(self) -> str:
        """Name the choices when the module is printed."""
        return (
            f"{super().extra_repr()}, tasks={self.tasks!r}, temperature={self.temperature}, "
            f"floor={self.floor}"
        )


TEACHER_STUDENT = Recipe(
    "teacher",
    "cross entropy of one level per epoch, which a bandit chooses (Matiisen 2017)",
    link="max",
    rule=plain,
)
