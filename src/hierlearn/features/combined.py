"""Several: the results of several preprocessing steps side by side, for the parts of a blend.

Not one of ``FEATURES``: a blend makes it of the steps of its parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from hierlearn.errors import DataError, HierlearnError
from hierlearn.features.preprocessor import Preprocessor, join_columns, nest, nested, stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind


class SeveralPreprocessor(Preprocessor[Any, Any]):
    """Steps that read the same inputs; their columns follow each other.

    Args:
        steps: all of them read the same kind of inputs. Where one of them produces sparse rows, the
            columns of the others become sparse too.
    """

    name: ClassVar[str] = "several"
    reads: ClassVar[Kind] = "numbers"

    def __init__(self, steps: Sequence[Preprocessor[Any, Any]]) -> None:
        if not steps:
            raise HierlearnError("several needs at least one preprocessing step")
        found = {step.reads for step in steps}
        if len(found) > 1:
            raise HierlearnError(
                f"steps side by side must read the same, not {' and '.join(sorted(found))}"
            )
        self.steps = tuple(steps)
        self.reads: Kind = steps[0].reads  # type: ignore[misc]
        sparse = any(step.produces == "sparse" for step in steps)
        self.produces: Literal["numbers", "sparse"] = "sparse" if sparse else "numbers"  # type: ignore[misc]

    @property
    def columns(self) -> int:
        """The columns of all steps."""
        return sum(step.columns for step in self.steps)

    @property
    def input_columns(self) -> int | None:
        """The number of columns that ``transform`` reads."""
        return self.steps[0].input_columns

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of the columns, where the steps read a table."""
        found: dict[str, str] = self.steps[0].kinds  # type: ignore[attr-defined]
        return found

    @property
    def order(self) -> tuple[str, ...]:
        """The columns as they were given, where the steps read a table."""
        found: tuple[str, ...] = self.steps[0].order  # type: ignore[attr-defined]
        return found

    def read(self, inputs: Any) -> Any:
        """Return rows as a table, where the steps read one."""
        return self.steps[0].read(inputs)  # type: ignore[attr-defined]

    def summary(self) -> str:
        """Return what the first step says of its columns."""
        return self.steps[0].summary()

    def fit(self, inputs: Any) -> Self:
        """Fit every step."""
        for step in self.steps:
            step.fit(inputs)
        return self

    def transform(self, inputs: Any) -> Any:
        """Return the columns of all steps, one after another."""
        parts = [step.transform(inputs) for step in self.steps]
        return join_columns(parts, sparse=self.produces == "sparse")

    def newly_missing(self, inputs: Any) -> dict[int, NDArray[np.int64]]:
        """Return what is missing for any step."""
        found: dict[int, NDArray[np.int64]] = {}
        for step in self.steps:
            found |= step.newly_missing(inputs)
        return found

    def as_module(self) -> nn.Module | None:
        """Return the steps as one module, or None where one of them cannot be."""
        parts = [step.as_module() for step in self.steps]
        known = [part for part in parts if part is not None]
        return SideBySide(known) if len(known) == len(parts) else None

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings of all steps, and their arrays under the numbers of the steps."""
        settings: list[dict[str, Any]] = []
        arrays: dict[str, NDArray[Any]] = {}
        for number, step in enumerate(self.steps):
            own, held = step.state()
            settings.append(own)
            arrays |= nest(number, held)
        return {"name": self.name, "steps": settings}, arrays

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore the steps."""
        from hierlearn.features.registry import from_state

        held = enumerate(stored(settings, "steps"))
        steps = [from_state(own, nested(number, arrays)) for number, own in held]
        if not steps:
            raise DataError("the stored preprocessor is damaged: it has no steps")
        return cls(steps)


# ----------------------------------------------------------------------
# Chain: a step on the numbers that a frozen backbone returns.
#
# Not one of ``FEATURES``: a training makes it of the backbone and the step of its recipe.


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

    def __getattr__(self, name: str) -> Any:
        """Return what the first step knows of the columns of a table, where it reads one."""
        if name not in ("kinds", "order", "read"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.first, name)

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
        if first is None or second is None:
            return None
        module = nn.Sequential(first, second)
        if hasattr(first, "examples"):
            module.examples = first.examples  # how to draw raw rows
        return module

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
            arrays |= nest(key, held)
        return settings, arrays

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore both."""
        from hierlearn.features.registry import from_state

        return cls(
            *(from_state(stored(settings, k), nested(k, arrays)) for k in ("first", "second"))
        )


# ----------------------------------------------------------------------
# The torch module of several preprocessing steps side by side.


class SideBySide(nn.Module):
    """Modules that read the same rows; their columns follow each other.

    Args:
        parts: the modules.
    """

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the columns of all modules."""
        return torch.cat([part(inputs) for part in self.parts], dim=-1)

    def examples(self, noise: Tensor) -> Tensor:
        """Make raw rows out of noise as the first module does that can."""
        for part in self.parts:
            if hasattr(part, "examples"):
                found: Tensor = part.examples(noise)  # type: ignore[operator]
                return found
        return noise
