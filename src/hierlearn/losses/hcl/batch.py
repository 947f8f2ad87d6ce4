"""Batch: what a backend of HCL gets, of one network or of all members of an ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.links import HeadOutput


class Batch(NamedTuple):
    """An output with its targets.

    Attributes:
        output: (N, C), or (M, N, C) of the members of an ensemble.
        targets: of 0 and 1, of the same shape.
        mask: which targets are known; None for all.
        weight: how much each row counts; None for 1.
        member: which member this is, where members are computed one after another.
    """

    output: HeadOutput
    targets: Tensor
    mask: Tensor | None
    weight: Tensor | None
    member: int | None = None

    def unbind(self) -> list[Batch]:
        """Return the batches of all members."""
        return [
            Batch(
                output,
                self.targets[number],
                None if self.mask is None else self.mask[number],
                None if self.weight is None else self.weight[number],
                number,
            )
            for number, output in enumerate(self.output.unbind())
        ]
