"""The head of DeViSE against loops, where its vectors come from, and a training from end to end."""

import json

import numpy as np
import pytest
import torch
from scipy import sparse

from hierlearn import Dataset, Hierarchy, LabelSpace, Plan, load, train
from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import CheckpointError
from hierlearn.lab.baselines.devise import DeViSEHead, taxonomy_vectors
from hierlearn.networks import InputSpec, Network, SparseRows
from hierlearn.networks.build import HeadSpec, NetworkSpec, build_network, to_save
from hierlearn.networks.ensemble import StackedEnsemble, ensemble_of
from hierlearn.pipeline.folder import write_config
from reference.devise import devise, similarities

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("e", "d"), ("e", "f")])
SPACE = LabelSpace(TREE, ["a"])
CLASSES = ["a/b/c", "a/b/d", "a/e", "f/g", "h"]


def make(seed=0, space=SPACE, **options):
    torch.manual_seed(seed)
    return DeViSEHead(4, space, **options)


@pytest.mark.parametrize("space", [SPACE, LabelSpace(DAG)], ids=["tree", "DAG"])
def test_the_head_by_loops(space):
    head = make(space=space).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    found = head(x).logits
    vectors = taxonomy_vectors(space).tolist()
    for row, answers in zip(x.tolist(), found.tolist(), strict=True):
        wanted = [0.0] * len(space)
        scores = similarities(row, head.projection.weight.tolist(), vectors)
        for place, one in zip(space.terminals, scores, strict=True):
            wanted[place] = one
        assert answers == pytest.approx(wanted, abs=1e-6)  # vectors are saved in float32


def test_the_gradient_of_the_map_is_that_of_the_loops():
    from hierlearn.lab.baselines.devise import DeViSELoss

    head = make().double()
    x = torch.randn(3, 4, dtype=torch.float64)
    targets = TREE.encode([["a/b/c"], ["a", "h"], ["f/g"]])
    loss = DeViSELoss(SPACE, margin=0.5, reduction="sum")
    loss(head(x), targets).backward()
    vectors = head.label_vectors.vectors.double().tolist()
    parents = [list(TREE.parents(c)) for c in range(len(TREE))]
    terminals, step = SPACE.terminals.tolist(), 1e-6

    def loops(matrix):
        scores = [similarities(row, matrix, vectors) for row in x.tolist()]
        return sum(devise(scores, targets.int().tolist(), parents, terminals, 0.5))

    weight = head.projection.weight
    for f in range(4):
        for d in range(weight.shape[1]):
            ends = []
            for sign in (1, -1):
                moved = weight.tolist()
                moved[f][d] += sign * step
                ends.append(loops(moved))
            slope = (ends[0] - ends[1]) / (2 * step)
            assert float(weight.grad[f, d]) == pytest.approx(slope, abs=1e-6)


def test_given_vectors_have_length_1_and_are_not_trained(tmp_path):
    rows = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    np.save(tmp_path / "v.npy", rows)
    wanted = torch.nn.functional.normalize(torch.from_numpy(rows), dim=1)
    for given in (tmp_path / "v.npy", str(tmp_path / "v.npy"), torch.from_numpy(rows)):
        head = make(vectors=given)
        torch.testing.assert_close(head.label_vectors.vectors[SPACE.terminal_ids()], wanted)
    assert [name for name, _ in head.named_parameters()] == ["projection.weight"]
    assert "label_vectors.vectors" in head.state_dict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vectors": torch.ones(3, 2)}, "there are 3 label vectors, but the classes are 8, or 6"),
        ({"vectors": torch.ones(6, 2), "size": 3}, "have 2 dimensions, not 3; size is for those"),
        ({"vectors": "saved"}, "that are 'saved' need their size"),
        ({"vectors": 3}, "vectors must be 'taxonomy', a file or a tensor, not int"),
        ({"size": 0}, "size must be an integer of at least 1, not 0"),
        ({"temperature": 0}, "temperature must be a number above 0, not 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(HierlearnError, match=message):
        make(**options)


def test_members_are_stacked_sparse_rows_are_read_and_all_are_saved():
    alone = [Network(torch.nn.Identity(), make(seed)) for seed in range(3)]
    together = ensemble_of(alone)
    assert isinstance(together, StackedEnsemble)
    x = torch.randn(6, 4)
    for member, one in zip(together(x).logits, alone, strict=True):
        torch.testing.assert_close(member, one(x).logits)
    rows = sparse.random_array((5, 4), density=0.5, format="csr", rng=1, dtype="float32")
    dense = torch.from_numpy(rows.toarray())
    found = alone[0].heads.main(SparseRows.from_scipy(rows)).logits
    torch.testing.assert_close(found, alone[0](dense).logits)


@pytest.mark.parametrize("members", [None, 2])
def test_a_saved_network_opens_no_file(members, tmp_path):
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(6, 3)))
    options = {"vectors": str(tmp_path / "v.npy")}
    heads = {"main": HeadSpec("devise", options)}
    spec = NetworkSpec("mlp", InputSpec.numbers(4), {"width": 5}, members, heads)
    network = build_network(spec, SPACE).eval()
    (tmp_path / "v.npy").unlink()
    stored = to_save(spec, network)
    assert stored.heads["main"].options == {"vectors": "saved", "size": 3}
    again = build_network(NetworkSpec.from_dict(stored.to_dict()), SPACE).eval()
    again.load_state_dict(network.state_dict())
    x = torch.randn(2, 4)
    assert torch.equal(again(x).logits, network(x).logits)


@pytest.mark.parametrize("given", [False, True], ids=["taxonomy", "given"])
def test_the_recipe_learns_and_its_model_answers_again(given, tmp_path):
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 5, 240)
    inputs = rng.normal(size=(240, 4)) * 0.3 + np.eye(5, 4)[numbers] * 3
    data = Dataset(inputs, [[CLASSES[one]] for one in numbers], TREE)
    np.save(tmp_path / "v.npy", rng.normal(size=(len(CLASSES), 6)))
    plan = Plan(
        recipe="devise",
        network_options={"width": 32},
        head_options={"vectors": str(tmp_path / "v.npy")} if given else {},
        settings={"epochs": 12, "batch_size": 60, "learning_rate": 0.01, "ensemble_size": 2},
    )
    trained = train(data, plan, out=tmp_path / "model")
    (tmp_path / "v.npy").unlink()
    p = trained.probabilities(inputs)
    leaves = TREE.leaves.tolist()
    found = [TREE.names[leaves[one]] for one in p[:, leaves].argmax(1).tolist()]
    hits = [one == CLASSES[number] for one, number in zip(found, numbers, strict=True)]
    assert np.mean(hits) > 0.95
    assert torch.equal(load(tmp_path / "model").probabilities(inputs), p)


def test_a_model_folder_names_no_file_of_label_vectors(tmp_path):
    data = Dataset(np.eye(5, 4), [[one] for one in CLASSES], TREE)
    plan = Plan(recipe="devise", network_options={"width": 4}, settings={"epochs": 1})
    train(data, plan, out=tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["network"]["heads"]["main"]["options"] = {"vectors": str(tmp_path / "secret.npy")}
    write_config(path, config)
    with pytest.raises(CheckpointError, match="of a saved head devise are 'saved', not '/"):
        load(tmp_path / "model")


def test_labels_whose_classes_below_are_unknown_train_it(tmp_path):
    rng = np.random.default_rng(1)
    numbers = rng.integers(0, 2, 120)
    inputs = rng.normal(size=(120, 4)) * 0.3 + np.eye(2, 4)[numbers] * 3
    labels = [[("a", "f/g")[one]] for one in numbers]
    labels[0] = []
    plan = Plan(
        recipe="devise",
        unlabeled_descendants="ignore",
        settings={"epochs": 10, "learning_rate": 0.01},
    )
    p = train(Dataset(inputs, labels, TREE), plan).probabilities(inputs)
    hits = (p[:, TREE.index("a")] > p[:, TREE.index("f")]).numpy() == (numbers == 0)
    assert hits.mean() > 0.95
