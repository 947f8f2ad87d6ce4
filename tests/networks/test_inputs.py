"""InputSpec: what a network reads, as plain values."""

import json

import pytest

from hierlearn.errors import HierlearnError
from hierlearn.networks import InputSpec

SPECS = [
    InputSpec.numbers(5),
    InputSpec.sparse(1000),
    InputSpec.tokens(30_000),
    InputSpec.images(3, 32, 16),
    InputSpec.several(InputSpec.numbers(2), InputSpec.images(1, 4, 4)),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_it_survives_json(spec):
    assert InputSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_the_width_is_that_of_a_flat_row():
    assert [spec.width for spec in SPECS] == [5, 1000, 30_000, 1536, 18]


def test_what_is_refused():
    with pytest.raises(HierlearnError, match="unknown kind of inputs 'sounds'; known: images"):
        InputSpec("sounds", (3,))
    with pytest.raises(HierlearnError, match=r"inputs of kind 'numbers' have no shape \(0,\)"):
        InputSpec.numbers(0)
    with pytest.raises(HierlearnError, match="have no shape"):
        InputSpec("numbers")
