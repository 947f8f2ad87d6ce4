"""Variant: a loss with some of its options fixed, as an entry of LOSSES."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        loss: the class.
        search_space: what is worth trying here, instead of the class's own.
        uses_hierarchy: whether this variant looks at the hierarchy, instead of the class's own.
        options: the options that are fixed, unless the caller gives them.
    """

    def __init__(
        self,
        loss: type[Loss],
        *,
        search_space: Mapping[str, tuple[Any, ...]] | None = None,
        uses_hierarchy: bool | None = None,
        **options: Any,
    ) -> None:
        self.loss = loss
        self.options = options
        self.search_space = loss.search_space if search_space is None else search_space
        self.default_link = options.get("link", loss.default_link)
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
        return self.loss.option_names()

    def __call__(self, label_space: LabelSpace | Hierarchy, **options: Any) -> Loss:
        """Make the loss."""
        return self.loss(label_space, **{**self.options, **options})

    def __repr__(self) -> str:
        fixed = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"Variant({self.loss.__name__}, {fixed})"
