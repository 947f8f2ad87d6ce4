"""NeighborHead against tests/reference/neighbors.py: training steps and answers from the memory."""

import math

import pytest
import torch
from torch import nn

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.propagate import log_zero
from hierlearn.memory import DISTANCES, Candidates, LabelSets, NeighborHead, Remembered
from hierlearn.memory.head import SCALES
from memory.random_memories import POLICIES, Case, positive_counts
from reference import neighbors as reference
from tolerances import FLOAT32, FLOAT64

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])
each_distance = pytest.mark.parametrize("distance", DISTANCES)
each_policy = pytest.mark.parametrize("policy", POLICIES)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


# ---------------------------------------------------------------------- the oracle


@each_distance
def test_distances(distance):
    case = Case(3)
    found = DISTANCES[distance](case.queries, case.rows)
    expected = [
        [reference.DISTANCES[distance](a, b) for b in case.rows.tolist()]
        for a in case.queries.tolist()
    ]
    FLOAT64.assert_close(found, tensor(expected))
    stacked = DISTANCES[distance](
        torch.stack([case.queries, case.queries + 1]), torch.stack([case.rows, case.rows - 1])
    )
    FLOAT64.assert_close(stacked[0], found)
    FLOAT64.assert_close(stacked[1], DISTANCES[distance](case.queries + 1, case.rows - 1))


@each_distance
def test_no_distance_is_below_0(distance):
    rows = torch.randn(40, 7) * 3
    assert (DISTANCES[distance](rows, rows) >= 0).all()


@each_policy
@each_distance
@pytest.mark.parametrize("seed", range(8))
def test_a_training_step_is_the_mixture_over_its_candidates(seed, distance, policy):
    case = Case(seed, dag=seed % 2 == 1, policy=policy)
    weighted = seed % 3 > 0
    head = case.head(distance=distance, scale=0.7, smoothing=0.01)
    output = head.compare(case.queries, case.rows, case.candidates(weighted=weighted))
    mask = None if case.mask is None else case.mask.tolist()
    for row, query in enumerate(case.queries.tolist()):
        weights = reference.neighbor_weights(
            query,
            case.rows.tolist(),
            0.7,
            distance,
            counts=case.counts.tolist() if weighted else None,
            excluded=case.excluded[row].nonzero()[:, 0].tolist(),
        )
        p = reference.mixture(weights, case.targets.int().tolist(), mask, case.parents)
        pairs = tensor([reference.smoothed(one, 0.01) for one in p])
        FLOAT64.assert_close(output.log_p[row].exp(), pairs[:, 0])
        FLOAT64.assert_close(output.log_not_p[row].exp(), pairs[:, 1])


@each_policy
@each_distance
@pytest.mark.parametrize("seed", range(8))
def test_an_answer_is_the_mixture_over_the_nearest_remembered_rows(seed, distance, policy):
    case = Case(seed, dag=seed % 2 == 1, policy=policy)
    counts = positive_counts(case, seed) if seed % 3 else None
    k = (3, 9, 400)[seed % 3]
    head = case.full_head(counts, distance=distance, scale=0.7, neighbors=k)
    output = head.look_up(case.queries)
    rows, targets = case.rows.tolist(), case.targets.int().tolist()
    mask = None if case.mask is None else case.mask.tolist()
    for row, query in enumerate(case.queries.tolist()):
        near = reference.nearest(query, rows, k, distance)
        weights = reference.neighbor_weights(
            query, rows, 0.7, distance, counts=counts, excluded=set(range(9)).difference(near)
        )
        p = reference.mixture(weights, targets, mask, case.parents)
        # Weights of remembered rows are kept in single precision.
        close = FLOAT64 if counts is None else FLOAT32
        close.assert_close(output.log_p[row].exp(), tensor(p))
        close.assert_close(output.log_not_p[row].exp(), 1 - tensor(p))


@each_distance
def test_the_default_scale_and_a_learned_one(distance):
    case = Case(1)
    plain = case.head(distance=distance)
    assert plain.scale() == SCALES[distance]
    learned = case.head(distance=distance, learn_scale=True)
    FLOAT32.assert_close(learned.scale(), tensor(SCALES[distance]))
    candidates = case.candidates()
    found = learned.compare(case.queries, case.rows, candidates).log_p
    FLOAT32.assert_close(found, plain.compare(case.queries, case.rows, candidates).log_p)
    found.sum().backward()
    assert learned.scale.log_scale.grad.abs() > 0


def test_forward_embeds_and_then_compares_or_looks_up():
    projection = nn.Linear(5, 3).double()
    case = Case(2)
    head = NeighborHead(case.hierarchy, projection)
    head.memory.set(case.rows, case.remembered())
    features, others = (torch.randn(n, 5, dtype=torch.float64) for n in (4, 9))
    with torch.no_grad():
        found = head(features, others, case.candidates())
        expected = head.compare(projection(features), projection(others), case.candidates())
        FLOAT64.assert_close(found.log_p, expected.log_p)
        FLOAT64.assert_close(head(features).log_p, head.look_up(projection(features)).log_p)


def test_members_are_compared_as_they_are_alone():
    cases = [Case(5, policy="ignore"), Case(5, policy="ignore")]
    cases[1].rows, cases[1].queries = cases[0].rows * 2, cases[0].queries - 1
    head = cases[0].head(distance="euclidean")
    parts = [case.candidates(weighted=True) for case in cases]
    both = Candidates(
        *(
            torch.stack([getattr(part, name) for part in parts])
            for name in ("targets", "excluded", "mask", "weight")
        )
    )
    queries, rows = (torch.stack([getattr(c, n) for c in cases]) for n in ("queries", "rows"))
    found = head.compare(queries, rows, both)
    head.memory.set(rows, cases[0].remembered())
    answers = head.look_up(queries)
    for member, case in enumerate(cases):
        alone = head.compare(case.queries, case.rows, both.member(member))
        FLOAT64.assert_close(found.log_p[member], alone.log_p)
        own = case.full_head(distance="euclidean").look_up(case.queries)
        FLOAT64.assert_close(answers.log_p[member], own.log_p)
        FLOAT64.assert_close(answers.log_not_p[member], own.log_not_p)


# ---------------------------------------------------------------------- exact answers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@each_policy
def test_0_and_1_are_exact_where_all_neighbors_agree(dtype, policy):
    labels = Labels([["a/b"]] * 30 + [["d"]] * 30, TREE, unlabeled_descendants=policy)
    rows = Remembered(LabelSets.from_labels(labels), [str(n) for n in range(60)])
    embeddings = torch.randn(60, 4, dtype=dtype) * 0.01
    embeddings[30:] += 10
    head = NeighborHead(TREE, nn.Identity(), neighbors=30, scale=0.3).to(dtype)
    head.memory.set(embeddings, rows)
    output = head.look_up(torch.zeros(1, 4, dtype=dtype))
    sure = TREE.encode([["a/b"]])
    assert (output.log_p[sure] == 0).all()
    assert (output.log_not_p[sure] == log_zero(dtype)).all()
    assert (output.log_p[~sure] == log_zero(dtype)).all()
    assert (output.log_not_p[~sure] == 0).all()
    assert torch.equal(output.probabilities, sure.to(dtype))


@each_policy
def test_without_any_candidate_no_class_applies(policy):
    case = Case(4, policy=policy)
    head = case.head(smoothing=0.01)
    nothing = Candidates(case.targets, torch.ones_like(case.excluded), case.mask)
    output = head.compare(case.queries, case.rows, nothing)
    FLOAT64.assert_close(output.probabilities, torch.full_like(output.log_p, 0.01))
    FLOAT64.assert_close(output.log_p.exp() + output.log_not_p.exp(), torch.ones_like(output.log_p))


def test_a_candidate_of_weight_0_is_left_out_however_near():
    far = torch.tensor([[0.0], [1000.0], [1001.0]], dtype=torch.float64)
    targets = TREE.encode([["a/b"], ["d"], ["a/c"]])
    excluded = torch.zeros(1, 3, dtype=torch.bool)
    weight = torch.tensor([0.0, 1.0, 1.0])
    head = NeighborHead(TREE, nn.Identity(), scale=1.0)
    p = head.compare(far[:1], far, Candidates(targets, excluded, None, weight)).probabilities
    assert p[0, TREE.index("d")] > 0.999
    assert p[0, TREE.index("a/b")] < 1e-5


# ---------------------------------------------------------------------- gradients


def differentiable(case, distance, *, weighted):
    """Return the head, and a function of queries, rows and the log scale."""
    head = case.head(distance=distance, learn_scale=True, smoothing=0.01)
    candidates = case.candidates(weighted=weighted)

    def compare(queries, rows, log_scale):
        del head.scale.log_scale
        head.scale.log_scale = log_scale
        return head.compare(queries, rows, candidates).pair

    inputs = (case.queries, case.rows, tensor(0.2))
    return compare, tuple(one.clone().requires_grad_() for one in inputs)


@each_policy
@each_distance
def test_gradients(distance, policy):
    case = Case(11, policy=policy, rows=6, queries=3)
    compare, inputs = differentiable(case, distance, weighted=True)
    assert torch.autograd.gradcheck(compare, inputs)


@each_distance
def test_second_derivatives(distance):
    case = Case(12, rows=4, queries=2, width=2)
    compare, inputs = differentiable(case, distance, weighted=False)
    assert torch.autograd.gradgradcheck(compare, inputs)


def finite_gradients(head, queries, rows, candidates):
    queries, rows = queries.clone().requires_grad_(), rows.clone().requires_grad_()
    output = head.compare(queries, rows, candidates)
    (output.log_p.sum() - 0.3 * output.log_not_p.sum()).backward()
    assert output.log_p.isfinite().all()
    assert output.log_not_p.isfinite().all()
    assert queries.grad.isfinite().all()
    assert rows.grad.isfinite().all()
    return queries.grad, rows.grad


@each_policy
@each_distance
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_gradient_is_nan(distance, policy, dtype):
    case = Case(6, policy=policy)
    head = case.head(distance=distance, learn_scale=True).to(dtype)
    queries, rows = case.queries.to(dtype), case.rows.to(dtype)
    everything = torch.ones_like(case.excluded)
    none = Candidates(case.targets, everything, case.mask)
    for gradient in finite_gradients(head, queries, rows, none):
        assert not gradient.any()
    some = case.candidates(weighted=True)
    coincide = rows.clone()
    coincide[0], coincide[1] = queries[0], rows[2]
    finite_gradients(head, queries, coincide, some)
    finite_gradients(head, rows[:4], rows, some)  # each row meets itself
    for factor in (1e4, 1e-4):
        finite_gradients(head, factor * queries, factor * rows, some)
    absent = Candidates(torch.zeros_like(case.targets), case.excluded, case.mask)
    finite_gradients(head, queries, rows, absent)
    assert head.scale.log_scale.grad.isfinite()


def test_a_learned_scale_has_a_gradient_in_answers_with_exact_zeros():
    case = Case(6)
    head = case.full_head(neighbors=2, learn_scale=True)
    output = head.look_up(case.queries)
    assert (output.log_p == log_zero(torch.float64)).any()
    sum(output.pair).sum().backward()
    assert head.scale.log_scale.grad.isfinite()
    assert head.scale.log_scale.grad != 0


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distance": "manhatan"}, "unknown distance 'manhatan'"),
        ({"scale": 0.0}, "scale must be a number above 0, not 0.0"),
        ({"scale": math.inf}, "scale must be a number above 0, not inf"),
        ({"neighbors": 0}, "neighbors must be an integer of at least 1, not 0"),
        ({"candidates": True}, "candidates must be an integer of at least 0, not True"),
        ({"candidates": 3.0}, "candidates must be an integer of at least 0, not 3.0"),
        ({"smoothing": 0.0}, "smoothing must lie between 0 and 0.5, not 0.0"),
        ({"smoothing": 0.5}, "smoothing must lie between 0 and 0.5, not 0.5"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(HierlearnError, match=message):
        NeighborHead(TREE, nn.Identity(), **options)


def test_an_empty_memory_answers_nothing():
    head = NeighborHead(TREE, nn.Identity())
    with pytest.raises(HierlearnError, match="the memory is empty"):
        head(torch.randn(2, 3))


def test_what_is_printed():
    head = Case(0).full_head(neighbors=5)
    assert "squared, 5 neighbors, 2048 candidates" in repr(head)
    assert "9 rows" in repr(head)


@pytest.mark.parametrize("far", [50.0, 88.0, 95.0, 103.0, 1e4])
def test_gradients_stay_finite_where_only_far_rows_know_a_class(far):
    """Weights down to 1e-45 know the class "a/b"; the reciprocal of such a weight is infinite."""
    tree = Hierarchy.from_paths(["a/b", "a/c"])
    head = NeighborHead(tree, nn.Identity(), distance="euclidean", scale=1.0)
    queries = torch.zeros(1, 1, requires_grad=True)
    others = torch.tensor([[0.5], [far], [far + 1]], requires_grad=True)
    labels = Labels([["a"], ["a/b"], ["a/c"]], tree, unlabeled_descendants="ignore")
    candidates = Candidates(labels.targets(), torch.zeros(1, 3, dtype=torch.bool), labels.mask())
    output = head(queries, others, candidates)
    (output.log_p.sum() + output.log_not_p.sum()).backward()
    assert bool(torch.isfinite(queries.grad).all())
    assert bool(torch.isfinite(others.grad).all())
