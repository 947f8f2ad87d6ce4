"""Chain: a step on the numbers that a frozen backbone returns.

Not one of ``FEATURES``: a training makes it of the backbone and the step of its recipe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hierlearn.features.embed import part
from hierlearn.features.preprocessor import Preprocessor, stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind


class ChainPreprocessor(Preprocessor[Any, Any]):
    """One step after another; both are fitted already.

    Args:
        first: from raw inputs to numbers.
        second: from these to what the network reads.
    """

    name: ClassVar[str] = "chain"
    reads: ClassVar[Kind] = "texts"

    def __init__(self, first: Preprocessor[Any, Any], second: Preprocessor[Any, Any]) -> None:
        self.first, self.second = first, second
        self.reads: Kind = first.reads  # type: ignore[misc]
        self.produces = second.produces  # type: ignore[misc]

    @property
    def columns(self) -> int:
        """The columns of the second step."""
        return self.second.columns

    def to(self, device: torch.device) -> Self:
        """Compute on a device."""
        self.first.to(device)
        return self

    def fit(self, inputs: Any) -> Self:
        """Fit both steps."""
        self.second.fit(self.first.fit_transform(inputs))
        return self

    def transform(self, inputs: Any) -> Any:
        """Return what the second step makes of the first one's numbers."""
        return self.second.transform(self.first.transform(inputs))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings and the arrays of both."""
        settings: dict[str, Any] = {"name": self.name}
        arrays: dict[str, NDArray[Any]] = {}
        for key, step in (("first", self.first), ("second", self.second)):
            settings[key], held = step.state()
            arrays |= {f"{key}/{name}": array for name, array in held.items()}
        return settings, arrays

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore both."""
        from hierlearn.features.registry import from_state

        return cls(
            *(from_state(stored(settings, k), part(arrays, f"{k}/")) for k in ("first", "second"))
        )
