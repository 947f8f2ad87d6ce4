"""The random-walk link against a dense inverse, and what it becomes in its limits."""

import numpy as np
import pytest
import torch

from hierlearn import Dataset, Hierarchy, Plan, load, train
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.cnn_hl_li import RandomWalkLink
from hierlearn.links import LINKS, link_name, make_link
from tolerances import FLOAT64_SUMS

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "f/h", "i"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("e", "d"), ("e", "f")])
LONE = Hierarchy.from_paths(["x", "y"])


def walk_matrix(hierarchy, *, siblings):
    """W: rows sum to 1, equal steps to parents, children and perhaps the children of parents."""
    count = len(hierarchy)
    matrix = np.zeros((count, count))
    for c in range(count):
        near = [*hierarchy.parents(c), *hierarchy.children(c)]
        if siblings:
            for above in hierarchy.parents(c):
                near += hierarchy.children(above)
            if not hierarchy.parents(c):
                near += [d for d in range(count) if not hierarchy.parents(d)]
        for d in near or [c]:
            matrix[c, d] += 1 / len(near or [c])
    return matrix


@pytest.mark.parametrize("hierarchy", [TREE, DAG, LONE], ids=["tree", "DAG", "one level"])
@pytest.mark.parametrize("siblings", [False, True])
@pytest.mark.parametrize("restart", [0.1, 0.5, 0.9])
def test_the_walk_is_that_of_a_dense_inverse(hierarchy, siblings, restart):
    matrix = walk_matrix(hierarchy, siblings=siblings)
    inverse = np.linalg.inv(np.eye(len(matrix)) - (1 - restart) * matrix)
    logits = torch.randn(5, len(hierarchy), dtype=torch.float64)
    for base in ("sigmoid", "softmax"):
        link = RandomWalkLink(hierarchy, restart=restart, siblings=siblings, base=base)
        for part in LINKS[base](hierarchy)(logits):
            wanted = restart * part.exp() @ torch.from_numpy(inverse).T
            FLOAT64_SUMS.assert_close(link.smooth(part).exp(), wanted)


def test_coherence_is_lost_by_the_walk_and_restored_by_the_maximum():
    logits = torch.tensor([[4.0, 3.0, -5.0, -5.0, -5.0]], dtype=torch.float64)
    star = Hierarchy.from_paths([f"a/{c}" for c in "bcde"])
    link = RandomWalkLink(star, restart=0.5)
    walked = link.smooth(LINKS["sigmoid"](star)(logits)[0]).exp()
    assert walked[0, 1] > walked[0, 0]  # above its parent
    p = link.probabilities(logits)
    assert p[0, 0] == p[0, 1]
    log_p, log_q = link(logits)
    FLOAT64_SUMS.assert_close(log_p.exp() + log_q.exp(), torch.ones_like(p))


def test_without_a_step_it_is_the_max_link_and_certainty_stays():
    logits = torch.randn(4, len(TREE), dtype=torch.float64)
    for link in (RandomWalkLink(TREE, restart=1.0), RandomWalkLink(TREE, steps=0)):
        for found, wanted in zip(link(logits), LINKS["max"](TREE)(logits), strict=True):
            FLOAT64_SUMS.assert_close(found, wanted)
    sure = RandomWalkLink(DAG, restart=0.3)(torch.full((1, len(DAG)), 1e4, dtype=torch.float64))
    FLOAT64_SUMS.assert_close(sure[0], torch.zeros_like(sure[0]))
    near = RandomWalkLink(TREE, steps=1, restart=0.5).smooth(torch.randn(2, len(TREE)))
    assert near.isfinite().all()


def test_many_siblings_take_no_square_of_them():
    wide = Hierarchy.from_paths([f"n{i}" for i in range(30_000)])
    link = RandomWalkLink(wide, siblings=True, restart=0.5)
    p = link.smooth(torch.zeros(1, 30_000, dtype=torch.float64) - 1).exp()
    FLOAT64_SUMS.assert_close(p, torch.full_like(p, np.exp(-1)))
    assert sum(one.numel() for one in link.buffers()) < 10 * len(wide)


def test_how_it_is_written_and_what_is_refused():
    for text in (
        "random-walk",
        "random-walk:restart=0.5",
        "random-walk:steps=3,siblings=true,base=softmax",
    ):
        assert link_name(make_link(TREE, text)) == text
    for text, sentence in (
        ("random-walk:restart=0", "restart must be a number above 0 and at most 1, not 0"),
        ("random-walk:restart=much", "restart must be a number above 0 and at most 1, not 'much'"),
        ("random-walk:steps=1.5", "steps must be an integer, not 1.5"),
        ("random-walk:steps=-1", "steps must lie between 0 and 10,000, not -1"),
        ("random-walk:siblings=3", "siblings must be true or false, not 3"),
        ("random-walk:base=soft", "unknown link 'soft'"),
    ):
        with pytest.raises(HierlearnError, match=sentence):
            make_link(TREE, text)


@pytest.mark.parametrize("several", [False, True])
def test_the_recipe_learns_and_its_model_answers_again(several, tmp_path):
    sets = [["a/b/c"], ["a/b/d"], ["a/e"], ["f/g"], ["a/e", "i"] if several else ["i"]]
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 5, 200)
    inputs = rng.normal(size=(200, 6)) * 0.3 + np.eye(5, 6)[numbers] * 3
    data = Dataset(inputs, [sets[one] for one in numbers], TREE)
    settings = {"epochs": 15, "batch_size": 50, "learning_rate": 0.01}
    plan = Plan(recipe="cnn-hl-li", network_options={"width": 32}, settings=settings)
    trained = train(data, plan, out=tmp_path / "model")
    text = f"random-walk:restart=0.95,siblings=true{'' if several else ',base=softmax'}"
    assert link_name(trained.link) == text
    found = trained.probabilities(inputs) > 0.5
    right = (found == TREE.encode(sets)[torch.from_numpy(numbers)]).all(dim=1)
    assert right.float().mean() > 0.9
    again = load(tmp_path / "model")
    assert torch.equal(again.probabilities(inputs) > 0.5, found)
