"""The one key=value parser: what texts mean, and what is refused."""

import pytest

from hierlearn.errors import HierlearnError
from hierlearn.registry import parse_pairs, parse_value, split_pairs


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-0.5", -0.5),
        ("1e-3", 0.001),
        ("true", True),
        ("True", True),
        ("false", False),
        ("False", False),
        ("null", None),
        ("none", None),
        ("None", None),
        ("[1, 2]", [1, 2]),
        ('"3"', "3"),
        ("softmax", "softmax"),
        ("1_000", "1_000"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_values(text, value):
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


def test_pairs():
    assert split_pairs(["label-noise = 0.1"], "x") == {"label_noise": "0.1"}
    assert parse_pairs(["floor=0.3", "scope=none", "why=a=b"], "x") == {
        "floor": 0.3,
        "scope": None,
        "why": "a=b",
    }
    assert split_pairs(["rows=50"], "x") == {"rows": "50"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["floor"], "--loss-option takes key=value, not 'floor'"),
        (["=3"], "--loss-option takes key=value, not '=3'"),
        (["a-b=1", "a_b=2"], "--loss-option gives a_b twice"),
    ],
)
def test_refused(words, message):
    with pytest.raises(HierlearnError, match=message):
        parse_pairs(words, "--loss-option")
