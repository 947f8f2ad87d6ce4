"""``--config run.yaml``: the options of a command in a file, under the same names.

A key is an option without its dashes, ``batch_size`` or ``batch-size``; what is on the command line
wins over what is in the file. An option that is given as ``key=value`` may be a mapping there, and
one that lists columns a list.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    list: "a list of key=value, or a mapping",
}


def option_kinds(command: Callable[..., Any], without: Iterable[str]) -> dict[str, type]:
    """Return the type of each option of a command: str, int, float, bool or list."""
    found: dict[str, type] = {}
    for name, hint in get_type_hints(command).items():
        inner = [one for one in get_args(hint) if one is not type(None)]
        kind = inner[0] if get_origin(hint) is Union and inner else hint
        kind = get_origin(kind) or kind
        if name not in (*without, "return"):
            found[name] = str if kind is Path else kind
    return found


def read_config(path: Path, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return the options in a YAML file; refuse keys and values that the command does not take."""
    import yaml

    from hierlearn.files import read_text

    try:
        loaded = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise HierlearnError(f"{path} is no YAML: {problem}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise HierlearnError(f"{path} must hold option: value lines, not {type(loaded).__name__}")
    found: dict[str, Any] = {}
    for key, value in loaded.items():
        name = str(key).replace("-", "_")
        if name not in kinds:
            raise HierlearnError(f"{path}: {unknown_name('key', str(key), kinds)}")
        if name in found:
            raise HierlearnError(f"{path} gives {name} twice")
        if value is not None:
            found[name] = as_kind(path, name, value, kinds[name])
    return found


def as_kind(path: Path, name: str, value: Any, kind: type) -> Any:
    """Return a value of the file as the option has it, or refuse it."""
    if kind is list and isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else (pair_of(str(one)) for one in value)
        return {str(key): parsed(one) for key, one in pairs}
    if kind is str and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if kind is float and isinstance(value, str):  # YAML reads 1e-3 as a text
        value = parsed(value)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is kind:
        return value
    raise HierlearnError(f"{path}: {name} must be {KINDS[kind]}, not {value!r}")


def pairs_of(option: str, words: Iterable[str]) -> dict[str, Any]:
    """Return the values of an option that is given as ``key=value``, once a key."""
    found: dict[str, Any] = {}
    for word in words:
        key, value = pair_of(word)
        if key in found:
            raise HierlearnError(f"--{option} gives {key} twice")
        found[key] = parsed(value)
    return found


def pair_of(word: str) -> tuple[str, str]:
    """Split ``key=value``."""
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise HierlearnError(f"an option is written key=value, not {word!r}")
    return key.replace("-", "_"), value


def parsed(value: Any) -> Any:
    """Return the number, truth value, null or list that a text is in JSON, else the text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def to_yaml(options: Mapping[str, Any], comment: str = "") -> str:
    """Write options as a configuration file."""
    import yaml

    lines = [f"# {line}" for line in comment.splitlines()]
    body = yaml.safe_dump(dict(options), sort_keys=False, allow_unicode=True)
    return "\n".join([*lines, body])
