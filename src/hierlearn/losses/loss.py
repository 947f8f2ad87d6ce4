"""Loss: what every loss has in common. Reading the output, checks, and the one reduction.

    loss(output, targets, mask=None, weight=None)

``output`` is a ``HeadOutput``, or plain logits, which the loss's own link turns into it. With a
leading axis, (M, N, C), every tensor holds the members of an ensemble and so does the result:
a reduced loss is then (M,) instead of a scalar.

    mean of a loss of entries   sum over known entries of weight * l / sum of their weights
    mean of a loss of rows      sum over labeled rows of weight * l / sum of their weights
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypedDict, get_args

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.hierarchy import Hierarchy, LabelSpace
from hierlearn.kernels import choose, cpu
from hierlearn.links import LINKS, HeadOutput, Link, link_kind, make_link
from hierlearn.links.link import log_terminal_masses
from hierlearn.losses.checks import (
    ENTRIES,
    PerClass,
    can_check_values,
    check_mixtures,
    check_no_fractions,
    check_targets,
    check_values,
    per_class,
)
from hierlearn.registry import CheckedArguments, argument_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import Unpack

Reduction = Literal["mean", "sum", "none"]
# What every loss takes, and whoever trains with it decides.
NOT_OPTIONS = ("label_space", "reduction", "validate")
SMALLEST = 1e-12  # of the summed weights that a mean divides by


class CommonOptions(TypedDict, total=False):
    """What every loss takes by name, beside the link; see Loss."""

    reduction: Reduction
    validate: bool | None


class LossOptions(CommonOptions, total=False):
    """What every loss takes by name; see Loss."""

    link: str | Link | None


class WeightedOptions(LossOptions, total=False):
    """What a loss takes whose classes can have weights; see Loss."""

    class_weight: PerClass | None


class Loss(CheckedArguments, nn.Module, ABC):
    """Base of the losses.

    Args:
        label_space: what can be predicted, or a Hierarchy; it comes first everywhere.
        link: how plain logits are read: a name of LINKS or a Link; by default the loss's own.
        reduction: "mean" over the known entries (or labeled rows), "sum" or "none".
        validate: check the values of targets, which must be closed under ancestors: at the first
            call (None), at every call (True, which synchronizes with the device), or never (False).
            Fractions that a loss cannot take are refused at every call on a CPU, unless False.
        class_weight: how much each class counts, C numbers in the hierarchy's order, or by name,
            where the others count 1. In a loss of entries it multiplies the losses of the class, as
            ``weight`` of torch's binary_cross_entropy_with_logits does; in a loss of rows it is the
            weight of the rows with that label, also in the mean, as in torch's cross_entropy.

    Attributes:
        default_link: the link of plain logits where none is given.
        reading_link: the link by which a network trained with this loss is read when predicting;
            None for the link that it was trained with.
        uses_hierarchy: whether the loss looks at the hierarchy; studies report it.
        needs_tree: whether a DAG raises.
        reads: what plain logits must become for this loss: "probabilities" of the nodes, by any
            link; "masses" of the terminal classes that sum to 1, by a normalized one; or "scores",
            which only ``default_link`` reads as the loss means them.
        weighs_classes: whether classes can have weights; those of others are refused.
        takes_fractions: whether targets may be fractions, since the loss is linear in them: that of
            a mixture of targets is the mixture of the losses. Others raise.
        search_space: values worth trying of the options that matter most.
        function: the pure function on tensors that the loss is made of.
        is_zero_elsewhere: whether the losses that do not count are 0 already.
        rows_independent: whether the loss of a row depends on that row alone, so that the members
            of an ensemble can be computed in one call.
        entries_independent: whether the loss of an entry depends on the probability and the target
            of that entry alone.

    The last two, and ``formula``, speak of ``losses``: a subclass that computes other losses says
    them again, or has the defaults of this class.
    """

    default_link: ClassVar[str] = "sigmoid"
    reading_link: ClassVar[str | None] = None
    uses_hierarchy: ClassVar[bool] = True
    needs_tree: ClassVar[bool] = False
    reads: ClassVar[Literal["probabilities", "masses", "scores"]] = "probabilities"
    takes_fractions: ClassVar[bool] = False
    weighs_classes: ClassVar[bool] = False
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    function: ClassVar[Any] = None
    is_zero_elsewhere: ClassVar[bool] = False
    rows_independent: ClassVar[bool] = False
    entries_independent: bool = False
    link: Link
    class_weight: Tensor | None

    def __init_subclass__(cls, **options: Any) -> None:
        """Take back what a class above says of losses that this one computes otherwise."""
        super().__init_subclass__(**options)
        if any(hook in vars(cls) for hook in ("losses", "row_losses", "compute")):
            for name in ("formula", "rows_independent", "entries_independent"):
                if name not in vars(cls):
                    setattr(cls, name, getattr(Loss, name))

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        link: str | Link | None = None,
        reduction: Reduction = "mean",
        validate: bool | None = None,
        class_weight: PerClass | None = None,
    ) -> None:
        super().__init__()
        if reduction not in get_args(Reduction):
            raise HierlearnError(unknown_name("reduction", str(reduction), get_args(Reduction)))
        self.label_space = LabelSpace.of(label_space)
        self.hierarchy = self.label_space.hierarchy
        if self.needs_tree and not self.hierarchy.is_tree:
            from hierlearn.losses import LOSSES  # the registry imports this module

            able = [name for name, entry in LOSSES.loaded.items() if not entry.needs_tree]
            raise HierlearnError(
                f"{type(self).__name__} needs a tree, but a class of this DAG has several parents; "
                f"use {', '.join(able)}"
            )
        self.link = make_link(self.label_space, self.default_link if link is None else link)
        self._score_link: type[Link] = LINKS[self.default_link]
        self._check_link()
        if class_weight is not None and not self.weighs_classes:
            raise HierlearnError(
                f"{type(self).__name__} takes no class_weight; "
                f"weigh rows by weight=, or use a loss such as bce"
            )
        weights = per_class("class_weight", class_weight, self.hierarchy)
        self.register_buffer("class_weight", weights, persistent=False)
        self.reduction: Reduction = reduction
        self.validate = validate
        self._checked_values = False

    def _check_link(self) -> None:
        """Raise on a link by which the logits would not be what the loss reads."""
        if self.reads == "masses" and not self.link.normalized:
            able = [name for name, kind in LINKS.loaded.items() if kind.normalized]
            raise HierlearnError(
                f"{type(self).__name__} reads masses of terminal classes that sum to 1, but those "
                f"of {type(self.link).__name__} do not; use {', '.join(able)}"
            )
        if self.reads == "scores" and not isinstance(self.link, self._score_link):
            raise HierlearnError(
                f"{type(self).__name__} reads logits by the link {self.default_link!r} alone, not "
                f"by {type(self.link).__name__}; leave link out, or use a loss of probabilities "
                f"such as bce"
            )

    def reads_as_scores(self, link: Link | None) -> bool:
        """Whether a link reads logits as a loss of scores means them."""
        return isinstance(link, self._score_link)

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the options that a recipe or a study may set, the loss's own first."""
        left_out = NOT_OPTIONS if cls.weighs_classes else (*NOT_OPTIONS, "class_weight")
        after_label_space = argument_names(cls)[1:]
        return [name for name in after_label_space if name not in left_out]

    # ------------------------------------------------------------------ the loss

    def forward(
        self,
        output: HeadOutput | Tensor,
        targets: Tensor,
        mask: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch.

        Args:
            output: the output of a head, or (N, C) logits in the hierarchy's order.
            targets: (N, C) closed multi-hot, bool or numbers.
            mask: (N, C) bool, which targets are known; by default all.
            weight: (N,) how much each row counts; by default 1.

        Returns:
            A scalar, or (M,) for the members of an ensemble; with reduction "none" a value per
            entry or per row.
        """
        read = self.read(output)
        check_targets(read, targets, mask, weight)
        self.check_values(targets, mask)
        return self.compute(read, targets, mask, weight)

    def check_values(self, targets: Tensor, mask: Tensor | None) -> None:
        """Raise on targets that are not closed, or fractions, as often as ``validate`` says."""
        if self.validate:
            self._check_values(targets, mask, None)
        elif self.validate is None and can_check_values(targets):
            if not self._checked_values:
                self._check_values(targets, mask, ENTRIES)
                self._checked_values = True
            elif not self.is_linear() and targets.is_floating_point() and targets.is_cpu:
                # Mixup may begin with any batch, and a CPU need not wait to look.
                check_no_fractions(self, targets, mask, ENTRIES)

    def _check_values(self, targets: Tensor, mask: Tensor | None, entries: int | None) -> None:
        check_values(self.hierarchy, targets, mask, entries)
        if not self.is_linear():
            check_no_fractions(self, targets, mask, entries)

    def is_linear(self) -> bool:
        """Whether the loss of a mixture of targets is the mixture of the losses."""
        return self.takes_fractions

    def mixes_classes(self) -> bool:
        """Whether it is for every mixture of rows with one label each."""
        return self.is_linear()

    def read(self, output: HeadOutput | Tensor) -> HeadOutput:
        """Return the output of a head as it is, or plain logits under the loss's own link."""
        if isinstance(output, Tensor):
            return self.link.output(output)
        if not isinstance(output, HeadOutput):
            raise HierlearnError(
                f"a loss takes a HeadOutput or logits, not {type(output).__name__}; a network with "
                f"several outputs is a hierlearn Network with one head for each"
            )
        if len(output.shape) not in (2, 3) or output.shape[-1] != len(self.hierarchy):
            raise HierlearnError(
                f"output {tuple(output.shape)} must be (N, {len(self.hierarchy)}), or "
                f"(M, N, {len(self.hierarchy)}) of an ensemble"
            )
        return output

    def compute(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> Tensor:
        """Return what ``forward`` does, for tensors whose shapes were checked."""
        if output.members is not None and not self.rows_independent:
            return torch.stack(
                [
                    self.compute(
                        one,
                        targets[k],
                        None if mask is None else mask[k],
                        None if weight is None else weight[k],
                    )
                    for k, one in enumerate(output.unbind())
                ]
            )
        rows = (output, targets, mask)
        if output.members is not None:
            rows = (output.flat(), *flat_rows(targets, mask))
        values = self.kernel_losses(*rows)  # (N,) or of members (M N,)
        if values is None:
            values = self.losses(*rows)  # (N, C) or (N,)
        if output.members is not None:
            values = values.view(*output.shape[:-1], *values.shape[1:])
        return self.reduce(values, targets, mask, weight)

    def formula(self) -> tuple[str, tuple[Any, ...]] | None:
        """Return the name of ``losses`` in the table of kernels, and its numbers; None for none."""
        return None

    def link_of(self, output: HeadOutput) -> Link | None:
        """Return the link through which logits are read; None without logits."""
        return None if output.logits is None else output.link

    def kernel_losses(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None
    ) -> Tensor | None:
        """Return (N,) the known losses of each row, summed, by a CPU kernel; None without one."""
        if torch.compiler.is_compiling():
            return None
        formula, link = self.formula(), self.link_of(output)
        if formula is None or link is None:
            return None
        name, numbers = formula
        space, logits = self.label_space, output.float_logits
        key = (name, link_kind(link), None)
        kernels = choose.cpu_kernels(key, logits, space, targets, masked=mask is not None)
        if kernels is None:
            return None

        def plain(x: Tensor) -> Tensor:
            values = self.losses(HeadOutput.from_logits(x, link), targets, mask)
            if values.dim() == 1:
                return values
            return (values if mask is None else torch.where(mask, values, 0.0)).sum(dim=1)

        if kernels.tree:
            assert space.layout is not None
            numbers = (cpu.tree_of(space.layout), *numbers)
        return cpu.row_losses(kernels.cpu, logits, targets, mask, numbers, plain)

    @abstractmethod
    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the unreduced losses of N rows: (N, C), or (N,) for a loss of rows."""

    @abstractmethod
    def counted(self, targets: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return which losses count in a mean, of the shape of the losses; None for all."""

    # ------------------------------------------------------------------ reduction

    def reduce(
        self, values: Tensor, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> Tensor:
        """Mask, weigh and reduce losses: the one place where that happens.

        Args:
            values: (N, C) or (N,) losses, or the sums of rows, (N,), of known losses of entries;
                with a leading axis, those of M members.
            targets: as the loss was given them.
            mask: as the loss was given it.
            weight: as the loss was given it.
        """
        values, weight = self.weigh_classes(values, targets, mask, weight)
        if weight is not None:
            values = values * spread_weight(weight, values)
        counted = self.counted(targets, mask)
        # Sums of rows are of known entries already.
        if not (counted is None or self.is_zero_elsewhere or counted.dim() > values.dim()):
            values = torch.where(counted, values, 0.0)
        if self.reduction == "none":
            return values
        total = values.sum() if targets.dim() == 2 else values.flatten(1).sum(dim=1)
        if self.reduction == "sum":
            return total
        return total / safe_divisor(self._count(counted, targets, weight), weight)

    def count(
        self, targets: Tensor, mask: Tensor | None = None, weight: Tensor | None = None
    ) -> int | Tensor:
        """Return what the mean of a batch divides by: the summed weight of what counts."""
        weight = self.row_weights(targets, mask, weight)
        return self._count(self.counted(targets, mask), targets, weight)

    def weigh_classes(
        self, values: Tensor, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return losses and weights of rows as ``class_weight`` changes them: here the losses."""
        del targets, mask
        if self.class_weight is not None:
            values = values * self.class_weight.to(values.dtype)
        return values, weight

    def row_weights(
        self, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> Tensor | None:
        """Return what rows count in a mean; for a loss of rows with ``class_weight``."""
        del targets, mask
        return weight

    def counts(
        self, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> list[int | Tensor]:
        """Return what the mean of each of ``terms`` divides by."""
        return [self.count(targets, mask, weight)]

    def terms(
        self, output: Any, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> list[Tensor]:
        """Return the summands of the loss; here only one."""
        return [self(output, targets, mask, weight)]

    def _count(
        self, counted: Tensor | None, targets: Tensor, weight: Tensor | None
    ) -> int | Tensor:
        first = targets.dim() - 2  # 1 where the first axis is that of the members
        if counted is None and weight is None:
            return self.size(targets)
        if weight is None:
            assert counted is not None
            return counted.flatten(first).sum(dim=-1)
        if counted is None:
            return weight.sum(dim=-1) * (self.size(targets) / max(weight.shape[-1], 1))
        return (counted * spread_weight(weight, counted)).flatten(first).sum(dim=-1)

    def size(self, targets: Tensor) -> int:
        """Return the number of losses of one member's batch."""
        return targets.shape[-2] * targets.shape[-1]

    # ------------------------------------------------------------------ state, by default none

    def set_members(self, count: int) -> None:
        """Make room for the state of ``count`` members of an ensemble."""

    def set_seeds(self, seeds: Sequence[int]) -> None:
        """Set the seed of each member, for a loss that draws random numbers."""

    def set_progress(self, progress: float) -> None:
        """Report how far the training is, from 0 to 1."""

    def end_epoch(self) -> None:
        """Close an epoch."""

    @property
    def selection(self) -> Tensor | None:
        """The classes that the last call selected, (C,) or (M, C) bool; None without selection."""
        return None

    def extra_repr(self) -> str:
        """Name the hierarchy and the reduction when the module is printed."""
        return f"{self.hierarchy!r}, reduction={self.reduction!r}"


class ElementwiseLoss(Loss):
    """A loss of every entry: subclasses give (N, C) and the rest happens here."""

    def kernel_losses(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None
    ) -> Tensor | None:
        """Return the sums of rows, where single entries do not matter."""
        if self.reduction == "none" or self.class_weight is not None:
            return None
        return super().kernel_losses(output, targets, mask)

    def counted(self, targets: Tensor, mask: Tensor | None) -> Tensor | None:
        """Every known entry counts."""
        del targets
        return mask


class RowLoss(Loss):
    """A loss of every row: subclasses give (N,); the mean is over the rows with a label."""

    weighs_classes = True
    child_ids: Tensor
    parent_ids: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        structure = self.hierarchy.structure
        for name, numbers in (
            ("child_ids", structure.edge_children),
            ("parent_ids", structure.parent_ids),
        ):
            self.register_buffer(name, torch.tensor(numbers), persistent=False)

    def counted(self, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Every row with a known label counts."""
        if mask is not None:
            return ((targets > 0) & mask).any(dim=-1)
        if targets.dtype == torch.bool:
            return targets.any(dim=-1)
        return targets.amax(dim=-1) > 0  # one pass, where a comparison of entries is two

    def _check_values(self, targets: Tensor, mask: Tensor | None, entries: int | None) -> None:
        super()._check_values(targets, mask, entries)
        if self.is_linear():
            check_mixtures(self, targets, mask, entries)

    def is_linear(self) -> bool:
        """With ``class_weight`` it is not: two functions of the targets are multiplied."""
        return self.takes_fractions and self.class_weight is None

    def mixes_classes(self) -> bool:
        """On trees: in a DAG targets do not always tell what was mixed."""
        return self.is_linear() and self.hierarchy.is_tree

    def weigh_classes(
        self, values: Tensor, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the losses as they are, and the weights of rows times those of their labels."""
        return values, self.row_weights(targets, mask, weight)

    def row_weights(
        self, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> Tensor | None:
        """Return the weights of rows times the mean weight of their most specific labels."""
        if self.class_weight is None:
            return weight
        own = self.class_weight.to(torch.promote_types(self.class_weight.dtype, torch.float32))
        known = targets.to(own.dtype)
        if mask is not None:
            known = torch.where(mask, known, 0.0)
        flat = known.flatten(0, -2)
        shares = own_shares(flat, self.sum_of_children(flat)).view(known.shape)
        by_row = (shares @ own) / shares.sum(dim=-1).clamp_min(1)
        return by_row if weight is None else weight * by_row

    def size(self, targets: Tensor) -> int:
        """Return the number of rows."""
        return targets.shape[-2]

    def sum_of_children(self, values: Tensor) -> Tensor:
        """Return (N, C) the sum over the children of each class."""
        below = values.index_select(1, self.child_ids)
        return torch.zeros_like(values).index_add(1, self.parent_ids, below)


def own_shares(targets: Tensor, of_children: Tensor) -> Tensor:
    """Return (N, C) what of each target is no child's: 1 for the most specific labels.

    Of a mixture of rows with one label each, the share of the rows that have that label.
    """
    return (targets - of_children).clamp_min_(0.0)


class SoftmaxRowLoss(RowLoss):
    """A loss of rows on the masses q of the terminal classes, which sum to 1.

    Plain logits, and a head whose link is not normalized, are read through the softmax link. Any
    other head is used as it is: the masses are computed from its log-probabilities.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    default_link = "softmax"
    reads = "masses"
    takes_fractions = True
    rows_independent = True
    is_zero_elsewhere = True  # a row without a label has no label to weigh
    is_terminal: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        flags = torch.from_numpy(self.label_space.is_terminal.copy())
        self.register_buffer("is_terminal", flags, persistent=False)

    @abstractmethod
    def row_losses(self, log_masses: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (N,) losses.

        Args:
            log_masses: (N, C) the log mass of each terminal class, LOG_ZERO for the others.
            labels: (N, C) the terminal labels; a row of them sums to 1 or 0.
            mask: (N, C) which targets are known.
        """

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Share each row's weight among its terminal labels."""
        link = self.link_of(output)
        if link is None:
            log_masses = log_terminal_masses(output.log_p, self.label_space)
        else:
            log_masses = link.log_masses(output.float_logits)
        positive = targets.to(log_masses.dtype)
        if mask is not None:
            positive = torch.where(mask, positive, 0.0)
        labels = own_shares(positive, self.sum_of_children(positive))
        counts = labels.sum(dim=1, keepdim=True)
        return self.row_losses(log_masses, labels / counts.clamp_min(1), mask)

    def link_of(self, output: HeadOutput) -> Link | None:
        """Return the link through which logits are read; None without any."""
        if output.logits is None or output.link is None:
            return None
        return output.link if output.link.normalized else self.link


class Variant:
    """A loss with other defaults and the class attributes of a loss.

    Args:
        make: the class, or a class method of it that makes the loss, such as HCLLoss.paper.
        search_space: what is worth trying here, instead of the class's own.
        uses_hierarchy: whether this variant looks at the hierarchy, instead of the class's own.
        options: the options that are fixed, unless the caller gives them.
    """

    def __init__(
        self,
        make: Callable[..., Loss],
        *,
        search_space: Mapping[str, tuple[Any, ...]] | None = None,
        uses_hierarchy: bool | None = None,
        **options: Any,
    ) -> None:
        loss: Any = getattr(make, "__self__", make)
        self.make, self.loss, self.options = make, loss, options
        self.search_space = loss.search_space if search_space is None else search_space
        named = signature(make).parameters.get("link")
        given = None if named is None else named.default
        self.default_link: str = options.get("link", given or loss.default_link)
        self.reading_link = loss.reading_link
        own = loss.uses_hierarchy
        self.uses_hierarchy = own if uses_hierarchy is None else uses_hierarchy
        self.needs_tree = loss.needs_tree
        self.takes_fractions = loss.takes_fractions
        self.function = loss.function
        self.__name__ = loss.__name__
        self.__doc__ = loss.__doc__

    def option_names(self) -> list[str]:
        """Return the options of the class."""
        found: list[str] = self.loss.option_names()
        return found

    def __call__(self, label_space: LabelSpace | Hierarchy, **options: Any) -> Loss:
        """Make the loss."""
        return self.make(label_space, **{**self.options, **options})

    def __repr__(self) -> str:
        fixed = (f"{name}={value!r}" for name, value in self.options.items())
        return f"Variant({', '.join([self.make.__qualname__, *fixed])})"


def losses_of_fractions() -> list[str]:
    """Return the names of the losses that take targets which are fractions."""
    from hierlearn.losses import LOSSES

    return [name for name, entry in LOSSES.loaded.items() if entry.takes_fractions]


def flat_rows(targets: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the rows of all members one after another."""
    return targets.flatten(0, 1), None if mask is None else mask.flatten(0, 1)


def spread_weight(weight: Tensor, values: Tensor) -> Tensor:
    """Return weights of rows so that they broadcast over losses of rows, or of entries."""
    return weight if weight.dim() == values.dim() else weight[..., None]


def safe_divisor(count: int | Tensor, weight: Tensor | None = None) -> int | Tensor:
    """Return a safe divisor: at least 1, or just above 0 where rows are weighted."""
    if isinstance(count, int):
        return max(count, 1)
    return count.clamp_min(1 if weight is None else SMALLEST)


class LossEntry(Protocol):
    """An entry of LOSSES, a class or a Variant: called, it makes the loss; options are its own."""

    @property
    def default_link(self) -> str: ...
    @property
    def reading_link(self) -> str | None: ...
    @property
    def uses_hierarchy(self) -> bool: ...
    @property
    def needs_tree(self) -> bool: ...
    @property
    def takes_fractions(self) -> bool: ...
    @property
    def search_space(self) -> Mapping[str, tuple[Any, ...]]: ...
    @property
    def function(self) -> Any: ...

    def option_names(self) -> list[str]: ...

    # A type checker takes *args and **options together for any arguments, so each class fits.
    def __call__(self, label_space: LabelSpace | Hierarchy, *args: Any, **options: Any) -> Loss: ...
