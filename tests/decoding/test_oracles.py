"""Every decoder equals the naive loops of tests/reference, on random trees and DAGs, with ties."""

import math
import random
from fractions import Fraction

import pytest
import torch

from decoding.probability_cases import random_case, some_terminals
from hierlearn.decoding import (
    DECODERS,
    Argmax,
    Coherent,
    ConformalSets,
    Cost,
    ExpectedF,
    Leaf,
    Stop,
    Subset,
    TopDown,
    ancestor_sets,
    greedy_chain,
    risk_threshold,
    terminal_mass,
)
from hierlearn.decoding.decoder import common_ancestors, most_specific, topmost
from hierlearn.decoding.guarantees import error_scores
from hierlearn.hierarchy import LabelSpace
from reference import decoding as reference
from reference.decoding.balanced import worths
from reference.taxonomy import ancestors_or_self

THRESHOLDS = [0.0, 0.25, 0.5, 0.75, 1.0]
seeds = pytest.mark.parametrize("seed", range(60))


def is_dag(seed):
    return seed % 2 == 1


@seeds
def test_any_probabilities(seed):
    """The decoders that only compare p take every p."""
    case = random_case(seed, dag=is_dag(seed), adds_up=seed % 3 == 0)
    h, p, rows, parents = case.hierarchy, case.p, case.rows, case.parents
    inner, terminals = some_terminals(case, seed)
    threshold = THRESHOLDS[seed % 5]
    assert Argmax(h)(p).tolist() == reference.argmax(rows, parents)
    assert Leaf(h)(p).tolist() == reference.leaf(rows, parents)
    assert Leaf(LabelSpace(h, inner))(p).tolist() == reference.leaf(rows, parents, terminals)
    assert greedy_chain(p, h).tolist() == reference.greedy_chains(rows, parents)
    assert Stop(h, threshold)(p).tolist() == reference.stop(rows, parents, threshold)
    assert Coherent(h, threshold)(p).tolist() == reference.coherent(rows, parents, threshold)
    if h.is_tree:
        assert TopDown(h)(p).tolist() == reference.top_down(rows, parents)


@seeds
def test_sets_of_classes(seed):
    case = random_case(seed, dag=is_dag(seed))
    rng = random.Random(seed)
    classes = [rng.randrange(-1, len(case.hierarchy)) for _ in range(7)]
    found = ancestor_sets(case.hierarchy, torch.tensor(classes))
    assert found.tolist() == reference.ancestor_sets(classes, case.parents)
    stop = Stop(case.hierarchy, 0.5)
    expected = reference.ancestor_sets(stop(case.p).tolist(), case.parents)
    assert stop.sets(case.p).tolist() == expected


@seeds
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_terminal_mass(seed, dtype):
    case = random_case(seed, dag=is_dag(seed))
    found = terminal_mass(case.p.to(dtype), case.hierarchy)
    assert found.dtype == dtype
    expected = [reference.terminal_mass(row, case.parents) for row in case.rows]
    assert found.tolist() == expected  # multiples of 1 / 1024: sums are exact


@seeds
def test_cost(seed):
    case = random_case(seed)
    h, p, rows, parents = case.hierarchy, case.p, case.fractions, case.parents
    inner, terminals = some_terminals(case, seed)
    for cost in ("lca-height", "path"):
        expected = torch.tensor(
            [[float(x) for x in reference.expected_costs(row, parents, cost)] for row in rows],
            dtype=torch.float64,
        )
        torch.testing.assert_close(Cost(h, cost).expected(p), expected, rtol=0, atol=1e-12)
        for candidates, given, wanted in (
            ("all", None, None),
            ("leaves", None, None),
            ("terminal", inner, terminals),
            ("terminal", None, None),
        ):
            found = Cost(LabelSpace(h, given), cost, candidates)(p).tolist()
            assert found == reference.cost(rows, parents, cost, candidates, wanted)


@seeds
def test_cost_of_a_tensor(seed):
    case = random_case(seed, dag=is_dag(seed))
    h, rows, parents = case.hierarchy, case.rows, case.parents
    rng = random.Random(seed)
    table = [[rng.randint(0, 4) for _ in parents] for _ in parents]
    for candidates in ("all", "leaves"):
        expected = reference.cost(rows, parents, table, candidates)
        assert Cost(h, torch.tensor(table), candidates)(case.p).tolist() == expected
    picked = torch.tensor(table)[torch.tensor(h.leaves)]
    assert Cost(h, picked, "leaves")(case.p).tolist() == expected


def assert_as_good(chosen, expected, row, case, beta=1):
    """The set of largest expected F, or one of the same size that scores exactly the same.

    Two sets may score the same by different sums, and only rounding tells them apart.
    """
    if chosen != expected:
        sets = [[c for c, inside in enumerate(one) if inside] for one in (chosen, expected)]
        scores = reference.expected_fs(sets, row, case.parents, beta)
        assert len(sets[0]) == len(sets[1])
        assert scores[0] == scores[1]


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("most", [128, 3, 1])
def test_expected_f(seed, most, monkeypatch):
    """The best of all closed sets; few classes shown first make many rows fall back on all."""
    monkeypatch.setattr("hierlearn.decoding.sets.MOST_PROBABLE", most)
    case = random_case(seed, dag=is_dag(seed), most=9)
    beta = [1, 2, 0.5][seed % 3]
    found = ExpectedF(case.hierarchy, beta)(case.p).tolist()
    best = reference.expected_f(case.fractions, case.parents, beta)
    for row, chosen, expected in zip(case.fractions, found, best, strict=True):
        assert_as_good(chosen, expected, row, case, beta)


@seeds
def test_conformal(seed):
    case = random_case(seed, dag=is_dag(seed), adds_up=seed % 3 > 0)
    h, p, rows, parents = case.hierarchy, case.p, case.rows, case.parents
    inner, terminals = some_terminals(case, seed)
    for spread in (None, 0.0, 0.5, 1.0):
        value = reference.conformal_values(rows[0], parents, spread, terminals)[0]
        for threshold in (0.0, 0.1, value, 1.0):  # one that ties
            decoder = ConformalSets(LabelSpace(h, inner), threshold, spread)
            options = (threshold, spread, terminals)
            expected = reference.conformal(rows, parents, *options)
            assert decoder(p).tolist() == expected
            tops = reference.conformal_subtrees(rows, parents, *options)
            assert decoder.representatives(p).tolist() == tops
            for labels, candidates in zip(decoder.sets(p).tolist(), expected, strict=True):
                inside = [c for c in terminals if candidates[c]]
                above = [set(ancestors_or_self(parents, c)) for c in inside]
                common = set.intersection(*above) if above else set()
                assert {c for c, chosen in enumerate(labels) if chosen} == common


def assert_worth_as_much(name, rows, found, expected, parents):
    """Worths are equal up to rounding: of classes that tie, either may be answered."""
    exact = {"balanced": Fraction(3, 4), "hier-f1": Fraction(0)}[name]
    for row, answer, best in zip(rows, found, expected, strict=True):
        worth = worths(row, parents, exact)
        assert float(worth[answer]) == pytest.approx(float(worth[best]), abs=1e-6)


@seeds
@pytest.mark.parametrize("name", [name for name in DECODERS if name != "subset"])
def test_only_allowed_classes(name, seed):
    """Whatever p says of the others."""
    case = random_case(seed, dag=is_dag(seed) and not DECODERS[name].needs_tree, most=8)
    h, parents = case.hierarchy, case.parents
    rng = random.Random(seed)
    keep = reference.kept_classes(
        parents, rng.sample(range(len(h)), rng.randint(1, 2) % len(h) or 1)
    )
    allowed = torch.tensor([c in keep for c in range(len(h))])
    options = {"conformal": {"threshold": 0.2}}.get(name, {})
    if name == "cost" and seed % 3:
        options = {"cost": [[rng.randint(0, 3) for _ in parents] for _ in parents]}
    oracle = {**reference.CLASS_DECODERS, **reference.SET_DECODERS}[name]
    expected = oracle(case.fractions, parents, keep=keep, **options)
    if "cost" in options:
        options = {"cost": torch.tensor(options["cost"])}
    found = DECODERS[name](h, **options).decide(case.p, allowed).tolist()
    if name in ("balanced", "hier-f1"):
        assert_worth_as_much(name, case.fractions, found, expected, parents)
        return
    if name != "expected-f":
        assert found == expected
        return
    for row, chosen, best in zip(case.fractions, found, expected, strict=True):
        assert_as_good(chosen, best, row, case)


@seeds
def test_renormalized(seed):
    case = random_case(seed, dag=is_dag(seed))
    rng = random.Random(seed)
    allowed = rng.sample(range(len(case.hierarchy)), rng.randint(1, min(3, len(case.hierarchy))))
    found = Subset(case.hierarchy, allowed).renormalized(case.p)
    expected = [
        [float(x) for x in reference.renormalized(row, case.parents, allowed)]
        for row in case.fractions
    ]
    torch.testing.assert_close(found, torch.tensor(expected).to(found), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    "name", [name for name in DECODERS if name not in ("subset", "expected-f")]
)
@pytest.mark.parametrize("seed", range(40))
def test_subset_of_every_decoder(name, seed):
    """Divisions round, so the oracle is asked about the p' that the decoder has."""
    case = random_case(seed, dag=is_dag(seed) and not DECODERS[name].needs_tree)
    rng = random.Random(seed)
    h, parents = case.hierarchy, case.parents
    allowed = rng.sample(range(len(h)), rng.randint(1, min(3, len(h))))
    options = {
        "stop": {"threshold": rng.choice(THRESHOLDS)},
        "coherent": {"threshold": rng.choice(THRESHOLDS)},
        "conformal": {"threshold": rng.choice([0.0, 0.1, 0.5]), "spread": 0.5},
        "cost": {"cost": rng.choice(["lca-height", "path"])},
    }.get(name, {})
    subset = Subset(h, allowed, name, **options)
    found = subset(case.p).tolist()
    rows = subset.renormalized(case.p).tolist()
    kept = reference.kept_classes(parents, allowed)
    oracle = {**reference.CLASS_DECODERS, **reference.SET_DECODERS}[name]
    nothing = -1 if subset.answers == "class" else [False] * len(h)
    for row, answer in zip(rows, found, strict=True):
        if name == "cost" and any(row):
            costs = reference.expected_costs(row, parents, options["cost"])
            least = min(costs[c] for c in kept)
            assert answer in kept
            assert costs[answer] == pytest.approx(least, abs=1e-12)
            continue
        expected = oracle([row], parents, keep=kept, **options)[0]
        if name in ("balanced", "hier-f1") and any(row):
            assert_worth_as_much(name, [row], [answer], [expected], parents)
            continue
        assert answer == (expected if any(row) else nothing)


@pytest.mark.parametrize("seed", range(40))
def test_subset_of_expected_f(seed):
    case = random_case(seed, dag=is_dag(seed), most=8)
    rng = random.Random(seed)
    allowed = rng.sample(range(len(case.hierarchy)), rng.randint(1, min(2, len(case.hierarchy))))
    found = Subset(case.hierarchy, allowed, "expected-f")(case.p).tolist()
    best = reference.subset(case.fractions, case.parents, allowed, "expected-f")
    for row, chosen, expected in zip(case.fractions, found, best, strict=True):
        p = reference.renormalized(row, case.parents, allowed)
        assert_as_good(chosen, expected, p, case)


@seeds
def test_calibrated_thresholds(seed):
    """Many rows of one hierarchy, drawn with ties."""
    case = random_case(seed, dag=is_dag(seed), adds_up=seed % 3 > 0)
    h, parents = case.hierarchy, case.parents
    generator = torch.Generator().manual_seed(seed)
    p = case.p[torch.randint(len(case.p), (40,), generator=generator)]
    p = torch.where(torch.rand(p.shape, generator=generator) < 0.2, p / 2, p)
    labels = torch.randint(len(h), (40, 2), generator=generator).tolist()
    targets = h.encode(labels, numbers=True)
    expected = [
        reference.first_wrong(row, y, parents)
        for row, y in zip(p.tolist(), targets.tolist(), strict=True)
    ]
    assert error_scores(p, targets, h).tolist() == expected
    for alpha in (1 / 41, 0.1, 0.29, 0.6, 0.99):
        t = risk_threshold(p, targets, h, alpha)
        assert t == reference.risk_threshold(p.tolist(), targets.tolist(), parents, alpha)
        assert Stop(h).calibrate(p, targets, alpha).threshold == t
        for spread in (None, 1.0, 0.5):
            found = ConformalSets(h, spread=spread).calibrate(p, targets, alpha)
            wanted = reference.conformal_threshold(
                p.tolist(), targets.tolist(), parents, alpha, spread
            )
            assert math.isclose(found.threshold, wanted, rel_tol=1e-15)
            assert found.spread == spread


@seeds
def test_sets_along_the_edges(seed, monkeypatch):
    """Of any sets, closed or not: which true classes have no true parent, or no true child."""
    case = random_case(seed, dag=is_dag(seed), adds_up=False)
    h, parents, sets = case.hierarchy, case.parents, case.p > 0.5
    above = [reference.ancestor_sets([c], parents)[0] for c in range(len(parents))]
    for size in (2**22, 1):  # all rows in one chunk, and one row per chunk
        monkeypatch.setattr("hierlearn.hierarchy.structure.CHUNK", size)
        tops, ends, common = (f(sets, h) for f in (topmost, most_specific, common_ancestors))
        for i, row in enumerate(sets.tolist()):
            true = [c for c, inside in enumerate(row) if inside]
            expected = [c for c in true if not any(row[a] for a in parents[c])]
            assert tops[i].nonzero()[:, 0].tolist() == expected
            expected = [c for c in true if not any(c in parents[k] for k in true)]
            assert ends[i].nonzero()[:, 0].tolist() == expected
            expected = [c for c in range(len(row)) if true and all(above[k][c] for k in true)]
            assert common[i].nonzero()[:, 0].tolist() == expected
