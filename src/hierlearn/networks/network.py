"""Network: an encoder with one or more heads.

features = encoder(x),    output of a head = head(features)

A head with a memory compares rows with others: in training with candidates, which are then the last
rows of x.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.links import Head, HeadOutput
from hierlearn.networks.inputs import SparseRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

    from hierlearn.links import Link
    from hierlearn.memory import Candidates

    Outputs = HeadOutput | dict[str, HeadOutput]


MAIN = "main"  # the name of a head that is alone
AVERAGE = "average"  # of the probabilities of all heads


@dataclass(frozen=True)
class Auxiliary:
    """What trains a head that only helps the others to learn.

    Attributes:
        loss: a name of LOSSES.
        options: its options.
        weight: what it counts per row; 1 is the weight of the main head.
    """

    loss: str
    options: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0


class Network(nn.Module):
    """An encoder and its heads.

    Args:
        encoder: from inputs to (N, F) features.
        heads: one head, or several by name.
        auxiliary: the heads that are computed in training alone, with what trains them.
    """

    stackable: ClassVar[bool] = True

    def __init__(
        self,
        encoder: nn.Module,
        heads: Head | Mapping[str, Head],
        auxiliary: Mapping[str, Auxiliary] | None = None,
    ) -> None:
        super().__init__()
        named = {MAIN: heads} if isinstance(heads, Head) else dict(heads)
        if not named:
            raise HierlearnError("a network needs at least one head")
        self.encoder = encoder
        self.heads = nn.ModuleDict(named)
        self.auxiliary = dict(auxiliary or {})

    def forward(self, x: Any, candidates: Candidates | None = None) -> Outputs:
        """Return the output of the head, or the outputs of several by name.

        Args:
            x: the rows; with candidates, the rows of the batch and then the candidates,
                unless these are the batch.
            candidates: the labels of the candidates of a training step.
        """
        features, others = self.encoder(x), None
        if candidates is not None and candidates.are_batch:
            others = features
        elif candidates is not None:
            last = candidates.count
            if isinstance(features, SparseRows):
                features, others = features.split(last)
            else:
                features, others = features[..., :-last, :], features[..., -last:, :]
        outputs: dict[str, HeadOutput] = {
            name: head(features, others, candidates) if head.has_memory else head(features)
            for name, head in self.heads.items()
            if self.training or name not in self.auxiliary
        }
        return outputs if len(outputs) > 1 else next(iter(outputs.values()))

    def embed(self, x: Any) -> dict[str, Tensor]:
        """Return the embeddings of rows for every head with a memory, by its name."""
        features = self.encoder(x)
        return {
            name: head.embed(features)  # type: ignore[operator]
            for name, head in self.heads.items()
            if head.has_memory
        }

    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Initialize every head to the class priors; see ``Head.set_prior``."""
        for head in self.heads.values():
            head.set_prior(counts, terminal_counts, rows)  # type: ignore[operator]


class StagedNetwork(nn.Module, ABC):
    """Base of the networks that are trained part by part.

    Attributes:
        trained: the first part that is trained now, and the first one after it that is not; None
            for all parts at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trained: tuple[int, int] | None = None

    @property
    @abstractmethod
    def parts(self) -> Sequence[nn.Module]:
        """The parts in the order of their training; together they hold all parameters."""

    @property
    @abstractmethod
    def part_classes(self) -> Sequence[slice]:
        """The classes whose loss trains each part; those of several parts follow each other."""

    def set_stage(self, trained: range | None) -> None:
        """Train some parts and fix all others; None trains all of them."""
        self.trained = None if trained is None else (trained.start, trained.stop)
        for number, part in enumerate(self.parts):
            part.requires_grad_(self.is_trained(number))
        self.train(self.training)

    def is_trained(self, part: int) -> bool:
        """Whether a part is among those that are trained."""
        return self.trained is None or self.trained[0] <= part < self.trained[1]

    def is_ahead(self, part: int) -> bool:
        """Whether a part is trained later, so that nothing of this step depends on it."""
        return self.training and self.trained is not None and part >= self.trained[1]

    def train(self, mode: bool = True) -> Self:
        """Set the training mode of the parts that are trained."""
        super().train(mode)
        for number, part in enumerate(self.parts):
            if not self.is_trained(number):
                part.eval()
        return self


def read_output(
    found: Any, link: Link | None = None, *, overrides_link: bool = False, answer: str = AVERAGE
) -> HeadOutput:
    """Return the output of a network as one HeadOutput.

    Args:
        found: the output of a head, those of several by name, or plain logits.
        link: how plain logits are read.
        overrides_link: whether ``link`` reads the logits of a head, too, instead of its own.
        answer: which of several heads answers; "average" is the mean of their probabilities.
    """
    if isinstance(found, HeadOutput):
        return found.read_by(link) if overrides_link else found
    if isinstance(found, Tensor) and link is not None:
        return link.output(found)
    if not isinstance(found, dict) or not found:
        raise HierlearnError(
            f"a network returns a HeadOutput, several of them by name, or logits, not "
            f"{type(found).__name__}"
        )
    if answer != AVERAGE:
        if answer not in found:
            raise HierlearnError(unknown_name("head", answer, [AVERAGE, *found]))
        return read_output(found[answer], link, overrides_link=overrides_link)
    return HeadOutput.average(
        [read_output(one, link, overrides_link=overrides_link) for one in found.values()]
    )
