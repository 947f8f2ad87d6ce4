"""The head clems: answers by loops, its points, and a training from end to end."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

from hierlearn import Dataset, Hierarchy, LabelSpace, Plan, load, train
from hierlearn.decoding import make_decoder
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.baselines.clems import (
    CLEMSHead,
    CLEMSLoss,
    EmbeddedOutput,
    LabelPoints,
    embed_sets,
    set_costs,
)
from hierlearn.networks import LinearHead, Network
from hierlearn.networks.ensemble import StackedEnsemble, ensemble_of, member_state, networks_in
from reference import clems as reference
from tolerances import FLOAT32, FLOAT64, FLOAT64_SUMS

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "f/h", "i"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("e", "d"), ("e", "f")])
SETS = [["d"], ["b", "e"], [], ["c"], ["f"], ["b", "c"]]


def fit_label_points(network, labels, weights):
    """What ``initialize`` does for the heads of a network or an ensemble."""
    shared = {}
    for one in networks_in(network):
        for head in one.heads.values():
            head.fit_labels(labels, weights, shared)


def made_points(hierarchy=DAG, sets=SETS, size=3, seed=0):
    draw = torch.Generator().manual_seed(seed)
    truth, answers = torch.randn(2, len(sets), size, generator=draw, dtype=torch.float64)
    points = LabelPoints(hierarchy, size, len(sets)).double()
    points.set(truth, answers, hierarchy.encode(sets), 0.7)
    return points


def test_probabilities_by_loops():
    points = made_points()
    z = torch.randn(20, 3, dtype=torch.float64)
    output = EmbeddedOutput(z, points)
    closed = [set(np.flatnonzero(row)) for row in DAG.encode(SETS).numpy()]
    for row in range(20):
        expected = reference.answers(
            z[row].tolist(), points.answers.tolist(), closed, 0.7, len(DAG), nearest=True
        )
        assert output.probabilities[row].tolist() == FLOAT64_SUMS.approx(expected)
        assert output.log_not_p[row].exp().tolist() == FLOAT64_SUMS.approx(
            [1 - one for one in expected]
        )


def test_gradients_are_right():
    points = made_points()
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: points.log_probabilities(x)[0], (z,))


def test_the_decision_is_the_nearest_answer_exactly():
    points = made_points()
    z = 2 * torch.randn(300, 3, dtype=torch.float64)
    best = torch.cdist(z, points.answers).argmin(dim=1)
    found = make_decoder(DAG, "coherent")(EmbeddedOutput(z, points))
    assert torch.equal(found, DAG.encode(SETS)[best])
    assert best.unique().tolist() == list(range(len(SETS)))
    leaves = [["a/b/c"], ["a/b/d"], ["a/e"], ["f/g"], ["i"]]
    points = made_points(TREE, leaves)
    best = torch.cdist(z, points.answers).argmin(dim=1)
    found = make_decoder(TREE, "leaf")(EmbeddedOutput(z, points))
    assert [[TREE.names[c]] for c in found.tolist()] == [leaves[k] for k in best.tolist()]


def test_answers_are_coherent_for_any_embedding():
    points = made_points().float()
    z = 3 * torch.randn(400, 3)
    p = EmbeddedOutput(z, points).probabilities
    edges = (DAG.structure.edge_children, DAG.structure.parent_ids)
    below, above = (p[:, torch.tensor(ends)] for ends in edges)
    assert (below <= above * (1 + 1e-5)).all()
    far = EmbeddedOutput(1e6 * z, points)
    assert all(part.isfinite().all() for part in far.pair)


def test_every_set_is_found_by_its_key():
    rng = np.random.default_rng(0)
    targets = torch.from_numpy(rng.random((3000, len(TREE) * 20)) < 0.1)
    wide = Hierarchy.from_paths([f"n{i}" for i in range(targets.shape[1])])
    targets = targets.unique(dim=0)
    points = LabelPoints(wide, 1, len(targets))
    numbers = torch.arange(len(targets)).float()[:, None]
    points.set(numbers, numbers, targets, 1.0)
    for given in (targets, targets.float(), targets.long()):
        found, known = points.truth_of(given)
        assert known.all()
        assert torch.equal(found, numbers)
    changed = targets.clone()
    changed[:, 0] ^= True
    _, known = points.truth_of(changed)
    inside = {tuple(row) for row in targets.tolist()}
    assert known.tolist() == [tuple(row) in inside for row in changed.tolist()]


def test_outputs_of_embeddings_go_through_what_an_output_does():
    points = made_points()
    z = torch.randn(2, 5, 3, dtype=torch.float64)
    output = EmbeddedOutput(z, points)
    assert output.shape == (2, 5, len(DAG))
    assert output.members == 2
    parts = output.unbind()
    for member in range(2):
        for one in (parts[member], output.member(member)):
            assert isinstance(one, EmbeddedOutput)
            FLOAT64.assert_close(one.log_p, points.log_probabilities(z[member])[0])
    again = type(output).stack(parts)
    assert isinstance(again, EmbeddedOutput)
    assert torch.equal(again.embeddings, z)
    FLOAT64.assert_close(output.flat().log_p, output.log_p.flatten(0, 1))
    FLOAT64.assert_close(output.mean().probabilities, output.probabilities.mean(dim=0))


def test_members_are_stacked_and_saved():
    torch.manual_seed(0)
    networks = [Network(nn.Identity(), CLEMSHead(4, DAG, size=3, sets=6)) for _ in range(3)]
    together = ensemble_of(networks)
    assert isinstance(together, StackedEnsemble)
    labels = Labels(SETS, DAG)
    for one in (*networks, together):
        fit_label_points(one, labels, None)
    x = torch.randn(5, 4)
    found = together(x)
    for member, alone in enumerate(networks):
        with torch.no_grad():  # their weights were copied before the bias was set
            alone.heads.main.linear.bias.copy_(together.network.heads.main.linear.bias[member])
        FLOAT32.assert_close(found.member(member).log_p, alone(x).log_p)
        state = member_state(together, member)
        assert torch.equal(state["heads.main.points.targets"], alone.heads.main.points.targets)
    fresh = Network(nn.Identity(), CLEMSHead(4, DAG, size=3, sets=6))
    fresh.load_state_dict(networks[0].state_dict())
    assert torch.equal(fresh(x).log_p, networks[0](x).log_p)
    twin = copy.deepcopy(together)
    assert torch.equal(twin(x).log_p, found.log_p)
    truth, known = fresh.heads.main.points.truth_of(labels.targets())
    assert known.all()
    assert torch.equal(truth, networks[0].heads.main.points.truth_of(labels.targets())[0])


# ---------------------------------------------------------------------- where the points lie


def test_the_cost_of_single_classes_of_a_tree_has_exact_points():
    """Heights of lowest common ancestors are an ultrametric, and its root is Euclidean."""
    leaves = [[name] for name in TREE.names if not TREE.children(name)]
    labels = Labels(leaves * 3, TREE)
    found = embed_sets(labels, None, 8, 100)
    assert len(found.truth) == len(leaves)
    assert found.stress[-1] == pytest.approx(0, abs=1e-4)
    kept = Labels.from_numbers(*sets_of(found.targets), TREE)
    costs = torch.from_numpy(set_costs(kept, kept))
    distances = torch.cdist(found.truth, found.answers).square()
    torch.testing.assert_close(distances, costs, rtol=0, atol=0.02)


def sets_of(targets):
    rows, numbers = targets.nonzero().T.numpy()
    return np.searchsorted(rows, np.arange(len(targets) + 1)), numbers


def test_distances_are_near_the_roots_of_the_costs():
    rng = np.random.default_rng(0)
    rows = [[DAG.names[c] for c in rng.integers(0, len(DAG), n)] for n in rng.integers(0, 3, 80)]
    labels = Labels(rows, DAG)
    found = embed_sets(labels, None, 6, 100)
    counts = np.zeros(len(found.truth))
    costs = set_costs(labels, Labels.from_numbers(*sets_of(found.targets), DAG))  # (80, K)
    own = costs.argmin(axis=1)
    np.add.at(counts, own, 1)
    assert counts.tolist() == sorted(counts, reverse=True)  # the most frequent first
    distances = torch.cdist(found.truth, found.answers).numpy()
    errors = (distances[own] - np.sqrt(costs)) ** 2
    assert found.stress[-1] == pytest.approx(errors.sum(), rel=1e-2, abs=1e-4)
    assert errors.mean() < 0.05 * costs.mean()
    assert (distances[own].argmin(axis=1) == own).mean() > 0.9  # the truth is its own best answer
    FLOAT32.assert_close(found.mean, found.truth[torch.from_numpy(own)].mean(dim=0))
    assert found.mean_cost == pytest.approx(costs[:, own].mean(), rel=1e-5)


def test_rare_sets_train_towards_the_point_that_costs_least():
    rows = [["a/b/c"]] * 5 + [["f/g"]] * 4 + [["a/b/d"], ["f/h"], ["i"]]
    labels = Labels(rows, TREE)
    head = CLEMSHead(4, TREE, size=3, sets=2)
    network = Network(nn.Identity(), head)
    fit_label_points(network, labels, None)
    truth, known = head.points.truth_of(labels.targets())
    assert known.all()
    assert torch.equal(truth[9], truth[0])
    assert torch.equal(truth[10], truth[5])
    assert not torch.equal(truth[0], truth[5])
    options = CLEMSHead.options_from_labels(labels, {"sets": 2})
    assert options == {"sets": 2}
    assert CLEMSHead.options_from_labels(labels, {}) == {"sets": 5}


@pytest.mark.parametrize("members", [1, 2])
def test_rare_sets_train_on_after_a_training_resumes(members):
    labels = Labels([["a/b/c"]] * 5 + [["f/g"]] * 4 + [["a/b/d"], ["i"]], TREE)
    networks = [Network(nn.Identity(), CLEMSHead(4, TREE, size=3, sets=2)) for _ in range(members)]
    network = networks[0] if members == 1 else ensemble_of(networks)
    fit_label_points(network, labels, None)
    points = next(one for one in network.modules() if isinstance(one, LabelPoints))
    before = points.truth_of(labels.targets())
    network.load_state_dict(copy.deepcopy(network.state_dict()))
    assert before[1].all()
    for found, expected in zip(points.truth_of(labels.targets()), before, strict=True):
        assert torch.equal(found, expected)


def test_keys_of_many_rows_are_computed_in_parts(monkeypatch):
    points, targets = made_points(), DAG.encode(SETS)
    expected = points.keys_of(targets)
    monkeypatch.setattr("hierlearn.lab.baselines.clems.KEYED", 2 * len(DAG))
    assert torch.equal(points.keys_of(targets), expected)
    assert points.keys_of(targets[:0]).shape == (0,)


def test_rows_count_by_their_weights():
    rows = [["a/b/c"], ["f/g"], ["i"]]
    weights = np.array([1.0, 3.0, 0.0])
    found = embed_sets(Labels(rows, TREE), weights, 2, 2)
    names = [TREE.names[int(np.flatnonzero(one)[-1])] for one in found.targets.numpy()]
    assert names == ["f/g", "a/b/c"]
    twice = embed_sets(Labels([rows[0], *[rows[1]] * 3], TREE), None, 2, 2)
    FLOAT32.assert_close(found.truth, twice.truth)


# ---------------------------------------------------------------------- end to end


def toy(hierarchy, sets, rows=240, seed=0):
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, len(sets), rows)
    inputs = rng.normal(size=(rows, 8)) * 0.3 + np.eye(len(sets), 8)[numbers] * 3
    return Dataset(inputs, [sets[one] for one in numbers], hierarchy), numbers


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "DAG"])
def test_a_recipe_learns_and_its_model_answers_again(hierarchy, members, tmp_path):
    sets = SETS if hierarchy is DAG else [["a/b/c"], ["a/b/d"], ["a/e"], ["f/g"], ["i"]]
    data, numbers = toy(hierarchy, sets)
    plan = Plan(
        recipe="clems",
        network_options={"width": 32},
        settings={"epochs": 15, "batch_size": 60, "learning_rate": 0.01, "ensemble_size": members},
    )
    trained = train(data, plan, out=tmp_path / "model")
    found = trained.probabilities(data.inputs) > 0.5
    right = (found == hierarchy.encode(sets)[torch.from_numpy(numbers)]).all(dim=1)
    assert right.float().mean() > 0.95
    again = load(tmp_path / "model")
    assert torch.equal(again.probabilities(data.inputs) > 0.5, found)
    head = json.loads((tmp_path / "model" / "config.json").read_text())["network"]["heads"]["main"]
    assert head["options"]["sets"] == len(sets)


def test_what_is_refused():
    data, _ = toy(TREE, [["a"], ["i"]], rows=20)
    with pytest.raises(HierlearnError, match="head clems compares whole label sets, but unlabeled"):
        train(data, Plan(recipe="clems", unlabeled_descendants="ignore"))
    with pytest.raises(HierlearnError, match="temperature must be a number above 0, not 0"):
        CLEMSHead(3, TREE, temperature=0)
    with pytest.raises(HierlearnError, match="at most 4,096 label sets can have points, not 5,000"):
        CLEMSHead(3, TREE, sets=5000)
    with pytest.raises(HierlearnError, match="sets must be an integer of at least 1, not 'x'"):
        train(data, Plan(recipe="clems", head_options={"sets": "x"}))
    with pytest.raises(HierlearnError, match="sets must be an integer of at least 1, not 0"):
        CLEMSHead(3, TREE, sets=0)
    assert LabelSpace.of(TREE) == LabelSpace(TREE)
    head = CLEMSHead(3, TREE)
    with pytest.raises(HierlearnError, match="have no points yet, so nothing would be learned"):
        CLEMSLoss(TREE)(head(torch.randn(2, 3)), TREE.encode([["i"], ["a"]]))


def test_other_heads_may_have_points_too():
    class Pointed(LinearHead):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.points = nn.Parameter(torch.zeros(3))

    network = Network(nn.Identity(), Pointed(4, TREE))
    fit_label_points(network, Labels([["a/e"]], TREE), None)
    assert network.heads["main"].points.shape == (3,)
