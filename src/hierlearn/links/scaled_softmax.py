"""The scaled softmax link: a softmax over the terminal classes whose logits are similarities.

    q = softmax(x / temperature over the terminal classes),    p(c) = sum of q at or below c

The default temperature is half the margin by which the loss of DeViSE separates similarities. On
validation rows of Diatoms the likelihood is best at 0.085, and AU(PRC) between 0.04 and 0.08.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hierlearn.errors import HierlearnError
from hierlearn.links.link import Link
from hierlearn.links.softmax import SoftmaxLink

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace

TEMPERATURE = 0.05


class ScaledSoftmaxLink(Link):
    """A softmax of similarities, summed upward; coherent.

    Args:
        label_space: what can be predicted; a Hierarchy means that its leaves are terminal.
        temperature: what similarities are divided by, above 0.
    """

    coherent = True
    normalized = True

    def __init__(
        self, label_space: LabelSpace | Hierarchy, temperature: float = TEMPERATURE
    ) -> None:
        super().__init__(label_space)
        self.softmax = SoftmaxLink(self.label_space)
        number = isinstance(temperature, (int, float)) and not isinstance(temperature, bool)
        if not number or not 0 < temperature < math.inf:
            raise HierlearnError(f"temperature must be a number above 0, not {temperature!r}")
        self.temperature = float(temperature)

    @property
    def options(self) -> dict[str, float]:
        """The temperature."""
        return {"temperature": self.temperature}

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log of the mass inside and outside every class."""
        return self.softmax.log_probabilities(logits / self.temperature)

    def plain_log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same by operations that can be compiled, and differentiated repeatedly."""
        return self.softmax.plain_log_probabilities(logits / self.temperature)

    def log_p(self, logits: Tensor) -> Tensor:
        """Return the log of the mass inside every class."""
        return self.softmax.log_p(logits / self.temperature)

    def log_masses(self, logits: Tensor) -> Tensor:
        """Return the log mass of each terminal class alone, LOG_ZERO for the others."""
        return self.softmax.log_masses(logits / self.temperature)

    def prior_logits(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> Tensor:
        """Return the logits under which every terminal class has its fraction of the rows."""
        return self.temperature * self.softmax.prior_logits(counts, terminal_counts, rows)

    def extra_repr(self) -> str:
        """Name the hierarchy and the temperature when the module is printed."""
        return f"{super().extra_repr()}, temperature={self.temperature:g}"
