"""Job: what every training is given, of one recipe or of a blend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.pipeline.reporting import Reporting
    from hierlearn.training.processes import Processes
    from hierlearn.training.settings import Plan


@dataclass
class Job:
    """A training that can be run.

    Attributes:
        dataset: all rows.
        plan: what was asked for.
        here: this process among all of them.
        weights: (N,) how much each row of the dataset counts.
        reporting: the callbacks.
    """

    dataset: Dataset
    plan: Plan
    here: Processes
    weights: NDArray[np.float64] | None
    reporting: Reporting
