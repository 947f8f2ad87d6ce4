"""Subset: decide as if the row were known to end in some of the subtrees.

    q'(t) = q(t) / sum of q over the allowed subtrees, 0 outside them
    p'(c) = sum over c and its descendants of q'

An allowed class stands for itself and everything below it. The kept classes are these and their
ancestors; another decoder decides on p', with the levels, heights and sizes of the whole
hierarchy, and never answers a class that is not kept. A row without mass in the allowed subtrees
answers the root, or the empty set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.decoding.decoder import ROOT, Decoder
from hierlearn.decoding.probabilities import as_tensor, checked_rows, slack_of
from hierlearn.errors import HierlearnError, LabelError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from hierlearn.decoding.probabilities import Probabilities
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.hierarchy.names import Label


class Subset(Decoder):
    """Another decoder, given that the row ends at or below one of the allowed classes.

    Args:
        label_space: the taxonomy and its terminal classes.
        allowed: the classes, names or numbers, whose subtrees the row may end in.
        decoder: a name of ``DECODERS`` or a decoder of the same hierarchy.
        options: what the decoder takes, if it is given by name.
    """

    needs_distribution = True
    takes_anything = True  # whatever the other decoder does

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        allowed: Iterable[Label],
        decoder: str | Decoder = "argmax",
        **options: Any,
    ) -> None:
        from hierlearn.decoding import make_decoder  # the registry imports this module

        super().__init__(label_space)
        hierarchy = self.hierarchy
        if isinstance(allowed, str):
            raise LabelError(f"give a list of classes, not one text {allowed!r}")
        numbers = [hierarchy.index(label) for label in allowed]
        if not numbers:
            raise HierlearnError("allowed names no class; a subset needs at least one")
        self.decoder = make_decoder(self.label_space, decoder, **options)
        self.answers = self.decoder.answers
        self.needs_tree = self.decoder.needs_tree
        self.width = max(self.width, self.decoder.width)
        named = torch.zeros(len(hierarchy), dtype=torch.uint8)
        named[numbers] = 1
        self.inside = hierarchy.max_down(named).bool()  # (C,) the allowed subtrees

    def renormalized(self, probabilities: Probabilities) -> Tensor:
        """Return (N, C) p', all 0 for a row without mass in the allowed subtrees."""
        nodes, parts = as_tensor(probabilities), []
        with torch.no_grad():
            for rows, p in checked_rows(nodes, self.hierarchy, self.width):
                self.mass.check(p, rows.start, slack_of(nodes.dtype))
                parts.append(self.given_inside(p))
        return torch.cat(parts)

    def given_inside(self, p: Tensor) -> Tensor:
        """Return (n, C) p' of rows that are known to add up."""
        q = self.mass(p).masked_fill_(~self.inside.to(p.device), 0.0)
        total = q.sum(dim=1, keepdim=True)
        q /= torch.where(total > 0, total, 1.0)
        return self.hierarchy.sum_up(q)

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Apply the other decoder to the kept classes."""
        inside = self.inside.to(p.device)
        if allowed is not None:
            inside = inside & allowed
        kept = self.hierarchy.max_up(inside.to(torch.uint8)).bool()
        inner = self.given_inside(p)
        some = inner.any(dim=1)  # the rows with mass there
        if self.answers == "class":
            out = torch.full_like(some, ROOT, dtype=torch.long)
        else:
            out = torch.zeros_like(p, dtype=torch.bool)
        if some.any():
            out[some] = self.decoder.decide(inner[some], kept)
        return out
