"""Link: what turns logits into node probabilities, in log space; the sigmoid and the max link.

    sigmoid   p(c) = 1 / (1 + exp(-x_c))
    max       p(c) = max over c and its descendants d of 1 / (1 + exp(-x_d))

The max link is the coherent output of C-HMCNN (Giunchiglia and Lukasiewicz, 2020).
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.propagate import LOG_ZERO
from hierlearn.links.output import HALF_PRECISION, HeadOutput
from hierlearn.registry import CheckedArguments, parse_pairs

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy

HALF = 0.5  # of a row, added to either side of a prior
LARGEST = 1 - 1e-7  # fraction that children may hold, so that a mass is never exactly 0


class Link(CheckedArguments, nn.Module, ABC):
    """Base of the links: ``forward(logits) -> (log p, log(1 - p))``, of the shape of the logits.

    Both logarithms are computed on their own, never one from the other, so that they stay
    accurate where p is close to 0 or 1. Half precision is converted to float32. Members of an
    ensemble go through at once: logits are (N, C) or (M, N, C).

    Args:
        label_space: what can be predicted; a Hierarchy means that its leaves are terminal.

    Attributes:
        coherent: whether p of a class never exceeds p of its parents.
        normalized: whether the masses of the terminal classes sum to 1.
    """

    coherent: ClassVar[bool] = False
    normalized: ClassVar[bool] = False

    def __init__(self, label_space: LabelSpace | Hierarchy) -> None:
        super().__init__()
        self.label_space = LabelSpace.of(label_space)
        self.hierarchy = self.label_space.hierarchy

    @property
    def options(self) -> dict[str, Any]:
        """The options that it was made with."""
        return {}

    def forward(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p and log(1 - p) of every node."""
        return self.log_probabilities(as_float(logits, len(self.hierarchy)))

    @abstractmethod
    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return what ``forward`` does, for (..., C) logits whose shape was checked."""

    def log_p(self, logits: Tensor) -> Tensor:
        """Return log p alone, up to rounding that of ``log_probabilities``, where it is cheaper."""
        return self.log_probabilities(logits)[0]

    def plain_log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same by operations that can be compiled, and differentiated repeatedly."""
        return self.log_probabilities(logits)

    def output(self, logits: Tensor) -> HeadOutput:
        """Return logits with this link, whose log-probabilities are computed when needed."""
        check_logits(logits, len(self.hierarchy))
        return HeadOutput.from_logits(logits, self)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return p of every node, of the shape of the logits."""
        return self.log_p(as_float(logits, len(self.hierarchy))).exp()

    def log_masses(self, logits: Tensor) -> Tensor:
        """Return the log mass of each terminal class alone, LOG_ZERO for the others."""
        return log_terminal_masses(self.log_probabilities(logits)[0], self.label_space)

    def prior_logits(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> Tensor:
        """Return (C,) logits under which every class has its fraction of the training rows.

        Half a row is added to either side, so that a class without rows gets a finite logit. By
        default the log-odds of each class alone.

        Args:
            counts: (C,) the rows of each class, ancestors counted.
            terminal_counts: (C,) the rows whose most specific label is each class.
            rows: N, the number of rows.
        """
        del terminal_counts
        return torch.log((counts + HALF) / (rows - counts + HALF))

    def extra_repr(self) -> str:
        """Name the hierarchy when the module is printed."""
        return repr(self.hierarchy)


class SigmoidLink(Link):
    """Independent probabilities; nothing stops a child from being likelier than its parent."""

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return log sigmoid(x) and log sigmoid(-x)."""
        return logsigmoid(logits), logsigmoid(-logits)

    def log_p(self, logits: Tensor) -> Tensor:
        """Return log sigmoid(x)."""
        return logsigmoid(logits)


class MaxLink(Link):
    """The maximum over descendants, then a sigmoid; coherent on trees and DAGs."""

    coherent = True

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return log sigmoid and log sigmoid(-) of the maximum over descendants."""
        best = self.hierarchy.max_up(logits)
        return logsigmoid(best), logsigmoid(-best)

    def log_p(self, logits: Tensor) -> Tensor:
        """Return log sigmoid of the maximum over descendants."""
        return logsigmoid(self.hierarchy.max_up(logits))


def log_terminal_masses(log_p: Tensor, label_space: LabelSpace) -> Tensor:
    """Return (..., C) the log mass q of each terminal class, LOG_ZERO for the others.

    q(c) = p(c) of a leaf, and p(c) less the sum over its children of an inner terminal class of a
    tree: log q = log p + log(1 - f), with f the fraction of p that the children hold.

    Args:
        log_p: (..., C) node log-probabilities.
        label_space: which classes are terminal.

    Raises:
        HierlearnError: in a DAG with inner terminal classes, where this is not a subtraction.
    """
    hierarchy = label_space.hierarchy
    terminal = torch.from_numpy(label_space.is_terminal).to(log_p.device)
    if label_space.has_inner_terminals:
        if not hierarchy.is_tree:
            raise HierlearnError(
                "the mass of an inner terminal class of a DAG cannot be read from probabilities; "
                "use the softmax link, or a loss of single classes such as bce"
            )
        structure = hierarchy.structure
        child = torch.tensor(structure.edge_children, device=log_p.device)
        parent = torch.tensor(structure.parent_ids, device=log_p.device)
        given = (log_p.index_select(-1, child) - log_p.index_select(-1, parent)).exp()
        held = torch.zeros_like(log_p).index_add(-1, parent, given)  # (..., C), 0 for leaves
        log_p = log_p + (-held.clamp_max(LARGEST)).log1p()
    return torch.where(terminal, log_p, LOG_ZERO)


def check_logits(logits: Tensor, classes: int) -> None:
    """Raise unless logits are (N, C) or (M, N, C) floats."""
    if not logits.is_floating_point():
        raise HierlearnError(f"logits must be floating point, not {logits.dtype}")
    if logits.dim() not in (2, 3) or logits.shape[-1] != classes:
        raise HierlearnError(f"logits {tuple(logits.shape)} must be (N, {classes})")


def as_float(logits: Tensor, classes: int) -> Tensor:
    """Check the logits and convert half precision to float32."""
    check_logits(logits, classes)
    return logits.float() if logits.dtype in HALF_PRECISION else logits


def make_link(label_space: LabelSpace | Hierarchy, link: str | Link) -> Link:
    """Return the link of a name, or the link itself if it belongs to the label space."""
    from hierlearn.links import LINKS  # the registry imports this module

    space = LabelSpace.of(label_space)
    if isinstance(link, str):
        name, options = parse_link(link)
        made: Link = LINKS[name](space, **options)
        return made
    if not isinstance(link, Link):
        raise HierlearnError(f"a link is a name or a Link, not {link!r}")
    if link.label_space != space:
        raise HierlearnError(f"the link is of {link.label_space!r}, but {space!r} is expected")
    return link


def parse_link(text: str) -> tuple[str, dict[str, Any]]:
    """Return name and options of a link that is written ``name`` or ``name:key=value,key=value``.

    Raises:
        HierlearnError: naming the links or the options that there are.
    """
    from hierlearn.links import LINKS

    name, colon, rest = LINKS.split(text)
    if name not in LINKS:
        raise LINKS.unknown(name)
    options = parse_pairs(rest.split(","), f"link {name}") if colon else {}
    known = list(inspect.signature(LINKS[name]).parameters)[1:]  # after the label space
    for option in options:
        if option not in known:
            raise HierlearnError(unknown_name(f"option of link {name}", option, known))
    return name, options


def as_json(value: Any) -> str:
    """Return an option as it is written: integers without a point, names without quotes."""
    if isinstance(value, str):
        return value
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value)


def link_name(link: Link) -> str:
    """Return how a link is written: its name in LINKS, and options that are not the defaults.

    Raises:
        HierlearnError: if it is not registered, so that no file could name it.
    """
    from hierlearn.links import LINKS

    name = LINKS.name_of(type(link))
    if name is None:
        raise HierlearnError(
            f"{type(link).__name__} is not registered; add it to hierlearn.links.LINKS under a name"
        )
    defaults = inspect.signature(type(link)).parameters
    changed = {k: v for k, v in link.options.items() if v != defaults[k].default}
    words = (f"{option}={as_json(value)}" for option, value in changed.items())
    return f"{name}:{','.join(words)}" if changed else name
