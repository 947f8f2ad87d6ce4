"""Class sizes: what rows of a class count that came after the training.

    weight'_j = weight_j min(40, max(1, usual / n_c))

n_c is the weight of all rows of the class c, and usual the mean of that over the classes that
training saw. An answer sums the weights of the nearest rows, so ten rows of a new class between
hundreds of old ones would lose every vote, however near they are; so weighted they count as much
as the rows of a usual class. The limit keeps a few rows from taking too many rows of old classes.
Classes with a row that was trained on stay as they are, and a new class that reaches the usual
size counts as every other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.memory.store import Remembered

MOST = 40.0  # times that a row counts


def counted_weights(rows: Remembered) -> NDArray[np.float64] | None:
    """Return (N,) how much each row counts in an answer; None for all alike.

    Args:
        rows: what is remembered; of several labels, the rarest new class decides.
    """
    if rows.later is None or not rows.later.any():
        return rows.weights
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    sets, of_row, count = rows.labels.sets, rows.labels.of_row, len(rows.hierarchy)
    offsets, numbers = sets.terminal
    set_of_label = np.repeat(np.arange(len(sets)), np.diff(offsets))
    of_set = np.bincount(of_row, weights, minlength=len(sets))
    trained_of_set = np.bincount(of_row, weights * ~rows.later, minlength=len(sets))
    sizes = np.bincount(numbers, of_set[set_of_label], minlength=count)
    trained = np.bincount(numbers, trained_of_set[set_of_label], minlength=count) > 0
    new = ~trained & (sizes > 0)
    if not new.any() or not trained.any():
        return rows.weights
    factors = np.ones(count)
    factors[new] = np.clip(sizes[trained].mean() / sizes[new], 1.0, MOST)
    most = np.ones(len(sets))
    np.maximum.at(most, set_of_label, factors[numbers])
    found: NDArray[np.float64] = weights * most[of_row]
    return found
