"""Scaling: probabilities made as sure as they should be, learned on rows held out of training.

    steps      s(c) <- ((1 - e) s(c) + e / K)^b / sum over the K siblings,    p(c) = product of s
               over c and its ancestors: s is the probability of a class given its parent
    mass       the same once, of the mass q(t) that ends at each terminal class; p sums it upward
    log-odds   log(p / (1 - p)) <- an increasing function of it, piecewise linear, 0 where it is 0

Steps are for trees with one path per row, or none: slope b, a temperature (Guo et al., 2017), and
share e, which is spread evenly, belong to a level, so that every level is as sure as it
should be. Where rows may end at an inner class, ending there is one of its K siblings' choices.
Mass keeps the order of all terminal classes, so that the most probable one stays; steps keep that
of siblings. Log-odds are for several labels per row: one function for all classes, which keeps
every ranking, and every set of the classes whose p is at least one half (compare Platt, 1999).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch.nn.functional import logsigmoid

from hierlearn.decoding.decoder import most_specific
from hierlearn.decoding.probabilities import TerminalMass
from hierlearn.hierarchy.propagate import log_zero
from hierlearn.hierarchy.structure import expand_ranges, row_chunks
from hierlearn.links import HeadOutput, make_link
from hierlearn.links.siblings import log_steps
from hierlearn.links.softmax import log_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Decide = Callable[[Tensor], Tensor]

Kind = Literal["steps", "mass", "log-odds"]
LEAST = 1e-6  # a probability of held-out rows is no further from 0 and 1
SLACK = 5e-3  # by which masses may miss 1: predictions are kept in half precision
KNOTS = (0.1, 0.01)  # p where the slope of log-odds changes, beside 0.5
BINS = 4096  # of log-odds
SLOPES = (0.05, 20.0)  # the range of a slope
SHARES = (1e-6, 0.5)  # the range of a share that is spread
# As far as rows do not say otherwise, slopes are 1 and shares 0.001: standard deviations of logs,
USUAL, SPREAD = (1.0, 1e-3), (1.0, 3.0)
LEVELS = (0.5, 1.0)  # and those of a level from all levels.
# How far answers that are surer than right lower the slopes: by at most this factor, found to less
# than a hundredth; as if beside so many rows they were as sure as right.
MOST_FACTOR, HALVINGS, USUAL_ROWS = 2.0, 8, 100
ROWS = 2048  # that are scaled at once


@dataclass(frozen=True)
class Scaling:
    """How probabilities are scaled.

    Attributes:
        kind: "steps", "mass" or "log-odds".
        slopes: of every level, the last one also of deeper levels; above 1 makes them surer. Of
            log-odds: above 0, and from there down between the KNOTS.
        shares: of every level, what is spread evenly; none for log-odds.
        empty: whether a row may end above the top classes: steps only.
    """

    kind: Kind
    slopes: tuple[float, ...]
    shares: tuple[float, ...]
    empty: bool = False

    def __call__(self, output: HeadOutput, label_space: LabelSpace) -> HeadOutput:
        """Return the scaled probabilities.

        Args:
            output: of N rows.
            label_space: what can be predicted.
        """
        if self.kind == "log-odds":
            log_p, log_not_p = output.pair
            parts = log_odds_parts(log_p - log_not_p)
            scaled = [one * part for one, part in zip(self.slopes, parts, strict=True)]
            z = torch.stack(scaled).sum(dim=0)
            return HeadOutput(logsigmoid(z), logsigmoid(-z))
        if self.kind == "mass" or not label_space.hierarchy.is_tree:
            return self.scaled_masses(output.probabilities, label_space)
        return self.scaled_steps(output.log_p, label_space)

    def scaled_masses(self, p: Tensor, label_space: LabelSpace) -> HeadOutput:
        """Scale the masses of the terminal classes."""
        terminals = label_space.terminal_ids().to(p.device)
        q = TerminalMass(label_space.hierarchy)(p).index_select(1, terminals)
        shares = q / q.sum(dim=1, keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)
        logs = log_spread(shares, self.shares[-1], len(terminals)) * self.slopes[-1]
        logits = torch.zeros_like(p).index_copy(1, terminals, logs)
        log_p, log_not_p = make_link(label_space, "softmax").to(p.device).output(logits).pair
        return HeadOutput(log_p.clamp_max(0), log_not_p)  # sums may round to above 1

    def scaled_steps(self, log_p: Tensor, label_space: LabelSpace) -> HeadOutput:
        """Scale the probability of every class given its parent, and multiply down the path."""
        hierarchy, device = label_space.hierarchy, log_p.device
        ends = ending_classes(label_space, empty=self.empty)
        above = np.append(hierarchy.structure.first_parents, ends)  # (C + E,)
        sizes = np.bincount(above + 1, minlength=len(hierarchy) + 1)[above + 1]
        groups = torch.from_numpy(above + 1).to(device)
        level = np.append(hierarchy.levels, 0)[above]  # of the parent, 0 for the root
        slopes, shares = (
            torch.from_numpy(np.asarray(values)[np.minimum(level, len(values) - 1)]).to(log_p)
            for values in (self.slopes, self.shares)
        )
        steps = log_steps(torch.cat([log_p, log_stops(log_p, ends, hierarchy)], dim=1), groups)
        counts = torch.from_numpy(sizes).to(log_p)
        steps = log_steps(log_spread(steps.exp(), shares, counts) * slopes, groups)
        inside = hierarchy.sum_down(steps[:, : len(hierarchy)]).clamp_max(0)
        if self.empty:
            tiny = torch.finfo(log_p.dtype).tiny
            return HeadOutput(inside, (-inside.expm1()).clamp_min(tiny).log())
        index = torch.from_numpy(ends).to(device)
        own = torch.full_like(inside, log_zero(log_p.dtype)).index_copy(
            1, index, inside.index_select(1, index) + steps[:, len(hierarchy) :]
        )
        return HeadOutput(inside, log_outside(hierarchy, own, inside))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "slopes": list(self.slopes), "shares": list(self.shares)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Scaling | None:
        """Restore what ``to_dict`` returned; None of None."""
        if values is None:
            return None
        lists = {name: tuple(values[name]) for name in ("slopes", "shares")}
        return cls(**{**values, **lists})


def ending_classes(label_space: LabelSpace, *, empty: bool = False) -> Ints:
    """Return the classes with children at which a row may end as well; first -1 for the root."""
    terminals = np.asarray(label_space.terminals, dtype=np.int64)
    offsets, _ = label_space.hierarchy.structure.children
    inner = terminals[np.diff(offsets)[terminals] > 0]
    return np.append(np.full(int(empty), -1, dtype=np.int64), inner)


def log_stops(log_p: Tensor, ends: Ints, hierarchy: Hierarchy) -> Tensor:
    """Return (N, E) the log of the probability that a row ends at some classes; trees."""
    p = log_p.exp()
    tiny = torch.finfo(p.dtype).tiny
    inner = torch.from_numpy(ends[ends >= 0]).to(p.device)
    q = TerminalMass(hierarchy)(p).index_select(1, inner)
    if len(ends) > len(inner):
        rest = 1 - p[:, : hierarchy.level_sizes[0]].sum(dim=1, keepdim=True)
        q = torch.cat([rest, q], dim=1)
    return q.clamp_min(tiny).log()


def log_spread(p: Tensor, share: Tensor | float, count: Tensor | int) -> Tensor:
    """Return log((1 - share) p + share / count)."""
    tiny = torch.finfo(p.dtype).tiny
    return ((1 - share) * p + share / count).clamp_min(tiny).log()


# ---------------------------------------- fitting


def fit_scaling(
    p: Tensor,
    targets: Tensor,
    label_space: LabelSpace,
    mask: Tensor | None = None,
    weights: Floats | None = None,
    *,
    by_level: bool = False,
) -> Scaling:
    """Return the scaling under which held-out rows are most probable.

    Args:
        p: (N, C) probabilities of rows that were not trained on.
        targets: (N, C) closed multi-hot.
        label_space: what can be predicted.
        mask: (N, C) which targets are known; None for all.
        weights: (N,) what each row counts; None for all alike.
        by_level: make every level of a tree as sure as it should be, which may change which
            terminal class is the most probable.
    """
    ends = most_specific(targets.bool(), label_space.hierarchy)
    counts = ends.sum(dim=1)
    # Where classes below a label are unknown, a row without one says nothing.
    empty = mask is None and bool((counts == 0).any())
    by_level = by_level and label_space.hierarchy.is_tree
    one_path = bool((counts <= 1).all()) and (by_level or (mask is None and not empty))
    if not one_path or not sums_to_one(p, label_space, at_most=empty):
        return fit_log_odds(p, targets, mask, weights)
    rows = np.ones(len(p)) if weights is None else weights
    if not by_level:
        slopes, shares = Choices.of_masses(p, targets, label_space, rows).fit(1)
        return Scaling("mass", slopes, shares)
    choices = Choices.of_steps(p, targets, label_space, rows, empty=empty, stops=mask is None)
    slopes, shares = choices.fit(label_space.hierarchy.depth)
    return Scaling("steps", slopes, shares, empty)


def scale_rows(scaling: Scaling, p: Tensor, label_space: LabelSpace) -> Tensor:
    """Return (N, C) probabilities as a scaling makes them."""
    parts = []
    for part in torch.split(p, ROWS):
        q = part.double()
        output = HeadOutput(q.log(), torch.log1p(-q.clamp_max(1 - 1e-12)))
        parts.append(scaling(output, label_space).probabilities.to(p))
    return torch.cat(parts)


def temper_answers(
    scaling: Scaling, p: Tensor, targets: Tensor, label_space: LabelSpace, decide: Decide
) -> tuple[Scaling, Tensor]:
    """Return a scaling whose answers are no more probable than right, and what it makes of p.

    The scaling under which all labels are most probable need not be that where no few slopes fit,
    as with classes of one or two rows. So all slopes are multiplied by one factor, which few rows
    change less. Answers that are less probable than right stay so: the model of all rows is surer
    than those that predicted p, by about as much, since it knows more words and classes.

    Args:
        scaling: of steps or masses.
        p: (N, C) probabilities of rows that were not trained on.
        targets: (N, C) closed multi-hot.
        label_space: what can be predicted.
        decide: from probabilities to (N,) classes.
    """
    rows = torch.arange(len(p))

    def measured(factor: float) -> tuple[float, Scaling, Tensor]:
        one = replace(scaling, slopes=tuple(factor * slope for slope in scaling.slopes))
        scaled = scale_rows(one, p, label_space)
        answers = decide(scaled)
        sure, right = scaled[rows, answers], targets[rows, answers]
        return float(sure.double().mean() - right.double().mean()), one, scaled

    found = measured(1.0)
    if found[0] <= 0:
        return found[1], found[2]
    allowed = found[0] * USUAL_ROWS / (len(p) + USUAL_ROWS)
    low, high = -math.log(MOST_FACTOR), 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        found = measured(math.exp(middle))
        low, high = (low, middle) if found[0] > allowed else (middle, high)
    return found[1], found[2]


def sums_to_one(p: Tensor, label_space: LabelSpace, *, at_most: bool = False) -> bool:
    """Whether the terminal masses of every row are at least 0 and sum to 1, up to rounding."""
    solve = TerminalMass(label_space.hierarchy)
    for rows in row_chunks(*p.shape):
        q = solve.raw(p[rows].double())
        missed = q.sum(dim=1) - 1
        if bool((missed > SLACK).any()) or bool((q < -SLACK).any()):
            return False
        if not at_most and bool((missed < -SLACK).any()):
            return False
    return True


@dataclass(frozen=True)
class Choices:
    """What held-out rows took of several classes, each with a probability given that one is taken.

    Attributes:
        p: (M,) the probabilities, those of a choice one after another.
        begin: (S,) where each choice begins.
        taken: (S,) the place of the class that was taken, in p.
        level: (S,) from 0.
        weight: (S,) what each counts.
    """

    p: Floats
    begin: Ints
    taken: Ints
    level: Ints
    weight: Floats

    @classmethod
    def of_steps(
        cls,
        p: Tensor,
        targets: Tensor,
        label_space: LabelSpace,
        weights: Floats,
        *,
        empty: bool,
        stops: bool,
    ) -> Choices:
        """Return the steps from a class of a tree to one of its children, or to its end.

        Args:
            p: (N, C) probabilities.
            targets: (N, C) closed multi-hot.
            label_space: what can be predicted.
            weights: (N,) what each row counts.
            empty: whether rows may end above the top classes.
            stops: whether a row that goes no further is known to end there.
        """
        hierarchy = label_space.hierarchy
        ends = ending_classes(label_space, empty=empty)
        above = np.append(hierarchy.structure.first_parents, ends)
        order = np.argsort(above, kind="stable")  # the children of the root first
        offsets = np.searchsorted(above[order], np.arange(-1, len(hierarchy) + 1))
        place = np.empty(len(above), dtype=np.int64)  # among the children of the parent
        place[order] = np.arange(len(above)) - offsets[above[order] + 1]
        true = targets.cpu().numpy().astype(bool)
        if stops:
            last = most_specific(targets.bool(), label_space.hierarchy).cpu().numpy()
            ended = last[:, ends]
            if empty:
                ended[:, 0] = ~true.any(axis=1)
            true = np.concatenate([true, ended], axis=1)
        rows, taken = true.nonzero()
        several = np.diff(offsets)[above[taken] + 1] > 1
        rows, taken = rows[several], taken[several]
        entries, sizes = expand_ranges(offsets, above[taken] + 1)
        columns, repeated = order[entries], np.repeat(rows, sizes)
        nodes = p.cpu().double()
        stop = log_stops(nodes.clamp_min(torch.finfo(torch.float64).tiny).log(), ends, hierarchy)
        every = torch.cat([nodes, stop.exp()], dim=1).numpy()
        begin = np.cumsum(sizes) - sizes
        level = np.append(hierarchy.levels, 0)[above[taken]]
        found = every[repeated, columns]
        # A step below a class that the model does not believe in matters little to any p.
        reached = np.append(np.ones((len(p), 1)), nodes.numpy(), axis=1)[rows, above[taken] + 1]
        return cls.normalized(found, begin, begin + place[taken], level, weights[rows] * reached)

    @classmethod
    def of_masses(
        cls, p: Tensor, targets: Tensor, label_space: LabelSpace, weights: Floats
    ) -> Choices:
        """Return the choices of a terminal class."""
        terminals = label_space.terminal_ids()
        q = TerminalMass(label_space.hierarchy)(p.cpu().double()).index_select(1, terminals)
        ends = most_specific(targets.bool(), label_space.hierarchy).cpu().index_select(1, terminals)
        kept = ends.any(dim=1)  # a row may end at a class that is not terminal
        taken = ends[kept].int().argmax(dim=1).numpy()
        begin = np.arange(len(taken)) * len(terminals)
        found = q[kept].numpy().ravel()
        level = np.zeros(len(taken), dtype=np.int64)
        return cls.normalized(found, begin, begin + taken, level, weights[kept.numpy()])

    @classmethod
    def normalized(
        cls, p: Floats, begin: Ints, taken: Ints, level: Ints, weight: Floats
    ) -> Choices:
        """Return choices whose probabilities sum to 1; they are even where all are 0."""
        sizes = np.diff(np.append(begin, len(p)))
        whole = np.repeat(np.add.reduceat(p, begin), sizes) if len(begin) else p
        even = 1 / np.repeat(np.maximum(sizes, 1), sizes)
        return cls(
            np.where(whole > 0, p / np.where(whole > 0, whole, 1), even),
            begin,
            taken,
            level,
            weight,
        )

    def at(self, level: int) -> Choices:
        """Return the choices of a level."""
        kept = np.flatnonzero(self.level == level)
        entries, sizes = expand_ranges(np.append(self.begin, len(self.p)), kept)
        begin = np.cumsum(sizes) - sizes
        taken = self.taken[kept] - self.begin[kept] + begin
        return Choices(self.p[entries], begin, taken, self.level[kept], self.weight[kept])

    def fit(self, levels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the slopes and the shares of the levels: first of all alike, then of each."""
        alike = self.best(np.log(USUAL), SPREAD)
        found = np.exp([self.at(level).best(alike, LEVELS) for level in range(levels)])
        return tuple(found[:, 0].tolist()), tuple(found[:, 1].tolist())

    def best(self, around: Any, deviations: tuple[float, float]) -> Floats:
        """Return the logs of the slope and the share under which the choices are most probable.

        Args:
            around: the logs that are expected before any choice is seen.
            deviations: how far they may be off.
        """
        center, precision = np.asarray(around), 1 / np.square(deviations)
        if not len(self.begin):
            return center

        def objective(x: Floats) -> tuple[float, Floats]:
            value, gradient = self.surprise(*np.exp(x))
            off = x - center
            return value + float(precision @ off**2) / 2, gradient * np.exp(x) + precision * off

        limits = [np.log(SLOPES), np.log(SHARES)]
        start = np.clip(center, *np.transpose(limits))
        return minimum(objective, start, limits)

    def surprise(self, slope: float, share: float) -> tuple[float, Floats]:
        """Return minus the log-likelihood of what was taken, and its gradient.

        To it is added that of whether the most probable was taken: answers count, and a slope
        that fits all classes alike may not fit these.
        """
        sizes = np.diff(np.append(self.begin, len(self.p)))
        even = 1 / np.repeat(sizes, sizes)
        mixed = (1 - share) * self.p + share * even
        logs = np.log(mixed)
        z = slope * logs
        z -= np.repeat(np.maximum.reduceat(z, self.begin), sizes)
        weight = np.exp(z)
        whole = np.add.reduceat(weight, self.begin)
        weight /= np.repeat(whole, sizes)
        taken, top = self.taken, self.top
        missed = np.clip(1 - weight[top], 1e-12, 1.0)
        right = self.p[taken] >= self.p[top]
        value = -np.log(weight[taken]) - np.where(right, np.log(weight[top]), np.log(missed))
        pull = np.where(right, 1.0, -weight[top] / missed)  # of the most probable
        tilt = (even - self.p) / mixed  # of the logs, by the share
        gradient = []
        for of in (logs, tilt):
            mean = np.add.reduceat(weight * of, self.begin)
            gradient.append(self.weight @ (mean - of[taken] + pull * (mean - of[top])))
        return float(self.weight @ value), np.array([gradient[0], slope * gradient[1]])

    @cached_property
    def top(self) -> Ints:
        """(S,) the place of the most probable class of each choice, the first of several."""
        sizes = np.diff(np.append(self.begin, len(self.p)))
        peak = np.repeat(np.maximum.reduceat(self.p, self.begin), sizes)
        places = np.flatnonzero(self.p == peak)
        choice = np.repeat(np.arange(len(sizes)), sizes)[places]
        found: Ints = places[np.searchsorted(choice, np.arange(len(sizes)))]
        return found


def fit_log_odds(
    p: Tensor, targets: Tensor, mask: Tensor | None = None, weights: Floats | None = None
) -> Scaling:
    """Return the slopes of the log-odds under which the entries are most probable, all alike.

    Args:
        p: (N, C) probabilities.
        targets: (N, C) what is true.
        mask: (N, C) which entries count; None for all.
        weights: (N,) what each row counts.
    """
    z, counts, positives = binned_log_odds(p, targets, mask, weights)
    parts = np.stack([one.numpy() for one in log_odds_parts(torch.from_numpy(z))])  # (K, bins)

    def objective(slopes: Floats) -> tuple[float, Floats]:
        found = slopes @ parts
        value = counts @ np.logaddexp(0, found) - positives @ found
        rest = counts / (1 + np.exp(-found)) - positives
        return float(value + ((slopes - 1) ** 2).sum() / 2), parts @ rest + slopes - 1

    start, limits = np.ones(len(parts)), [SLOPES] * len(parts)
    slopes = minimum(objective, start, limits)
    return Scaling("log-odds", tuple(slopes.tolist()), ())


def log_odds_parts(z: Tensor) -> list[Tensor]:
    """Return what lies of log-odds between 0 and each of KNOTS, beyond them, and above 0."""
    bounds = [0.0, *(math.log(one / (1 - one)) for one in KNOTS), -math.inf]
    below = [z.clamp(low, high) - high for high, low in pairwise(bounds)]
    return [z.clamp_min(0.0), *below]


def binned_log_odds(
    p: Tensor, targets: Tensor, mask: Tensor | None, weights: Floats | None
) -> tuple[Floats, Floats, Floats]:
    """Return the mean log-odds of narrow bins, how many entries each has, and how many are true."""
    edge = math.log(1 / LEAST - 1)
    sums = np.zeros((3, BINS + 1))
    for rows in row_chunks(*p.shape):
        z = torch.logit(p[rows].double().clamp(LEAST, 1 - LEAST)).cpu().numpy()
        count = np.ones_like(z) if mask is None else mask[rows].cpu().numpy().astype(np.float64)
        if weights is not None:
            count = count * weights[rows, None]
        place = np.clip((z + edge) / (2 * edge) * BINS, 0, BINS).astype(np.int64).ravel()
        true = targets[rows].cpu().numpy()
        for total, one in zip(sums, (count * z, count, count * true), strict=True):
            total += np.bincount(place, one.ravel(), BINS + 1)
    total, count, true = sums[:, sums[1] > 0]
    return total / count, count, true


def minimum(
    function: Callable[[Floats], tuple[float, Floats]], start: Floats, limits: Any
) -> Floats:
    """Return where a function is smallest, within limits, by its values and gradients."""
    from scipy.optimize import minimize

    search: Any = minimize
    return np.asarray(search(function, start, jac=True, method="L-BFGS-B", bounds=limits).x)
