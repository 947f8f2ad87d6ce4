"""``--config run.yaml``: the options of a command in a file, under the same names.

A key is an option without its dashes, ``batch_size`` or ``batch-size``; what is on the command line
wins over what is in the file. An option that is given as ``key=value`` may be a mapping there, and
one that lists columns a list.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from hierlearn.cli.generate import LISTS, NAMES_AS_KEYS
from hierlearn.errors import HierlearnError, shown, unknown_name
from hierlearn.options import parse_pairs, parse_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

KINDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a string",
    list: "a list of key=value, or a mapping",
}


class ConfigError(HierlearnError):
    """A configuration file does not hold what it should; its keys are named as they stand."""


def option_kinds(command: Callable[..., Any], without: Iterable[str]) -> dict[str, type]:
    """Return the type of each option of a command: str, int, float, bool or list."""
    found: dict[str, type] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if name in without:
            continue
        kind = get_args(parameter.annotation)[0]
        if get_origin(kind) is Union:
            kind = next(one for one in get_args(kind) if one is not type(None))
        kind = get_origin(kind) or kind
        found[name] = str if kind is Path else kind
    return found


def read_config(path: Path, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return the options in a YAML file; raise on keys and values that the command does not take.

    A number that is null is None, unlike one that the file does not name.
    """
    from hierlearn.files.yaml_file import read_yaml

    loaded = read_yaml(path, ConfigError)
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path} must hold option: value lines, not {type(loaded).__name__}")
    found: dict[str, Any] = {}
    for key, value in loaded.items():
        name = str(key).replace("-", "_")
        if name not in kinds:
            raise ConfigError(f"{path}: {unknown_name('key', str(key), kinds)}")
        if name in found:
            raise ConfigError(f"{path} gives {name} twice")
        if value is not None or kinds[name] in (int, float):
            found[name] = None if value is None else as_kind(path, name, value, kinds[name])
    return found


def as_kind(path: Path, name: str, value: Any, kind: type) -> Any:
    """Return a value of the file as the option has it, or raise."""
    texts = value if isinstance(value, list) else [value]
    if any(isinstance(one, str) and "\0" in one for one in texts):
        raise ConfigError(f"{path}: {name} holds a NUL character")
    if kind is list and name in LISTS[1:]:
        return [str(one) for one in value] if isinstance(value, list) else [str(value)]
    if kind is list and isinstance(value, dict):
        return {
            str(key): parse_value(one) if isinstance(one, str) else one
            for key, one in value.items()
        }
    if kind is list and isinstance(value, list):
        try:
            return parse_pairs(map(str, value), name, as_typed=name in NAMES_AS_KEYS)
        except HierlearnError as error:
            raise ConfigError(f"{path}: {error}") from None
    if kind is str and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if kind is float and isinstance(value, str):  # YAML reads 1e-3 as a string
        value = parse_value(value)
    if kind is float and type(value) is int and abs(value) < 2**1000:
        value = float(value)
    if type(value) is kind:
        return value
    raise ConfigError(f"{path}: {name} must be {KINDS[kind]}, not {shown(value)}")


def to_yaml(options: Mapping[str, Any], comment: str = "") -> str:
    """Write options as a configuration file."""
    import yaml

    lines = [f"# {line}" for line in comment.splitlines()]
    body = yaml.safe_dump(dict(options), sort_keys=False, allow_unicode=True)
    return "\n".join([*lines, body])
