"""Scaling: probabilities made as sure as they should be, learned on rows held out of training.

    log-odds   log(p / (1 - p)) <- slope log(p / (1 - p)) + offset, the same for every class
    mass       q(t) <- q(t)^slope / sum, over the terminal classes; p(c) sums what lies below c

Scaled log-odds keep every ranking, and a class stays no more probable than its parent (Platt,
1999). Scaled masses are a temperature (Guo et al., 2017): they also sum to 1, as rows with one path
have it. Both have one or two parameters, which a few hundred rows determine.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.nn.functional import logsigmoid

from hierlearn.decoding.mass import TerminalMass
from hierlearn.hierarchy.chunks import row_chunks
from hierlearn.links import HeadOutput, make_link
from hierlearn.links.similarities import best_slope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hierlearn.hierarchy import LabelSpace

    Kind = Literal["log-odds", "mass"]

LEAST = 1e-6  # a probability of held-out rows is no further from 0 and 1
SLACK = 5e-3  # by which masses may miss 1: predictions are kept in half precision
STEPS = 30  # of Newton's method
SLOPES = (0.05, 20.0)  # the range of a slope of masses


@dataclass(frozen=True)
class Scaling:
    """How probabilities are scaled.

    Attributes:
        kind: "log-odds" or "mass".
        slope: above 1 makes them surer, below 1 less sure.
        offset: added to the log-odds; 0 for masses.
    """

    kind: Kind
    slope: float
    offset: float = 0.0

    def __call__(self, output: HeadOutput, label_space: LabelSpace) -> HeadOutput:
        """Return the scaled probabilities.

        Args:
            output: of N rows.
            label_space: what can be predicted.
        """
        if self.kind == "mass":
            return scaled_masses(output.probabilities, self.slope, label_space)
        log_p, log_not_p = output.pair
        z = (log_p - log_not_p) * self.slope + self.offset
        return HeadOutput(logsigmoid(z), logsigmoid(-z))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Scaling | None:
        """Restore what ``to_dict`` returned; None of None."""
        return None if values is None else cls(**values)


def scaled_masses(p: Tensor, slope: float, label_space: LabelSpace) -> HeadOutput:
    """Return the output whose terminal masses are those of p to the power of ``slope``."""
    q = TerminalMass(label_space.hierarchy)(p)
    return make_link(label_space, "softmax").to(p.device).output(log_of(q) * slope)


def log_of(p: Tensor) -> Tensor:
    """Return log p, at least that of the smallest normal number."""
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()


# ---------------------------------------------------------------------- fitting


def fit_scaling(
    p: Tensor, targets: Tensor, label_space: LabelSpace, mask: Tensor | None = None
) -> Scaling:
    """Return the scaling under which held-out rows are most probable.

    Scaled masses where every row has one path and its masses sum to 1, as those of a softmax and of
    a memory do; scaled log-odds elsewhere.

    Args:
        p: (N, C) probabilities of rows that were not trained on.
        targets: (N, C) closed multi-hot.
        label_space: what can be predicted.
        mask: (N, C) which targets are known; None for all.
    """
    ends = terminal_ends(targets, label_space)
    if mask is None and bool((ends.sum(dim=1) == 1).all()) and sums_to_one(p, label_space):
        return Scaling("mass", fit_mass_slope(p, ends, label_space))
    return fit_log_odds(p, targets, mask)


def sums_to_one(p: Tensor, label_space: LabelSpace) -> bool:
    """Whether the terminal masses of every row are at least 0 and sum to 1, up to rounding."""
    solve = TerminalMass(label_space.hierarchy)
    for rows in row_chunks(*p.shape):
        q = solve.raw(p[rows].double())
        if bool(((q.sum(dim=1) - 1).abs() > SLACK).any()) or bool((q < -SLACK).any()):
            return False
    return True


def terminal_ends(targets: Tensor, label_space: LabelSpace) -> Tensor:
    """Return (N, C) the terminal classes without a true class below them."""
    structure = label_space.hierarchy.structure
    child = torch.tensor(structure.edge_children, device=targets.device)
    parent = torch.tensor(structure.parent_ids, device=targets.device)
    below = torch.zeros(targets.shape, dtype=torch.int32, device=targets.device)
    below.index_add_(1, parent, targets.index_select(1, child).int())
    return targets.bool() & (below == 0)


def fit_mass_slope(p: Tensor, ends: Tensor, label_space: LabelSpace) -> float:
    """Return the slope of masses under which the true terminal classes are most probable."""
    terminals = label_space.terminal_ids().to(p.device)
    solve = TerminalMass(label_space.hierarchy)
    logs, true = [], []
    for rows in row_chunks(*p.shape):
        q = solve(p[rows].double()).index_select(1, terminals).clamp_min(LEAST)
        picked = ends[rows].index_select(1, terminals)
        kept = picked.any(dim=1)  # a row may end at a class that is not terminal
        logs.append(q.log()[kept].float())
        true.append(picked[kept].int().argmax(dim=1))
    x, y = torch.cat(logs), torch.cat(true)
    if not len(x):
        return 1.0
    return best_slope(x, y, SLOPES)


def fit_log_odds(p: Tensor, targets: Tensor, mask: Tensor | None = None) -> Scaling:
    """Return slope and offset of the log-odds by Newton's method, the weight of all entries equal.

    Args:
        p: (N, C) probabilities.
        targets: (N, C) what is true.
        mask: (N, C) which entries count; None for all.
    """
    theta = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for _ in range(STEPS):
        gradient, hessian = torch.zeros(2).double(), 1e-9 * torch.eye(2).double()
        for rows in row_chunks(*p.shape):
            one = p[rows].double().clamp(LEAST, 1 - LEAST)
            z, y = torch.logit(one), targets[rows].double()
            found = torch.sigmoid(z * theta[0] + theta[1])
            rest, weight = found - y, found * (1 - found)
            if mask is not None:
                rest, weight = rest * mask[rows], weight * mask[rows]
            gradient += torch.stack([(rest * z).sum(), rest.sum()]).cpu()
            cross = (weight * z).sum().cpu()
            hessian += torch.stack(
                [(weight * z * z).sum().cpu(), cross, cross, weight.sum().cpu()]
            ).view(2, 2)
        step = torch.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / float(step.abs().max().clamp_min(1e-12)))
        theta = theta - step
        if float(step.abs().max()) < 1e-8:
            break
    slope, offset = theta.tolist()
    # A model that knows nothing may fit best upside down, which would reverse every ranking.
    return Scaling("log-odds", slope, offset) if slope > 0 else Scaling("log-odds", 1.0)
