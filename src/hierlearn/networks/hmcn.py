"""HMCN: a layer per level of the taxonomy, local outputs beside a global one.

    A_1 = relu(W_1 x),    A_h = relu(W_h [A_(h-1); x])                  h = 2 ... H
    local outputs    sigmoid(V_h relu(T_h A_h)) over the classes of level h
    global output    sigmoid(W A_H) over all classes
    answer           the mean of the two

Wehrmann, Cerri and Barros, "Hierarchical multi-label classification networks" (2018). HMCN-F has
weights of its own in every level; in HMCN-R one LSTM cell goes down the levels, so that its size
does not grow with their number. Trained by the loss ``hmcn``, as the recipes of these names do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from hierlearn.hierarchy import LabelSpace
from hierlearn.links import Head, HeadOutput, make_link
from hierlearn.networks.batch_norm import BatchNorm
from hierlearn.networks.heads import LinearHead
from hierlearn.networks.layers import Dense, Dropout, check_size
from hierlearn.networks.network import MAIN, Network
from hierlearn.networks.sparse import SparseRows

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import Link
    from hierlearn.networks.inputs import InputSpec

LOCAL = "local"  # the name of the head of local outputs


class LevelEncoder(nn.Module):
    """A layer per level, each of the layer above and the inputs (HMCN-F).

    Args:
        inputs: D, the number of features.
        depth: H, the number of levels.
        width: units of a layer.
        dropout: fraction of units left out while training.
    """

    stackable: ClassVar[bool] = True

    def __init__(self, inputs: int, depth: int, *, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                Dense(inputs + (width if level else 0), width),
                BatchNorm(width),
                nn.ReLU(),
                Dropout(dropout),
            )
            for level in range(depth)
        )

    def forward(self, x: Tensor | SparseRows) -> list[Tensor]:
        """Return the (N, width) activations of every level."""
        dense = x.dense() if isinstance(x, SparseRows) else x
        found: list[Tensor] = []
        for layer in self.layers:
            read = dense
            if found:
                own = dense.expand(*found[-1].shape[:-1], dense.shape[-1])  # for each member
                read = torch.cat([found[-1], own], dim=-1)
            found.append(layer(read))
        return found


class RecurrentEncoder(nn.Module):
    """One LSTM cell for all levels, which reads the inputs in each (HMCN-R).

    Args:
        inputs: D, the number of features.
        depth: H, the number of levels.
        width: units of the cell.
        dropout: fraction of units left out while training.
    """

    def __init__(self, inputs: int, depth: int, *, width: int, dropout: float) -> None:
        super().__init__()
        self.depth = depth
        self.cell = nn.LSTMCell(inputs, width)
        self.norms = nn.ModuleList(BatchNorm(width) for _ in range(depth))
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor | SparseRows) -> list[Tensor]:
        """Return the (N, width) activations of every level."""
        dense = x.dense() if isinstance(x, SparseRows) else x
        state = None
        found = []
        for norm in self.norms:
            state = self.cell(dense, state)
            found.append(self.dropout(norm(state[0])))
        return found


class GlobalHead(LinearHead):
    """All classes, from the activations of the last level; the arguments are LinearHead's."""

    stackable = True

    def __init__(
        self, features: int, label_space: LabelSpace | Hierarchy, link: str | Link = "sigmoid"
    ) -> None:
        super().__init__(features, label_space, link)
        del self.features  # of one of several levels: no other head could read them

    def forward(self, features: list[Tensor]) -> HeadOutput:  # type: ignore[override]
        """Return the logits with their link."""
        return super().forward(features[-1])


class LocalHead(Head):
    """The classes of every level, from the activations of that level.

    Args:
        features: the width of the activations.
        label_space: what can be predicted, or a Hierarchy.
        link: a name of LINKS or a Link.
    """

    stackable = True

    def __init__(
        self, features: int, label_space: LabelSpace | Hierarchy, link: str | Link = "sigmoid"
    ) -> None:
        super().__init__()
        self.link = make_link(label_space, link)
        sizes = self.link.hierarchy.level_sizes
        self.hidden = nn.ModuleList(Dense(features, features) for _ in sizes)
        self.outputs = nn.ModuleList(Dense(features, size) for size in sizes)

    def forward(self, features: list[Tensor]) -> HeadOutput:  # type: ignore[override]
        """Return the logits of all levels, one after another, with their link."""
        parts = zip(features, self.hidden, self.outputs, strict=True)
        logits = [output(torch.relu(hidden(one))) for one, hidden, output in parts]
        return HeadOutput.from_logits(torch.cat(logits, dim=-1), self.link)

    @torch.no_grad()
    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Set the biases to the logits under which every class has its fraction of the rows."""
        prior = self.link.prior_logits(counts, terminal_counts, rows)
        layer: Dense
        sizes = list(self.link.hierarchy.level_sizes)
        for layer, own in zip(self.outputs, torch.split(prior, sizes), strict=True):  # type: ignore[assignment]
            layer.bias.copy_(own.to(layer.bias).expand_as(layer.bias))


def hmcn(
    encoder: type[LevelEncoder | RecurrentEncoder],
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    link: str | Link,
    options: dict[str, Any],
) -> Network:
    """Return an encoder of levels with a global and a local head."""
    space, width = LabelSpace.of(label_space), options["width"]
    check_size(width=width)
    heads = {MAIN: GlobalHead(width, space, link), LOCAL: LocalHead(width, space, link)}
    return Network(encoder(inputs.width, space.hierarchy.depth, **options), heads)


def hmcn_f(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
    width: int = 384,
    dropout: float = 0.6,
) -> Network:
    """Return a feedforward HMCN: a layer per level, and two heads."""
    return hmcn(LevelEncoder, label_space, inputs, link, {"width": width, "dropout": dropout})


def hmcn_r(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
    width: int = 384,
    dropout: float = 0.6,
) -> Network:
    """Return a recurrent HMCN: one cell for all levels, and two heads."""
    return hmcn(RecurrentEncoder, label_space, inputs, link, {"width": width, "dropout": dropout})


for _factory in (hmcn_f, hmcn_r):
    _factory.search_space = {"width": (384, 800), "dropout": (0.25, 0.6)}  # type: ignore[attr-defined]  # values worth trying
