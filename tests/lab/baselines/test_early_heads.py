"""Early heads against loops: answers, loss and gradients; only the main head answers."""

import copy

import numpy as np
import pytest
import torch
from scipy import sparse

from hierlearn import Dataset, HierarchicalClassifier, Hierarchy, LabelSpace, Plan, load, train
from hierlearn.datasets import Images
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.early_heads import early_layers
from hierlearn.losses import BCELoss, LeafCELoss
from hierlearn.losses.joint import JointLoss
from hierlearn.networks import NETWORKS, InputSpec, SparseRows
from hierlearn.networks.build import HeadSpec, NetworkSpec, build_network
from hierlearn.networks.ensemble import LoopedEnsemble, StackedEnsemble, ensemble_of, head_names
from hierlearn.training.prepare import for_heads
from reference.early_heads import early_heads, early_loss, layer_of

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("e", "d")])
FLAT = Hierarchy.from_paths(["a", "b", "c"])
STEP = 1e-6  # of a difference quotient
IMAGES = InputSpec.images(1, 8, 8)


def make(hierarchy=TREE, seed=0, inputs=None, **options):
    torch.manual_seed(seed)
    options = {"width": 3, "dropout": 0.0, "depth": 3} | options
    return NETWORKS["early-heads"](hierarchy, inputs or InputSpec.numbers(4), **options)


def pair(layer):
    return layer.weight.tolist(), layer.bias.tolist()


def weights_of(network):
    hidden = network.encoder.hidden
    layers = [pair(hidden[place]) for place in range(0, len(hidden), 3)]
    heads = network.heads
    return [layers, pair(heads.main.linear), [pair(one) for one in heads.early.outputs]]


@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "DAG"])
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_the_logits_by_loops(hierarchy, depth):
    network = make(hierarchy, depth=depth).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    outputs = network(x)
    for number, row in enumerate(x.tolist()):
        main, early = early_heads(row, *weights_of(network), hierarchy.depth)
        assert outputs["main"].logits[number].tolist() == pytest.approx(main, abs=1e-12)
        wanted = [one for level in early for one in level]
        wanted += [0.0] * (len(hierarchy) - len(wanted))
        assert outputs["early"].logits[number].tolist() == pytest.approx(wanted, abs=1e-12)
    assert torch.equal(network.eval()(x).logits, outputs["main"].logits)  # alone


def test_every_level_has_the_layer_as_far_down():
    for levels in range(1, 9):
        for layers in range(1, 9):
            every = [layer_of(level, levels, layers) for level in range(1, levels + 1)]
            wanted = [layer - 1 for layer in every if layer < layers]
            assert early_layers(levels, layers) == wanted
    assert early_layers(3, 3) == [0, 1]
    assert early_layers(6, 2) == [0, 0, 0]
    assert early_layers(2, 4) == [1]


@pytest.mark.parametrize("masked", [False, True])
def test_the_loss_and_its_gradients_by_difference_quotients(masked):
    network = make(weight=0.4).double()
    x, targets = torch.randn(5, 4).double(), TREE.encode([["d"], ["e", "g"], ["h"], [], ["c"]])
    mask = (torch.rand(5, len(TREE)) < 0.6) if masked else None
    loss = for_heads(BCELoss(TREE), network)
    value = loss(network(x), targets, mask)
    value.backward()
    given = (x.tolist(), targets.tolist(), weights_of(network), TREE.depth, 0.4)
    known = None if mask is None else mask.tolist()
    assert value.item() == pytest.approx(early_loss(*given, known), abs=1e-12)
    hidden, heads = network.encoder.hidden, network.heads
    places = [((0, n), hidden[3 * n]) for n in range(3)] + [((1,), heads.main.linear)]
    places += [((2, n), one) for n, one in enumerate(heads.early.outputs)]
    for path, layer in places:
        for k in range(len(layer.bias)):
            for row in (None, 0):
                found = layer.bias.grad[k] if row is None else layer.weight.grad[row][k]
                sides = []
                for sign in (1, -1):
                    moved = copy.deepcopy(given)
                    where = moved[2]
                    for step in path:
                        where = where[step]
                    (where[1] if row is None else where[0][row])[k] += sign * STEP
                    sides.append(early_loss(*moved, known))
                wanted = (sides[0] - sides[1]) / (2 * STEP)
                assert found.item() == pytest.approx(wanted, abs=1e-8), path


def test_the_weight_is_per_row_whatever_the_loss_of_the_main_head():
    network = make(weight=0.4)
    loss = for_heads(LeafCELoss(TREE), network)
    assert isinstance(loss, JointLoss)
    assert loss.weights == {"main": pytest.approx(1 / len(TREE)), "early": pytest.approx(0.4)}
    assert head_names(network) == ["main"]


@pytest.mark.parametrize(
    "network",
    [make(weight=0.0), make(depth=1), make(FLAT), make(FLAT, inputs=IMAGES, width=8)],
    ids=["weight 0", "one layer", "a flat taxonomy", "a flat taxonomy of images"],
)
def test_nothing_coarse_is_a_plain_network(network):
    assert list(network.heads) == ["main"]
    assert for_heads(loss := BCELoss(network.heads.main.link.hierarchy), network) is loss


def test_images_have_heads_on_early_blocks():
    network = make(inputs=IMAGES, width=8, depth=3)
    x = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    outputs, encoder = network(x), network.encoder
    first = encoder.blocks[:3](encoder.pixels(x)).mean(dim=(-2, -1))
    tops = TREE.level_slices[0]
    wanted = network.heads.early.outputs[0](first)
    torch.testing.assert_close(outputs["early"].logits[:, tops], wanted)
    torch.testing.assert_close(network.eval()(x).logits, outputs["main"].logits)
    together = ensemble_of([make(inputs=IMAGES, width=8, depth=3, seed=k) for k in range(2)])
    assert isinstance(together, LoopedEnsemble)
    torch.testing.assert_close(together(x)["early"].logits[0], outputs["early"].logits)


def test_members_are_stacked_and_equal_networks_alone():
    alone = [make(seed=seed) for seed in range(3)]
    together = ensemble_of(alone)
    assert isinstance(together, StackedEnsemble)
    x = torch.randn(6, 4)
    for name, found in together(x).items():
        for member, one in zip(found.logits, alone, strict=True):
            torch.testing.assert_close(member, one(x)[name].logits)


def test_sparse_rows_priors_and_what_it_does_not_take():
    network = make()
    rows = sparse.random_array((5, 4), density=0.5, format="csr", rng=1, dtype="float32")
    found = network(SparseRows.from_scipy(rows))["early"].logits
    torch.testing.assert_close(found, network(torch.from_numpy(rows.toarray()))["early"].logits)
    counts = torch.arange(1, len(TREE) + 1).double()
    network.set_prior(counts, counts, 20)
    for layer in (network.heads.main.linear, *network.heads.early.outputs):
        layer.weight.data.zero_()
    wanted = ((counts + 0.5) / 21).expand(2, -1).float()
    coarse = sum(TREE.level_sizes[:2])
    for name, output in network(torch.randn(2, 4)).items():
        size = coarse if name == "early" else len(TREE)
        torch.testing.assert_close(output.probabilities[:, :size], wanted[:, :size])
    with pytest.raises(HierlearnError, match=r"weight must be at least 0, not -1\.0"):
        make(weight=-1.0)
    with pytest.raises(HierlearnError, match="augment 'light' is for images, not for numbers"):
        make(augment="light")
    spec = NetworkSpec("early-heads", InputSpec.numbers(4), heads={"main": HeadSpec("neighbors")})
    with pytest.raises(HierlearnError, match="other heads need a Network with a LinearHead"):
        build_network(spec, LabelSpace.of(TREE))


def rows(count=241):
    rng = np.random.default_rng(0)
    classes = ["a/b/c", "a/b/d", "a/e", "f/g", "h"]
    numbers = rng.integers(0, 5, count)
    inputs = rng.normal(size=(count, 4)) * 0.3 + np.eye(5, 4)[numbers] * 3
    return inputs.astype(np.float32), [classes[one] for one in numbers]


@pytest.mark.parametrize("labels", ["one path", "several"])
def test_the_recipe_learns_and_its_model_answers_again(tmp_path, labels):
    inputs, classes = rows()
    own = [[one] for one in classes]
    if labels == "several":
        own[0] = ["h", "a/e"]
    plan = Plan(
        recipe="early-heads",
        network_options={"width": 32, "dropout": 0.1},
        settings={"epochs": 10, "batch_size": 60, "learning_rate": 0.01, "ensemble_size": 2},
    )
    trained = train(Dataset(inputs, own, TREE), plan, out=tmp_path / "model")
    p = trained.probabilities(inputs)
    leaves = TREE.leaves.tolist()
    found = [TREE.names[leaves[one]] for one in p[:, leaves].argmax(1).tolist()]
    assert np.mean([one == wanted for one, wanted in zip(found, classes, strict=True)]) > 0.95
    assert torch.equal(load(tmp_path / "model").probabilities(inputs), p)


def test_images_train_and_more_rows_train_the_early_heads_too():
    inputs, classes = rows(60)
    drawn = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    data = Dataset(Images.from_array(drawn), [[one] for one in classes], TREE)
    options = {"network_options": {"width": 8, "depth": 2}, "settings": {"epochs": 1}}
    preprocessing = {"image_size": 8}
    model = train(data, Plan(recipe="early-heads", preprocessing_options=preprocessing, **options))
    assert model.probabilities(data.inputs).shape == (60, len(TREE))
    classifier = HierarchicalClassifier(
        recipe="early-heads", network_options={"width": 8}, epochs=1, device="cpu"
    ).fit(inputs, classes)
    before = {k: v.clone() for k, v in classifier.pipeline_.network.state_dict().items()}
    classifier.partial_fit(inputs[:20], classes[:20])
    after = classifier.pipeline_.network.state_dict()
    assert all(not torch.equal(after[name], value) for name, value in before.items())
