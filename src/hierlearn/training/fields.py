"""Fields that describe themselves: one place for a setting's type, default, limits and help.

A dataclass whose fields are made with ``setting`` gets from here its validation and the list of
attributes in its docstring; the command line, the configuration file and the estimator make their
options from the same description. Nothing here imports torch: the names of a registry are looked up
when a value is checked or help is shown.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib import import_module
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from hierlearn.errors import HierlearnError, arg, unknown_name
from hierlearn.registry import IMPORTED, Registry, installed

T = TypeVar("T")
KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}


@dataclass(frozen=True)
class Description:
    """What is known of a field beside its type and default.

    Attributes:
        help: one sentence.
        registry: where its names are, as ``hierlearn.losses:LOSSES``.
        also: names beside those of the registry.
        only: which entries of the registry are taken, where not all are of use.
        excluded: what the other entries are, for the error.
        backbones: whether backbones such as ``hf:PATH`` are taken, too.
        at_least: the smallest value.
        above: what a value must exceed.
        below: what a value must stay under.
        panel: the heading in ``--help``.
        study: whether ``compare`` and ``noise`` take it too.
        estimator: whether the estimator takes it.
    """

    help: str
    registry: str = ""
    also: tuple[str, ...] = ()
    only: Callable[[Any], bool] | None = None
    excluded: str = ""
    backbones: bool = False
    at_least: float | None = None
    above: float | None = None
    below: float | None = None
    panel: str = ""
    study: bool = True
    estimator: bool = True


def setting(default: Any, help: str, **more: Any) -> Any:
    """Return a dataclass field with its description.

    Args:
        default: the value where none is given; a mapping is copied.
        help: one sentence.
        more: the other attributes of ``Description``.
    """
    metadata = {"description": Description(help, **more)}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Setting:
    """A field of a dataclass, resolved.

    Attributes:
        name: its name.
        kind: int, float, bool, str or dict.
        optional: whether None is a value.
        default: the value where none is given.
        literals: the values of a Literal type.
        description: the rest.
    """

    name: str
    kind: type
    optional: bool
    default: Any
    literals: tuple[str, ...]
    description: Description

    @property
    def registry(self) -> str:
        """The name of the registry alone, such as LOSSES."""
        return self.description.registry.partition(":")[2]

    def choices(self) -> tuple[str, ...]:
        """Return the names to choose from, empty where there is no list; may import torch."""
        if not self.description.registry:
            return self.literals
        names: Any = self._entries()
        if self.description.only is not None:  # which nothing is imported for
            only, loaded = self.description.only, names.loaded
            order = dict.fromkeys([*names, *loaded])  # not that of their imports
            names = [one for one in order if one in loaded and only(loaded[one])]
        return (*self.description.also, *names, IMPORTED)

    def _not_known(self, value: Any, known: Sequence[str]) -> str:
        """Return what is wrong with a value that is not among the choices."""
        entries = self._entries() if self.description.registry else {}
        if self.description.only is None or value not in entries:
            more = installed(entries.group) if isinstance(entries, Registry) else ()
            shown = arg(self.name) if "_" in self.name else self.name  # "unknown loss" is English
            return unknown_name(shown, str(value), [*dict.fromkeys([*known, *more])])
        return (
            f"{arg(self.name) if '_' in self.name else self.name} {value!r} is "
            f"{self.description.excluded}; use one of {', '.join(known)}"
        )

    def _is_known(self, value: Any) -> bool:
        """Whether a value is a choice, a backbone, or code that the registry finds elsewhere."""
        if not self.description.registry:
            return value in self.literals
        if not isinstance(value, str):
            return False
        if value in self.description.also:
            return True
        if self.description.backbones:
            from hierlearn.backbones import names_backbone

            if names_backbone(value):
                return True
        only, entries = self.description.only, self._entries()
        return value in entries and (only is None or only(entries[value]))

    def _entries(self) -> Any:
        module, _, name = self.description.registry.partition(":")
        return getattr(import_module(module), name)

    @property
    def rule(self) -> str:
        """The limits as text, empty if there are none."""
        about = self.description
        low, above, below = about.at_least, about.above, about.below
        if self.kind is int and low is not None and below is not None:
            return f"from {low:g} to {below - 1:g}"
        if low is not None and below is not None:
            return f"in [{low:g}, {below:g})"
        if low is not None:
            return f"at least {low:g}"
        return "" if above is None else f"above {above:g}"

    def checked(self, value: Any) -> Any:
        """Return a value that the field takes, integers as floats where those are asked for."""
        if value is None and self.optional:
            return None
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        listed = self.literals or self.description.registry
        if listed and not self._is_known(value):
            raise HierlearnError(self._not_known(value, self.choices()))
        if self.kind is dict:
            if not isinstance(value, Mapping):
                raise HierlearnError(f"{arg(self.name)} must be a mapping, not {value!r}")
            return value
        if not isinstance(value, self.kind) or (self.kind is int and isinstance(value, bool)):
            raise HierlearnError(f"{arg(self.name)} must be {KINDS[self.kind]}, not {value!r}")
        about, number = self.description, cast("float", value)
        low, above, below = about.at_least, about.above, about.below
        if (low, above, below) != (None, None, None) and not (
            math.isfinite(number)
            and (low is None or number >= low)
            and (above is None or number > above)
            and (below is None or number < below)
        ):
            none = ", or None" if self.optional else ""
            raise HierlearnError(f"{arg(self.name)} must be {self.rule}{none}, not {value}")
        return value


def settings_of(cls: type) -> dict[str, Setting]:
    """Return the described fields of a dataclass by name."""
    return _settings_of(cls)


@cache
def _settings_of(cls: Any) -> dict[str, Setting]:
    hints = get_type_hints(cls)
    found: dict[str, Setting] = {}
    for one in fields(cls):
        if "description" not in one.metadata:
            continue
        parts = get_args(hints[one.name])
        is_union = get_origin(hints[one.name]) in (Union, UnionType)
        optional = is_union and type(None) in parts
        inner = next(part for part in parts if part is not type(None)) if is_union else None
        kind: Any = hints[one.name] if inner is None else inner
        literals = get_args(kind) if get_origin(kind) is Literal else ()
        kind = str if literals else dict if get_origin(kind) is Mapping else kind
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        found[one.name] = Setting(
            one.name, kind, optional, default, literals, one.metadata["description"]
        )
    return found


def check_fields(instance: Any) -> None:
    """Check every described field of a frozen dataclass; for ``__post_init__``."""
    for name, one in settings_of(type(instance)).items():
        object.__setattr__(instance, name, one.checked(getattr(instance, name)))


def check_names(cls: type, values: Mapping[str, Any]) -> None:
    """Raise on a setting that a class does not have."""
    known = settings_of(cls)
    for name in values:
        if name not in known:
            raise HierlearnError(unknown_name("setting", name, known))


def documented(cls: type[T]) -> type[T]:
    """Add the attributes of a dataclass to its docstring."""
    found = settings_of(cls).values()
    entries = [entry(one.name, f"{one.description.help}{names(one)}", one.default) for one in found]
    cls.__doc__ = "\n".join([(cls.__doc__ or "").rstrip(), "", "    Attributes:", *entries, "    "])
    return cls


def names(one: Setting) -> str:
    """Return which names a setting takes, as text, without looking them up."""
    listed = [f'"{name}"' for name in (*one.description.also, *one.literals)]
    if one.registry:
        listed += [f"a name of {one.registry}", f'"{IMPORTED}"']
    return f" Takes {' or '.join(listed)}." if listed else ""


def entry(name: str, text: str, default: Any) -> str:
    """Return a wrapped line of a docstring's list of attributes or arguments."""
    line = f"{name}: {text} Default: {default!r}."
    return textwrap.fill(line, 100, initial_indent=" " * 8, subsequent_indent=" " * 12)
