"""HMC-LMLP against loops: answers, and the gradients of every stage; members, and a training."""

import copy

import numpy as np
import pytest
import torch
from scipy import sparse

from hierlearn import Dataset, Hierarchy, LabelSpace, Plan, load, train
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.lmlp import MinLink
from hierlearn.losses import BCELoss
from hierlearn.networks import NETWORKS, InputSpec, SparseRows
from hierlearn.networks.build import HeadSpec, NetworkSpec, build_network
from hierlearn.networks.ensemble import StackedEnsemble, ensemble_of
from hierlearn.training.solvers.stages import Stages
from reference.lmlp import level_loss, lmlp

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("e", "d")])
STEP = 1e-6  # of a difference quotient


def make(hierarchy=TREE, seed=0, **options):
    torch.manual_seed(seed)
    return NETWORKS["hmc-lmlp"](hierarchy, InputSpec.numbers(4), width=3, **options)


def weights_of(network):
    return [
        [(layer.weight.tolist(), layer.bias.tolist()) for layer in (level[0], level[-1])]
        for level in network.levels
    ]


@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "DAG"])
@pytest.mark.parametrize("use_inputs", [True, False])
def test_the_logits_by_loops(hierarchy, use_inputs):
    network = make(hierarchy, use_inputs=use_inputs).double().eval()
    x = torch.randn(5, 4, dtype=torch.float64)
    for row, found in zip(x.tolist(), network(x).logits.tolist(), strict=True):
        levels = lmlp(row, weights_of(network), use_inputs)
        assert found == pytest.approx([one for level in levels for one in level], abs=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("number", range(3))
def test_the_loss_and_the_gradients_of_every_stage_by_difference_quotients(number, masked):
    network = make(dropout=0.0).double()
    x, targets = torch.randn(5, 4).double(), TREE.encode([["d"], ["e", "g"], ["h"], [], ["c"]])
    mask = (torch.rand(5, len(TREE)) < 0.6) if masked else None
    loss = BCELoss(TREE)
    stages = Stages(network, loss, 3, torch.device("cpu"))
    assert stages.enter(number)
    value = loss(network.train()(x), targets, stages.mask(targets, mask))
    value.backward()
    given = (x.tolist(), targets.tolist(), weights_of(network), number)
    known = None if mask is None else mask.tolist()
    assert value.item() == pytest.approx(level_loss(*given, known), abs=1e-12)
    for level, part in enumerate(network.levels):
        assert all((one.grad is not None) == (level == number) for one in part.parameters())
    for place, layer in enumerate((network.levels[number][0], network.levels[number][-1])):
        for k in range(len(layer.bias)):
            for row in (None, 0, len(layer.weight) - 1):
                found = layer.bias.grad[k] if row is None else layer.weight.grad[row][k]
                sides = []
                for sign in (1, -1):
                    moved = copy.deepcopy(given)
                    weight, bias = moved[2][number][place]
                    where = bias if row is None else weight[row]
                    where[k] += sign * STEP
                    sides.append(level_loss(*moved, known))
                wanted = (sides[0] - sides[1]) / (2 * STEP)
                assert found.item() == pytest.approx(wanted, abs=1e-8)


def test_no_level_learns_for_the_one_below_where_all_are_trained_at_once():
    network = make(dropout=0.0)
    network(torch.randn(5, 4)).logits[:, TREE.level_slices[1]].sum().backward()
    moved = [any(one.grad is not None for one in part.parameters()) for part in network.levels]
    still = [all(not one.grad.any() for one in part.parameters()) for part in network.levels[::2]]
    assert moved == [True] * 3  # of one tensor of logits
    assert still == [True, True]


def test_parts_that_wait_are_not_computed_and_fixed_ones_have_no_noise():
    network = make(dropout=0.5).train()
    network.set_stage(range(1, 2))
    x = torch.randn(6, 4)
    first, second = network(x).logits, network(x).logits
    tops, middle, last = TREE.level_slices
    assert torch.equal(first[:, tops], second[:, tops])  # fixed
    assert not torch.equal(first[:, middle], second[:, middle])  # trained, with noise
    assert not first[:, last].any()  # later
    assert [level.training for level in network.train().levels] == [False, True, False]
    assert network.eval()(x).logits[:, last].any()  # all levels answer
    network.set_stage(None)
    assert all(one.requires_grad for one in network.parameters())
    assert all(level.training for level in network.train().levels)


def test_members_are_stacked_and_equal_networks_alone_in_every_stage():
    alone = [make(seed=seed, dropout=0.0) for seed in range(3)]
    together = ensemble_of(alone)
    assert isinstance(together, StackedEnsemble)
    x = torch.randn(6, 4)
    for stage in (range(1), range(1, 3), None):
        for one in (together.network, *alone):
            one.set_stage(stage)
            one.zero_grad()
        found = together(x).logits
        found.square().sum().backward()
        for member, one in enumerate(alone):
            logits = one(x).logits
            torch.testing.assert_close(found[member], logits)
            logits.square().sum().backward()
            for name, value in together.network.named_parameters():
                own = dict(one.named_parameters())[name].grad
                assert (value.grad is None) == (own is None)
                if own is not None:
                    torch.testing.assert_close(value.grad[member], own)


def test_sparse_rows_priors_and_what_it_does_not_take():
    network = make().eval()
    rows = sparse.random_array((5, 4), density=0.5, format="csr", rng=1, dtype="float32")
    found = network(SparseRows.from_scipy(rows)).logits
    torch.testing.assert_close(found, network(torch.from_numpy(rows.toarray())).logits)
    counts = torch.arange(1, len(TREE) + 1).double()
    network.set_prior(counts, counts, 20)
    for level in network.levels:
        level[-1].weight.data.zero_()
    wanted = ((counts + 0.5) / 21).expand(2, -1).float()
    torch.testing.assert_close(network(torch.randn(2, 4)).probabilities, wanted)
    with pytest.raises(HierlearnError, match=r"on the link sigmoid, not SoftmaxLink; use a loss"):
        make(link="softmax")
    with pytest.raises(HierlearnError, match="use_inputs must be true or false, not 'no'"):
        make(use_inputs="no")
    spec = NetworkSpec("hmc-lmlp", InputSpec.numbers(4), heads={"main": HeadSpec("neighbors")})
    with pytest.raises(HierlearnError, match="other heads need a Network with a LinearHead"):
        build_network(spec, LabelSpace.of(TREE))


def test_the_recipe_learns_and_its_model_answers_again(tmp_path):
    rng = np.random.default_rng(0)
    classes = ["a/b/c", "a/b/d", "a/e", "f/g", "h"]
    numbers = rng.integers(0, 5, 241)
    inputs = rng.normal(size=(241, 4)) * 0.3 + np.eye(5, 4)[numbers] * 3
    data = Dataset(inputs, [[classes[one]] for one in numbers], TREE)
    plan = Plan(
        recipe="hmc-lmlp",
        network_options={"width": 32, "dropout": 0.1},
        settings={"epochs": 30, "batch_size": 60, "learning_rate": 0.01},
    )
    trained = train(data, plan, out=tmp_path / "model")
    assert isinstance(trained.link, MinLink)
    p = trained.probabilities(inputs)
    leaves = TREE.leaves.tolist()
    found = [TREE.names[leaves[one]] for one in p[:, leaves].argmax(1).tolist()]
    hits = [one == classes[number] for one, number in zip(found, numbers, strict=True)]
    assert np.mean(hits) > 0.95
    assert torch.equal(load(tmp_path / "model").probabilities(inputs), p)
