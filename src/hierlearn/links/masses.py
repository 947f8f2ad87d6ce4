"""Terminal masses in log space: what each terminal class holds of a row's probability.

    q(c) = p(c)                              for a leaf
    q(c) = p(c) - sum over children of p     for an inner terminal class of a tree

log q = log p + log(1 - f), with f the fraction of p that the children hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.propagate import LOG_ZERO

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import LabelSpace

LARGEST = 1 - 1e-7  # fraction that the children may hold, so that a mass is never exactly 0


def log_terminal_masses(log_p: Tensor, label_space: LabelSpace) -> Tensor:
    """Return (..., C) the log mass of each terminal class, LOG_ZERO for the others.

    Args:
        log_p: (..., C) node log-probabilities.
        label_space: which classes are terminal.

    Raises:
        HierlearnError: in a DAG with inner terminal classes, where this is not a subtraction.
    """
    hierarchy = label_space.hierarchy
    terminal = torch.from_numpy(label_space.is_terminal).to(log_p.device)
    if label_space.has_inner_terminals:
        if not hierarchy.is_tree:
            raise HierlearnError(
                "the mass of an inner terminal class of a DAG cannot be read from probabilities; "
                "use the softmax link, or a loss of single classes such as bce"
            )
        log_p = log_p + _log_rest(log_p, label_space)
    return torch.where(terminal, log_p, LOG_ZERO)


def _log_rest(log_p: Tensor, label_space: LabelSpace) -> Tensor:
    """Return (..., C) the log of the fraction of p that is not its children's; 0 for leaves."""
    structure = label_space.hierarchy.structure
    child = torch.tensor(structure.edge_children, device=log_p.device)
    parent = torch.tensor(structure.parent_ids, device=log_p.device)
    given = (log_p.index_select(-1, child) - log_p.index_select(-1, parent)).exp()
    held = torch.zeros_like(log_p).index_add(-1, parent, given)  # (..., C), 0 for leaves
    return (-held.clamp_max(LARGEST)).log1p()
