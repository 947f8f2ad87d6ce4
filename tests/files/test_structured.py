from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from hierlearn.errors import DataError
from hierlearn.files.structured import Extra, Range, check


@dataclass
class Inner:
    size: Annotated[int, Range(1, 8)]
    names: list[str] = field(default_factory=list)


@dataclass
class Outer:
    kind: Literal["a", "b"]
    share: float
    inner: Inner | None = None
    free: Any = None
    by_name: dict[str, Inner] = field(default_factory=dict)


@dataclass
class Open(Extra):
    count: int


GOOD = {"kind": "a", "share": 1}


@pytest.mark.parametrize(
    "value",
    [
        GOOD,
        {**GOOD, "share": 0.5, "inner": None, "free": [1, {}]},
        {**GOOD, "inner": {"size": 8, "names": ["x"]}, "by_name": {"x": {"size": 1}}},
    ],
)
def test_what_fits_passes(value):
    check("f", value, Outer)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ([], "the content must be an object, not list of 0 entries"),
        ({"kind": "a"}, "share is missing"),
        ({**GOOD, "kind": "c"}, "kind must be one of 'a', 'b', not 'c'"),
        ({**GOOD, "share": "1"}, "share must be a number, not '1'"),
        ({**GOOD, "share": True}, "share must be a number, not True"),
        ({**GOOD, "shar": 1}, "unknown key 'shar'; did you mean 'share'? known: by_name, free, "),
        ({**GOOD, "inner": {"size": 9}}, "inner.size must be from 1 to 8, not 9"),
        ({**GOOD, "inner": {"size": 1, "names": [1]}}, "inner.names[0] must be a string, not 1"),
        ({**GOOD, "by_name": {"x" * 99: {}}}, f"by_name.{'x' * 40}....size is missing"),
        ({**GOOD, "inner": 3}, "inner must be an object, not 3"),
    ],
)
def test_what_does_not_fit_is_named(value, wrong):
    with pytest.raises(DataError) as caught:
        check("f.json", value, Outer)
    assert str(caught.value).startswith(f"f.json: {wrong}")


def test_other_keys_may_be_allowed():
    check("f", {"count": 1, "other": []}, Open)
