"""Every loss compiled by the default backend of torch.compile: values and gradients as in eager."""

import os
import shutil

import pytest
import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition

from hierlearn import Hierarchy
from hierlearn.links import LINKS
from hierlearn.losses import LOSSES
from tolerances import FLOAT32

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
COMPILERS = (os.environ.get("CXX", "c++"), "g++", "clang++")
# Scalar code without optimization builds faster, from the same graph; hcl keeps the defaults.
QUICK_BUILD = {"cpp.simdlen": 1, "aot_inductor.debug_compile": True}
CASES = [*((name, None) for name in LOSSES), *(("bce", link) for link in LINKS)]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler


def batch(rows=32):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, len(TREE), generator=generator)
    labels = torch.randint(0, len(TREE), (rows,), generator=generator)
    return logits, TREE.encode([[TREE.names[int(c)]] for c in labels])


def value_and_gradient(run):
    logits, targets = batch()
    logits.requires_grad_()
    value = run(logits, targets)
    value.backward()
    return value.detach(), logits.grad


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C++ compiler")
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_compiled_by_the_default_backend(name):
    torch._dynamo.reset()
    options = None if name == "hcl" else QUICK_BUILD
    compiled = torch.compile(LOSSES[name](TREE), fullgraph=True, options=options)
    FLOAT32.assert_close(value_and_gradient(compiled), value_and_gradient(LOSSES[name](TREE)))


def overwritten_parts(graph):
    """Return the tensors that torch.cat joins and an index_put adds to.

    The default backend lets cat use the memory of its inputs and index_put work in place.
    """
    joined = set()
    for node in graph.nodes:
        if node.target is torch.ops.aten.cat.default:
            joined.update(node.args[0])
    puts = (node for node in graph.nodes if node.target is torch.ops.aten.index_put.default)
    return [node.args[0] for node in puts if node.args[0] in joined]


def graphs_of(run):
    """Return the forward and the backward graph of a function as the default backend sees them."""
    graphs = []

    def keep(module, example_inputs):
        del example_inputs
        graphs.append(module.graph)
        return make_boxed_func(module.forward)

    backend = aot_autograd(
        fw_compiler=keep,
        bw_compiler=keep,
        decompositions=core_aten_decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    torch._dynamo.reset()
    value_and_gradient(torch.compile(run, fullgraph=True, backend=backend))
    return graphs


@pytest.mark.parametrize(("name", "link"), CASES)
def test_no_compiled_graph_adds_into_a_part_of_a_cat(name, link):
    loss = LOSSES[name](TREE) if link is None else LOSSES[name](TREE, link=link)
    forward, backward = graphs_of(loss)
    assert not overwritten_parts(forward)
    assert not overwritten_parts(backward)


def test_what_the_default_backend_overwrites_is_seen():
    index = torch.tensor([0, 1, 2])

    def split_and_select(logits, targets):
        del targets
        upper, _ = torch.split(logits, [len(TREE) - 3, 3], dim=-1)  # the gradient of _ is zeros
        selected = logits.log_softmax(dim=-1)[:, :3].exp().index_select(-1, index)
        return upper.square().sum() + selected.square().sum()

    assert any(map(overwritten_parts, graphs_of(split_and_select)))
