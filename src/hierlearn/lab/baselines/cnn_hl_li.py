"""The random-walk link: the probabilities of another link, smoothed over the taxonomy.

    p' = r (I - (1 - r) W)^-1 p,    1 - p' = r (I - (1 - r) W)^-1 (1 - p)
    answer: the maximum of p' over a class and its descendants

A walk starts at a class, steps to one of its parents or children with equal probability (W), and
stops before every step with probability r: p' is the mean p of where it stops, within [0, 1].
After CNN-HL-LI (Wu et al., 2016). The walk alone does not keep p coherent: a parent of many
improbable children falls below a probable one. The maximum restores that, as in the max link.

The inverse is a sum over steps, of which the rest after n of them is at most (1 - r)^n.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.propagate import add_at, log_add, select
from hierlearn.links.link import Link, make_link
from hierlearn.training.recipes import Recipe, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.hierarchy.structure import Ints
    from hierlearn.training.choose import Facts


REST = 1e-8  # of the weight of a walk, beyond which steps are left out
MOST_STEPS = 10_000


class RandomWalkLink(Link):
    """Another link, smoothed by a random walk with restart; coherent on trees and DAGs.

    Args:
        label_space: what can be predicted; a Hierarchy means that its leaves are terminal.
        restart: r, above 0 and at most 1; 1 takes no step.
        steps: the number of steps after which every walk stops; by default as many as matter, at
            most 10,000.
        siblings: whether the walk also steps to the children of its parents, itself among them,
            and between top classes.
        base: the name of the link to smooth.
    """

    coherent = True
    starts: Tensor
    ends: Tensor
    members: Tensor
    groups: Tensor
    log_chances: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        restart: float = 0.8,
        steps: int | None = None,
        siblings: bool = False,
        base: str = "sigmoid",
    ) -> None:
        super().__init__(label_space)
        number = isinstance(restart, (int, float)) and not isinstance(restart, bool)
        if not number or not 0 < restart <= 1:
            raise HierlearnError(f"restart must be a number above 0 and at most 1, not {restart!r}")
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int)):
            raise HierlearnError(f"steps must be an integer, not {steps!r}")
        if steps is not None and not 0 <= steps <= MOST_STEPS:
            raise HierlearnError(f"steps must lie between 0 and {MOST_STEPS:,}, not {steps:,}")
        if not isinstance(siblings, bool):
            raise HierlearnError(f"siblings must be true or false, not {siblings!r}")
        self.base = make_link(self.label_space, base)
        self.given: dict[str, Any] = {
            "restart": restart,
            "steps": steps,
            "siblings": siblings,
            "base": base,
        }
        self.restart = float(restart)
        if steps is None:  # until a walk goes on with a probability of at most REST
            stays = math.log1p(-self.restart) if self.restart < 1 else -math.inf
            steps = min(math.ceil(math.log(REST) / stays), MOST_STEPS)
        self.steps = steps
        found = steps_of(self.hierarchy, siblings=siblings)
        log_degrees = np.log(found.degrees)
        starts = np.concatenate([found.starts, found.members])
        self.group_count = int(found.groups.max(initial=-1)) + 1
        for name, values in (
            ("starts", starts),
            ("ends", found.ends),
            ("members", found.members),
            ("groups", found.groups),
            ("log_chances", -log_degrees[starts]),
        ):
            self.register_buffer(name, torch.tensor(values), persistent=False)

    @property
    def options(self) -> dict[str, Any]:
        """The options that it was made with."""
        return dict(self.given)

    def smooth(self, log_p: Tensor) -> Tensor:
        """Return the log of (..., C) values of the classes, averaged over where a walk stops."""
        found = log_p
        if self.restart == 1:
            return found
        stopped = log_p + math.log(self.restart)
        chances = self.log_chances.to(log_p.dtype) + math.log1p(-self.restart)
        for _ in range(self.steps):
            arrived = select(found, self.ends)
            if self.group_count:  # the sum of all siblings once, however many there are
                sums = log_add_at(select(found, self.members), self.groups, self.group_count)
                arrived = torch.cat([arrived, select(sums, self.groups)], dim=-1)
            moved = log_add_at(arrived + chances, self.starts, log_p.shape[-1])
            found = log_add(stopped, moved)
        return found.clamp_max(0.0)  # means of probabilities, but for rounding

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p and log(1 - p) of the smoothed probabilities."""
        log_p, log_q = (self.smooth(one) for one in self.base.log_probabilities(logits))
        return self.hierarchy.max_up(log_p), -self.hierarchy.max_up(-log_q)

    def log_p(self, logits: Tensor) -> Tensor:
        return self.hierarchy.max_up(self.smooth(self.base.log_p(logits)))

    def prior_logits(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> Tensor:
        """Return the logits whose probabilities, before the walk, are those of the rows."""
        return self.base.prior_logits(counts, terminal_counts, rows)

    def extra_repr(self) -> str:
        """Name the hierarchy and the walk when the module is printed."""
        return f"{super().extra_repr()}, restart={self.restart:g}, {self.steps} steps"


def log_add_at(values: Tensor, index: Tensor, count: int) -> Tensor:
    """Return (..., count) the log of the summed exponentials of the values with each index.

    Args:
        values: (..., E).
        index: (E,) in which every number below ``count`` occurs.
        count: how many columns there are.
    """
    empty = values.new_zeros((*values.shape[:-1], count))
    with torch.no_grad():
        peak = (empty - math.inf).scatter_reduce(-1, index.expand_as(values), values, "amax")
    sums = add_at(empty, index, (values - select(peak, index)).exp())
    return peak + sums.log()


class Steps(NamedTuple):
    """The steps of a walk.

    Attributes:
        starts, ends: (E,) from which class to which.
        members, groups: (G,) a class, and a group of siblings that it belongs to.
        degrees: (C,) from how many classes a step is drawn; siblings count once per group.
    """

    starts: Ints
    ends: Ints
    members: Ints
    groups: Ints
    degrees: Ints


def steps_of(hierarchy: Hierarchy, *, siblings: bool) -> Steps:
    """Return the steps to parents and children; with ``siblings``, to those, too.

    A class without any other to step to stays where it is.
    """
    structure, count = hierarchy.structure, len(hierarchy)
    children, parents = structure.edge_children, structure.parent_ids
    starts, ends = np.concatenate([children, parents]), np.concatenate([parents, children])
    members = groups = np.zeros(0, dtype=np.int64)
    if siblings:
        tops = np.setdiff1d(np.arange(count), children)
        members = np.concatenate([children, tops])
        above = np.concatenate([parents, np.full(len(tops), count)])
        groups = np.unique(above, return_inverse=True)[1]
    else:
        alone = np.setdiff1d(np.arange(count), starts)
        starts, ends = np.concatenate([starts, alone]), np.concatenate([ends, alone])
    degrees = np.bincount(starts, minlength=count)
    np.add.at(degrees, members, np.bincount(groups)[groups] if len(groups) else groups)
    return Steps(starts, ends, members, groups, degrees)


WALK_RESTART = 0.95  # of the random walk of CNN-HL-LI


def cnn_hl_li_rule(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of CNN-HL-LI: a softmax for one path per row, else sigmoids."""
    base = "softmax" if facts.one_path else "sigmoid"
    walk = f"random-walk:restart={WALK_RESTART},siblings=true,base={base}"
    return {**plain(facts), "loss_options": {"link": base}, "link": walk}


CNN_HL_LI = Recipe(
    "level-weighted",
    "CNN-HL-LI: a loss weighted by level, scores smoothed by a random walk (Wu 2016)",
    rule=cnn_hl_li_rule,
)
