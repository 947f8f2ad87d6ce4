"""Several: the results of several preprocessing steps side by side, for the parts of a blend.

Not one of ``FEATURES``: a blend makes it of the steps of its parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hierlearn.errors import DataError, HierlearnError
from hierlearn.features.preprocessor import Preprocessor, stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import nn
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
    def begins(self) -> list[int]:
        """The first column of every step."""
        ends = np.cumsum([step.columns for step in self.steps])
        return [0, *ends[:-1].tolist()]

    @property
    def input_columns(self) -> int | None:
        """The number of columns that ``transform`` reads."""
        return self.steps[0].input_columns

    def fit(self, inputs: Any) -> Self:
        """Fit every step."""
        for step in self.steps:
            step.fit(inputs)
        return self

    def transform(self, inputs: Any) -> Any:
        """Return the columns of all steps, one after another."""
        parts = [step.transform(inputs) for step in self.steps]
        if self.produces == "sparse":
            from scipy.sparse import csr_array, hstack

            return csr_array(hstack([csr_array(part) for part in parts], format="csr"))
        return np.concatenate(parts, axis=1)

    def newly_missing(self, inputs: Any) -> dict[int, NDArray[np.int64]]:
        """Return what is missing for any step."""
        found: dict[int, NDArray[np.int64]] = {}
        for step in self.steps:
            found |= step.newly_missing(inputs)
        return found

    def as_module(self) -> nn.Module | None:
        """Return the steps as one module, or None where one of them cannot be."""
        parts = [step.as_module() for step in self.steps]
        if any(part is None for part in parts):
            return None
        from hierlearn.features.side_by_side import SideBySide

        return SideBySide([part for part in parts if part is not None])

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings of all steps, and their arrays under the numbers of the steps."""
        settings: list[dict[str, Any]] = []
        arrays: dict[str, NDArray[Any]] = {}
        for number, step in enumerate(self.steps):
            own, held = step.state()
            settings.append(own)
            arrays |= {f"{number}/{key}": value for key, value in held.items()}
        return {"name": self.name, "steps": settings}, arrays

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore the steps."""
        from hierlearn.features.registry import from_state

        steps = []
        for number, own in enumerate(stored(settings, "steps")):
            begin = f"{number}/"
            held = {k.removeprefix(begin): v for k, v in arrays.items() if k.startswith(begin)}
            steps.append(from_state(own, held))
        if not steps:
            raise DataError("the stored preprocessor is damaged: it has no steps")
        return cls(steps)
