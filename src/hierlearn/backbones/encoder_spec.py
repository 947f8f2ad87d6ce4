"""The encoder of a column as people write it: ``hf:PATH,pooling=cls``, or a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hierlearn.errors import HierlearnError
from hierlearn.options import parse_pairs

SOURCE = "source"


def parse_encoder(value: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the source of an encoder and its options, as plain values.

    Args:
        value: ``prefix:source``, which options may follow after commas, or a mapping of ``source``
            and the options.

    Example:
        >>> parse_encoder("hf:models/small,pooling=cls")
        {'source': 'hf:models/small', 'pooling': 'cls'}
    """
    if isinstance(value, Mapping):
        if not isinstance(value.get(SOURCE), str):
            raise HierlearnError(f"an encoder needs a source such as hf:PATH, not {dict(value)!r}")
        return dict(value)
    if not isinstance(value, str):
        raise HierlearnError(f"an encoder is written hf:PATH, not {value!r}")
    source, *options = value.split(",")
    return {SOURCE: source.strip(), **parse_pairs(options, f"the encoder {source}")}
