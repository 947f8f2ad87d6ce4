"""What a command writes: options that say so, checked before the command does anything.

An option made with ``output`` is written; every other option or argument that is a path, and every
name in ``SOURCES``, is read. ``check_outputs`` compares the two, so that no command can overwrite
what it reads, or a file that exists without --force.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import option

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from inspect import Parameter

FILE, FOLDER = "<file>", "<folder>"  # the metavar of an option that is written
TABLE = "<file or ->"  # the same, which may be standard output
WRITTEN = (FILE, FOLDER, TABLE)
SOURCES = ("data", "source", "calibrate", "hierarchy")  # names of datasets, or paths
OF_REPORT = "folder"  # which report also writes into, and checks itself


def output(
    name: str, help: str, *names: str, kind: str = FILE, default: Any = None, **more: Any
) -> Parameter:
    """Return an option that names a file or a folder to write.

    Args:
        name: the name of its value.
        help: one sentence.
        names: how it is written, where not after its name.
        kind: ``FILE``, ``FOLDER`` or ``TABLE``.
        default: the value where it is not given; ``...`` where it must be.
        more: as for ``option``.
    """
    return option(name, Path, default, help, *names, metavar=kind, **more)


def check_outputs(params: Iterable[Any], values: Mapping[str, Any]) -> None:
    """Raise on an output that is an input, that exists, or that cannot be written.

    Args:
        params: of the command.
        values: of the options and arguments by name; None or absent where not given.
    """
    from hierlearn.cli.show import writes
    from hierlearn.files.outputs import check_output, check_output_folder
    from hierlearn.files.standard import is_standard
    from hierlearn.files.writing import WriteError

    params = list(params)
    inputs = inputs_in(params, values)
    force = bool(values.get("force"))
    if not writes():
        return
    known: list[Path] = []
    for one in params:
        if one.metavar in WRITTEN and values.get(one.name) is not None:
            path = Path(values[one.name])
            if one.metavar == TABLE and is_standard(path):
                continue
            is_folder = one.metavar == FOLDER or holds_parts(path, values)
            check = check_output_folder if is_folder else check_output
            check(path, force, inputs)
            if any(path.absolute() == other.absolute() for other in known):
                raise WriteError(f"two options write to {path}; name another file for one of them")
            known.append(path)


def holds_parts(path: Path, values: Mapping[str, Any]) -> bool:
    """Whether an output is a folder of parts, which an engine writes."""
    return values.get("engine") is not None and not path.suffix


def inputs_in(params: Iterable[Any], values: Mapping[str, Any]) -> list[Path]:
    """Return the paths that a command reads; the name of a dataset among them does no harm."""
    found: list[Path] = []
    for one in params:
        if one.metavar in WRITTEN or one.name == OF_REPORT:
            continue
        if one.name == "model" and "in_place" in values:
            continue  # these commands may replace the model, and say how
        value = values.get(one.name)
        every = value if isinstance(value, (list, tuple)) else [value]
        is_source = one.name in SOURCES
        found += [Path(x) for x in every if isinstance(x, Path) or (is_source and x)]
    return found


def input_names(function: Any) -> list[str]:
    """Return the names of the parameters of a command that are read."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    written = {one.name for one in parameters if set(WRITTEN) & set(shown(one))}
    names = {one.name for one in parameters if "pathlib" in str(one.annotation)}
    return sorted((names - written) | {one.name for one in parameters if one.name in SOURCES})


def shown(parameter: Parameter) -> list[str]:
    """Return what stands for the value of an option in its help."""
    return [
        getattr(one, "metavar", "") for one in getattr(parameter.annotation, "__metadata__", ())
    ]
