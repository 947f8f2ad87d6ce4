"""Fields that describe themselves: what they take, what is refused, how they are documented."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from hierlearn.errors import HierlearnError
from hierlearn.losses import LOSSES
from hierlearn.networks import NETWORKS
from hierlearn.training import Plan, Settings
from hierlearn.training.fields import check_fields, documented, setting, settings_of


@documented
@dataclass(frozen=True)
class Toy:
    """A toy."""

    size: int = setting(3, "How large.", at_least=2)
    weight: float | None = setting(None, "How heavy.", above=0)
    share: float = setting(0.5, "How much.", at_least=0, below=1)
    color: Literal["red", "blue"] = setting("red", "Which color.")
    recipe: str = setting(
        "none", "Which recipe.", registry="hierlearn.training:RECIPES", also=("none",)
    )
    options: Mapping[str, Any] = setting({}, "More of it.")

    def __post_init__(self):
        check_fields(self)


def test_a_description_is_complete():
    found = settings_of(Toy)
    assert [(one.kind, one.optional) for one in found.values()] == [
        (int, False),
        (float, True),
        (float, False),
        (str, False),
        (str, False),
        (dict, False),
    ]
    assert found["color"].choices() == ("red", "blue")
    assert found["recipe"].choices()[:2] == ("none", "neighbors")
    assert Toy().options is not Toy().options


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 1}, "size must be at least 2, not 1"),
        ({"size": 2.0}, "size must be an integer, not 2.0"),
        ({"size": True}, "size must be an integer, not True"),
        ({"size": None}, "size must be an integer, not None"),
        ({"weight": 0}, "weight must be above 0, or None, not 0.0"),
        ({"weight": float("nan")}, "weight must be above 0, or None, not nan"),
        ({"weight": "x"}, "weight must be a number, not 'x'"),
        ({"share": 1}, "share must be in [0, 1), not 1.0"),
        ({"color": "blu"}, "unknown color 'blu'; did you mean 'blue'? known: blue, red"),
        ({"recipe": "papr"}, "unknown recipe 'papr'; did you mean 'paper'"),
        ({"options": [1]}, "options must be a mapping, not [1]"),
    ],
)
def test_refused(values, message):
    with pytest.raises(HierlearnError, match=re.escape(message)):
        Toy(**values)


@dataclass(frozen=True)
class Imported:
    """A field that takes code of one's own, and one that takes a part of a registry."""

    network: str | None = setting(
        None, "Which.", registry="hierlearn.networks:NETWORKS", backbones=True
    )
    loss: str = setting(
        "bce",
        "Which.",
        registry="hierlearn.losses:LOSSES",
        only=lambda loss: not loss.uses_hierarchy,
        excluded="a loss that knows the hierarchy",
    )

    def __post_init__(self):
        check_fields(self)


def test_code_of_ones_own_is_named_among_the_choices():
    assert settings_of(Imported)["network"].choices() == (*NETWORKS, "package.module:name")
    for name in ("hierlearn.networks.mlp:mlp", "hf:anything"):
        assert Imported(name).network == name
    with pytest.raises(
        HierlearnError, match=r"network 'my\.code:make' cannot be imported: No module"
    ):
        Imported("my.code:make")
    known = ", ".join(sorted([*NETWORKS, "package.module:name"]))
    message = f"unknown network 'mpl'; did you mean 'mlp'? known: {known}"
    with pytest.raises(HierlearnError, match=re.escape(message)):
        Imported("mpl")


def test_what_a_field_does_not_take_of_a_registry_is_told_from_what_is_unknown():
    flat = [name for name, loss in LOSSES.items() if not loss.uses_hierarchy]
    flat = ", ".join([*flat, "package.module:name"])
    message = f"loss 'hxe' is a loss that knows the hierarchy; use one of {flat}"
    with pytest.raises(HierlearnError, match=f"^{re.escape(message)}$"):
        Imported(loss="hxe")
    with pytest.raises(HierlearnError, match="unknown loss 'bcee'; did you mean"):
        Imported(loss="bcee")


def test_the_docstring_names_every_field():
    text = " ".join(Toy.__doc__.split())
    assert text.startswith("A toy. Attributes: size: How large. Default: 3.")
    assert 'color: Which color. Takes "red" or "blue". Default: \'red\'.' in text
    assert 'recipe: Which recipe. Takes "none" or a name of RECIPES or "package' in text
    for cls in (Settings, Plan):
        for name, one in settings_of(cls).items():
            assert f"{name}: {one.description.help}" in " ".join(cls.__doc__.split())


def test_every_help_is_one_sentence():
    for cls in (Settings, Plan):
        for name, one in settings_of(cls).items():
            assert re.fullmatch(r"[A-Z][^.]*(\d\.\d[^.]*)?\.", one.description.help), name
