"""What every metric of the registry keeps to, whatever it measures."""

import math

import pytest
import torch

import hierlearn
from hierlearn import Hierarchy, metrics
from hierlearn.decoding import make_decoder
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.lab import cafa
from hierlearn.metrics import METRICS
from metrics.score_batches import DIAMOND, assert_same, random_batch
from reference.metrics import answers as naive_answers

WIDE = Hierarchy.from_paths(
    ["a/b/c", "a/b/d", "a/e", "f/g", "f/h", "i", "j/k"]
)  # 7 leaves, enough for hier-dist@5
WIDE_DAG = Hierarchy.from_edges(
    [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), *(("c", f"e{i}") for i in range(4))]
)
ONE = Hierarchy.from_paths(["only"])
FLAT = Hierarchy.from_paths([f"c{i}" for i in range(6)])
CHAIN = Hierarchy.from_paths(["a/b/c/d/e"])
ALL = [WIDE, WIDE_DAG, ONE, FLAT, CHAIN, DIAMOND]
each_metric = pytest.mark.parametrize("name", METRICS)


def fitting(name):
    return [h for h in ALL if METRICS[name].unsupported_reason(h) is None]


def leaf_batch(hierarchy, rows=40):
    """One leaf label a row."""
    batch = random_batch(hierarchy, rows)
    numbers = torch.randint(
        0, len(hierarchy.leaves), (rows,), generator=torch.Generator().manual_seed(1)
    )
    names = [hierarchy.names[hierarchy.leaves[i]] for i in numbers.tolist()]
    batch.targets = hierarchy.encode([[name] for name in names])
    return batch


def perfect(batch):
    """Scores that are sure of the truth, and of deeper classes no less than of their parents.

    They are probabilities, coherent up to a tolerance of 1e-6 and calibrated up to 1e-6.
    """
    levels = torch.tensor(batch.hierarchy.levels)
    return batch.targets * (1 - 1e-7 * (batch.hierarchy.depth - levels))


def bounds(name, hierarchy):
    """The smallest and the largest value that a metric may have."""
    return {
        "severity": (1, hierarchy.depth),
        "coverage": (1, len(hierarchy)),
        "hier-dist-path": (0, 2 * hierarchy.depth),
        "mean-level": (1, hierarchy.depth),
        "coherence-violations": (0, len(hierarchy.structure.parent_ids)),
        "smin": (0, math.inf),
        **dict.fromkeys(
            ("hier-dist", "lca-height", "hier-dist@5", "mistake-severity"),
            (0, hierarchy.root_height),
        ),
    }.get(name, (0, 1))


def worst(values):
    return values[~values.isnan()]


def test_the_names():
    assert list(METRICS) == [metric.name for metric in METRICS.values()]
    assert hierlearn.METRICS is METRICS
    expected = {"hit@1", "hit@5", "mrr", "hier-dist", "lca-height", "hier-dist-path"}
    expected |= {"hier-dist@5", "mistake-severity", "terminal-accuracy", "leaf-accuracy"}
    expected |= {"level-accuracy", "mean-level", "ap-micro", "ap-macro", "au-prc", "clus-au-prc"}
    expected |= {"coverage", "calibration-error", "hier-precision", "hier-recall", "hier-f1"}
    expected |= {"exact-match", "coherence-violations", "fmax", "weighted-fmax", "smin"}
    expected |= {"accuracy", "exact", "severity", "f1", "calibration", "answered", "complete"}
    assert set(METRICS) == expected


def sets_at_a_half(scores, hierarchy):
    return hierarchy.max_up(scores) >= 0.5


def answered(figure):
    """Return a figure of the best terminal classes, by the loops of the reference."""

    def loop(s, t, x, h):
        chosen = make_decoder(x, "leaf")(s).tolist()
        truth = [row.nonzero()[:, 0].tolist() for row in t]
        parents = [list(h.parents(c)) for c in range(len(h))]
        terminals = set(x.terminals.tolist())
        found = naive_answers.figures([[c] for c in chosen], truth, s.tolist(), parents, terminals)
        return torch.tensor(found[figure], dtype=torch.float64)

    return loop


EXPLICIT = {  # of scores, targets and a label space, whose hierarchy is h
    "hit@1": lambda s, t, x, h: metrics.hit_at_k(s, t, k=1),
    "hit@5": lambda s, t, x, h: metrics.hit_at_k(s, t, k=5),
    "mrr": lambda s, t, x, h: metrics.mean_reciprocal_rank(s, t),
    "coverage": lambda s, t, x, h: metrics.coverage(s, t),
    "hier-dist": lambda s, t, x, h: metrics.hier_dist(s, t, h),
    "lca-height": lambda s, t, x, h: metrics.hier_dist(
        s, t, x, candidates="terminal", correct_cost="zero"
    ),
    "hier-dist-path": lambda s, t, x, h: metrics.hier_dist(
        s, t, h, distance="path", reference="terminal"
    ),
    "hier-dist@5": lambda s, t, x, h: metrics.hier_dist(s, t, x, candidates="terminal", k=5),
    "mistake-severity": lambda s, t, x, h: metrics.mistake_severity(s, t, h),
    "terminal-accuracy": lambda s, t, x, h: metrics.terminal_accuracy(s, t, x),
    "leaf-accuracy": lambda s, t, x, h: metrics.leaf_accuracy(s, t, h),
    "level-accuracy": lambda s, t, x, h: metrics.level_accuracy(s, t, h),
    "mean-level": lambda s, t, x, h: metrics.mean_predicted_level(s, t, h),
    "ap-micro": lambda s, t, x, h: metrics.average_precision(s, t, average="micro"),
    "ap-macro": lambda s, t, x, h: metrics.average_precision(s, t, average="macro"),
    "au-prc": lambda s, t, x, h: metrics.au_prc(s, t, h),
    "clus-au-prc": lambda s, t, x, h: metrics.clus_au_prc(
        s, t, classes=metrics.evaluated_classes(h)
    ),
    "hier-precision": lambda s, t, x, h: metrics.hierarchical_precision(sets_at_a_half(s, h), t, h),
    "hier-recall": lambda s, t, x, h: metrics.hierarchical_recall(sets_at_a_half(s, h), t, h),
    "hier-f1": lambda s, t, x, h: metrics.hierarchical_f1(sets_at_a_half(s, h), t, h),
    "exact-match": lambda s, t, x, h: metrics.exact_match(sets_at_a_half(s, h), t, h),
    "calibration-error": lambda s, t, x, h: metrics.calibration_error(s, t, h, bins=15),
    "coherence-violations": lambda s, t, x, h: metrics.coherence_violations(s, h),
    "fmax": lambda s, t, x, h: cafa.cafa_curve(s, t, h).f.max(),
    "weighted-fmax": lambda s, t, x, h: cafa.cafa_curve(s, t, h).weighted_f.max(),
    "smin": lambda s, t, x, h: cafa.cafa_curve(
        s, t, h, information=cafa.information_content(t, h)
    ).s.min(),
}
EXPLICIT |= {
    name: answered(name)
    for name in ("accuracy", "exact", "severity", "f1", "calibration", "answered", "complete")
}
GO = Hierarchy.from_paths(["GO0003674/x/y", "GO0005575/z", "p/q/r", "p/s", "p/q/t"])


@each_metric
def test_it_is_the_function_with_these_options(name):
    for hierarchy, terminals in ((WIDE, None), (WIDE, ["a/b", "f"]), (GO, ["p/q"])):
        for seed in range(3):
            batch = random_batch(hierarchy, 25, seed, labels=2)
            if name == "exact-match":
                batch.scores = batch.scores.square().square()  # few at a half, so that some match
            arguments = (batch.scores, batch.targets, LabelSpace(hierarchy, terminals))
            assert_same(METRICS[name](*arguments), EXPLICIT[name](*arguments, hierarchy))


@each_metric
def test_it_says_what_it_is(name):
    metric = METRICS[name]
    assert metric.direction in ("up", "down", "none")
    assert (metric.direction == "none") == (name in ("mean-level", "answered", "complete"))
    assert metric.takes in ("scores", "probabilities")
    assert 20 < len(metric.description) < 100
    assert not metric.description.endswith(".")


@each_metric
def test_values_lie_within_the_bounds(name):
    metric = METRICS[name]
    for hierarchy in fitting(name):
        low, high = bounds(name, hierarchy)
        assert low <= high
        for seed in range(15):
            batch = random_batch(hierarchy, 1 + seed % 4, seed, labels=1 + seed % 2)
            if name == "leaf-accuracy" and not batch.targets[:, hierarchy.leaves.copy()].any():
                continue
            found = metric(batch.scores, batch.targets, hierarchy)
            assert found.dtype == torch.float64
            assert found.shape == ((hierarchy.depth,) if metric.by_level else ())
            found = worst(found.reshape(-1))
            assert (found >= low).all(), hierarchy
            assert (found <= high).all(), hierarchy
            if name not in ("mistake-severity", "severity") and not metric.by_level:
                assert len(found)


@each_metric
def test_perfect_scores_reach_the_good_end(name):
    metric = METRICS[name]
    for hierarchy in fitting(name):
        batch = leaf_batch(hierarchy)
        low, high = bounds(name, hierarchy)
        found = metric(perfect(batch), batch.targets, hierarchy)
        found = worst(found.reshape(-1))
        if metric.direction == "none" or name in ("hier-dist@5", "coverage"):
            continue  # these have no perfect end here; random scores are compared below
        if name in ("mistake-severity", "severity"):
            assert not len(found)  # no mistake
            continue
        end = torch.full_like(found, high if metric.direction == "up" else low)
        torch.testing.assert_close(found, end, rtol=0, atol=1e-6)


@each_metric
def test_perfect_scores_are_better_than_random_and_inverted_ones(name):
    metric = METRICS[name]
    if metric.direction == "none":
        pytest.skip("neither more nor less is better")
    if name in ("mistake-severity", "severity"):
        pytest.skip("perfect scores make no mistake to be judged by")
    batch = leaf_batch(WIDE)
    sign = 1 if metric.direction == "up" else -1
    good, random, bad = (
        sign * metric(scores, batch.targets, WIDE).sum()
        for scores in (perfect(batch), batch.scores, 1 - perfect(batch))
    )
    assert good > random
    assert good > bad


def test_severity_falls_where_mistakes_are_near():
    batch = leaf_batch(WIDE, rows=1)
    batch.targets = WIDE.encode(["a/b/c"])
    near, far = torch.zeros(1, len(WIDE)), torch.zeros(1, len(WIDE))
    near[0, WIDE.index("a/b/d")] = far[0, WIDE.index("j/k")] = 1.0
    values = [METRICS["mistake-severity"](s, batch.targets, WIDE) for s in (near, far)]
    assert values[0] < values[1]


@each_metric
def test_no_rows_have_no_value(name):
    batch = random_batch(WIDE, 2)
    with pytest.raises(HierlearnError, match="there are no rows: an empty test set has no"):
        METRICS[name](batch.scores[:0], batch.targets[:0], WIDE)


@each_metric
def test_a_dag_works_or_is_refused_in_a_sentence(name):
    metric = METRICS[name]
    batch = random_batch(WIDE_DAG, 12, labels=2)
    if metric.needs_tree:
        assert metric.unsupported_reason(WIDE_DAG) == f"{name} needs a tree"
        with pytest.raises(HierlearnError, match="needs a tree, but a class of this DAG has sev"):
            metric(batch.scores, batch.targets, WIDE_DAG)
    else:
        assert metric.unsupported_reason(WIDE_DAG) is None
        assert not metric(batch.scores, batch.targets, WIDE_DAG).isnan().all()


@each_metric
def test_what_is_refused_beforehand_is_refused_when_called(name):
    metric = METRICS[name]
    for hierarchy in ALL:
        batch = leaf_batch(hierarchy, 3)
        if metric.unsupported_reason(hierarchy) is None:
            metric(batch.scores, batch.targets, hierarchy)
        else:
            with pytest.raises(HierlearnError):
                metric(batch.scores, batch.targets, hierarchy)


def test_terminals_may_be_enough_where_leaves_are_not():
    metric = METRICS["hier-dist@5"]
    assert (
        metric.unsupported_reason(CHAIN) == "hier-dist@5 needs 5 terminal classes, but there are 1"
    )
    space = LabelSpace(CHAIN, ["a", "b", "c", "d"])
    assert metric.unsupported_reason(space) is None
    batch = leaf_batch(CHAIN, 3)
    metric(batch.scores, batch.targets, space)
    assert METRICS["hit@5"].unsupported_reason(ONE) == "hit@5 needs 5 classes, but there are 1"


@each_metric
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_is_that_number_in_full(name, dtype):
    metric = METRICS[name]
    batch = random_batch(WIDE, 9, labels=2)
    scores = batch.scores.to(dtype)
    expected = metric(scores.double(), batch.targets, WIDE)
    assert_same(metric(scores, batch.targets, WIDE), expected)


@each_metric
def test_another_hierarchy_is_refused(name):
    metric = METRICS[name]
    batch = random_batch(FLAT, 3)
    with pytest.raises(HierlearnError, match=rf"\(3, 6\) must be \(N, {len(WIDE)}\)"):
        metric(batch.scores, batch.targets, WIDE)
    with pytest.raises(HierlearnError, match=r"is NaN|is nan, outside"):
        metric(torch.full_like(batch.scores, torch.nan), batch.targets, FLAT)
    if name != "coherence-violations":
        with pytest.raises(HierlearnError, match=r"targets \(2, 6\) must match .*\(3, 6\)"):
            metric(batch.scores, batch.targets[:2], FLAT)


@each_metric
def test_rows_and_chunks_do_not_matter(name, monkeypatch):
    metric = METRICS[name]
    batch = random_batch(WIDE, 11, labels=2)
    expected = metric(batch.scores, batch.targets, WIDE)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(0))
    assert_same(metric(batch.scores[order], batch.targets[order], WIDE), expected)
    monkeypatch.setattr("hierlearn.hierarchy.structure.CHUNK", 2 * len(WIDE))
    assert_same(metric(batch.scores, batch.targets, WIDE), expected)


@each_metric
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_the_same(name):
    metric = METRICS[name]
    batch = random_batch(WIDE, 40, labels=2)
    scores, targets = batch.scores.mul(16).round().div(16), batch.targets
    expected = metric(scores, targets, WIDE)
    found = metric(scores.cuda(), targets.cuda(), WIDE)
    assert found.device.type == "cuda"
    assert_same(found.cpu(), expected)
    module = metric.module(LabelSpace.from_targets(WIDE, targets)).to("cuda")
    module.update(scores.cuda(), targets.cuda())
    assert module.compute().device.type == "cuda"
