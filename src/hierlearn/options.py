"""``key=value`` options: the one parser of the command line, configuration files and studies.

A value is JSON (a number, a string in quotes, a list, ``true``, ``null``), or one of Python's
``None``, ``True`` and ``False``, or ``none``; anything else is a string as it stands.
"""

from __future__ import annotations

import inspect
import json
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from hierlearn.errors import HierlearnError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

CONSTANTS = {"none": None, "None": None, "True": True, "False": False}


def parse_value(text: str) -> Any:
    """Return the value that a text stands for; the text itself where it is no JSON."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, an integer of thousands of digits, deep lists
        return text


def parse_pair(word: str, what: str, *, as_typed: bool = False) -> tuple[str, str]:
    """Split ``key=value``; dashes of the key become underscores.

    Args:
        word: the pair.
        what: what takes it, for the error: ``--loss-option``, or ``loss hxe``.
        as_typed: leave dashes in keys that are names, such as those of losses.
    """
    key, equals, value = word.partition("=")
    key = key.strip() if as_typed else key.strip().replace("-", "_")
    if not equals or not key:
        raise HierlearnError(f"{what} takes key=value, not {word!r}")
    return key, value.strip()


def split_pairs(words: Iterable[str], what: str, *, as_typed: bool = False) -> dict[str, str]:
    """Return the text of every key; each key is given once."""
    texts: dict[str, str] = {}
    for word in words:
        key, value = parse_pair(word, what, as_typed=as_typed)
        if key in texts:
            raise HierlearnError(f"{what} gives {key} twice")
        texts[key] = value
    return texts


def parse_pairs(words: Iterable[str], what: str, *, as_typed: bool = False) -> dict[str, Any]:
    """Return the value of every key; each key is given once."""
    texts = split_pairs(words, what, as_typed=as_typed)
    return {key: parse_value(text) for key, text in texts.items()}


class CheckedArguments:
    """Base of what a registry makes: an argument that nothing takes raises, with the nearest.

    What ``**options`` of ``__init__`` takes is that of the classes above.

    Attributes:
        takes_anything: whether ``**options`` are another's, which checks them itself.
        fixes: arguments of the classes above that this one gives itself.
    """

    takes_anything: ClassVar[bool] = False
    fixes: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Check the names of the arguments."""
        if options and not cls.takes_anything:
            kind: Any = cls  # mypy finds no hash of type[Self]
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
