"""CLEMSLoss against tests/reference/clems.py, with points and without."""

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.clems import CLEMSLoss, EmbeddedOutput, LabelPoints
from hierlearn.links import HeadOutput
from losses.random_batches import random_batch
from reference.clems import squared_distance
from reference.links import sigmoid
from tolerances import FLOAT64

DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("e", "d")])


def dag_points(size=3, members=None):
    """Points of four label sets, the empty one among them."""
    draw = torch.Generator().manual_seed(0)
    truth, answers = torch.randn(2, 4, size, generator=draw, dtype=torch.float64)
    points = LabelPoints(DAG, size, 4).double()
    points.set(truth, answers, DAG.encode([["d"], ["b", "e"], [], ["c"]]), 0.5)
    return points


@pytest.mark.parametrize("seed", range(10))
def test_without_points_it_is_the_brier_score_by_loops(seed):
    batch = random_batch(seed, dag=True)
    logits = batch.logits.clone().requires_grad_()
    found = CLEMSLoss(batch.hierarchy, reduction="none")(logits, batch.targets, batch.mask)
    slopes = []
    for row, (z, y) in enumerate(zip(*batch.lists, strict=True)):
        known = [True] * len(z) if batch.mask_list is None else batch.mask_list[row]
        p = [sigmoid(one) for one in z]
        value, slope = squared_distance(
            p, [a if k else b for a, b, k in zip(y, p, known, strict=True)]
        )
        assert found[row].item() == FLOAT64.approx(value)
        slopes.append([s * one * (1 - one) for s, one in zip(slope, p, strict=True)])
    found.sum().backward()
    FLOAT64.assert_close(logits.grad, torch.tensor(slopes, dtype=torch.float64))


def test_with_points_by_loops():
    points = dag_points()
    rows = [["b", "e"], [], ["d"], ["d", "c"]]  # the last is d alone, with its ancestors
    numbers = [1, 2, 0, 0]
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    found = CLEMSLoss(DAG, reduction="none")(EmbeddedOutput(z, points), DAG.encode(rows))
    found.sum().backward()
    for row, number in enumerate(numbers):
        value, slope = squared_distance(z[row].tolist(), points.truth[number].tolist())
        assert found[row].item() == FLOAT64.approx(value)
        assert z.grad[row].tolist() == FLOAT64.approx(slope)
    mean = CLEMSLoss(DAG)(EmbeddedOutput(z, points), DAG.encode(rows))
    assert mean.item() == FLOAT64.approx(found.mean().item())


def test_rows_of_sets_without_a_point_cost_nothing():
    points = dag_points()
    z = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    targets = DAG.encode([["e"], ["c"]])
    found = CLEMSLoss(DAG, reduction="none")(EmbeddedOutput(z, points), targets)
    assert found[0] == 0
    assert found[1] > 0
    found.sum().backward()
    assert (z.grad[0] == 0).all()
    with torch.no_grad():  # unless another point stands for it
        key = points.keys_of(targets[:1])
        points.set(points.truth, points.answers, points.targets > 0, 1.0, (key, torch.tensor([3])))
    found = CLEMSLoss(DAG, reduction="none")(EmbeddedOutput(z.detach()[:1], points), targets[:1])
    value, _ = squared_distance(z[0].tolist(), points.truth[3].tolist())
    assert found.item() == FLOAT64.approx(value)


def test_members_and_half_precision():
    points = dag_points()
    z = torch.randn(2, 5, 3, dtype=torch.float64)
    targets = DAG.encode([["d"], [], ["c"], ["d"], ["b", "e"]])
    both = targets.expand(2, *targets.shape)
    weight = torch.rand(2, 5, dtype=torch.float64)
    found = CLEMSLoss(DAG)(EmbeddedOutput(z, points), both, weight=weight)
    for member in range(2):
        one = CLEMSLoss(DAG)(EmbeddedOutput(z[member], points), targets, weight=weight[member])
        FLOAT64.assert_close(found[member], one)
    half = EmbeddedOutput(z[0].bfloat16(), points)
    assert CLEMSLoss(DAG)(half, targets).dtype == torch.float32


def test_a_mask_is_refused_with_points():
    points, targets = dag_points(), DAG.encode([["d"]])
    output = EmbeddedOutput(torch.zeros(1, 3, dtype=torch.float64), points)
    with pytest.raises(HierlearnError, match="points of the head clems are those of whole label"):
        CLEMSLoss(DAG)(output, targets, torch.ones_like(targets))
    CLEMSLoss(DAG)(HeadOutput(*output.pair), targets, torch.ones_like(targets))
