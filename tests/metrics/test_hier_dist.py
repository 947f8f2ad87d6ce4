"""HierDist in all its modes, mistake severity and the cost of decisions."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import strategies
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics import hier_dist, hierarchical_cost, mistake_severity
from metrics.score_batches import ANIMALS, DIAMOND, assert_same, batches, random_batch, tree
from reference import metrics as naive

CANDIDATES = ("all", "terminal", "leaves")
CORRECT_COSTS = ("height", "zero")
REFERENCES = ("closure", "terminal", "annotated")


@st.composite
def annotated_batches(draw, of=strategies.taxonomies):
    """A batch, and annotated labels: some of the positives, as data may leave ancestors out."""
    batch = draw(batches(of=of))
    keep = torch.tensor(
        draw(
            st.lists(st.booleans(), min_size=batch.targets.numel(), max_size=batch.targets.numel())
        )
    )
    return batch, batch.targets & keep.view_as(batch.targets)


def check(batch, annotated, distances):
    space = LabelSpace.from_targets(batch.hierarchy, batch.targets)
    for candidates, correct_cost, reference, distance in itertools.product(
        CANDIDATES, CORRECT_COSTS, REFERENCES, distances
    ):
        given_ = annotated if reference == "annotated" else None
        options = {
            "candidates": candidates,
            "correct_cost": correct_cost,
            "reference": reference,
            "distance": distance,
        }
        lists = None if given_ is None else given_.tolist()
        for ours, theirs in (
            (hier_dist, naive.hier_dist),
            (mistake_severity, naive.mistake_severity),
        ):
            found = ours(
                batch.scores,
                batch.targets,
                space,
                **options,
                annotated=given_,
                reduction="none",
            )
            expected = theirs(
                *batch.lists, batch.parents, **options, annotated=lists, reduction="none"
            )
            assert_same(found, expected)


@given(annotated_batches())
def test_naive_loops_agree(drawn):
    check(*drawn, ["lca-height"])


@given(annotated_batches(of=strategies.trees))
def test_naive_loops_agree_on_paths(drawn):
    check(*drawn, ["path"])


@given(batches(labels=(1, 3)), st.data())
def test_means_terminals_and_k(batch, data):
    some = data.draw(st.sets(st.integers(0, len(batch.hierarchy) - 1)))
    allowed = sorted(some | set(batch.hierarchy.leaves.tolist()))  # leaves always count
    k = data.draw(st.integers(1, len(allowed)))
    space = LabelSpace(batch.hierarchy, sorted(some))
    for correct_cost in CORRECT_COSTS:
        options = {"candidates": "terminal", "correct_cost": correct_cost, "k": k}
        found = hier_dist(batch.scores, batch.targets, space, **options)
        expected = naive.hier_dist(*batch.lists, batch.parents, **options, terminals=allowed)
        assert_same(found, expected)
        found = mistake_severity(batch.scores, batch.targets, space, **options)
        expected = naive.mistake_severity(*batch.lists, batch.parents, **options, terminals=allowed)
        assert_same(found, expected)


# Truth pug (closure animal, dog, pug); the prediction scores highest. Heights: animal 2, dog 1,
# root 3; levels: animal 1, dog 2, pug 3.
BY_HAND = [
    # prediction, (height, zero) to the closure, (height, zero) to pug, path to closure, to pug
    ("pug", 0, 0, 0, 0, 0, 0),
    ("dog", 1, 0, 1, 1, 0, 1),
    ("animal", 2, 0, 2, 2, 0, 2),
    ("bulldog", 1, 1, 1, 1, 1, 2),
    ("cat", 2, 2, 2, 2, 1, 3),
    ("oak", 3, 3, 3, 3, 3, 5),
    ("plant", 3, 3, 3, 3, 2, 4),
]


@pytest.mark.parametrize("row", BY_HAND, ids=lambda row: row[0])
def test_every_mode_by_hand(row):
    name, *expected = row
    scores, targets = tree([{name: 1.0}]), ANIMALS.encode(["pug"])
    modes = [
        {},
        {"correct_cost": "zero"},
        {"reference": "terminal"},
        {"reference": "terminal", "correct_cost": "zero"},
        {"distance": "path"},
        {"distance": "path", "reference": "terminal"},
    ]
    found = [float(hier_dist(scores, targets, ANIMALS, **mode)) for mode in modes]
    assert found == expected


def test_candidates_by_hand():
    scores = tree([{"animal": 0.9, "dog": 0.8, "cat": 0.7, "pug": 0.6}])
    targets = ANIMALS.encode(["pug"])
    assert float(hier_dist(scores, targets, ANIMALS)) == 2  # animal itself: its height
    assert float(hier_dist(scores, targets, ANIMALS, candidates="leaves")) == 2  # cat
    # dog is terminal once a row ends there, and then it is the best candidate.
    targets = ANIMALS.encode(["pug", "dog"])
    scores = scores.repeat(2, 1)
    space = LabelSpace.from_targets(ANIMALS, targets)
    found = hier_dist(scores, targets, space, candidates="terminal", reduction="none")
    assert found.tolist() == [1, 1]
    found = hier_dist(
        scores, targets, space, candidates="terminal", correct_cost="zero", reduction="none"
    )
    assert found.tolist() == [0, 0]
    options = {"candidates": "terminal", "correct_cost": "zero"}
    dog = LabelSpace(ANIMALS, ["dog"])
    assert float(hier_dist(scores[:1], targets[:1], dog, **options)) == 0
    # Of a hierarchy only the leaves are terminal: cat is best.
    assert float(hier_dist(scores[:1], targets[:1], ANIMALS, **options)) == 2
    # The three best of all: animal 2, dog 1, cat 2.
    assert_same(hier_dist(scores[:1], targets[:1], ANIMALS, k=3), 5 / 3)


def test_ties_go_to_the_earlier_class():
    scores = tree([{"cat": 1.0, "pug": 1.0, "oak": 1.0}])  # cat is number 2, oak 4, pug 6
    assert float(hier_dist(scores, ANIMALS.encode(["pug"]), ANIMALS)) == 2
    assert float(hier_dist(scores, ANIMALS.encode(["pug"]), ANIMALS, k=2)) == 2.5  # cat, oak


def test_severity_is_that_of_the_mistakes_alone():
    targets = ANIMALS.encode(["pug", "pug", "pug", []])
    scores = tree([{"dog": 1}, {"cat": 1}, {"oak": 1}, {"oak": 1}])
    assert_same(mistake_severity(scores, targets, ANIMALS), 2.5)
    found = mistake_severity(scores, targets, ANIMALS, reduction="none")
    assert_same(found, [float("nan"), 2.0, 3.0, float("nan")])
    # Against the terminal label alone, dog is a mistake too.
    assert_same(mistake_severity(scores, targets, ANIMALS, reference="terminal"), 2.0)
    # No mistake: there is no severity.
    found = mistake_severity(scores[:1], targets[:1], ANIMALS)
    assert found.isnan()
    assert found.shape == ()


@given(batches(labels=(1, 3)))
def test_severity_and_correct_rows_make_up_the_distance(batch):
    """Where correct answers cost nothing, HierDist is severity times the fraction of mistakes."""
    arguments = (batch.scores, batch.targets, batch.hierarchy)
    severity = mistake_severity(*arguments)
    mistakes = (~mistake_severity(*arguments, reduction="none").isnan()).double().mean()
    expected = severity * mistakes if mistakes > 0 else torch.zeros((), dtype=torch.float64)
    assert_same(hier_dist(*arguments, correct_cost="zero"), expected)


@given(batches(), st.data())
def test_the_cost_of_decisions(batch, data):
    count, classes = batch.targets.shape
    chosen = data.draw(st.lists(st.integers(-1, classes - 1), min_size=count, max_size=count))
    decisions = torch.tensor(chosen)
    distances = ["lca-height", "path"] if batch.hierarchy.is_tree else ["lca-height"]
    targets = batch.targets.tolist()
    for distance in distances:
        found = hierarchical_cost(
            decisions, batch.targets, batch.hierarchy, distance=distance, reduction="none"
        )
        expected = naive.hierarchical_cost(
            chosen, targets, batch.parents, distance, reduction="none"
        )
        assert_same(found, expected)


def test_the_cost_of_the_root_by_hand():
    targets = ANIMALS.encode(["pug", "dog", ["pug", "oak"], []])
    root = torch.full((4,), -1)
    assert hierarchical_cost(root, targets, ANIMALS, reduction="none").tolist()[:3] == [3, 3, 3]
    found = hierarchical_cost(root, targets, ANIMALS, distance="path", reduction="none")
    assert_same(found, [3.0, 2.0, 2.0, float("nan")])
    dog = torch.full((4,), ANIMALS.index("dog"))
    found = hierarchical_cost(dog, targets, ANIMALS, reduction="none")
    assert_same(found, [1.0, 1.0, 1.0, float("nan")])


def test_what_is_refused():
    scores, targets = torch.rand(2, 7), ANIMALS.encode(["pug", "cat"])
    for option, value, known in (
        ("candidates", "leafs", "all, leaves, terminal"),
        ("correct_cost", "none", "height, zero"),
        ("reference", "closed", "annotated, closure, terminal"),
        ("distance", "edges", "lca-height, path"),
        ("reduction", "sum", "mean, none"),
    ):
        for metric in (hier_dist, mistake_severity):
            with pytest.raises(
                HierlearnError, match=f"unknown {option} '{value}'.* known: {known}"
            ):
                metric(scores, targets, ANIMALS, **{option: value})
    with pytest.raises(HierlearnError, match=r"reference 'annotated' needs annotated=, \(N, C\)"):
        hier_dist(scores, targets, ANIMALS, reference="annotated")
    with pytest.raises(HierlearnError, match=r"reference 'closure' takes no annotated=, \(N, C\)"):
        hier_dist(scores, targets, ANIMALS, annotated=targets)
    with pytest.raises(HierlearnError, match="row 0: 'animal/cat' is annotated but not among"):
        hier_dist(scores, targets, ANIMALS, reference="annotated", annotated=targets.flip(0))
    with pytest.raises(HierlearnError, match=r"annotated \(1, 7\) must match targets \(2, 7\)"):
        hier_dist(scores, targets, ANIMALS, reference="annotated", annotated=targets[:1])
    with pytest.raises(HierlearnError, match=r"k = 5 is outside 1\.\.4, the number of candidates"):
        hier_dist(scores, targets, ANIMALS, candidates="leaves", k=5)
    dag = random_batch(DIAMOND, 3)
    for metric in (hier_dist, mistake_severity):
        with pytest.raises(HierlearnError, match="distance 'path' needs a tree, but a class of"):
            metric(dag.scores, dag.targets, DIAMOND, distance="path")
        with pytest.raises(HierlearnError, match="none of the 2 rows has a label, so there is no"):
            metric(scores, torch.zeros(2, 7), ANIMALS)
    with pytest.raises(HierlearnError, match="needs a tree"):
        hierarchical_cost(torch.tensor([0]), dag.targets[:1], DIAMOND, distance="path")


def test_costs_of_no_rows_are_refused():
    targets, decisions = ANIMALS.encode(["pug", "cat"]), torch.tensor([0, -1])
    with pytest.raises(HierlearnError, match="no rows: an empty test set has no hierarchical cost"):
        hierarchical_cost(decisions[:0], targets[:0], ANIMALS)
