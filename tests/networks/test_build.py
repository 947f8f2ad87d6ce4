"""Networks by name, of the registry or importable, with their options."""

import json
import sys
import types

import pytest
import torch
from torch import nn

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.networks import NETWORKS, InputSpec
from hierlearn.networks.build import NetworkSpec, build_network, find_factory

SPACE = LabelSpace(Hierarchy.from_paths(["a/b", "c"]))
INPUTS = InputSpec.numbers(3)


def tiny(label_space, inputs, *, scale=1.0):
    layer = nn.Linear(inputs.width, len(label_space))
    layer.scale = scale
    return layer


@pytest.fixture
def elsewhere(monkeypatch):
    """A module that is importable but unknown to hierlearn."""
    module = types.ModuleType("somewhere_else")
    module.tiny, module.number = tiny, 3
    module.anything = lambda label_space, inputs, **options: nn.Linear(3, 3, **options)
    module.wrong = lambda label_space, inputs: "no module"
    monkeypatch.setitem(sys.modules, "somewhere_else", module)


def test_a_spec_survives_json():
    spec = NetworkSpec("mlp", INPUTS, {"width": 5}, 3)
    assert NetworkSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


OF_ROWS = [
    name for name in NETWORKS if name not in ("cnn", "trees", "kernel", "estimator")
]  # weights of rows


@pytest.mark.parametrize("name", OF_ROWS)
def test_the_same_seed_gives_the_same_weights(name):
    spec = NetworkSpec(name, INPUTS)
    state = torch.random.get_rng_state()
    one, two, other = (build_network(spec, SPACE, [seed]) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    for key, value in one.state_dict().items():
        assert torch.equal(two.state_dict()[key], value)
    assert any(
        not torch.equal(other.state_dict()[key], value) for key, value in one.state_dict().items()
    )


def test_an_importable_factory(elsewhere):
    spec = NetworkSpec("somewhere_else:tiny", INPUTS, {"scale": 2.0})
    assert spec.foreign == [spec.name]
    assert not NetworkSpec("mlp", INPUTS).foreign
    network = build_network(spec, SPACE, [0])
    assert network.scale == 2.0
    assert network(torch.zeros(2, 3)).shape == (2, 3)
    assert not spec.takes_link
    assert NetworkSpec("mlp", INPUTS).takes_link
    # A factory that takes any option has not asked for a link.
    assert not NetworkSpec("somewhere_else:anything", INPUTS).takes_link


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mpl", {}, "unknown network 'mpl'; did you mean 'mlp'"),
        ("mlp", {"widht": 3}, "unknown option of network mlp 'widht'; did you mean 'width'"),
        ("somewhere_else:", {}, "unknown network 'somewhere_else:'"),
        ("nowhere.at_all:make", {}, "network 'nowhere.at_all:make' cannot be imported: No module"),
        ("somewhere_else:nothing", {}, "cannot be imported: module 'somewhere_else' has no"),
        ("somewhere_else:number", {}, "is not a factory, which is callable, but int 3"),
        ("somewhere_else:wrong", {}, "returned str, but a factory returns an nn.Module"),
        ("mlp", {"width": "wide"}, "width must be an integer of at least 1, not 'wide'"),
    ],
)
def test_what_is_refused(elsewhere, name, options, message):
    with pytest.raises(HierlearnError, match=message):
        build_network(NetworkSpec(name, INPUTS, options), SPACE)


def test_an_ensemble_must_fit_into_memory(monkeypatch):
    monkeypatch.setattr("hierlearn.networks.layers.memory_size", lambda: 10_000)
    spec = NetworkSpec("linear", INPUTS, members=900)
    with pytest.raises(HierlearnError, match=r"900 networks take .* memory; make them fewer"):
        build_network(spec, SPACE)


def test_a_factory_is_found_by_name():
    assert find_factory("mlp") is NETWORKS["mlp"]
