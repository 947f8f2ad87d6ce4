"""Variant: a loss with some of its options fixed, as an entry of LOSSES."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.losses.loss import Loss


class LossEntry(Protocol):
    """An entry of LOSSES: a class of losses, or a Variant of one; called, it makes the loss.

    What it takes beside the label space, ``option_names`` says; another argument raises.
    """

    @property
    def default_link(self) -> str:
        """The link of plain logits where none is given."""
        ...

    @property
    def reading_link(self) -> str | None:
        """The link by which a network trained with this loss is read."""
        ...

    @property
    def uses_hierarchy(self) -> bool:
        """Whether the loss looks at the hierarchy."""
        ...

    @property
    def needs_tree(self) -> bool:
        """Whether a DAG raises."""
        ...

    @property
    def takes_fractions(self) -> bool:
        """Whether targets may be fractions."""
        ...

    @property
    def search_space(self) -> Mapping[str, tuple[Any, ...]]:
        """Values worth trying of the options that matter most."""
        ...

    @property
    def function(self) -> Any:
        """The pure function on tensors that the loss is made of."""
        ...

    def option_names(self) -> list[str]:
        """Return the options that a recipe or a study may set, the loss's own first."""
        ...

    def __call__(self, *args: Any, **options: Any) -> Loss:
        """Make the loss."""
        ...


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
