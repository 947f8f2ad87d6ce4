"""Scaling, against loops and bounded searches by SciPy."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from tests.reference import scaling as reference
from tests.tolerances import FLOAT32, FLOAT64_SUMS

from hierlearn import Hierarchy, LabelSpace
from hierlearn.decoding import make_decoder
from hierlearn.decoding.scaling import (
    LEVELS,
    SPREAD,
    USUAL,
    Choices,
    Scaling,
    fit_log_odds,
    fit_scaling,
    temper_answers,
)
from hierlearn.links import HeadOutput, make_link
from hierlearn.metrics import calibration_error

TREE = LabelSpace(Hierarchy.from_paths(["a/b", "a/c", "d/e/f", "d/e/g", "h"]))
DAG = LabelSpace(
    Hierarchy.from_edges([("a", "c"), ("b", "c"), ("a", "d"), ("b", "e"), ("c", "f"), ("c", "g")])
)
SPACES = {"tree": TREE, "dag": DAG, "inner": LabelSpace(TREE.hierarchy, ["a", *TREE.terminals])}


def one_path(space, rows=600, sure=2.5, seed=0):
    """Rows drawn by a softmax, and the output of a model that is too sure by a factor."""
    draw = torch.Generator().manual_seed(seed)
    link = make_link(space, "softmax")
    logits = torch.randn(rows, len(space), generator=draw, dtype=torch.float64)
    terminals = space.terminal_ids()
    q = torch.softmax(logits[:, terminals], dim=1)
    ends = terminals[torch.multinomial(q, 1, generator=draw)[:, 0]]
    names = [[space.hierarchy.names[number]] for number in ends.tolist()]
    return link.output(logits * sure), space.hierarchy.encode(names), q


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_masses_find_the_factor_back(space):
    output, targets, _ = one_path(space, rows=4000)
    found = fit_scaling(output.probabilities, targets, space)
    assert found.kind == "mass"
    assert found.slopes == (pytest.approx(1 / 2.5, rel=0.1),)
    before, after = (
        float(calibration_error(one.probabilities, targets, space, pooled=True))
        for one in (output, found(output, space))
    )
    assert after < before / 3


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_scaled_masses_are_those_of_the_true_model(space):
    output, _, q = one_path(space)
    found = Scaling("mass", (1 / 2.5,), (0.0,))(output, space).probabilities
    expected = make_link(space, "softmax").output(
        torch.zeros(len(q), len(space), dtype=torch.float64).index_copy(
            1, space.terminal_ids(), q.log()
        )
    )
    FLOAT64_SUMS.assert_close(found, expected.probabilities)


def test_the_slope_of_masses_is_the_most_likely():
    output, targets, _ = one_path(TREE, rows=300)
    leaves = TREE.terminal_ids()
    q = output.probabilities[:, leaves].tolist()
    true = targets[:, leaves].int().argmax(dim=1).tolist()
    choices = Choices.of_masses(output.probabilities, targets, TREE, np.ones(300))
    slope, share = np.exp(choices.best(np.log(USUAL), SPREAD))

    def loss(slope, share):
        rows = zip(q, true, strict=True)
        return off(slope, share, USUAL, SPREAD) + sum(
            reference.surprise_of_choice(row, taken, slope, share) for row, taken in rows
        )

    assert best(lambda x: loss(x, share)) == pytest.approx(slope, rel=1e-3)
    assert best(lambda x: loss(slope, x), (1e-6, 0.5)) == pytest.approx(share, rel=2e-2)


def off(slope, share, center, deviations):
    """What being off the usual values costs."""
    found = np.log([slope, share]) - np.log(center)
    return np.sum((found / deviations) ** 2) / 2


def best(loss, limits=(0.05, 20)):
    """The minimum of a function of a positive number."""
    logs = tuple(np.log(limits))
    search = {"bounds": logs, "method": "bounded", "options": {"xatol": 1e-7}}
    return np.exp(minimize_scalar(lambda x: loss(np.exp(x)), **search).x)


def many_labels(rows=500, seed=0):
    draw = np.random.default_rng(seed)
    z = draw.normal(-1, 2, size=(rows, len(TREE)))
    targets = draw.random(z.shape) < 1 / (1 + np.exp(-(0.6 * z - 0.4)))
    return torch.from_numpy(1 / (1 + np.exp(-z))), torch.from_numpy(targets), z


def parts(z):
    """What lies of log-odds above 0, and below 0 between p of 0.5, 0.1, 0.01 and 0."""
    ends = [0.0, math.log(0.1 / 0.9), math.log(0.01 / 0.99), -math.inf]
    return [max(z, 0.0)] + [min(max(z, low), high) - high for high, low in pairwise(ends)]


def surprise(z, true, slopes):
    """Minus the log-likelihood of entries, and what slopes other than 1 cost."""
    scaled = [sum(s * x for s, x in zip(slopes, parts(one), strict=True)) for one in z]
    found = sum(np.logaddexp(0, -x if y else x) for x, y in zip(scaled, true, strict=True))
    return found + sum((s - 1) ** 2 for s in slopes) / 2


def test_the_slopes_of_log_odds_are_the_most_likely():
    p, targets, z = many_labels()
    known = torch.rand(p.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    flipped = torch.where(known, targets, ~targets)
    found = fit_scaling(p, flipped, TREE, known)
    assert found.kind == "log-odds"
    entries, true = z[known.numpy()], targets[known].tolist()
    for place, slope in enumerate(found.slopes):

        def loss(x, place=place):
            return surprise(entries, true, [*found.slopes[:place], x, *found.slopes[place + 1 :]])

        assert best(loss) == pytest.approx(slope, rel=1e-2)


def test_scaled_log_odds_keep_every_ranking_and_stay_below_the_parent():
    draw = torch.Generator().manual_seed(1)
    output = make_link(TREE, "max").output(3 * torch.randn(50, len(TREE), generator=draw).double())
    slopes = (0.4, 2.0, 0.5, 0.1)
    found = Scaling("log-odds", slopes, ())(output, TREE).probabilities
    flat = output.probabilities.flatten()
    assert torch.equal(flat.argsort(stable=True), found.flatten().argsort(stable=True))
    assert torch.equal(flat >= 0.5, found.flatten() >= 0.5)
    hierarchy = TREE.hierarchy
    for child in range(len(hierarchy)):
        for parent in hierarchy.parents(child):
            assert bool((found[:, child] <= found[:, parent]).all())
    for one, scaled in zip(torch.logit(flat).tolist(), found.flatten().tolist(), strict=True):
        z = sum(s * x for s, x in zip(slopes, parts(one), strict=True))
        assert scaled == pytest.approx(1 / (1 + math.exp(-z)), rel=1e-6)


def test_the_pair_sums_to_1():
    p = torch.tensor([[0.9, 0.4, 0.3, 0.6, 0.5, 0.2, 0.1, 0.05]])
    found = Scaling("log-odds", (2.0, 0.5, 0.5, 3.0), ())(HeadOutput(p.log(), (1 - p).log()), TREE)
    FLOAT32.assert_close(found.log_p.exp() + found.log_not_p.exp(), torch.ones_like(p))


def test_a_model_that_is_always_wrong_is_not_turned_around():
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2]]).repeat(50, 1)
    found = fit_log_odds(p, p < 0.5)
    assert min(found.slopes) >= 0.05


def test_rows_with_several_labels_get_scaled_log_odds():
    output, targets, _ = one_path(TREE, rows=50)
    targets = targets | targets.roll(1, 0)
    assert fit_scaling(output.probabilities, targets, TREE).kind == "log-odds"


def test_plain_values():
    scaling = Scaling("steps", (0.5, 0.4), (0.25, 0.0), True)
    assert Scaling.from_dict(scaling.to_dict()) == scaling
    assert Scaling.from_dict(None) is None


# ---------------------------------------------------------------------- steps

SURE = (3.0, 0.5, 1.6)  # by level


def of_steps(space, rows=500, seed=0, empty=False):
    """Rows that walk down a tree, and the probabilities of a model that is wrongly sure by level.

    Where rows may end at a class with children, they do so as if that were another child.
    """
    draw = np.random.default_rng(seed)
    h = space.hierarchy
    parents, levels = h.structure.first_parents.tolist(), h.levels.tolist()
    ends = [c for c in space.terminals.tolist() if c in parents] + [-1] * empty
    p, true = np.zeros((rows, len(h))), np.zeros((rows, len(h)), dtype=bool)
    for i in range(rows):
        walking = {-1: 1.0}
        here = -1
        for parent in [-1, *range(len(h))]:
            children = [c for c in range(len(h)) if parents[c] == parent]
            choices = children + [None] * (parent in ends)
            if not children:
                continue
            level = 0 if parent < 0 else levels[parent]
            z = draw.normal(0, 1.5, len(choices))
            real, shown = (np.exp(z * s) / np.exp(z * s).sum() for s in (1, SURE[level]))
            for c, one in zip(choices, shown, strict=True):
                if c is not None:
                    walking[c] = p[i, c] = walking[parent] * one
            if parent == here:
                taken = choices[draw.choice(len(choices), p=real)]
                if taken is not None:
                    here, true[i, taken] = taken, True
    return torch.from_numpy(p), torch.from_numpy(true), parents, levels, ends


STEPS = {"tree": (TREE, False), "inner": (SPACES["inner"], False), "none": (SPACES["inner"], True)}


@pytest.mark.parametrize(("space", "empty"), STEPS.values(), ids=STEPS)
def test_every_level_gets_its_slope_back(space, empty):
    p, targets, *_ = of_steps(space, rows=4000, empty=empty)
    found = fit_scaling(p, targets, space, by_level=True)
    assert (found.kind, found.empty) == ("steps", empty)
    assert found.slopes == pytest.approx([1 / sure for sure in SURE], rel=0.15)
    output = HeadOutput(p.log(), (-p).log1p())
    after = found(output, space).probabilities
    gap = (after.mean(dim=0) - targets.double().mean(dim=0)).abs()
    assert float(gap.max()) < 0.02


@pytest.mark.parametrize(("space", "empty"), STEPS.values(), ids=STEPS)
def test_scaled_steps_are_those_of_loops(space, empty):
    p, _, parents, levels, ends = of_steps(space, rows=20, empty=empty)
    slopes, shares = (0.3, 2.0, 0.7), (0.01, 1e-6, 0.3)
    output = HeadOutput(p.log(), (-p).log1p())
    found = Scaling("steps", slopes, shares, empty)(output, space)
    for row, one in zip(p.tolist(), found.probabilities.tolist(), strict=True):
        expected = reference.scaled_steps(row, parents, levels, ends, slopes, shares)
        assert one == pytest.approx(expected, abs=1e-12)
    FLOAT64_SUMS.assert_close(found.log_p.exp() + found.log_not_p.exp(), torch.ones_like(p))


@pytest.mark.parametrize(("space", "empty"), STEPS.values(), ids=STEPS)
def test_the_slope_of_a_level_is_the_most_likely(space, empty):
    p, targets, *tree = of_steps(space, rows=60, empty=empty)
    rows, truths = p.tolist(), [set(one.nonzero()[:, 0].tolist()) for one in targets]
    found = fit_scaling(p, targets, space, by_level=True)

    def loss(level, slope, share):
        return reference.surprise_of_steps(rows, truths, *tree, level, slope, share)

    def together(slope, share):
        return sum(loss(level, slope, share) for level in range(3)) + off(
            slope, share, USUAL, SPREAD
        )

    choices = Choices.of_steps(p, targets, space, np.ones(60), empty=empty, stops=True)
    usual, share = np.exp(choices.best(np.log(USUAL), SPREAD))
    assert best(lambda x: together(x, share)) == pytest.approx(usual, rel=1e-2)
    for level, (slope, own) in enumerate(zip(found.slopes, found.shares, strict=True)):
        expected = best(
            lambda x, level=level, own=own: (
                loss(level, x, own) + off(x, own, (usual, share), LEVELS)
            )
        )
        assert expected == pytest.approx(slope, rel=1e-2)


def test_a_row_counts_as_often_as_its_weight():
    p, targets, *_ = of_steps(TREE, rows=80)
    weights = np.random.default_rng(0).integers(0, 3, 80)
    again = np.repeat(np.arange(80), weights)
    for by_level in (True, False):
        found, expected = (
            fit_scaling(*rows, by_level=by_level)
            for rows in (
                (p, targets, TREE, None, weights.astype(float)),
                (p[again], targets[again], TREE),
            )
        )
        assert found.slopes == pytest.approx(expected.slopes, rel=1e-3)


@pytest.mark.parametrize("kind", ["steps", "mass", "log-odds"])
@pytest.mark.parametrize("name", SPACES)
def test_no_class_is_more_probable_than_its_parent(name, kind):
    space = SPACES[name]
    output, _, _ = one_path(space, rows=50, sure=20.0)  # many are 0 or 1 in single precision
    output = HeadOutput(output.log_p.float(), output.log_not_p.float())
    found = Scaling(kind, (0.2, 3.0, 0.5, 1.0), (0.1, 1e-6, 0.4))(output, space).probabilities
    assert bool(((found >= 0) & (found <= 1)).all())
    for child in range(len(space)):
        for parent in space.hierarchy.parents(child):
            assert bool((found[:, child] <= found[:, parent] + 1e-6).all())


def test_siblings_keep_their_order_and_ties():
    draw = torch.Generator().manual_seed(3)
    space = LabelSpace(Hierarchy.from_paths([f"{a}/{b}" for a in "pqr" for b in "stuv"]))
    q = torch.randint(0, 4, (200, 12), generator=draw).double() + 0.01  # many are equal
    p = torch.cat([q.view(-1, 3, 4).sum(2), q], dim=1) / q.sum(dim=1, keepdim=True)
    output = HeadOutput(p.log(), (-p).log1p())
    for kind in ("steps", "mass"):
        found = Scaling(kind, (0.3, 2.0), (0.2, 0.01))(output, space).probabilities
        for columns in (slice(3, 7), slice(7, 11), slice(11, 15)):
            one, other = (
                (x[:, columns, None] - x[:, None, columns]).round(decimals=12).sign()
                for x in (p, found)
            )
            assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["tree", "inner"])
def test_masses_leave_the_answers_as_they_are(name):
    draw = torch.Generator().manual_seed(4)
    space = SPACES[name]
    q = torch.randint(0, 3, (500, len(space.terminals)), generator=draw).double() + 1e-3
    logits = torch.zeros(500, len(space)).double()
    logits[:, space.terminal_ids()] = q.log()
    output = make_link(space, "softmax").output(logits)
    decoder = make_decoder(space, "leaf")
    # The mass of an inner class is a difference, whose rounding decides ties.
    clear = q.topk(2).values.diff().abs()[:, 0] > (0 if name == "inner" else -1)
    assert clear.any()
    for slope in (0.1, 0.7, 5.0):
        found = Scaling("mass", (slope,), (0.05,))(output, space)
        assert bool(((decoder(found) == decoder(output)) | ~clear).all())


def test_certain_answers_become_less_certain():
    """A memory says 1 where all neighbors agree; no power of 1 is less than 1."""
    p = torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]])
    for kind in ("steps", "mass"):
        found = Scaling(kind, (0.5,), (0.02,))(HeadOutput(p.log(), (-p).log1p()), TREE)
        assert 0.5 < float(found.probabilities.max()) < 0.97


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_answers_are_made_no_more_probable_than_right(space, factor):
    """As if beside USUAL_ROWS others: of 900 rows, a tenth of the gap stays."""
    output, targets, _ = one_path(space, rows=900)
    p = output.probabilities
    fitted = fit_scaling(p, targets, space)
    wrong = Scaling("mass", (fitted.slopes[0] * factor,), fitted.shares)
    decide = make_decoder(space, "leaf")

    def gap(scaled):
        answers = decide(scaled)
        rows = torch.arange(len(p))
        return float((scaled[rows, answers] - targets[rows, answers].double()).mean())

    before = gap(wrong(output, space).probabilities)
    found, scaled = temper_answers(wrong, p, targets, space, decide)
    FLOAT64_SUMS.assert_close(scaled, found(output, space).probabilities)
    assert abs(before) > 0.03
    assert gap(scaled) == pytest.approx(before / 10 if before > 0 else before, abs=0.003)
