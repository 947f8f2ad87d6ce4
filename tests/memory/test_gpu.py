"""The memory on a GPU gives what it gives on the CPU: steps, answers, training and storage."""

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.datasets import Dataset
from hierlearn.hierarchy.labels import Labels
from hierlearn.losses import LOSSES
from hierlearn.memory import Candidates, LabelSets, Remembered
from hierlearn.memory.store import as_stored
from hierlearn.networks.heads import make_head
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.explain import explain
from hierlearn.pipeline.remember import remember
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import train
from hierlearn.training.settings import Plan

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
TREE = Hierarchy.from_paths(["a/b", "a/c", "d/e", "d/f", "g"])
DAG = Hierarchy.from_edges([("a", "c"), ("b", "c"), ("c", "d"), ("a", "e")])


def labels_of(hierarchy, rows, seed=0):
    draw = np.random.default_rng(seed)
    return [draw.choice(hierarchy.names, draw.integers(0, 3)).tolist() for _ in range(rows)]


def head_with_memory(hierarchy, distance, policy="negative"):
    torch.manual_seed(0)
    head = make_head("neighbors", 6, LabelSpace(hierarchy), size=8, neighbors=9, distance=distance)
    labels = Labels(labels_of(hierarchy, 300), hierarchy, unlabeled_descendants=policy)
    known = Remembered(LabelSets.from_labels(labels), [str(n) for n in range(300)])
    head.memory.set(as_stored(head.embed(torch.randn(300, 6)).detach()), known)
    return head


@pytest.mark.parametrize("policy", ["negative", "ignore"])
@pytest.mark.parametrize("distance", ["squared", "euclidean", "cosine"])
@pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "DAG"])
def test_answers(hierarchy, distance, policy):
    head, x = head_with_memory(hierarchy, distance, policy), torch.randn(40, 6)
    expected = head(x).probabilities
    found = head.cuda()(x.cuda())
    torch.testing.assert_close(found.probabilities.cpu(), expected, atol=2e-5, rtol=1e-4)
    assert head.memory.embeddings.device.type == "cuda"
    assert head.memory.embeddings.dtype == torch.float16


@pytest.mark.parametrize("distance", ["squared", "euclidean", "cosine"])
def test_a_step(distance):
    labels = Labels(labels_of(TREE, 30), TREE)
    features, itself = torch.randn(30, 6), torch.eye(30, dtype=torch.bool)
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        head = make_head("neighbors", 6, LabelSpace(TREE), distance=distance, learn_scale=True)
        head.to(device)
        x, targets = features.to(device), labels.targets().to(device)
        output = head(x, x, Candidates(targets, itself.to(device)))
        loss = LOSSES["bce"](LabelSpace(TREE)).to(device)(output, targets)
        loss.backward()
        found.append([loss, *(one.grad for one in head.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b.detach().cpu(), a.detach(), atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "kernels"])
def test_training_and_growth(size, precision, fused, tmp_path, monkeypatch):
    monkeypatch.setattr("hierlearn.kernels.neighbor_head.LEAST", 0 if fused else 1 << 40)
    draw = np.random.default_rng(0)
    kind = np.arange(90) % 3
    x = (draw.normal(size=(90, 5)) * 0.4 + 3 * np.eye(5)[kind]).astype(np.float32)
    names = ["a/b", "a/c", "g"]
    data = Dataset(x, [[names[k]] for k in kind], TREE)
    settings = {"epochs": 5, "device": "cuda", "ensemble_size": size, "precision": precision}
    pipeline = train(
        data, Plan(recipe="neighbors", settings=settings), reporting=Reporting(bar=False)
    )
    assert pipeline.predict(x) == [names[k] for k in kind]
    new = (draw.normal(size=(5, 5)) * 0.4 - 4).astype(np.float32)
    remember(pipeline, new, [["d/e"]] * 5)
    assert pipeline.predict(new) == ["d/e"] * 5
    assert explain(pipeline, new)[0][0].labels == ("d/e",)
    pipeline.save(tmp_path / "model")
    loaded = Pipeline.load(tmp_path / "model")
    torch.testing.assert_close(
        loaded.probabilities(x), pipeline.probabilities(x), atol=1e-3, rtol=1e-3
    )
