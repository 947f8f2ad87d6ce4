"""Top-down: from the root to the most probable child, until a leaf.

    c_1 = argmax over top classes of p,    c_(j+1) = argmax over children k of c_j of p(k)

Ties go to the first class. A step reads the children of one class per row, so a row costs the
fan-outs along its chain and not C. In a DAG the chain is one of several paths to its last class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.decoding.decoder import ROOT, Answers, Decoder
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import row_chunks

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy


def greedy_chain(p: Tensor, label_space: LabelSpace | Hierarchy) -> Tensor:
    """Return the classes met from the root down by always taking the most probable child.

    Args:
        p: (N, C) node probabilities.
        label_space: the taxonomy, a tree or a DAG.

    Returns:
        (N, L) int64, L the number of levels: the chain, padded with -1 after its leaf.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    structure = hierarchy.structure
    offsets, ids = (torch.tensor(part, device=p.device) for part in structure.children)
    tops = hierarchy.level_sizes[0]
    chain = torch.full((len(p), hierarchy.depth), ROOT, dtype=torch.long, device=p.device)
    for rows in row_chunks(len(p), max(tops, int(offsets.diff().max()))):
        here = p[rows, :tops].argmax(dim=1)  # (n,) argmax gives the first of several
        number = torch.arange(len(p), device=p.device)[rows]
        chain[rows, 0] = here
        for step in range(1, hierarchy.depth):
            fan_out = offsets[here + 1] - offsets[here]
            walking = fan_out > 0
            number, here, fan_out = number[walking], here[walking], fan_out[walking]
            if not len(here):
                break
            column = torch.arange(int(fan_out.max()), device=p.device)
            # Padding repeats the last child, which then cannot win before it has won itself.
            column = torch.minimum(column, fan_out[:, None] - 1)  # (n, widest)
            children = ids[offsets[here][:, None] + column]
            best = p[number[:, None], children].argmax(dim=1, keepdim=True)
            here = children.gather(1, best).squeeze(1)
            chain[number, step] = here
    return chain


def last_of(chain: Tensor) -> Tensor:
    """Return (N,) the last class of each chain; -1 for an empty one."""
    length = (chain != ROOT).sum(dim=1, keepdim=True)  # (N, 1)
    last = chain.gather(1, (length - 1).clamp_min(0)).squeeze(1)
    return torch.where(length.squeeze(1) > 0, last, ROOT)


class TopDown(Decoder):
    """The leaf at the end of the greedy chain; trees.

    Args:
        label_space: the taxonomy, a tree.
    """

    answers: Answers = "class"
    needs_tree = True

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Walk down and answer the leaf."""
        if allowed is not None:
            p = p.masked_fill(~allowed, -1.0)  # below every probability
        return last_of(greedy_chain(p, self.label_space))
