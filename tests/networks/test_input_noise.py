"""Noise on inputs: what is dropped and added, and that members get what they get alone."""

import copy
import pickle
import shutil

import pytest
import torch
from scipy import sparse
from torch import nn

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.networks import NETWORKS, InputSpec, SparseRows, build
from hierlearn.networks.ensemble import LoopedEnsemble, Noise, StackedEnsemble, ensemble_of
from hierlearn.networks.layers import InputNoise, Share
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from hierlearn.training import Plan
from hierlearn.training.checkpoint import Checkpoints
from training.datasets import assert_identical, problem, state, texts, trainer_of

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])
SEEDS = [3, 11, 5]
CPU = torch.device("cpu")
QUIET = Reporting(bar=False)
MATRIX = sparse.random_array((9, 6), density=0.4, format="csr", rng=1, dtype="float32")
OPTIONS = {
    "mlp": {"width": 5, "input_dropout": 0.3, "input_noise": 0.2},
}


def layer_of(seeds, *arguments, members=None):
    """Return a layer with generators, stacked where members are asked for."""
    layer = InputNoise(*arguments)
    if members is not None:
        layer = InputNoise.stack([layer] * members)
    layer.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    return layer


def rows_of(rows=400, columns=30, seed=0):
    matrix = sparse.random_array(
        (rows, columns), density=0.3, format="csr", rng=seed, dtype="float32"
    )
    return SparseRows.from_scipy(matrix)


def test_dense_inputs_lose_a_fraction_and_keep_their_mean():
    x = torch.ones(400, 40)
    found = layer_of([0], 0.25)(x)
    assert found.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (found == 0).float().mean() == pytest.approx(0.25, abs=0.02)


def test_noise_has_its_deviation_and_comes_before_what_is_dropped():
    x = torch.full((400, 40), 3.0)
    noise = layer_of([0], 0.0, 0.2)(x) - x
    assert noise.mean() == pytest.approx(0, abs=0.01)
    assert noise.std() == pytest.approx(0.2, rel=0.03)
    both = layer_of([0], 0.5, 0.2)(x)
    assert (both == 0).float().mean() == pytest.approx(0.5, abs=0.02)
    assert both[both != 0].std() == pytest.approx(0.4, rel=0.05)  # scaled up like the rest


def test_nothing_happens_while_predicting_or_where_nothing_is_asked_for():
    x = torch.ones(5, 4)
    assert layer_of([0], 0.9).eval()(x) is x
    assert InputNoise().train()(x) is x
    assert InputNoise.stack([InputNoise()] * 2).train()(x) is x


@pytest.mark.parametrize("shared", [True, False], ids=["the same rows", "rows of their own"])
def test_dense_rows_of_a_member_are_those_that_it_gets_alone(shared):
    x = torch.randn(7, 5) if shared else torch.randn(3, 7, 5)
    found = layer_of(SEEDS, 0.4, 0.3, members=3)(x)
    assert found.shape == (3, 7, 5)
    for member, seed in enumerate(SEEDS):
        assert torch.equal(found[member], layer_of([seed], 0.4, 0.3)(x if shared else x[member]))
    assert not torch.equal(found[0], found[1])


def test_without_generators_members_draw_apart_from_torch():
    layer = InputNoise.stack([InputNoise(0.5, 0.1)] * 2)
    dense = layer(torch.ones(30, 20))
    assert not torch.equal(dense[0], dense[1])
    torch.manual_seed(1)
    first = InputNoise(0.5)(torch.ones(20, 20))
    torch.manual_seed(1)
    assert torch.equal(first, nn.functional.dropout(torch.ones(20, 20), 0.5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-0.1,), r"input_dropout must lie in \[0, 1\), not -0.1"),
        ((1.0,), r"input_dropout must lie in \[0, 1\), not 1.0"),
        ((float("nan"),), r"input_dropout must lie in \[0, 1\), not nan"),
        ((0.0, -1.0), "input_noise must be a number of at least 0, not -1.0"),
        ((0.0, float("inf")), "input_noise must be a number of at least 0, not inf"),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(HierlearnError, match=message):
        InputNoise(*arguments)
    chosen = dict(zip(("input_dropout", "input_noise"), arguments, strict=False))
    with pytest.raises(HierlearnError, match=message):
        NETWORKS["mlp"](TREE, InputSpec.numbers(6), **chosen)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_layer_is_copied_and_pickled(again):
    twin = again(layer_of(SEEDS, 0.3, 0.2, members=3))
    assert (twin.p, twin.std, twin.members, twin.generators) == (0.3, 0.2, 3, None)
    assert "input_dropout=0.3, input_noise=0.2" in repr(twin)


# ---------------------------------------------------------------------- networks


def alone(name, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETWORKS[name](TREE, InputSpec.numbers(6), **OPTIONS[name])


@pytest.mark.parametrize("apart", [False, True], ids=["the same rows", "rows of their own"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", OPTIONS)
def test_stacked_and_looped_members_are_the_networks_that_they_are_alone(name, kind, apart):
    index = torch.tensor([[0, 1, 2, 3], [8, 7, 7, 0], [4, 4, 5, 6]])
    rows = SparseRows.from_scipy(MATRIX)
    if kind == "sparse":
        x, own = (rows.take(index), [rows.take(one) for one in index]) if apart else (rows, None)
    else:
        x = rows.dense()[index] if apart else rows.dense()
        own = x if apart else None
    networks = [alone(name, seed) for seed in SEEDS]
    assert isinstance(ensemble_of(copy.deepcopy(networks)), StackedEnsemble)
    for kind_of_ensemble in (StackedEnsemble, LoopedEnsemble):
        ensemble = kind_of_ensemble(copy.deepcopy(networks)).train()
        Noise(ensemble, CPU).seed([40, 41, 42])
        with torch.random.fork_rng(devices=[]):
            found = ensemble(x, apart=apart).logits
            quiet = ensemble.eval()(x, apart=apart).logits
        assert not torch.allclose(found, quiet)
        for member, network in enumerate(networks):
            Noise(network, CPU).seed([40 + member])
            given = x if own is None else own[member]
            torch.testing.assert_close(found[member], network.train()(given).logits)
            torch.testing.assert_close(quiet[member], network.eval()(given).logits)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_weights_do_not_depend_on_the_noise(name):
    plain = {key: value for key, value in OPTIONS[name].items() if not key.startswith("input")}
    torch.manual_seed(1)
    one = NETWORKS[name](TREE, InputSpec.numbers(6), **plain)
    torch.manual_seed(1)
    other = NETWORKS[name](TREE, InputSpec.numbers(6), **OPTIONS[name])
    for value, expected in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(value, expected)


# ---------------------------------------------------------------------- trainings

each_case = pytest.mark.parametrize(
    ("name", "make"), [(name, make) for name in OPTIONS for make in (problem, texts)]
)


def plan(name, **settings):
    settings = {"epochs": 2, "batch_size": 8, "device": "cpu", **settings}
    return Plan(loss="bce", network=name, network_options=OPTIONS[name], settings=settings)


@each_case
@pytest.mark.parametrize("looped", [False, True], ids=["stacked", "looped"])
def test_a_member_ends_as_the_network_that_is_trained_alone(name, make, looped, monkeypatch):
    if looped:
        monkeypatch.setattr(build, "ensemble_of", LoopedEnsemble)
    together = trainer_of(make(), plan(name, seed=4, ensemble_size=3))
    assert isinstance(together.network, LoopedEnsemble if looped else StackedEnsemble)
    together.train()
    for member in range(3):
        single = trainer_of(make(), plan(name, seed=4 + member))
        single.train()
        for key, value in state(single).items():
            found = state(together, member)[key]
            torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-5)


@each_case
def test_a_training_goes_on_bit_for_bit(name, make, tmp_path):
    chosen = plan(name, ensemble_size=2, checkpoint_every=2, keep_checkpoints=100)
    whole = train(make(), chosen, out=tmp_path / "whole", reporting=QUIET)
    paths = Checkpoints(tmp_path / "whole" / "checkpoints").paths()
    (tmp_path / "rest" / "checkpoints").mkdir(parents=True)
    shutil.copy(paths[0], tmp_path / "rest" / "checkpoints")
    rest = train(make(), chosen, out=tmp_path / "rest", resume=True, reporting=QUIET)
    assert_identical(state(whole.network), state(rest.network))


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("members", [None, 2])
def test_processes_draw_the_noise_of_their_rows(world, members):
    rows, common = 10, 4
    x, options = torch.rand(rows + common, 30) + 1, (0.5, 0.1)
    seeds = SEEDS[: members or 1]
    whole = layer_of(seeds, *options, members=members)(x)
    for rank in range(world):
        own_rows = torch.cat([torch.arange(rank, rows, world), torch.arange(rows, rows + common)])
        share = Share(own_rows, rows + common)
        layer = layer_of(seeds, *options, members=members)
        layer.share = share
        found = layer(x[share.rows])
        assert torch.equal(found, whole[..., share.rows, :])
