"""TSLE against loops, what its training sees of the labels, and a training from end to end."""

import numpy as np
import pytest
import torch
from scipy import sparse

from hierlearn import Dataset, Hierarchy, LabelSpace, Plan, load, train
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.tsle import EncodedOutput, TSLELoss
from hierlearn.networks import NETWORKS, InputSpec, SparseRows
from hierlearn.networks.build import HeadSpec, NetworkSpec, build_network
from hierlearn.networks.ensemble import StackedEnsemble, ensemble_of
from hierlearn.pipeline.run import Reporting
from reference.tsle import decode, encode

pytestmark = pytest.mark.filterwarnings("ignore:.* no label:hierlearn.errors.DataWarning")

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
CLASSES = ["a/b/c", "a/b/d", "a/e", "f/g", "h"]
SIZES = {"size": 6, "factors": 3, "width": 5}


def make(seed=0, **options):
    torch.manual_seed(seed)
    return NETWORKS["tsle"](TREE, InputSpec.numbers(4), **SIZES, **options)


def pair(layer):
    return layer.weight.tolist(), layer.bias.tolist()


def parts(encoder):
    """Return the weights of an encoder as the loops take them."""
    factors, moments, _, hidden, _, _, last = encoder.pairs
    moved = (*pair(moments), moments.mean.tolist(), moments.variance.tolist())
    return pair(encoder.linear), factors.vectors.weight.tolist(), moved, pair(hidden), pair(last)


def trained_moments(network):
    """Move the weights of all norms, as a training does."""
    for encoder in (network.encoder, network.heads.main.labels):
        for value in encoder.pairs[1].state_dict().values():
            value.add_(torch.rand_like(value))
    return network


def test_the_network_by_loops():
    network = trained_moments(make().double().eval())
    head, x = network.heads.main, torch.randn(5, 4, dtype=torch.float64)
    found = network(x).logits
    weights = (pair(head.hidden[0]), pair(head.output.linear))
    for row, logits in zip(x.tolist(), found.tolist(), strict=True):
        wanted = decode(encode(row, *parts(network.encoder)), *weights)
        assert logits == pytest.approx(wanted, abs=1e-10)
    targets = TREE.encode([["a/b/c", "h"], ["h"], []])
    for row, encoding in zip(targets.int().tolist(), head.encode_labels(targets), strict=True):
        assert encoding.tolist() == pytest.approx(encode(row, *parts(head.labels)), abs=1e-10)


def test_gradients_of_the_factors_are_those_of_the_loops():
    network = trained_moments(make().double().eval())
    head, x = network.heads.main, torch.randn(2, 4, dtype=torch.float64)
    network(x).logits.sum().backward()
    factors = network.encoder.pairs[0].vectors.weight
    weights, step = (pair(head.hidden[0]), pair(head.output.linear)), 1e-6
    for place in ((0, 0), (1, 2), (3, 1)):
        ends = []
        for sign in (1, -1):
            linear, moved, *rest = parts(network.encoder)
            moved[place[0]][place[1]] += sign * step
            rows = [decode(encode(row, linear, moved, *rest), *weights) for row in x.tolist()]
            ends.append(sum(map(sum, rows)))
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(factors.grad[place]) == pytest.approx(slope, abs=1e-6)


def test_only_training_sees_labels_and_all_weights_are_trained():
    network = make()
    x, targets = torch.randn(6, 4), TREE.encode([[one] for one in [*CLASSES, "h"]])
    output = network(x)
    assert isinstance(output, EncodedOutput)
    TSLELoss(TREE)(output, targets).backward()
    assert all(value.grad is not None for value in network.parameters())
    assert not isinstance(network.eval()(x), EncodedOutput)


def test_members_are_stacked_and_their_losses_are_those_of_networks_alone():
    alone = [make(seed, dropout=0.0) for seed in range(3)]
    together = ensemble_of(alone)
    assert isinstance(together, StackedEnsemble)
    x, targets = torch.randn(5, 4), TREE.encode([[one] for one in CLASSES])
    loss = TSLELoss(TREE)
    found = loss(together(x), targets.expand(3, -1, -1))
    for member, one in zip(found, alone, strict=True):
        torch.testing.assert_close(member, loss(one(x), targets))
    for one in (together, *alone):
        one.eval()
    for member, one in zip(together(x).logits, alone, strict=True):
        torch.testing.assert_close(member, one(x).logits)


def test_sparse_rows_and_another_head():
    network = make().eval()
    rows = sparse.random_array((5, 4), density=0.5, format="csr", rng=1, dtype="float32")
    found = network(SparseRows.from_scipy(rows)).logits
    torch.testing.assert_close(found, network(torch.from_numpy(rows.toarray())).logits)
    spec = NetworkSpec("tsle", InputSpec.numbers(4), SIZES, heads={"main": HeadSpec("neighbors")})
    with pytest.raises(HierlearnError, match="other heads need a Network with a LinearHead"):
        build_network(spec, LabelSpace.of(TREE))


def problem():
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 5, 241)  # the last batch has one row
    inputs = rng.normal(size=(241, 4)) * 0.3 + np.eye(5, 4)[numbers] * 3
    labels = [[CLASSES[one], "a/e"] if one == 4 else [CLASSES[one]] for one in numbers]
    labels[0] = []
    return inputs, numbers, labels


@pytest.mark.parametrize("unlabeled", ["negative", "ignore"])
def test_the_recipe_learns_and_its_model_answers_again(unlabeled, tmp_path):
    inputs, numbers, labels = problem()
    plan = Plan(
        recipe="tsle",
        unlabeled_descendants=unlabeled,
        network_options={"width": 32, "size": 16, "factors": 8, "dropout": 0.1},
        settings={"epochs": 25, "batch_size": 60, "learning_rate": 0.01, "ensemble_size": 2},
    )
    trained = train(Dataset(inputs, labels, TREE), plan, out=tmp_path / "model")
    p = trained.probabilities(inputs)
    hits = [float(p[i, TREE.index(CLASSES[one])]) > 0.5 for i, one in enumerate(numbers)]
    assert np.mean(hits) > 0.95
    both = torch.from_numpy(numbers == 4)
    assert float(p[both, TREE.index("a/e")].mean()) > 0.8  # several labels of a row
    assert float(p[~both, TREE.index("h")].mean()) < 0.2
    assert torch.equal(load(tmp_path / "model").probabilities(inputs), p)


@pytest.mark.parametrize("recipe", ["tsle", "devise"])
def test_a_training_that_was_interrupted_resumes_to_the_same_weights(recipe, tmp_path):
    inputs, _, labels = problem()
    data = Dataset(inputs, labels, TREE)
    settings = {"epochs": 3, "batch_size": 60, "checkpoint_every": 2}
    plan = Plan(recipe=recipe, network_options={"width": 8}, settings=settings)

    def stop(step, steps):
        if step == 8:
            raise KeyboardInterrupt

    whole = train(data, plan).probabilities(inputs)
    with pytest.raises(KeyboardInterrupt):
        train(data, plan, tmp_path / "model", reporting=Reporting(on_step=stop, bar=False))
    again = train(data, plan, tmp_path / "model", resume=True)
    assert torch.equal(again.probabilities(inputs), whole)


@pytest.mark.parametrize("recipe", ["tsle", "hmcn-f"])
@pytest.mark.parametrize("members", [1, 2])
def test_a_training_in_bf16_keeps_moments_in_float32(recipe, members):
    inputs, _, labels = problem()
    settings = {"epochs": 1, "batch_size": 60, "precision": "bf16", "ensemble_size": members}
    plan = Plan(recipe=recipe, network_options={"width": 8}, settings=settings)
    trained = train(Dataset(inputs, labels, TREE), plan)
    assert trained.probabilities(inputs).isfinite().all()
    moments = {k: v for k, v in trained.network.state_dict().items() if k.endswith("variance")}
    assert moments
    assert all(one.dtype == torch.float32 for one in moments.values())
