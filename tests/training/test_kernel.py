"""The kernel machine: its closed form against explicit solutions, and as a training."""

import json

import numpy as np
import pytest
import torch

from hierlearn import Dataset, HierarchicalClassifier, Hierarchy, LabelSpace, Plan, load, train
from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import read_tensors, write_tensors
from hierlearn.networks.kernel import SLOPE, KernelHead, similarities
from hierlearn.pipeline.folder import digest, write_config
from hierlearn.training.solvers import kernel as solver

CLASSES = ["a/b/c", "a/b/d", "a/e", "f/g", "f"]
TREE = Hierarchy.from_paths(CLASSES)
SPACE = LabelSpace(TREE, CLASSES)


def problem(count=150, seed=0):
    draw = np.random.default_rng(seed)
    numbers = draw.integers(0, 5, count)
    inputs = draw.normal(size=(count, 4)) * 0.4 + np.eye(5, 4)[numbers] * 3
    return Dataset(inputs, [[CLASSES[one]] for one in numbers], TREE)


def by_hand(x, y, weights, width, noise, new):
    """Ridge regression in the span of the bumps, less the weighted mean of the targets."""
    mean = weights @ y / weights.sum()
    gram = np.array(
        [[np.exp(-((a - b) ** 2).sum() / (2 * width**2 * len(a))) for b in x] for a in x]
    )
    found = np.linalg.solve(gram + np.diag(noise / weights), y - mean)
    near = np.array(
        [[np.exp(-((a - b) ** 2).sum() / (2 * width**2 * len(a))) for b in x] for a in new]
    )
    return mean + near @ found


def test_similarities_are_those_of_a_loop():
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(5, 3)), draw.normal(size=(4, 3))
    expected = [[np.exp(-((r - s) ** 2).sum() / (2 * 0.7**2 * 3)) for s in b] for r in a]
    found = similarities(torch.from_numpy(a), torch.from_numpy(b), 0.7)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_width_is_that_of_rows_left_out_one_at_a_time():
    draw = np.random.default_rng(1)
    x, numbers = draw.normal(size=(25, 3)), draw.integers(0, 3, 25)
    weights = draw.uniform(0.5, 2, 25)
    y = np.eye(3)[numbers]
    y = y - weights @ y / weights.sum()
    values = {}
    for width in solver.WIDTHS:
        for noise in solver.NOISES:
            total = 0.0
            for one in range(25):
                rest = np.arange(25) != one
                gram = similarities(*[torch.from_numpy(x[rest])] * 2, width).numpy()
                a = np.linalg.solve(gram + np.diag(noise / weights[rest]), y[rest])
                near = similarities(torch.from_numpy(x[[one]]), torch.from_numpy(x[rest]), width)
                total += weights[one] * ((y[one] - near.numpy() @ a) ** 2).sum()
            values[width, noise] = total
    rows, targets, noise_of = (torch.from_numpy(part) for part in (x, y, 1 / weights))
    assert solver.best_width(rows, targets, noise_of) == min(values, key=values.get)


@pytest.mark.parametrize("whole", [10_000, 5], ids=["every row", "bumps"])
def test_the_machine_is_the_ridge_regression_of_its_formula(monkeypatch, whole):
    monkeypatch.setattr(solver, "WHOLE", whole)
    monkeypatch.setattr(solver, "best_width", lambda *_: (0.8, 0.1))
    data, draw = problem(60), np.random.default_rng(2)
    weights = draw.integers(1, 4, 60).astype(np.float64)
    model = train(data, Plan("kernel", calibration=False, standardize=False), weights=weights)
    (head,) = model.network.heads.values()
    assert isinstance(head, KernelHead)
    names = [TREE.names[number] for number in SPACE.terminals]
    y = np.array([[float(name == label) for name in names] for (label,) in data.labels])
    new = draw.normal(size=(7, 4))
    scores = by_hand(np.asarray(data.inputs), y, weights, 0.8, 0.1, new)
    masses = torch.from_numpy(SLOPE * scores).softmax(dim=1)
    ends = torch.zeros(7, len(TREE), dtype=torch.double).index_copy(1, SPACE.terminal_ids(), masses)
    expected = TREE.sum_up(ends)
    close = 2e-4 if whole > 60 else 0.02  # normal equations in single precision
    torch.testing.assert_close(model.probabilities(new).double(), expected, atol=close, rtol=0)


def test_a_model_answers_again_and_damage_is_refused(tmp_path):
    data = problem()
    model = train(data, Plan("kernel"), out=tmp_path / "model")
    again = load(tmp_path / "model")
    assert torch.equal(again.probabilities(data.inputs), model.probabilities(data.inputs))
    assert np.mean([[a] == b for a, b in zip(again.predict(data.inputs), data.labels)]) > 0.97  # noqa: B905
    path = tmp_path / "model" / "model.safetensors"
    tensors, metadata = read_tensors(path)
    name = next(name for name in tensors if name.endswith("heads.main.rows"))
    write_tensors(path, {**tensors, name: tensors[name][:5].clone()}, metadata)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["files"][path.name] = digest(path)
    write_config(tmp_path / "model" / "config.json", config)
    with pytest.raises(HierlearnError, match="do not describe a kernel machine"):
        load(tmp_path / "model")


def test_rows_that_it_cannot_use():
    several = Dataset(problem().inputs, [["a/e", "f/g"], *problem().labels[1:]], TREE)
    with pytest.raises(HierlearnError, match="needs one label per row, and some rows have several"):
        train(several, Plan("kernel"))
    with pytest.raises(HierlearnError, match="the network kernel reads dense numbers"):
        HierarchicalClassifier(recipe="kernel").fit(["a b", "c d"] * 20, ["x", "y"] * 20)
    with pytest.raises(HierlearnError, match="kernel has no gradients for adamw"):
        train(problem(), Plan("kernel", settings={"optimizer": "adamw"}))
