"""HMCN: a layer per level of the taxonomy, local outputs beside a global one.

    A_1 = relu(W_1 x),    A_h = relu(W_h [A_(h-1); x])                  h = 2 ... H
    local outputs    sigmoid(V_h relu(T_h A_h)) over the classes of level h
    global output    sigmoid(W A_H) over all classes
    answer           the mean of the two

Wehrmann, Cerri and Barros, "Hierarchical multi-label classification networks" (2018). HMCN-F has
weights of its own in every level; in HMCN-R one LSTM cell goes down the levels, so that its size
does not grow with their number. Trained by the loss ``hmcn``, as the recipes of these names do.

Its loss is cross entropy, and a penalty on classes more probable than their parents.

    l(i, j) = bce(i, j) + lambda * sum over parents k of j of max(0, p_j - p_k)^2

with lambda = 0.1. They apply the penalty to the answer, the mean
of two outputs; here each output has its own, which is at least as large, since the penalty is
convex.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.propagate import add_at, select
from hierlearn.links import Head, HeadOutput, make_link
from hierlearn.losses.bases import bce_loss
from hierlearn.losses.bce import BCELoss
from hierlearn.networks.heads import LinearHead
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.layers import Dense, Dropout, check_size
from hierlearn.networks.network import MAIN, Network
from hierlearn.training.recipes import Recipe, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import Link
    from hierlearn.losses.bce import BCEOptions
    from hierlearn.networks.inputs import InputSpec
    from hierlearn.training.choose import Facts


LOCAL = "local"  # the name of the head of local outputs
MOMENTUM, EPSILON = 0.1, 1e-5  # torch's own
HMCN_STEPS = 650  # of HMCN-F instead
RECURRENT_EPOCHS = 12  # of HMCN-R instead


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
        set_biases(self.outputs, prior, list(self.link.hierarchy.level_sizes))


@torch.no_grad()
def set_biases(layers: Iterable[Any], prior: Tensor, sizes: list[int]) -> None:
    """Set the biases of a layer per level to the logits of its classes."""
    for layer, own in zip(layers, torch.split(prior, sizes), strict=True):
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


class BatchNorm(nn.Module):
    """Normalize every feature over the rows of a batch: (N, K), or (M, N, K) for members.

    As torch's ``BatchNorm1d``, but members are stacked, and a batch of one row, which has no
    variance, is normalized by the running moments. Processes that share a batch normalize their own
    rows each.

    Args:
        features: K.
    """

    stackable: ClassVar[bool] = True
    mean: Tensor
    variance: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("variance", torch.ones(features))

    @classmethod
    def stack(cls, layers: Sequence[BatchNorm]) -> BatchNorm:
        new = cls.__new__(cls)
        nn.Module.__init__(new)
        for name in ("weight", "bias"):
            values = torch.stack([getattr(layer, name).detach() for layer in layers])
            setattr(new, name, nn.Parameter(values))
        for name in ("mean", "variance"):
            new.register_buffer(name, torch.stack([getattr(layer, name) for layer in layers]))
        return new

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalized; by the running moments when predicting."""
        x, rows = x.to(self.mean.dtype), x.shape[-2]  # moments of autocast's bf16 are in float32
        if self.training and rows > 1:
            variance, mean = torch.var_mean(x, dim=-2, correction=0)
            with torch.no_grad():
                self.mean.lerp_(mean, MOMENTUM)
                self.variance.lerp_(variance * (rows / (rows - 1)), MOMENTUM)
        else:
            mean, variance = self.mean, self.variance
        scale = self.weight * (variance + EPSILON).rsqrt()
        return x * scale[..., None, :] + (self.bias - mean * scale)[..., None, :]


def violations(p: Tensor, children: Tensor, parents: Tensor) -> Tensor:
    """Return (N, C), for each class, the summed squares by which p exceeds that of its parents.

    Args:
        p: (N, C) probabilities.
        children: (E,) the lower end of every edge of the taxonomy.
        parents: (E,) the upper ends.
    """
    excess = (select(p, children) - select(p, parents)).clamp_min(0.0)
    return add_at(torch.zeros_like(p), children, excess.square())


def hmcn_loss(
    log_p: Tensor,
    log_not_p: Tensor,
    targets: Tensor,
    edges: tuple[Tensor, Tensor],
    penalty: float = 0.1,
) -> Tensor:
    """Return (N, C) bce with the penalty; edges are those of the taxonomy, lower ends first."""
    losses = bce_loss(log_p, log_not_p, targets)
    return losses + penalty * violations(log_p.exp(), *edges)


class HMCNLoss(BCELoss):
    """Cross entropy with a penalty on incoherent probabilities.

    Args:
        label_space: what can be predicted, or a Hierarchy; tree or DAG.
        penalty: lambda, at least 0.
        options: ``link``, ``log_base``, ``reduction`` and ``validate``.
    """

    function: ClassVar[Any] = staticmethod(hmcn_loss)
    uses_hierarchy = True
    rows_independent = True
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"penalty": (0.1, 1.0)}
    child_ids: Tensor
    parent_ids: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        penalty: float = 0.1,
        **options: Unpack[BCEOptions],
    ) -> None:
        super().__init__(label_space, **options)
        if not penalty >= 0:
            raise HierlearnError(f"penalty must be at least 0, not {penalty!r}")
        self.penalty = penalty
        structure = self.hierarchy.structure
        children, parents = structure.edge_children, structure.parent_ids
        self.register_buffer("child_ids", torch.tensor(children), persistent=False)
        self.register_buffer("parent_ids", torch.tensor(parents), persistent=False)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return bce with the penalty."""
        losses = super().losses(output, targets, mask)
        p = output.probabilities.to(losses.dtype)
        return losses + self.penalty * violations(p, self.child_ids, self.parent_ids)


def hmcn_r_rule(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of HMCN-R: as ``plain``, but still shorter where labels are several."""
    epochs = plain(facts)["settings"]["epochs"]
    if facts.kind == "numbers" and not facts.one_path:
        epochs = min(epochs, RECURRENT_EPOCHS)
    return {"settings": {"epochs": epochs}}


HMCN_F = Recipe(
    "hmcn",
    "HMCN-F: a layer per level, local and global outputs (Wehrmann 2018)",
    network="hmcn-f",
    rule=lambda facts: plain(facts, HMCN_STEPS),  # longer where labels are several
)
HMCN_R = Recipe(
    "hmcn",
    "HMCN-R: one recurrent cell for all levels, local and global outputs (Wehrmann 2018)",
    network="hmcn-r",
    rule=hmcn_r_rule,
)
