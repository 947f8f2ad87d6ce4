"""MixedLoss: a weighted sum of losses of the same output.

    l = sum over parts k of w_k l_k

By default half cross entropy, half MCLoss: cross entropy trains every class on its own, MCLoss
trains the maximum over descendants. Predict with the max link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.losses.bce import BCELoss
from hierlearn.losses.loss import ElementwiseLoss, Loss, Variant
from hierlearn.losses.mcloss import MCLoss

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput
    from hierlearn.losses.loss import WeightedOptions


def mixed_loss(values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return sum over k of w_k l_k."""
    total = weights[0] * values[0]
    for value, weight in zip(values[1:], weights[1:], strict=True):
        total = total + weight * value
    return total


class CompositeLoss(nn.Module):
    """What losses that are made of other losses have in common: the state of their parts."""

    parts: nn.ModuleList

    @property
    def losses_of_parts(self) -> list[Loss]:
        """The parts, as losses."""
        return list(self.parts)  # type: ignore[arg-type]

    def set_members(self, count: int) -> None:
        """Make room for the state of ``count`` members in every part."""
        for part in self.losses_of_parts:
            part.set_members(count)

    def set_seeds(self, seeds: Sequence[int]) -> None:
        """Set the seed of each member in every part."""
        for part in self.losses_of_parts:
            part.set_seeds(seeds)

    def set_progress(self, progress: float) -> None:
        """Report the progress to every part."""
        for part in self.losses_of_parts:
            part.set_progress(progress)

    def end_epoch(self) -> None:
        """Close the epoch of every part."""
        for part in self.losses_of_parts:
            part.end_epoch()

    @property
    def selection(self) -> Tensor | None:
        """What the first part that selects classes has selected."""
        found = (part.selection for part in self.losses_of_parts)
        return next((one for one in found if one is not None), None)


class MixedLoss(CompositeLoss, ElementwiseLoss):
    """A weighted sum of losses of every entry; "none" gives (N, C).

    Args:
        label_space: what can be predicted, or a Hierarchy.
        parts: name of LOSSES -> weight; losses of whole rows (softmax losses) do not mix in.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(mixed_loss)
    reading_link = "max"
    weighs_classes = True

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        parts: Mapping[str, float] | None = None,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        from hierlearn.losses import LOSSES

        self.weights = dict(parts or {"bce": 0.5, "mcloss": 0.5})
        made: list[Loss] = []
        for name, weight in self.weights.items():
            if name not in LOSSES or name == "mixed":
                known = [other for other in LOSSES if other != "mixed"]
                raise HierlearnError(unknown_name("part of a mixed loss", name, known))
            if not weight > 0:
                raise HierlearnError(f"the weight of {name!r} must be above 0, not {weight}")
            passed: dict[str, Any] = {"link": self.link, "reduction": self.reduction}
            if self.class_weight is not None:
                passed["class_weight"] = self.class_weight
            entry = LOSSES[name]
            kind = entry.loss if isinstance(entry, Variant) else entry
            if isinstance(kind, type) and not issubclass(kind, ElementwiseLoss):
                raise HierlearnError(
                    f"{name!r} is a loss of whole rows and does not mix with losses of entries"
                )
            made.append(entry(self.label_space, **passed))
        self.parts = nn.ModuleList(made)
        self.entries_independent = all(part.entries_independent for part in made)

    def is_linear(self) -> bool:
        """Whether all parts are."""
        return all(part.is_linear() for part in self.losses_of_parts)

    def read(self, output: HeadOutput | Tensor) -> HeadOutput:
        """Return what all parts read alike, as the scores that one of them may need."""
        read = super().read(output)
        of_scores = [part for part in self.losses_of_parts if part.reads == "scores"]
        if any(part.reads_as_scores(read.link) for part in of_scores):
            return read.read_by(self.link)
        return read

    def compute(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> Tensor:
        """Return the weighted sum of the parts."""
        sums = self.kernel_losses(output, targets, mask) if output.members is None else None
        if sums is not None:
            return self.reduce(sums, targets, mask, weight)
        values = [part.compute(output, targets, mask, weight) for part in self.losses_of_parts]
        return mixed_loss(values, list(self.weights.values()))

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the weighted sum of the parts' losses of every entry."""
        values = [part.losses(output, targets, mask) for part in self.losses_of_parts]
        return mixed_loss(values, list(self.weights.values()))

    def formula(self) -> tuple[str, tuple[Any, ...]] | None:
        """Return the name of the kernel of bce and MCLoss, and what each weighs."""
        parts = zip(self.losses_of_parts, self.weights.values(), strict=True)
        weights = {type(part): float(weight) for part, weight in parts}
        if set(weights) != {BCELoss, MCLoss}:
            return None
        return "mcloss + bce", (weights[MCLoss], weights[BCELoss])

    def extra_repr(self) -> str:
        """Name the parts when the module is printed."""
        return f"{super().extra_repr()}, parts={self.weights}"
