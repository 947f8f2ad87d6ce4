"""A memory with a metric per class against tests/reference/node_metric.py, and its whole life."""

import numpy as np
import pytest
import torch

from hierlearn import Dataset, Hierarchy, Pipeline, Plan, train
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.baselines import verma as code
from hierlearn.lab.baselines.verma import NodeMetricHead, NodeWeights, label_means
from hierlearn.memory import store
from hierlearn.networks.ensemble import is_stackable, stacked
from hierlearn.networks.heads import Unprojected, neighbor_head
from hierlearn.pipeline.explain import explain
from hierlearn.pipeline.export import Graph
from hierlearn.pipeline.remember import MemoryFolder, remember
from hierlearn.pipeline.run import Reporting
from memory.random_memories import Case, positive_counts
from reference import node_metric as reference
from tolerances import FLOAT32, FLOAT64

QUIET = Reporting(bar=False)
PATHS = ["a/b", "a/c", "d/e"]
GROWN = Hierarchy.from_paths(["0/new", *PATHS])
each_distance = pytest.mark.parametrize("distance", ["squared", "euclidean"])


def head_of(case, *, seed=None, **options):
    """Return a head in double precision, with random weights of classes where there is a seed."""
    head = NodeMetricHead(case.hierarchy, Unprojected(case.rows.shape[-1]), **options).double()
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            head.node_weights.exponents.normal_(0, 0.1, generator=generator)
    return head


def lists(head, case):
    weights = head.node_weights().tolist()
    return case.rows.tolist(), case.targets.int().tolist(), weights


# ---------------------------------------------------------------------- against loops


@each_distance
@pytest.mark.parametrize("seed", range(6))
def test_distances_of_a_step_and_their_gradients(seed, distance):
    case = Case(seed, dag=seed % 2 == 1)
    head = head_of(case, seed=seed, distance=distance)
    found = head.distances(case.queries, case.rows, case.candidates())
    rows, targets, weights = lists(head, case)
    expected = [
        [reference.distance(q, x, y, weights, distance) for x, y in zip(rows, targets, strict=True)]
        for q in case.queries.tolist()
    ]
    FLOAT64.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    found.sum().backward()
    grad = head.node_weights.exponents.grad
    step = 1e-7
    for number, place in ((0, 0), (len(weights) - 1, 2)):  # a difference of two sums of loops
        both = []
        for sign in (1, -1):
            moved = [list(one) for one in weights]
            moved[number][place] *= np.exp(sign * step * code.RATE)
            both.append(
                sum(
                    reference.distance(q, x, y, moved, distance)
                    for q in case.queries.tolist()
                    for x, y in zip(rows, targets, strict=True)
                )
            )
        assert float(grad[number, place]) == pytest.approx((both[0] - both[1]) / 2 / step, abs=1e-5)


@each_distance
@pytest.mark.parametrize("seed", range(6))
def test_answers_from_the_memory(seed, distance):
    case = Case(seed, dag=seed % 2 == 1)
    k = (3, 9, 400)[seed % 3]
    head = head_of(case, seed=seed, distance=distance, scale=0.7, neighbors=k)
    head.memory.set(case.rows, case.remembered())
    found = head.look_up(case.queries).log_p.exp()
    head.memory.is_traced = True
    traced = head.look_up(case.queries).log_p.exp()
    rows, targets, weights = lists(head, case)
    options = {"kind": distance, "scale": 0.7, "k": k, "parents": case.parents}
    expected = [
        reference.answers(q, rows, targets, weights, **options) for q in case.queries.tolist()
    ]
    FLOAT64.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    FLOAT64.assert_close(traced, torch.tensor(expected, dtype=torch.float64))


def test_search_in_blocks_finds_the_same_rows(monkeypatch):
    case = Case(3, rows=50, queries=7)
    head = head_of(case, seed=1)
    head.memory.set(case.rows, case.remembered())
    whole = head.search(case.queries, 8)
    monkeypatch.setattr(code, "ROWS", 6)
    monkeypatch.setattr(code, "GATHERED", 30)
    monkeypatch.setattr(store, "DENSE", 0)
    head.memory.set(case.rows, case.remembered())
    blocks = list(head.memory.targets_of_sets(2 * len(case.hierarchy)))
    assert len(blocks) > 1
    assert torch.equal(torch.cat(blocks), case.remembered().labels.sets.targets())
    for one, other in zip(head.search(case.queries, 8), whole, strict=True):
        FLOAT64.assert_close(one, other)


def test_sparse_sums_over_labels_are_the_dense_ones(monkeypatch):
    targets = torch.rand(30, 40, generator=torch.Generator().manual_seed(0)) < 0.02
    weights = torch.rand(40, 5, dtype=torch.float64, requires_grad=True)
    dense = label_means(targets, weights)
    (expected,) = torch.autograd.grad(dense.square().sum(), weights)
    monkeypatch.setattr(code, "LARGE", 0)
    monkeypatch.setattr(code, "DENSITY", 1.0)
    sparse = label_means(targets, weights)
    assert not targets.any(dim=1).all()  # some rows have no label
    FLOAT64.assert_close(sparse, dense)
    (found,) = torch.autograd.grad(sparse.square().sum(), weights)
    FLOAT64.assert_close(found, expected)


# ---------------------------------------------------------------------- identities


@each_distance
@pytest.mark.parametrize("policy", ["negative", "ignore"])
def test_at_the_start_it_is_the_plain_memory(distance, policy):
    case = Case(4, policy=policy)
    counts = positive_counts(case, 4)
    node, plain = head_of(case, distance=distance), case.full_head(counts, distance=distance)
    node.memory.set(case.rows, case.remembered(counts))
    candidates = case.candidates(weighted=True)
    for ask in (
        lambda head: head.compare(case.queries, case.rows, candidates),
        lambda head: head.look_up(case.queries),
    ):
        FLOAT64.assert_close(ask(node).log_p, ask(plain).log_p)
        FLOAT64.assert_close(ask(node).log_not_p, ask(plain).log_not_p)


def test_equal_weights_of_all_classes_are_a_scale():
    case = Case(6)
    node, plain = head_of(case), case.head(scale=4.0)
    with torch.no_grad():
        node.node_weights.exponents.fill_(np.log(4.0) / code.RATE)
    case.labels = Labels([[0]] * 9, case.hierarchy, numbers=True)  # else 1 without any label
    found = node.compare(case.queries, case.rows, case.candidates())
    FLOAT64.assert_close(
        found.log_p, plain.compare(case.queries, case.rows, case.candidates()).log_p
    )


def test_members_answer_as_they_do_alone():
    case = Case(5)
    heads = [head_of(case, seed=seed) for seed in (1, 2)]
    assert is_stackable(heads[0])
    both = stacked(heads)
    for head in (both, *heads):
        rows = torch.stack([case.rows, case.rows + 1]) if head is both else case.rows
        head.memory.set(rows, case.remembered())
    heads[1].memory.set(case.rows + 1, case.remembered())
    queries = torch.stack([case.queries, case.queries - 1])
    candidates = type(case.candidates())(
        *(torch.stack([one, one]) for one in (case.targets, case.excluded))
    )
    answers = both.look_up(queries)
    step = both.compare(queries, torch.stack([case.rows, case.rows + 1]), candidates)
    for member, head in enumerate(heads):
        FLOAT64.assert_close(answers.log_p[member], head.look_up(queries[member]).log_p)
        alone = head.compare(queries[member], case.rows + member, candidates.member(member))
        FLOAT64.assert_close(step.log_p[member], alone.log_p)


# ---------------------------------------------------------------------- what it cannot do


def test_what_is_refused():
    case = Case(1)
    with pytest.raises(HierlearnError, match="weighs squared differences, not a cosine"):
        head_of(case, distance="cosine")
    with pytest.raises(HierlearnError, match=r"unknown metric 'leaf'; known: node, package\."):
        neighbor_head(4, case.hierarchy, metric="leaf")
    head = head_of(case)
    head.memory.set(case.rows, case.remembered())
    with pytest.raises(HierlearnError, match="has no approximate index"):
        head.build_index(0.9)


# ---------------------------------------------------------------------- train, save, remember


def problem():
    tree = Hierarchy.from_paths(PATHS)
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, 60)
    inputs = np.eye(3)[kinds] * 2 + rng.normal(0, 0.3, (60, 3))
    labels = [[["a/b"], ["a/c"], ["d/e"]][kind] for kind in kinds]
    return Dataset(inputs.astype(np.float32), labels, tree)


@pytest.fixture(scope="module")
def pipeline():
    settings = {"epochs": 6, "batch_size": 16, "device": "cpu", "learning_rate": 0.02}
    plan = Plan(recipe="verma", settings={**settings, "ensemble_size": 2})
    return train(problem(), plan, reporting=QUIET)


def weights_of(pipeline):
    found = [v for k, v in pipeline.network.state_dict().items() if "exponents" in k]
    assert len(found) == 1
    return found[0]


def test_the_recipe_learns_weights_and_is_read_from_its_folder(pipeline, tmp_path):
    assert weights_of(pipeline).shape == (2, 5, 128)
    assert (weights_of(pipeline) != 0).any(dim=-1).all()
    inputs = problem().inputs
    pipeline.save(tmp_path / "model")
    loaded = Pipeline.load(tmp_path / "model")
    FLOAT32.assert_close(loaded.probabilities(inputs), pipeline.probabilities(inputs))
    graph = Graph(pipeline).eval()(torch.from_numpy(inputs))
    FLOAT32.assert_close(graph, pipeline.probabilities(inputs))
    assert len(explain(loaded, inputs[:2])) == 2


def remember_in_folder(folder, inputs, labels):
    with MemoryFolder.open(folder) as memory:
        memory.remember(inputs, labels, hierarchy=GROWN)


def remember_in_memory(folder, inputs, labels):
    loaded = Pipeline.load(folder)
    remember(loaded, inputs, labels, hierarchy=GROWN)
    loaded.save(folder, force=True)


@pytest.mark.parametrize("add", [remember_in_folder, remember_in_memory])
def test_a_new_class_has_the_weights_of_the_start(pipeline, tmp_path, add):
    folder = tmp_path / "model"
    pipeline.save(folder)
    new = np.full((3, 3), -3.0, dtype=np.float32)
    add(folder, new, [["0"], ["0/new"], ["0/new"]])
    loaded = Pipeline.load(folder)
    before, after = weights_of(pipeline), weights_of(loaded)
    assert after.shape[1] == 7
    names = pipeline.hierarchy.names
    for number, name in enumerate(loaded.hierarchy.names):
        if name in names:
            assert torch.equal(after[:, number], before[:, names.index(name)])
        else:
            assert (after[:, number] == 0).all()
    assert float(loaded.probabilities(new[:1])[0, loaded.hierarchy.index("0")]) > 0.9
    old = problem().inputs[:5]
    columns = [loaded.hierarchy.index(name) for name in names]
    change = loaded.probabilities(old)[:, columns] - pipeline.probabilities(old)
    assert float(change.abs().max()) < 0.05


def test_of_classes_that_become_one_the_first_counts():
    weights = NodeWeights(4, 1)
    with torch.no_grad():
        weights.exponents.copy_(torch.tensor([[1.0], [2], [3], [4]]))
    weights.move([[2], [2], [0, 1], []], 3)
    assert weights.exponents.flatten().tolist() == [0.0, 0.0, 1.0]
