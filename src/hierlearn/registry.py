"""Registry: things by name, wherever their code is, and their options.

    LOSSES["hxe"]                   a name that hierlearn, or your own code at run time, registers
    LOSSES["triplet"]               an entry point of an installed package, group hierlearn.losses
    LOSSES["my_code.losses:Mine"]   ``package.module:name``, imported

A registry lists the first two, and imports an entry when it is asked for. The methods of
``hierlearn.lab.baselines`` come in as entry points, like those of any other package. What is
stored, in a model folder for instance, imports nothing unless it is trusted.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from hierlearn.errors import HierlearnError, arg, did_you_mean, shorten, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from typing_extensions import Self

T = TypeVar("T")
IMPORTED = "package.module:name"  # how code of one's own is named
SPELLED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

_refused: ContextVar[str | None] = ContextVar("refused", default=None)


class Registry(MutableMapping[str, T], Generic[T]):
    """Entries of one kind by name: those of the core, then the entry points of installed packages.

    Args:
        kind: what an entry is, for errors: "loss".
        entries: those of the core.
        group: the group of the entry points, such as "hierlearn.losses".
        expected: what an imported object must be, for errors.
        read: from a name and an imported object to its entry; None where it is no such thing.
        error: what an unknown name raises.
    """

    def __init__(
        self,
        kind: str,
        entries: Mapping[str, T],
        *,
        group: str,
        expected: str,
        read: Callable[[str, Any], T | None],
        error: type[HierlearnError] = HierlearnError,
    ) -> None:
        self.entries = dict(entries)
        self.kind, self.group, self.expected = kind, group, expected
        self.read, self.error = read, error
        self.imported: dict[str, T] = {}  # what was asked for by name and is not registered
        self.objects: dict[str, Any] = {}  # what these were read from, as it was imported

    def __getitem__(self, name: str) -> T:
        entry = self.entries[name] if name in self.entries else self._import(name)
        if entry is None:
            raise self.unknown(name)
        return entry

    def __setitem__(self, name: str, entry: T) -> None:
        self.entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self.entries[name]

    @property
    def loaded(self) -> dict[str, T]:
        """The entries of the core, and those that were imported before."""
        return {**self.entries, **self.imported}

    def __iter__(self) -> Iterator[str]:
        """Iterate over names; nothing is imported."""
        return iter(dict.fromkeys((*self.entries, *installed(self.group))))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        """Whether a name is known; one that is spelled ``package.module:name`` must be there."""
        if name in self.entries or name in installed(self.group):
            return True
        return is_spelled(name) and self._import(str(name)) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return an entry, or the default where there is none."""
        return self[name] if name in self else default  # noqa: SIM401

    def name_of(self, entry: Any) -> str | None:
        """Return the name of a class or function that is registered; None for any other."""
        for name, known in self.loaded.items():
            if known is entry:
                return name
        place = f"{entry.__module__}:{entry.__qualname__}"
        return next((name for name, at in installed(self.group).items() if at == place), None)

    def unknown(self, name: object, kind: str | None = None, also: tuple[str, ...] = ()) -> Any:
        """Return the error of an unknown name, with the nearest known ones.

        Args:
            name: what was asked for.
            kind: what it should have been, where that is not the kind of the registry.
            also: other names that would do.
        """
        known = [*also, *self, IMPORTED]
        return self.error(unknown_name(kind or self.kind, str(name), known))

    def split(self, text: str) -> tuple[str, str, str]:
        """Return the name in front of options, the colon after it, and the options.

        Args:
            text: ``name``, ``name:options``, or either with ``package.module:name``.
        """
        name, colon, rest = text.partition(":")
        spelled = SPELLED.match(text)
        known = name in self.entries or name in installed(self.group)
        if not known and spelled and text[spelled.end() :][:1] in ("", ":"):
            name = spelled.group()
            colon, rest = text[spelled.end() :][:1], text[spelled.end() + 1 :]
        return name, colon, rest

    def _import(self, name: str) -> T | None:
        """Return the entry of a name that is not registered; None where there is none."""
        place = name if is_spelled(name) else installed(self.group).get(name)
        if place is None:
            return None
        if place is name:
            check_allowed(self.kind, name)
        value = imported(place, self.kind, name)
        if name in self.imported and value is self.objects[name]:
            return self.imported[name]
        entry = self.read(name, value)
        if entry is None:
            raise self.error(
                f"{self.kind} {name!r} is not {self.expected}, but {type(value).__name__} "
                f"{getattr(value, '__name__', value)!s}"
            )
        self.imported[name], self.objects[name] = entry, value
        return entry


def subclass_of(base: type[Any]) -> Callable[[str, Any], Any]:
    """Return the ``read`` of a registry whose entries are subclasses of one class."""
    return lambda _, value: value if isinstance(value, type) and issubclass(value, base) else None


def imported(place: str, kind: str = "name", name: str | None = None) -> Any:
    """Return what ``module:name`` names.

    Args:
        place: the module and the name.
        kind: what it should be, for the error.
        name: how it was asked for, where that is another name.
    """
    module, _, attribute = place.partition(":")
    try:
        value: Any = import_module(module)
        for part in attribute.split(".") if attribute else ():
            value = getattr(value, part)
    except Exception as error:  # code of somebody else, which may raise anything
        plain = isinstance(error, (ImportError, AttributeError))
        reason = str(error) if plain else f"{type(error).__name__}: {error}"
        raise HierlearnError(f"{kind} {name or place!r} cannot be imported: {reason}") from error
    return value


def installed(group: str) -> dict[str, str]:
    """Return the entry points of installed packages, ``module:name`` by name."""
    return _installed(tuple(sys.path)).get(group, {})


@lru_cache(maxsize=4)
def _installed(path: tuple[str, ...]) -> dict[str, dict[str, str]]:  # noqa: ARG001
    """Return all entry points of hierlearn by group, as long as the search path stays."""
    from importlib.metadata import distributions

    found: dict[str, dict[str, str]] = {}
    for one in (one for package in distributions() for one in package.entry_points):
        if one.group.startswith("hierlearn."):
            found.setdefault(one.group, {}).setdefault(one.name, one.value)
    return found


def find_entry_point(group: str, name: str) -> Any:
    """Return what an installed package, or an annex of ours, offers under a name.

    Args:
        group: such as "hierlearn.reports".
        name: of the entry point.
    """
    place = installed(group).get(name)
    if place is None:
        raise HierlearnError(
            f"no installed package offers {name!r} in {group}; install hierlearn again"
        )
    return imported(place, group, name)


def is_spelled(name: object) -> bool:
    """Whether a name is spelled ``package.module:name``."""
    return isinstance(name, str) and SPELLED.fullmatch(name) is not None


@contextmanager
def refuse_imports(source: object) -> Iterator[None]:
    """Refuse names that are spelled ``package.module:name`` while something stored is read.

    Args:
        source: what is read, for the error.
    """
    token = _refused.set(str(source))
    try:
        yield
    finally:
        _refused.reset(token)


def check_allowed(kind: str, name: str) -> None:
    """Raise on code outside of hierlearn that something stored names."""
    source = _refused.get()
    if source is not None:
        raise untrusted(source, kind, name)


def untrusted(source: object, kind: str, name: str) -> HierlearnError:
    """Return the error of something stored that names code outside of hierlearn."""
    return HierlearnError(
        f"{source} names the {kind} {name!r}, which is code outside of hierlearn; pass "
        f"{arg('trust', True)} "
        f"if you trust it to run"
    )


# ---------------------------------------------------------------------- options
#
# ``key=value`` has one parser, for the command line, configuration files and studies. A value is
# JSON (a number, a string in quotes, a list, ``true``, ``null``), or one of Python's ``None``,
# ``True`` and ``False``, or ``none``; anything else is a string as it stands.

CONSTANTS = {"none": None, "None": None, "True": True, "False": False}


def parse_value(text: str) -> Any:
    """Return the value that a text stands for; the text itself where it is no JSON."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, an integer of thousands of digits, deep lists
        return text


def split_pairs(words: Iterable[str], what: str, *, as_typed: bool = False) -> dict[str, str]:
    """Return the text of every key; each key is given once."""
    texts: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        key = key.strip() if as_typed else key.strip().replace("-", "_")
        if not equals or not key:
            raise HierlearnError(f"{what} takes key=value, not {word!r}")
        if key in texts:
            raise HierlearnError(f"{what} gives {key} twice")
        texts[key] = value.strip()
    return texts


def parse_pairs(words: Iterable[str], what: str, *, as_typed: bool = False) -> dict[str, Any]:
    """Return the value of every key; each key is given once."""
    texts = split_pairs(words, what, as_typed=as_typed)
    return {key: parse_value(text) for key, text in texts.items()}


class CheckedArguments:
    """Base of what a registry makes: an argument that nothing takes raises, with the nearest name.

    What ``**options`` of ``__init__`` takes is that of the classes above.

    Attributes:
        takes_anything: whether ``**options`` are another's, which checks them itself.
        fixes: arguments of the classes above that this one gives itself.
    """

    takes_anything: ClassVar[bool] = False
    fixes: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *given: Any, **options: Any) -> Self:
        kind: Any = cls  # mypy finds no hash of type[Self]
        if len(given) > 1:
            taken = inspect.getfullargspec(kind.__init__)
            first = taken.args[1:]
            if len(given) > len(first) and taken.varargs is None:
                raise HierlearnError(
                    f"{cls.__name__} takes {' and '.join(first)} by position, and "
                    f"{shorten(repr(given[len(first)]), 80, 20)} needs a name; known: "
                    f"{', '.join(name for name in argument_names(kind) if name not in first)}"
                )
        if options and not cls.takes_anything:
            known = argument_names(kind)
            for name in options:
                if name not in known:
                    raise HierlearnError(
                        f"unknown argument {name!r} of {cls.__name__}"
                        f"{did_you_mean(name, known) or ';'} known: {', '.join(known)}"
                    )
        return super().__new__(cls)


@cache
def argument_names(cls: type[CheckedArguments]) -> tuple[str, ...]:
    """Return what ``__init__`` of a class takes by name, its own first, then what it passes on."""
    names: dict[str, None] = {}
    for one in cls.__mro__:
        if "__init__" not in vars(one):
            continue
        parameters = [*inspect.signature(vars(one)["__init__"]).parameters.values()][1:]
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        names |= dict.fromkeys(one.name for one in parameters if one.kind in named)
        if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
            break
    return tuple(name for name in names if name not in cls.fixes)
