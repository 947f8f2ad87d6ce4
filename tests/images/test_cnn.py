"""The small CNN and its augmentation: rows alone, noise by seed and place, ensembles."""

import copy

import pytest
import torch

from hierlearn.backbones import backbone
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import Hierarchy, LabelSpace
from hierlearn.networks import NETWORKS, InputSpec
from hierlearn.networks.build import NetworkSpec, build_network
from hierlearn.networks.ensemble import LoopedEnsemble, Noise, ensemble_of
from hierlearn.networks.images import Augment, make_augment
from hierlearn.networks.layers import Share

TREE = Hierarchy.from_paths(["a/x", "a/y", "b"])
SPACE = LabelSpace.of(TREE)
CPU = torch.device("cpu")
OPTIONS = {"width": 8, "depth": 2}


def network(seed=0, **options):
    spec = NetworkSpec("cnn", InputSpec.images(3, 12, 12), {**OPTIONS, **options})
    return build_network(spec, SPACE, [seed])


def images(count=6, channels=3, seed=0):
    drawn = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, 12, 12), generator=drawn, dtype=torch.uint8)


def test_rows_do_not_depend_on_each_other():
    for model in (network().eval(), network().train()):
        every = model(images()).logits
        alone = torch.cat([model(one[None]).logits for one in images()])
        torch.testing.assert_close(every, alone)


def test_large_batches_are_computed_in_parts(monkeypatch):
    model = network().eval()
    every = model(images()).logits
    monkeypatch.setattr(backbone, "PIXELS", 300)  # two images
    torch.testing.assert_close(model(images()).logits, every)


def test_gradients_reach_every_weight():
    model = network().train()
    model(images()).logits.square().sum().backward()
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in model.parameters())


@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 9), (28, 28)])
def test_any_size(height, width):
    spec = InputSpec.images(1, height, width)
    model = NETWORKS["cnn"](TREE, spec, width=8)
    x = torch.zeros(2, 1, height, width, dtype=torch.uint8)
    assert model(x).logits.shape == (2, len(TREE))


def test_bf16():
    model = network(augment="light").train()
    with torch.autocast("cpu", torch.bfloat16):
        found = model(images()).logits
    assert bool(found.isfinite().all())


def seeded(model, seed, share=None):
    noise = Noise(model, CPU)
    noise.seed([seed], share=share)
    return model


def test_augmentation_is_for_training_alone():
    layer = Augment()
    x = images().float() / 255
    assert torch.equal(layer.eval()(x), x)
    found = seeded(layer.train(), 3)(x)
    assert found.shape == x.shape
    assert not torch.equal(found, x)
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    assert torch.equal(seeded(layer, 3)(x), found)
    assert not torch.equal(seeded(layer, 4)(x), found)


@pytest.mark.parametrize("layer", [Augment(), Augment(flip=True)])
def test_processes_change_their_rows_as_one_process_does(layer):
    x = images(7).float() / 255
    every = seeded(layer.train(), 5)(x)
    for rows in (torch.tensor([0, 2, 4, 6]), torch.tensor([1, 3, 5])):
        part = seeded(layer, 5, Share(rows, 7))(x[rows])
        assert torch.equal(part, every[rows])


def test_no_flip_unless_asked_for():
    ramp = torch.linspace(0, 1, 12).expand(64, 1, 12, 12)
    rises = lambda found: found[:, 0, :, -3:].mean((1, 2)) > found[:, 0, :, :3].mean((1, 2))  # noqa: E731
    assert bool(rises(seeded(Augment().train(), 0)(ramp)).all())
    share = rises(seeded(Augment(flip=True).train(), 0)(ramp)).float().mean()
    assert 0.3 < float(share) < 0.7


def test_members_draw_their_own():
    networks = [network(seed, augment="light") for seed in range(2)]
    ensemble = ensemble_of(copy.deepcopy(networks))
    assert isinstance(ensemble, LoopedEnsemble)
    x = images()
    Noise(ensemble.train(), CPU).seed([7, 8])
    found = ensemble(x).logits
    for member, one in enumerate(networks):
        Noise(one.train(), CPU).seed([7 + member])
        torch.testing.assert_close(found[member], one(x).logits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 12}, "width must be a multiple of 8, not 12"),
        ({"augment": "strong"}, "augment must be 'none' or 'light'"),
        ({"flip": True}, "flip goes with augment='light', not with 'none'"),
        ({"flip": 1, "augment": "light"}, "flip must be true or false, not 1"),
        ({"depth": 0}, "depth must be an integer of at least 1"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(HierlearnError, match=message):
        network(**options)


def test_other_inputs_are_refused():
    with pytest.raises(HierlearnError, match="cnn reads images, but the inputs are numbers"):
        NETWORKS["cnn"](TREE, InputSpec.numbers(5))
    assert make_augment() is None
