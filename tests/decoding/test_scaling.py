"""Scaling, against scikit-learn's logistic regression and a bounded search by SciPy."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression
from tests.tolerances import FLOAT32, FLOAT64_SUMS

from hierlearn import Hierarchy, LabelSpace
from hierlearn.decoding.scaling import Scaling, fit_log_odds, fit_mass_slope, fit_scaling
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
    assert found.slope == pytest.approx(1 / 2.5, rel=0.1)
    before, after = (
        float(calibration_error(one.probabilities, targets, space, pooled=True))
        for one in (output, found(output, space))
    )
    assert after < before / 3


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_scaled_masses_are_those_of_the_true_model(space):
    output, _, q = one_path(space)
    found = Scaling("mass", 1 / 2.5)(output, space).probabilities
    expected = make_link(space, "softmax").output(
        torch.zeros(len(q), len(space), dtype=torch.float64).index_copy(
            1, space.terminal_ids(), q.log()
        )
    )
    FLOAT64_SUMS.assert_close(found, expected.probabilities)


def test_the_slope_of_masses_is_the_most_likely():
    output, targets, _ = one_path(TREE, rows=300)
    leaves = TREE.terminal_ids()
    logs = output.probabilities[:, leaves].clamp_min(1e-6).log().numpy()
    true = targets[:, leaves].int().argmax(dim=1).numpy()

    def loss(slope):
        z = logs * slope
        return -np.mean(z[np.arange(len(z)), true] - np.log(np.exp(z).sum(axis=1)))

    expected = minimize_scalar(loss, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-9}).x
    ends = torch.zeros_like(targets).index_copy(1, leaves, targets[:, leaves])
    found = fit_mass_slope(output.probabilities, ends, TREE)
    assert found == pytest.approx(expected, rel=1e-4)


def many_labels(rows=500, seed=0):
    draw = np.random.default_rng(seed)
    z = draw.normal(-1, 2, size=(rows, len(TREE)))
    targets = draw.random(z.shape) < 1 / (1 + np.exp(-(0.6 * z - 0.4)))
    return torch.from_numpy(1 / (1 + np.exp(-z))), torch.from_numpy(targets), z


def test_log_odds_are_a_logistic_regression():
    p, targets, z = many_labels()
    expected = LogisticRegression(C=np.inf, tol=1e-10).fit(
        z.reshape(-1, 1), targets.numpy().ravel()
    )
    found = fit_log_odds(p, targets)
    assert found.slope == pytest.approx(expected.coef_[0, 0], rel=1e-4)
    assert found.offset == pytest.approx(expected.intercept_[0], rel=1e-3)


def test_unknown_entries_do_not_count():
    p, targets, z = many_labels()
    known = torch.rand(p.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    flipped = torch.where(known, targets, ~targets)
    kept = known.numpy()
    expected = LogisticRegression(C=np.inf, tol=1e-10).fit(z[kept][:, None], targets.numpy()[kept])
    found = fit_scaling(p, flipped, TREE, known)
    assert found.kind == "log-odds"
    assert found.slope == pytest.approx(expected.coef_[0, 0], rel=1e-4)


def test_scaled_log_odds_keep_every_ranking_and_stay_below_the_parent():
    draw = torch.Generator().manual_seed(1)
    output = make_link(TREE, "max").output(torch.randn(50, len(TREE), generator=draw).double())
    found = Scaling("log-odds", 0.4, -0.7)(output, TREE).probabilities
    flat = output.probabilities.flatten()
    assert torch.equal(flat.argsort(stable=True), found.flatten().argsort(stable=True))
    hierarchy = TREE.hierarchy
    for child in range(len(hierarchy)):
        for parent in hierarchy.parents(child):
            assert bool((found[:, child] <= found[:, parent]).all())
    one = torch.special.expit(0.4 * torch.logit(flat) - 0.7)
    FLOAT32.assert_close(found.flatten().float(), one.float())


def test_the_pair_sums_to_1():
    p = torch.tensor([[0.9, 0.4, 0.3, 0.6, 0.5, 0.2, 0.1, 0.05]])
    found = Scaling("log-odds", 2.0, 0.1)(HeadOutput(p.log(), (1 - p).log()), TREE)
    FLOAT32.assert_close(found.log_p.exp() + found.log_not_p.exp(), torch.ones_like(p))


def test_a_model_that_is_always_wrong_is_not_turned_around():
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2]]).repeat(50, 1)
    found = fit_log_odds(p, p < 0.5)
    assert (found.slope, found.offset) == (1.0, 0.0)


def test_rows_with_several_labels_get_scaled_log_odds():
    output, targets, _ = one_path(TREE, rows=50)
    targets = targets | targets.roll(1, 0)
    assert fit_scaling(output.probabilities, targets, TREE).kind == "log-odds"


def test_plain_values():
    scaling = Scaling("log-odds", 0.5, 0.25)
    assert Scaling.from_dict(scaling.to_dict()) == scaling
    assert Scaling.from_dict(None) is None
