"""Network: an encoder with one or more heads.

features = encoder(x),    output of a head = head(features)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.links import HeadOutput
from hierlearn.networks.heads import Head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.links import Link

    Outputs = HeadOutput | dict[str, HeadOutput]


class Network(nn.Module):
    """An encoder and its heads.

    Args:
        encoder: from inputs to (N, F) features.
        heads: one head, or several by name.
    """

    stackable: ClassVar[bool] = True

    def __init__(self, encoder: nn.Module, heads: Head | Mapping[str, Head]) -> None:
        super().__init__()
        named = {"main": heads} if isinstance(heads, Head) else dict(heads)
        if not named:
            raise HierlearnError("a network needs at least one head")
        self.encoder = encoder
        self.heads = nn.ModuleDict(named)

    def forward(self, x: Any) -> Outputs:
        """Return the output of the head, or the outputs of several by name."""
        features = self.encoder(x)
        outputs: dict[str, HeadOutput] = {name: head(features) for name, head in self.heads.items()}
        return outputs if len(outputs) > 1 else next(iter(outputs.values()))

    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Initialize every head to the class priors; see ``Head.set_prior``."""
        for head in self.heads.values():
            head.set_prior(counts, terminal_counts, rows)  # type: ignore[operator]


def read_output(found: Any, link: Link | None = None, *, rereads: bool = False) -> HeadOutput:
    """Return the output of a network as one HeadOutput.

    Args:
        found: the output of a head, those of several by name, which are averaged, or plain logits.
        link: how plain logits are read.
        rereads: whether the logits of a head are read by ``link`` too, instead of by their own.
    """
    if isinstance(found, HeadOutput):
        return found.read_by(link) if rereads else found
    if isinstance(found, Tensor) and link is not None:
        return link.output(found)
    if not isinstance(found, dict) or not found:
        raise HierlearnError(
            f"a network returns a HeadOutput, several of them by name, or logits, not "
            f"{type(found).__name__}"
        )
    return HeadOutput.average([read_output(one, link, rereads=rereads) for one in found.values()])
