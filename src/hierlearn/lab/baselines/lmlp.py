"""HMC-LMLP: a network per level of the taxonomy, trained one after another.

    a_1 = sigmoid(MLP_1(x)),    a_h = sigmoid(MLP_h([a_(h-1); x]))      h = 2 ... H

a_h are the probabilities of the classes of level h, and an MLP has one hidden layer. While level h
is trained, the levels above are fixed, and the loss sees the classes of level h alone.

Cerri, Barros and de Carvalho, "Hierarchical multi-label classification using local neural networks"
(2014), where the levels below the first read a_(h-1) alone (``use_inputs=False``); with x beside it
in Cerri, Barros, de Carvalho and Jin, "Reduction strategies for hierarchical multi-label
classification in protein function prediction" (2016). They train by squared errors and sigmoid
units; here by a loss of entries and ReLU. They drop predicted classes whose parents are not
predicted, which is the link ``min``.

The min link: a class is at most as likely as its least likely ancestor.

    p(c) = min over c and its ancestors a of sigmoid(x_a)

Whatever the threshold, the classes above it are those whose ancestors are all above it, too: what
HMC-LMLP (Cerri et al., 2014) makes of its answers, where a predicted class without a predicted
parent is dropped. The sigmoid is monotone, so the minimum is taken over logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.hmcn import set_biases
from hierlearn.links import HeadOutput, SigmoidLink, make_link
from hierlearn.links.link import Link
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.layers import Dense, Dropout, check_flag, check_size
from hierlearn.networks.network import StagedNetwork
from hierlearn.training.recipes import FEWEST_EPOCHS, SEVERAL_EPOCHS, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.networks.inputs import InputSpec
    from hierlearn.training.choose import Facts


class LocalMLPs(StagedNetwork):
    """An MLP per level, each of the probabilities of the level above and the inputs.

    Args:
        inputs: D, the number of features.
        label_space: what can be predicted, or a Hierarchy.
        width: hidden units of a level.
        dropout: fraction of hidden units left out while training.
        use_inputs: whether the levels below the first read the inputs, too.
    """

    stackable: ClassVar[bool] = True

    def __init__(
        self,
        inputs: int,
        label_space: LabelSpace | Hierarchy,
        *,
        width: int,
        dropout: float,
        use_inputs: bool,
    ) -> None:
        super().__init__()
        check_size(width=width)
        check_flag(use_inputs=use_inputs)
        self.link = make_link(label_space, "sigmoid")
        self.sizes = list(self.link.hierarchy.level_sizes)
        self.use_inputs = use_inputs
        own = inputs if use_inputs else 0
        widths = [inputs, *(size + own for size in self.sizes[:-1])]
        self.levels = nn.ModuleList(
            nn.Sequential(Dense(read, width), nn.ReLU(), Dropout(dropout), Dense(width, size))
            for read, size in zip(widths, self.sizes, strict=True)
        )

    @property
    def parts(self) -> Sequence[nn.Module]:
        """The levels, the top one first."""
        return list(self.levels)

    @property
    def part_classes(self) -> Sequence[slice]:
        return self.link.hierarchy.level_slices

    def forward(self, x: Tensor | SparseRows) -> HeadOutput:
        """Return the logits of all levels; those of levels that are trained later are 0."""
        dense = x.dense() if isinstance(x, SparseRows) else x
        read, found = dense, list[Tensor]()
        for number, level in enumerate(self.levels):
            if self.is_ahead(number):
                above = found[-1]
                found.append(above.new_zeros(*above.shape[:-1], self.sizes[number]))
                continue
            found.append(level(read))
            read = found[-1].detach().sigmoid()  # no level learns for the one below
            if self.use_inputs:
                own = dense.expand(*read.shape[:-1], dense.shape[-1])  # for each member
                read = torch.cat([read, own.to(read.dtype)], dim=-1)
        return HeadOutput.from_logits(torch.cat(found, dim=-1), self.link)

    @torch.no_grad()
    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Set the last biases to the logits under which classes have their fraction of the rows."""
        prior = self.link.prior_logits(counts, terminal_counts, rows)
        levels: Any = self.levels
        set_biases([level[-1] for level in levels], prior, self.sizes)


def hmc_lmlp(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
    width: int = 400,
    dropout: float = 0.25,
    use_inputs: bool = True,
) -> LocalMLPs:
    """Return an MLP per level; see LocalMLPs."""
    if not isinstance(made := make_link(label_space, link), SigmoidLink):
        raise HierlearnError(
            f"the network hmc-lmlp trains every class of a level alone, on the link sigmoid, not "
            f"{type(made).__name__}; use a loss on that link, such as bce"
        )
    return LocalMLPs(inputs.width, label_space, width=width, dropout=dropout, use_inputs=use_inputs)


class MinLink(Link):
    """The minimum over ancestors, then a sigmoid; coherent on trees and DAGs."""

    coherent = True

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return log sigmoid and log sigmoid(-) of the minimum over ancestors."""
        negative = self.hierarchy.max_down(-logits)
        return logsigmoid(-negative), logsigmoid(negative)

    def log_p(self, logits: Tensor) -> Tensor:
        """Return log sigmoid of the minimum over ancestors."""
        return logsigmoid(-self.hierarchy.max_down(-logits))


LEVEL_STEPS = 600  # of each level that is trained alone, for rows with one path
LEVEL_EPOCHS = 40  # at most


def lmlp_rule(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of a network per level, each of which gets a share of the epochs.

    One path per row: a higher rate, and more steps.
    """
    one_path = facts.one_path
    most = LEVEL_EPOCHS if one_path else SEVERAL_EPOCHS
    epochs = max(min(round(LEVEL_STEPS / facts.steps_per_epoch), most), FEWEST_EPOCHS)
    rate = {"learning_rate": 3e-3} if one_path else {}
    return {"settings": {"epochs": epochs * facts.depth, **rate}}


HMC_LMLP = Recipe(
    "bce",
    "HMC-LMLP: a network per level, trained one after another (Cerri 2014, 2016)",
    network="hmc-lmlp",
    link="min",
    rule=lmlp_rule,
)
