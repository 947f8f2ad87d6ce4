"""CLEMSHead: features become a point, and the nearest label set answers.

Huang and Lin, "Cost-sensitive label embedding for multi-label classification" (2017). The distinct
label sets of the training rows are embedded before training, each as a truth t and as an answer u,
so that |t_i - u_j|^2 is about what answering set j costs where set i is true (training/clems.py).
A linear layer regresses features to t, by the loss ``clems``; the answer is the nearest u. The
recipe ``clems`` does all of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.links import Head
from hierlearn.links.label_points import EmbeddedOutput, LabelPoints
from hierlearn.memory.label_sets import LabelSets
from hierlearn.networks.layers import Dense, check_flag, check_size
from hierlearn.networks.set_costs import find_cost
from hierlearn.networks.sparse import SparseRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.labels import Labels

MOST_SETS = 4096  # label sets with points of their own
MOST_ENTRIES = 1 << 26  # of their targets, a matrix of floats


class CLEMSHead(Head):
    """A linear layer to the space of label points.

    Args:
        features: F, the width of the features.
        label_space: what can be predicted, or a Hierarchy.
        size: D, the dimensions of a point.
        cost: a name of COSTS: what answering one set costs where another is true.
        temperature: of the weights of the sets, relative to the mean cost of two training rows.
        nearest: answer the nearest set, as the paper does; else the mixture of all of them.
        sets: how many label sets have points, at most; the most frequent ones are kept. Where the
            head is trained by its name, None is all, up to 4,096; else 1.

    Attributes:
        points: the label sets, which training sets.
    """

    stackable = True

    def __init__(
        self,
        features: int,
        label_space: LabelSpace | Hierarchy,
        *,
        size: int = 64,
        cost: str = "hier-dist",
        temperature: float = 0.1,
        nearest: bool = True,
        sets: int | None = None,
    ) -> None:
        super().__init__()
        check_size(size=size, **({} if sets is None else {"sets": sets}))
        check_flag(nearest=nearest)
        find_cost(cost)
        if not 0 < temperature < math.inf:
            raise HierlearnError(f"temperature must be a number above 0, not {temperature!r}")
        most = most_sets(len(LabelSpace.of(label_space)))
        if sets is not None and sets > most:
            raise HierlearnError(f"at most {most:,} label sets can have points, not {sets:,}")
        self.linear = Dense(features, size)
        self.points = LabelPoints(label_space, size, sets or 1, nearest=nearest)
        self.cost = cost
        self.temperature = temperature

    def forward(self, features: Tensor | SparseRows) -> EmbeddedOutput:
        """Return the embeddings between the label points."""
        if isinstance(features, SparseRows):
            return EmbeddedOutput(features.times(self.linear), self.points)
        return EmbeddedOutput(self.linear(features), self.points)

    @staticmethod
    def options_from_labels(labels: Labels, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that the training labels determine: how many sets have points.

        Args:
            labels: of the training rows.
            options: those that were given.
        """
        if labels.unlabeled_descendants == "ignore":
            raise HierlearnError(
                "the head clems compares whole label sets, but unlabeled_descendants 'ignore' "
                "leaves classes unknown; use 'negative', or another head"
            )
        most, asked = most_sets(len(labels.hierarchy)), options.get("sets")
        if asked is not None:
            check_size(sets=asked)
            most = min(most, asked)
        return {"sets": min(most, max(1, len(LabelSets.from_labels(labels).sets)))}


def most_sets(classes: int) -> int:
    """Return how many label sets can have points, for so many classes."""
    return min(MOST_SETS, max(1, MOST_ENTRIES // classes))
