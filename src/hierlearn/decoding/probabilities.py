"""What decoders and metrics read: (N, C) node probabilities as a tensor, checked, in chunks.

They come as a tensor, an array, nested lists, or the ``HeadOutput`` of a network.

Terminal mass: what part of a row's probability ends at each class.

    p(c) = sum over c and its descendants d, each once, of q(d)

On a tree q(c) = p(c) - the sum of p over the children of c. In a DAG, where a class may lie below
two of the children, the equations are solved from the leaves up. What is left of 1 ends at the
root. q exists where p adds up: the classes below c hold at most p(c), all of them at most 1.

Candidates: the classes that a decoder or a metric may choose from.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import row_chunks, row_width
from hierlearn.links.output import HeadOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy

    Probabilities: TypeAlias = Tensor | NDArray[Any] | Sequence[Sequence[float]] | HeadOutput

OUTSIDE = 1e-5  # how far rounding may carry a probability out of [0, 1]
NOT_ADDITIVE = 1e-4  # how far rounding may carry the children's sum above their parent


def as_tensor(values: Probabilities, what: str = "probabilities") -> Tensor:
    """Return probabilities or scores as a tensor; the shape and the values are not checked.

    Args:
        values: a tensor, an array or nested lists; or a ``HeadOutput``, whose probabilities are
            read, averaged over the members if there are several.
        what: what the values are, for errors.
    """
    if isinstance(values, Tensor):
        return values
    if isinstance(values, HeadOutput):
        # Detached first: the output keeps what it computes, and a loss may need its graph later.
        flat = values.map(Tensor.detach).flat()  # links read (N, C)
        if values.members is None:
            return flat.probabilities
        members = (part.reshape(values.shape) for part in flat.pair)
        return HeadOutput(*members).mean().probabilities
    return array_tensor(values, what)


def array_tensor(values: Any, what: str) -> Tensor:
    """Return an array, a frame or nested lists of numbers as a tensor."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise HierlearnError(f"{what} must be (N, C), one column per class") from None
    if array.dtype.kind not in "fiub":
        raise HierlearnError(f"{what} must be numbers, not {array.dtype} of shape {array.shape}")
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch shares memory with an array, but not with every array
    return torch.from_numpy(array)


def checked_rows(p: Tensor, hierarchy: Hierarchy, width: int) -> Iterator[tuple[slice, Tensor]]:
    """Check probabilities at once, and yield them by rows: float32 or float64, within [0, 1].

    Args:
        p: (N, C) node probabilities.
        hierarchy: the taxonomy.
        width: the elements per row of the largest temporary.

    Raises:
        HierlearnError: for another shape or type, or naming the first row and class outside [0, 1].
    """
    within = check_probabilities(p, hierarchy)

    def parts() -> Iterator[tuple[slice, Tensor]]:
        for rows in row_chunks(len(p), width):
            part = widened(p[rows])
            yield rows, part if within else part.clamp(0.0, 1.0)

    return parts()


def check_probabilities(p: Tensor, hierarchy: Hierarchy) -> bool:
    """Raise unless p is (N, C) floats in [0, 1]; return whether that holds without rounding."""
    if not p.is_floating_point():
        raise HierlearnError(f"probabilities must be floating point, not {p.dtype}")
    if p.dim() != 2 or p.shape[1] != len(hierarchy):
        raise HierlearnError(f"probabilities {tuple(p.shape)} must be (N, {len(hierarchy)})")
    if not p.numel():
        return True
    least, most = (float(end) for end in torch.aminmax(p))  # NaN if one value is
    if not (least >= -OUTSIDE and most <= 1 + OUTSIDE):
        found = first_entry(p, lambda part: ~((part >= -OUTSIDE) & (part <= 1 + OUTSIDE)))
        assert found is not None
        row, number = found
        raise HierlearnError(
            f"row {row}: the probability of {hierarchy.names[number]!r} is "
            f"{p[row, number].item():g}, outside [0, 1]; turn logits into probabilities with a link"
        )
    return least >= 0 and most <= 1


def first_entry(x: Tensor, is_bad: Callable[[Tensor], Tensor]) -> tuple[int, int] | None:
    """Return row and class of the first bad entry, looking at a chunk of rows at a time."""
    for rows in row_chunks(*x.shape):
        bad = is_bad(x[rows])
        if bad.any():
            row, number = (int(i) for i in bad.nonzero()[0])
            return rows.start + row, number
    return None


def widened(p: Tensor) -> Tensor:
    """Return half precision as float32, anything else unchanged."""
    return p.float() if p.dtype in (torch.float16, torch.bfloat16) else p


def slack_of(dtype: torch.dtype) -> float:
    """Return the rounding error to allow for in sums of probabilities of this precision."""
    return max(NOT_ADDITIVE, 2 * torch.finfo(dtype).eps)


def check_fraction(name: str, value: float) -> float:
    """Return a number in [0, 1]; raise for any other."""
    if not 0 <= value <= 1:
        raise HierlearnError(f"{name} must lie in [0, 1], not {value}")
    return float(value)


# ---------------------------------------- mass

REMEDY = "use a link whose probabilities add up, such as 'softmax'"


class TerminalMass:
    """The map from p to q of one hierarchy.

    Args:
        hierarchy: the taxonomy.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        # What each step subtracts from the classes ``above``: the q, or on a tree p, of ``below``.
        self.steps: list[tuple[Tensor, Tensor]] = []
        structure = hierarchy.structure
        if hierarchy.is_tree:
            self.steps.append(
                (torch.tensor(structure.edge_children), torch.tensor(structure.parent_ids))
            )
            return
        offsets, above = structure.closure
        below = np.repeat(np.arange(len(hierarchy)), np.diff(offsets))
        below, above = below[below != above], above[below != above]
        height = structure.heights[above]
        order = np.argsort(height, kind="stable")
        ends = np.searchsorted(height[order], np.arange(1, hierarchy.root_height + 1))
        for begin, end in pairwise(ends.tolist()):
            part = order[begin:end]
            self.steps.append((torch.tensor(below[part]), torch.tensor(above[part])))

    def __call__(self, p: Tensor) -> Tensor:
        """Return q (n, C) of probabilities that add up; negative rounding becomes 0."""
        return self.raw(p).clamp_min_(0)

    def raw(self, p: Tensor) -> Tensor:
        """Return q (n, C), negative where p does not add up."""
        q = p.clone()
        for below, above in self.steps:
            values = q.index_select(1, below.to(p.device)).neg_()
            # A tree has one step, and its values were read before any is written.
            q.scatter_add_(1, above.to(p.device).expand(values.shape), values)
        return q

    def check(self, p: Tensor, first_row: int, slack: float) -> None:
        """Raise for probabilities that do not add up.

        Args:
            p: (n, C) float32 or float64.
            first_row: the number of the first of these rows.
            slack: the rounding to allow for.

        Raises:
            HierlearnError: naming the first row, and in it the first class, the root before all.
        """
        q = self.raw(p)
        total = q.sum(dim=1)
        odd = (total > 1 + slack) | (q < -slack).any(dim=1)
        if not odd.any():
            return
        row = int(odd.nonzero()[0])
        where = f"row {first_row + row}"
        below = "the children of {} sum" if self.hierarchy.is_tree else "the classes below {} come"
        if total[row] > 1 + slack:
            tops = "the top classes sum" if self.hierarchy.is_tree else "all classes come"
            raise HierlearnError(f"{where}: {tops} to {total[row]:.4g}, more than 1; {REMEDY}")
        number = int((q[row] < -slack).nonzero()[0])
        own = p[row, number]
        raise HierlearnError(
            f"{where}: {below.format(repr(self.hierarchy.names[number]))} to "
            f"{own - q[row, number]:.4g}, more than its own {own:.4g}; {REMEDY}"
        )


@torch.no_grad()
def terminal_mass(p: Probabilities, label_space: LabelSpace | Hierarchy) -> Tensor:
    """Return (N, C) the mass that ends at each class.

    Args:
        p: (N, C) node probabilities that add up.
        label_space: the taxonomy, a tree or a DAG.

    Raises:
        HierlearnError: naming the first row and class where they do not.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    solve = TerminalMass(hierarchy)
    nodes, parts = as_tensor(p), []
    for rows, part in checked_rows(nodes, hierarchy, row_width(hierarchy)):
        solve.check(part, rows.start, slack_of(nodes.dtype))
        parts.append(solve(part))
    return torch.cat(parts)


def terminal_scores(p: Probabilities, label_space: LabelSpace | Hierarchy) -> Tensor:
    """Return (N, C) the p of each class minus that of its children.

    Scores by which an inner terminal class can be compared with the classes below it: under a
    coherent link the p of a class is never smaller than its descendants', so by p alone it would
    always win. On a tree this is the terminal mass, wherever p adds up; elsewhere it is a score and
    not a probability.

    Args:
        p: (N, C) node probabilities.
        label_space: the taxonomy, a tree or a DAG.
    """
    p, structure = as_tensor(p), LabelSpace.of(label_space).hierarchy.structure
    child = torch.tensor(structure.edge_children, device=p.device)
    parent = torch.tensor(structure.parent_ids, device=p.device)
    return p.index_add(1, parent, p.index_select(1, child), alpha=-1)


def widened_logs(log_p: Tensor) -> Tensor:
    """Return the logs in double precision of what decoders read, the exp of log-probabilities.

    What is equal after the exp is equal here, so that no order is seen that a decoder does not see;
    where the exp underflows the logs stay as they are.
    """
    p = log_p.exp()
    tiny = torch.finfo(p.dtype).tiny
    return torch.where(p > tiny, p.double().log(), log_p.double())


def terminal_log_distribution(log_p: Tensor, label_space: LabelSpace | Hierarchy) -> Tensor:
    """Return (N, T) the log-probability that a row ends at each terminal class; exp sums to 1.

    What is left at the other classes and at the root is spread in proportion; where nothing is
    left of the terminal classes, all are alike. The decoder ``leaf`` answers the largest.

    Args:
        log_p: (N, C) log node probabilities.
        label_space: the taxonomy and its T terminal classes.
    """
    space = LabelSpace.of(label_space)
    terminals = space.terminal_ids(log_p.device)
    found = widened_logs(log_p).index_select(1, terminals)
    if space.has_inner_terminals:
        inner = torch.tensor(space.hierarchy.heights > 0).to(log_p.device)[terminals]
        ends = terminal_scores(log_p.exp(), space).clamp_min(0).double().log()
        found = torch.where(inner, ends.index_select(1, terminals), found)
    total = found.logsumexp(dim=1, keepdim=True)
    return torch.where(total.isfinite(), found - total, -math.log(found.shape[1]))


# ---------------------------------------- candidates

Candidates = Literal["all", "leaves", "terminal"]


def candidate_classes(label_space: LabelSpace, candidates: Candidates) -> Tensor:
    """Return the class numbers of the candidates, ascending.

    Args:
        label_space: the taxonomy and its terminal classes.
        candidates: "all" classes, the "leaves", or the "terminal" classes.
    """
    if candidates not in get_args(Candidates):
        raise HierlearnError(unknown_name("candidates", str(candidates), get_args(Candidates)))
    if candidates == "terminal":
        return label_space.terminal_ids()
    if candidates == "leaves":
        return torch.tensor(label_space.hierarchy.leaves)
    return torch.arange(len(label_space))
