"""Similarities: cosine similarities to the titles of classes become node probabilities.

    s(c) = mean of the similarities to the titles of class c
    z(t) = mean of s(c) over the classes c with titles, at or above the terminal class t
    q    = softmax(z / temperature over the terminal classes),    p(c) = sum of q at or below c

Where only terminal classes have titles, this is the usual softmax over similarities, summed up the
hierarchy. Titles of inner classes vote for all that lies below them: q is then the normalized
geometric mean of the softmaxes of the classes on a path. All of it is linear in the similarities up
to the softmax, so the titles of a class may be averaged as vectors as well.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hierlearn.errors import HierlearnError, arg
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import csr_from_pairs, expand_ranges, row_chunks
from hierlearn.links.output import HALF_PRECISION, HeadOutput
from hierlearn.links.softmax import SoftmaxLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.names import Label

TEMPERATURE = 0.05  # of sentence encoders; CLIP is trained down to 0.01


def from_similarities(
    similarities: Any,
    label_space: LabelSpace | Hierarchy,
    *,
    classes: Sequence[Label] | None = None,
    temperature: float = TEMPERATURE,
) -> HeadOutput:
    """Return coherent node probabilities of similarities to the titles of classes.

    Args:
        similarities: (N, K) cosine similarities, a tensor or an array: one column per title.
        label_space: what can be predicted, or a Hierarchy.
        classes: (K,) the class of each column, by name or number. A class may have several
            columns, and inner classes may have some. By default the columns are the terminal
            classes in order.
        temperature: what similarities are divided by.

    Raises:
        HierlearnError: on another number of columns, on a terminal class without a title at or
            above it, on values that are not finite.

    Example:
        >>> from hierlearn import Hierarchy
        >>> h = Hierarchy.from_paths(["animal/cat", "animal/dog", "plant"])
        >>> found = from_similarities([[0.3, 0.3, 0.1]], h, classes=["cat", "dog", "plant"])
        >>> dict(zip(h.names, found.probabilities[0].tolist()))  # doctest: +ELLIPSIS
        {'animal': 0.99..., 'plant': 0.00..., 'animal/cat': 0.49..., 'animal/dog': 0.49...}
    """
    label_space = LabelSpace.of(label_space)
    if not (isinstance(temperature, (int, float)) and 0 < temperature < math.inf):
        raise HierlearnError(f"{arg('temperature')} must be a number above 0, not {temperature!r}")
    scores = terminal_scores(similarities, label_space, classes) / temperature
    logits = scores.new_zeros(len(scores), len(label_space))
    terminals = label_space.terminal_ids(scores.device)
    link = SoftmaxLink(label_space).to(scores.device)
    return link.output(logits.index_copy(1, terminals, scores))


def terminal_scores(
    similarities: Any, label_space: LabelSpace, classes: Sequence[Label] | None = None
) -> Tensor:
    """Return (N, T) the score z of each terminal class; see above.

    Args:
        similarities: (N, K) numbers; any other numbers per title are averaged alike.
        label_space: what can be predicted.
        classes: (K,) the class of each column; None for the terminal classes.
    """
    found = similarities if isinstance(similarities, Tensor) else as_tensor(similarities)
    found = found.float() if found.dtype in HALF_PRECISION else found
    if not found.is_floating_point() or found.dim() != 2:
        raise HierlearnError(
            f"similarities must be (N, K) floats, one column per title, not {found.dtype} of shape "
            f"{tuple(found.shape)}"
        )
    numbers = class_numbers(label_space, classes)
    if found.shape[1] != len(numbers):
        what = "one column per terminal class; name the columns with classes="
        what = what if classes is None else "one column per class named"
        raise HierlearnError(
            f"similarities {tuple(found.shape)} must be (N, {len(numbers)}), {what}"
        )
    wrong = ~found.isfinite().all(dim=1)
    if bool(wrong.any()):
        raise HierlearnError(
            f"row {int(wrong.nonzero()[0])} of the similarities is not finite; leave it out"
        )
    terminal, column, weight = title_weights(label_space, numbers)
    scores = found.new_zeros(len(found), len(label_space.terminals))
    to, source = (torch.from_numpy(one).to(found.device) for one in (terminal, column))
    share = torch.from_numpy(weight).to(found)
    for rows in row_chunks(len(found), max(len(column), 1)):
        scores[rows] = scores[rows].index_add(1, to, found[rows].index_select(1, source) * share)
    return scores


def as_tensor(values: Any) -> Tensor:
    """Return an array or nested lists as a tensor; shape and type are checked later."""
    try:
        return torch.from_numpy(np.array(values))
    except (TypeError, ValueError):  # rows of different lengths, or no numbers
        raise HierlearnError(
            f"similarities must be (N, K) floats, not {type(values).__name__}"
        ) from None


def class_numbers(label_space: LabelSpace, classes: Sequence[Label] | None) -> Any:
    """Return (K,) the class numbers of the columns."""
    if classes is None:
        return label_space.terminals
    if isinstance(classes, str):
        raise HierlearnError(f"classes is one class per column, not the text {classes!r}")
    return np.array([label_space.hierarchy.index(one) for one in classes], dtype=np.int64)


def title_weights(label_space: LabelSpace, numbers: Any) -> tuple[Any, Any, Any]:
    """Return what each title counts for each terminal class, as places, columns and weights.

    Args:
        label_space: what can be predicted.
        numbers: (K,) the class of each title.
    """
    hierarchy = label_space.hierarchy
    count = len(hierarchy)
    titles = np.bincount(numbers, minlength=count)  # (C,) how many each class has
    # The classes at or above each terminal class, and of these the ones with titles.
    ends = np.arange(len(label_space.terminals) + 1)
    offsets, above = hierarchy.close(ends, np.asarray(label_space.terminals))
    terminal = np.repeat(np.arange(len(label_space.terminals)), np.diff(offsets))
    kept = titles[above] > 0
    terminal, above = terminal[kept], above[kept]
    found = np.bincount(terminal, minlength=len(label_space.terminals))
    if not found.all():
        name = label_space.terminal_names[int(np.argmin(found > 0))]
        raise HierlearnError(
            f"the terminal class {name!r} has no title, nor has any class above it; give it one"
        )
    starts, columns = csr_from_pairs(numbers, np.arange(len(numbers)), count)
    places, sizes = expand_ranges(starts, above)
    weight = 1.0 / (found[terminal] * titles[above])
    return np.repeat(terminal, sizes), columns[places], np.repeat(weight, sizes)
