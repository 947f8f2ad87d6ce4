"""Every loss trains a network that answers by neighbors."""

import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.losses import LOSSES
from hierlearn.memory import Candidates
from hierlearn.networks import InputSpec
from hierlearn.networks.build import HeadSpec, NetworkSpec, build_network

pytestmark = pytest.mark.filterwarnings("ignore::hierlearn.losses.CollapseWarning")
TREE = Hierarchy.from_paths(["a/b/d", "a/b/e", "a/c", "f/g", "f/h"])
DAG = Hierarchy.from_parents(
    {"a": [], "b": [], "c": ["a", "b"], "d": ["a"], "e": ["c", "d"], "f": ["c"]}
)
HCL = {
    "no curriculum": {"curriculum": None},
    "no constraint": {"scope": None},
    "ancestors": {"scope": "ancestors", "normalize": "mean"},
}
TRAINED = [
    *((name, {}) for name in LOSSES),
    *(pytest.param("hcl", options, id=f"hcl, {name}") for name, options in HCL.items()),
]


def step(hierarchy, name, options, *, distance="squared", members=None):
    """Take some steps on random rows, and return the losses."""
    torch.manual_seed(0)
    # Of a DAG the leaves: the mass of an inner class that ends rows is not in its probabilities.
    ends = range(len(hierarchy)) if hierarchy.is_tree else hierarchy.leaves.tolist()
    targets = hierarchy.encode([[ends[n % len(ends)]] for n in range(40)], numbers=True)
    space = LabelSpace(hierarchy, ends)
    head = HeadSpec("neighbors", {"size": 6, "distance": distance, "learn_scale": True})
    inputs = InputSpec.numbers(4)
    spec = NetworkSpec("mlp", inputs, {"width": 8, "dropout": 0.0}, members, {"main": head})
    network = build_network(spec, space)
    loss = LOSSES[name](space, **options)
    if members:
        loss.set_members(members)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    x = torch.randn(40, 4) + torch.arange(40)[:, None] % len(ends)
    excluded = torch.eye(40, dtype=torch.bool)[:16]
    shape = (members,) if members else ()
    candidates = Candidates(targets.expand(*shape, -1, -1), excluded.expand(*shape, -1, -1))
    rows = torch.cat([x[:16], x]).expand(*shape, -1, -1)
    found = []
    for number in range(12):
        loss.set_progress(number / 12)
        extra = {"apart": True} if members else {}
        value = loss(network(rows, candidates, **extra), targets[:16].expand(*shape, -1, -1))
        optimizer.zero_grad()
        value.sum().backward()
        for parameter in network.parameters():
            assert parameter.grad is not None
            assert parameter.grad.isfinite().all()
        optimizer.step()
        found.append(value.detach())
    loss.end_epoch()
    return torch.stack(found)


@pytest.mark.parametrize(("name", "options"), TRAINED)
def test_on_a_tree(name, options):
    losses = step(TREE, name, options)
    assert losses.isfinite().all()
    selects = "hcl" in name or "curriculum" in name  # the sum grows with what is selected
    assert selects or losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(("name", "options"), TRAINED)
def test_on_a_dag(name, options):
    if LOSSES[name].needs_tree:
        pytest.skip("needs a tree")
    losses = step(DAG, name, options, distance="euclidean")
    assert losses.isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
def test_members(name):
    both = step(TREE, name, {}, members=2, distance="cosine")
    assert both.shape == (12, 2)
    assert both.isfinite().all()
