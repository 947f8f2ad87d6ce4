"""Candidates: the classes that a decoder or a metric may choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch

from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import LabelSpace

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
