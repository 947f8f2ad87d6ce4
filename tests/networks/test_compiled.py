"""Every head compiled in one graph: values and gradients as in eager."""

import os
import shutil

import pytest
import torch
from torch import nn

from hierlearn import Hierarchy, LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.links import LINKS
from hierlearn.memory import DISTANCES, Candidates, LabelSets, Remembered, SetCandidates
from hierlearn.networks import InputSpec, Network
from hierlearn.networks.blend import Blend
from hierlearn.networks.build import HeadSpec, NetworkSpec, PartSpec, build_network
from hierlearn.networks.heads import HEADS, make_head
from hierlearn.networks.memories import embed, memory_heads, set_memory
from tolerances import FLOAT32, FLOAT32_SUMS

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
DAG = Hierarchy.from_edges([("a", "c"), ("b", "c"), ("c", "d"), ("a", "e")])
COMPILERS = (os.environ.get("CXX", "c++"), "g++", "clang++")
# Scalar code without optimization builds faster, from the same graph.
QUICK_BUILD = {"cpp.simdlen": 1, "aot_inductor.debug_compile": True}
FEATURES, ROWS, OTHERS = 6, 8, 30

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
each_hierarchy = pytest.mark.parametrize("hierarchy", [TREE, DAG], ids=["tree", "DAG"])
each_distance = pytest.mark.parametrize("distance", DISTANCES)
KINDS = [(TREE, "negative", False), (DAG, "ignore", True)]


def labels_of(hierarchy, policy="negative"):
    names = [[hierarchy.names[number % len(hierarchy)]] for number in range(OTHERS)]
    return Labels(names, hierarchy, unlabeled_descendants=policy)


def features(rows=ROWS, seed=0):
    return torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(seed))


def outcome(module, run, *inputs):
    """Return the answers, and the gradients of the features and of the parameters."""
    module.zero_grad()
    x = inputs[0].clone().requires_grad_()
    log_p, log_not_p = run(x, *inputs[1:]).pair
    (log_p.exp().sum() + log_not_p.exp().square().sum()).backward()
    grads = [one.grad for one in (x, *module.parameters())]
    return [log_p.detach(), log_not_p.detach(), *(None if g is None else g.clone() for g in grads)]


def check(module, *inputs, close=FLOAT32, **compiler):
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, **(compiler or {"backend": "aot_eager"}))
    expected = outcome(module, module, *inputs)
    assert any(one is not None and one.abs().sum() > 0 for one in expected[3:])
    close.assert_close(outcome(module, compiled, *inputs), expected)


@each_hierarchy
@pytest.mark.parametrize("link", LINKS)
def test_linear_heads(hierarchy, link):
    if link == "siblings" and hierarchy is DAG:
        pytest.skip("the link needs a tree")
    torch.manual_seed(0)
    check(make_head("linear", FEATURES, LabelSpace(hierarchy), link=link), features())
    head = make_head("linear", FEATURES, LabelSpace(hierarchy), link=link, reading_link="max")
    check(head.eval(), features())


def neighbor_head(hierarchy, distance):
    torch.manual_seed(0)
    space = LabelSpace(hierarchy)
    options = {"size": 4, "neighbors": 5, "learn_scale": True, "distance": distance}
    return make_head("neighbors", FEATURES, space, **options)


@each_distance
@pytest.mark.parametrize(("hierarchy", "policy", "weighted"), KINDS, ids=["tree", "DAG, partial"])
def test_steps_of_neighbor_heads(hierarchy, distance, policy, weighted):
    labels = labels_of(hierarchy, policy)
    excluded = torch.arange(ROWS)[:, None] == torch.arange(OTHERS)
    mask = labels.mask() if policy == "ignore" else None
    weight = torch.rand(OTHERS).masked_fill(torch.arange(OTHERS) == 3, 0.0) if weighted else None
    candidates = Candidates(labels.targets(), excluded, mask, weight)
    check(neighbor_head(hierarchy, distance), features(), features(OTHERS, 1), candidates)


def test_a_step_of_candidates_by_label_set():
    sets = LabelSets.from_labels(labels_of(TREE))
    numbers, keys = torch.from_numpy(sets.of_row), torch.arange(OTHERS)
    candidates = SetCandidates(sets, numbers, keys[:ROWS], keys)
    check(neighbor_head(TREE, "squared"), features(), features(OTHERS, 1), candidates)


def remembered(hierarchy, policy="negative"):
    ids = [str(number) for number in range(OTHERS)]
    return Remembered(LabelSets.from_labels(labels_of(hierarchy, policy)), ids)


@each_distance
@pytest.mark.parametrize(("hierarchy", "policy", "traced"), KINDS, ids=["searched", "traced"])
def test_answers_of_neighbor_heads(hierarchy, distance, policy, traced):
    """Gradients are those of the scale: a search has none."""
    head = neighbor_head(hierarchy, distance)
    head.memory.set(head.embed(features(OTHERS, 1)).detach(), remembered(hierarchy, policy))
    head.memory.is_traced = traced
    check(head, features())


def blend_of_heads():
    """Return a blend of an ensemble of linear heads and of a network with both kinds of heads."""
    space = LabelSpace(TREE)
    both = {"main": HeadSpec("neighbors", {"size": 4}), "bce": HeadSpec("linear", {"link": "max"})}
    specs = []
    for heads, members, answers in (
        ({}, 2, {"main": 1.0}),
        (both, None, {"main": 0.5, "average": 0.25}),
    ):
        more = {"heads": heads} if heads else {}
        network = NetworkSpec(
            "mlp", InputSpec.numbers(FEATURES), {"width": 5}, members=members, **more
        )
        specs.append(PartSpec("one", network, "softmax", answers))
    networks = [
        build_network(one.network, space, list(range(one.network.members or 1))) for one in specs
    ]
    blend = Blend(space, specs, networks).eval()
    with torch.no_grad():
        set_memory(blend, embed(blend, features(OTHERS, 1)), remembered(TREE))
    assert memory_heads(blend)
    return blend


def test_a_blend():
    check(blend_of_heads(), features(), close=FLOAT32_SUMS)


def test_a_network_of_every_head():
    torch.manual_seed(0)
    heads = {name: make_head(name, FEATURES, LabelSpace(TREE)) for name in HEADS}
    network = Network(nn.Linear(FEATURES, FEATURES), heads)
    excluded = torch.arange(ROWS)[:, None] == torch.arange(OTHERS)
    candidates = Candidates(labels_of(TREE).targets(), excluded)
    x = torch.cat([features(), features(OTHERS, 1)])
    torch._dynamo.reset()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    expected, found = network(x, candidates), compiled(x, candidates)
    assert list(found) == list(HEADS)
    for name in HEADS:
        FLOAT32.assert_close(found[name].pair, expected[name].pair)


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C++ compiler")
@pytest.mark.parametrize("kind", ["linear", "step", "answers"])
def test_heads_compiled_by_the_default_backend(kind):
    """A blend, half a minute to build, is what these are made of: it is traced above."""
    head = neighbor_head(TREE, "squared")
    options = {"close": FLOAT32_SUMS, "options": QUICK_BUILD}
    if kind == "linear":
        check(
            make_head("linear", FEATURES, LabelSpace(TREE), link="softmax"), features(), **options
        )
    elif kind == "step":
        excluded = torch.arange(ROWS)[:, None] == torch.arange(OTHERS)
        candidates = Candidates(labels_of(TREE).targets(), excluded)
        check(head, features(), features(OTHERS, 1), candidates, **options)
    else:
        head.memory.set(head.embed(features(OTHERS, 1)).detach(), remembered(TREE))
        check(head, features(), **options)
