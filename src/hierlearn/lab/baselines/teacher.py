"""Teacher-student curriculum: a bandit chooses the task that each epoch trains (Matiisen 2017).

    l(i, j) = w_j bce(i, j),   w_j = 1 for the classes of the chosen task, else floor
    P(task k is chosen) = exp(|r_k| / temperature) / sum over tasks of the same
    r_k = slope of the last scores x_k ("window"), or a x_kt' + (1 - a) r_k of gains ("online")

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
from hierlearn.losses.bases import zero_one
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
Reward = Literal["window", "online"]
Score = Literal["loss", "accuracy"]


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


def task_probabilities(rewards: Tensor, temperature: float, relative: bool = True) -> Tensor:
    """Return (..., T) how probable each task is: a Boltzmann distribution of the (..., T) rewards.

    Args:
        rewards: of which only the size counts.
        temperature: the higher, the closer to equal probabilities.
        relative: divide the rewards by the largest, which makes them free of their unit.
    """
    sizes = rewards.abs()
    if relative:
        largest = sizes.amax(dim=-1, keepdim=True)
        sizes = sizes / torch.where(largest > 0, largest, 1.0)
    return torch.softmax(sizes / temperature, dim=-1)


class TeacherLoss(BCELoss):
    """Binary cross entropy of the classes of one task, which a bandit chooses for every epoch.

    ``end_epoch`` closes an epoch and chooses again. Members of an ensemble have teachers of their
    own. All processes of torch.distributed choose alike, by the scores of all rows.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        tasks: "levels" of the taxonomy, or "subtrees" of its top classes.
        reward: "window", the slope of the last ``window`` scores, or "online", a moving average of
            gains in which the last counts 1 / ``window``.
        score: "loss", minus the mean loss of a task's known entries, or "accuracy", the fraction of
            them on the right side of 1/2.
        window: how many epochs the rewards look back, at least 2.
        temperature: of the choice, above 0.
        relative: divide rewards by the largest; False is as printed, where the temperature has the
            unit of the scores.
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
        reward: Reward = "window",
        score: Score = "loss",
        window: int = 5,
        temperature: float = 0.5,
        relative: bool = True,
        floor: float = 0.3,
        **options: Unpack[BCEOptions],
    ) -> None:
        super().__init__(label_space, **options)
        for name, value, known in (
            ("tasks", tasks, Tasks),
            ("reward", reward, Reward),
            ("score", score, Score),
        ):
            if value not in get_args(known):
                raise HierlearnError(unknown_name(name, str(value), get_args(known)))
        if not isinstance(window, int) or window < 2:
            raise HierlearnError(f"window must be an integer of at least 2 epochs, not {window!r}")
        if not isinstance(relative, bool):
            raise HierlearnError(f"relative must be true or false, not {relative!r}")
        if not temperature > 0:
            raise HierlearnError(f"temperature must be above 0, not {temperature}")
        if not 0 <= floor < 1:
            raise HierlearnError(f"floor must lie in [0, 1), not {floor}; 1 would train every task")
        self.tasks, self.reward, self.score = tasks, reward, score
        self.window, self.temperature = window, temperature
        self.relative, self.floor = relative, floor
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
                measured = losses.detach()
                if self.score == "accuracy":
                    measured = zero_one(output.log_p, output.log_not_p, targets)
                self.gather(measured, mask, weight)
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
        places = self.window if self.reward == "window" else 1
        number, tasks = torch.zeros(lead, dtype=torch.float64), len(self.classes_of_tasks)
        state = {
            "seeds": torch.zeros(lead, dtype=torch.int64),
            "epoch": torch.zeros((), dtype=torch.int64),
            "selected": torch.zeros(*lead, classes, dtype=torch.bool),
            "rewards": number[..., None].repeat_interleave(tasks, dim=-1),
            "scores": torch.full((*lead, tasks, places), torch.nan, dtype=torch.float64),
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
        scores, rewards = self.scores.cpu(), self.rewards.cpu()
        if self.reward == "window":
            scores = torch.cat([scores[..., 1:], score[..., None]], dim=-1)
            rewards = slopes(scores)
        else:
            gains = score - scores[..., 0]
            averaged = rewards + (gains - rewards) / self.window
            rewards = torch.where(gains.isnan(), rewards, averaged)
            scores = torch.where(score.isnan(), scores[..., 0], score)[..., None]
        self.scores.copy_(scores)
        self.rewards.copy_(rewards)
        self.epoch_losses.zero_()
        self.epoch_counts.zero_()
        self.epoch.add_(1)
        self.choose()

    @property
    def probabilities(self) -> Tensor:
        """(T,) or (M, T), how probable each task was when that of this epoch was chosen."""
        return task_probabilities(self.rewards, self.temperature, self.relative)

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
            f"{super().extra_repr()}, tasks={self.tasks!r}, reward={self.reward!r}, "
            f"score={self.score!r}, temperature={self.temperature}, floor={self.floor}"
        )


TEACHER_STUDENT = Recipe(
    "teacher",
    "cross entropy of one level per epoch, which a bandit chooses (Matiisen 2017)",
    link="max",
    rule=plain,
)
