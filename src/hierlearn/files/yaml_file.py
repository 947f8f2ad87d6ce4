"""YAML files of options: plain values only, in bounds.

Aliases, tags and dates are refused, not interpreted: an alias can stand for a billion values, a tag
for an object. Each key occurs once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.errors import DataError, HierlearnError, place, shown
from hierlearn.files.reading import read_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LARGEST = 1 << 20  # bytes
DEEPEST = 20  # levels of lists and mappings


def read_yaml(path: Path | str, kind: Callable[[str], HierlearnError] = DataError) -> Any:
    """Return the content of a YAML file.

    Args:
        path: the file.
        kind: the error to raise where it is not plain YAML.
    """
    import yaml

    text = read_text(path, LARGEST)
    try:
        check_events(path, text, kind)
        return plain_loader()(text).get_single_data()
    except yaml.YAMLError as error:
        raise kind(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    except HierlearnError:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise kind(f"{path} is not valid YAML: {shown(str(error), 160)}") from None


def check_events(path: Path | str, text: str, kind: Callable[[str], HierlearnError]) -> None:
    """Raise on aliases, tags and deep nesting, before any value is made."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        where = place(path, event.start_mark.line + 1)
        if isinstance(event, yaml.AliasEvent):
            raise kind(f"{where}: aliases (&name, *name) are not read; write the value itself")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise kind(f"{where}: tags such as {shown(tag)} are not read; write a plain value")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise kind(f"{where}: lists and mappings are nested more than {DEEPEST} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def plain_loader() -> Any:
    """Return a loader without dates, for which a key occurs once."""
    import yaml

    class PlainLoader(yaml.SafeLoader):
        """Reads strings, numbers, booleans, nulls, lists and mappings."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """Return a mapping; raise where a key occurs twice."""
            seen = set()
            for name, _ in node.value:
                key = name.value if isinstance(name, yaml.ScalarNode) else None
                if key is not None and key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {shown(key)} occurs twice", name.start_mark
                    )
                seen.add(key)
            return super().construct_mapping(node, deep)

    date = "tag:yaml.org,2002:timestamp"
    PlainLoader.yaml_implicit_resolvers = {
        first: [one for one in resolvers if one[0] != date]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return PlainLoader
