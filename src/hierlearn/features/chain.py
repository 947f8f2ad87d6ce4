"""Chain: a step on the numbers that a frozen backbone returns.

Not one of ``FEATURES``: a training makes it of the backbone and the step of its recipe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from hierlearn.features.embed import part
from hierlearn.features.preprocessor import Preprocessor, stored
from hierlearn.features.several import SeveralPreprocessor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind


class ChainModule(nn.Module):
    """One module after another.

    Args:
        first: reads raw rows; how to draw some is up to it.
        second: reads what it returns.
    """

    def __init__(self, first: Any, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.examples = getattr(first, "examples", None)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the second makes of the first one's numbers."""
        found: Tensor = self.second(self.first(x))
        return found


def side_by_side(steps: Sequence[Preprocessor[Any, Any]]) -> Preprocessor[Any, Any]:
    """Return steps that read the same rows as one; a first step that they share is done once."""
    chains = [step for step in steps if isinstance(step, ChainPreprocessor)]
    if len(steps) == 1:
        return steps[0]
    if len(chains) < len(steps) or any(one.first is not chains[0].first for one in chains):
        return SeveralPreprocessor(steps)
    return ChainPreprocessor(chains[0].first, SeveralPreprocessor([one.second for one in chains]))


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

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of the columns, where the first step reads a table."""
        found: dict[str, str] = self.first.kinds  # type: ignore[attr-defined]
        return found

    @property
    def order(self) -> tuple[str, ...]:
        """The columns as they were given, where the first step reads a table."""
        found: tuple[str, ...] = self.first.order  # type: ignore[attr-defined]
        return found

    def read(self, inputs: Any) -> Any:
        """Return rows as a table, where the first step reads one."""
        return self.first.read(inputs)  # type: ignore[attr-defined]

    def summary(self) -> str:
        """Return what the first step says of its columns."""
        return self.first.summary()

    def newly_missing(self, inputs: Any) -> dict[int, NDArray[Any]]:
        """Return what the first step finds missing."""
        return self.first.newly_missing(inputs)

    def fit(self, inputs: Any) -> Self:
        """Fit both steps."""
        self.second.fit(self.first.fit_transform(inputs))
        return self

    def transform(self, inputs: Any) -> Any:
        """Return what the second step makes of the first one's numbers."""
        return self.second.transform(self.first.transform(inputs))

    def as_module(self) -> nn.Module | None:
        """Return both steps as one module, or None where one of them cannot be."""
        first, second = self.first.as_module(), self.second.as_module()
        return None if first is None or second is None else ChainModule(first, second)

    @property
    def input_columns(self) -> int | None:
        """The number of columns that the first step reads."""
        return self.first.input_columns

    def plain_state(self) -> dict[str, Any]:
        """Return both as plain values."""
        steps = {"first": self.first.plain_state(), "second": self.second.plain_state()}
        return {"name": self.name, **steps}

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
