"""Links against naive loops, at any size of logits, and what coherence means."""

import copy
import math
import pickle
import random
import re

import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.propagate import LOG_ZERO
from hierlearn.lab.baselines.awx import AWXLink
from hierlearn.links import LINKS, HeadOutput, SoftmaxLink, link_name, make_link
from losses.random_batches import random_batch
from reference.links import log_probabilities

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
each_link = pytest.mark.parametrize("name", LINKS)


def draw(seed, name, **options):
    """Return a random batch, every other one on a DAG where the link takes one."""
    return random_batch(seed, dag=seed % 2 == 1 and name != "siblings", masked=False, **options)


def expected(batch, name, terminals=None):
    pair = log_probabilities(batch.logits.tolist(), batch.parents, name, terminals)
    return [torch.tensor(one, dtype=torch.float64).clamp_min(LOG_ZERO) for one in pair]


@each_link
@pytest.mark.parametrize("seed", range(25))
def test_both_logarithms_equal_the_naive_sums(name, seed):
    scale = [0.1, 1.0, 30.0, 1e4][seed % 4]
    batch = draw(seed, name, scale=scale)
    inner, terminals = [], None
    if name in ("softmax", "awx", "scaled-softmax"):
        rng = random.Random(seed)
        inner = [c for c in range(len(batch.hierarchy)) if rng.random() < 0.3]
        terminals = sorted({*inner, *batch.hierarchy.leaves.tolist()})
    link = LINKS[name](LabelSpace(batch.hierarchy, inner))
    log_p, log_q = link(batch.logits)
    wanted_p, wanted_q = expected(batch, name, terminals)
    torch.testing.assert_close(log_p, wanted_p, rtol=1e-12, atol=1e-12)
    if name in ("softmax", "scaled-softmax") and not batch.hierarchy.is_tree:
        # In a DAG 1 - p is subtracted in double precision: compare as probabilities.
        torch.testing.assert_close(log_q.exp(), wanted_q.exp(), rtol=0, atol=1e-14)
    else:
        torch.testing.assert_close(log_q, wanted_q, rtol=1e-12, atol=1e-12)


@each_link
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_p_alone_is_bitwise_that_of_the_pair(name, seed, dtype):
    batch = draw(seed, name, scale=[1.0, 30.0, 1e4][seed % 3])
    link, logits = LINKS[name](batch.hierarchy), batch.logits.to(dtype)
    pair = link.log_probabilities(logits)[0]
    assert torch.equal(link.log_p(logits), pair)
    assert torch.equal(link.probabilities(logits), pair.exp())
    output = link.output(logits)
    assert torch.equal(output.probabilities, pair.exp())
    assert output._pair is None  # log(1 - p) was not computed
    members = torch.stack([logits, -logits])
    assert torch.equal(link.log_p(members), link.log_probabilities(members)[0])


@each_link
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_huge_logits_and_low_precision(name, dtype):
    link = LINKS[name](TREE)
    for size in (1e4, -1e4):
        torch.manual_seed(0)
        logits = (size * torch.randn(5, len(TREE))).to(dtype).requires_grad_()
        log_p, log_q = link(logits)
        assert log_p.dtype == torch.float32
        assert log_p.isfinite().all()
        assert log_q.isfinite().all()
        (log_p.sum() + log_q.sum()).backward()
        assert logits.grad.isfinite().all()


@each_link
@pytest.mark.parametrize("seed", range(10))
def test_gradients(name, seed):
    batch = draw(seed, name, scale=0.1 if name == "scaled-softmax" else 2.0)
    link = LINKS[name](batch.hierarchy)
    logits = batch.logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: link(x)[0], (logits,))
    adds_up = name in ("softmax", "scaled-softmax", "siblings")
    certain = adds_up and (link(logits)[1] < -30).any()  # nothing lies outside a class
    if not certain:
        assert torch.autograd.gradcheck(lambda x: link(x)[1], (logits,))


@each_link
@pytest.mark.parametrize("seed", range(15))
def test_coherent_links_never_let_a_child_pass_its_parent(name, seed):
    batch = draw(seed, name)
    link = LINKS[name](batch.hierarchy)
    p = link.probabilities(batch.logits)
    violated = any(
        bool((p[:, c] > p[:, above] + 1e-12).any())
        for c in range(len(batch.hierarchy))
        for above in batch.hierarchy.parents(c)
    )
    assert not (link.coherent and violated)
    assert LINKS["sigmoid"].coherent is False


@pytest.mark.parametrize("seed", range(6))
def test_min_drops_classes_whose_parents_are_not_predicted_at_every_threshold(seed):
    batch = draw(seed, "min")
    alone = LINKS["sigmoid"](batch.hierarchy).probabilities(batch.logits)
    together = LINKS["min"](batch.hierarchy).probabilities(batch.logits)
    for threshold in alone.flatten().unique().tolist():
        for row, found in zip(alone.tolist(), together.tolist(), strict=True):
            predicted = {c for c, p in enumerate(row) if p >= threshold}
            while lost := {c for c in predicted if not {*batch.parents[c]} <= predicted}:
                predicted -= lost
            assert predicted == {c for c, p in enumerate(found) if p >= threshold}


def test_softmax_mass_of_the_children_is_the_parents():
    torch.manual_seed(0)
    logits = torch.randn(4, len(TREE), dtype=torch.float64)
    p = SoftmaxLink(TREE).probabilities(logits)
    tops = TREE.level_slices[0]
    torch.testing.assert_close(p[:, tops].sum(1), torch.ones(4, dtype=torch.float64))
    for c in range(len(TREE)):
        if TREE.children(c):
            torch.testing.assert_close(p[:, list(TREE.children(c))].sum(1), p[:, c])
    inner = SoftmaxLink(LabelSpace(TREE, ["a/b"]))
    p, own = inner.probabilities(logits), inner.log_masses(logits).exp()
    b = TREE.index("a/b")
    torch.testing.assert_close(p[:, list(TREE.children(b))].sum(1) + own[:, b], p[:, b])


def test_conditional_on_one_level_is_the_sigmoid_and_so_is_max():
    flat = Hierarchy.from_paths(["x", "y"])
    logits = torch.randn(3, 2)
    for name in ("conditional", "max"):
        for one, other in zip(
            LINKS[name](flat)(logits), LINKS["sigmoid"](flat)(logits), strict=True
        ):
            torch.testing.assert_close(one, other)


@each_link
def test_a_row_is_scored_alone(name):
    torch.manual_seed(0)
    logits = torch.randn(6, len(TREE), dtype=torch.float64)
    link = LINKS[name](TREE)
    for row in range(6):
        torch.testing.assert_close(link(logits[row : row + 1])[0], link(logits)[0][row : row + 1])
    assert link(logits[:0])[0].shape == (0, len(TREE))


@each_link
def test_modules_behave(name):
    link = LINKS[name](TREE)
    logits = torch.randn(2, len(TREE))
    for twin in (copy.deepcopy(link), pickle.loads(pickle.dumps(link))):
        torch.testing.assert_close(twin(logits)[0], link(logits)[0])
    assert link.state_dict() == {}
    assert "8 classes" in repr(link)
    torch._dynamo.reset()
    compiled = torch.compile(link, fullgraph=True, backend="aot_eager")
    for one, other in zip(compiled(logits), link(logits), strict=True):
        torch.testing.assert_close(one, other)


@each_link
def test_bad_logits(name):
    link = LINKS[name](TREE)
    with pytest.raises(HierlearnError, match=re.escape("logits (2, 7) must be (N, 8)")):
        link(torch.zeros(2, 7))
    with pytest.raises(HierlearnError, match="logits must be floating point"):
        link(torch.zeros(2, 8, dtype=torch.long))


def test_siblings_on_one_level_are_a_softmax_and_a_dag_is_refused():
    flat = Hierarchy.from_paths(["x", "y", "z"])
    logits = torch.randn(3, 3)
    torch.testing.assert_close(LINKS["siblings"](flat)(logits)[0], logits.log_softmax(dim=1))
    dag = Hierarchy.from_edges([(None, "a"), (None, "b"), ("a", "c"), ("b", "c")])
    with pytest.raises(HierlearnError, match="the siblings link needs a tree"):
        LINKS["siblings"](dag)


PRIOR_ROWS = [["a/b/c"]] * 60 + [["a/b/d"]] * 20 + [["a/e"]] * 50 + [["f/g"]] * 30 + [["h"]] * 40


@each_link
def test_prior_logits_give_every_class_its_share_of_the_rows(name):
    targets = TREE.encode(PRIOR_ROWS).double()
    counts = targets.sum(dim=0)
    ends = torch.zeros_like(counts)
    ends[TREE.leaves.tolist()] = counts[TREE.leaves.tolist()]
    link = LINKS[name](TREE)
    if name == "random-walk":  # which then averages these shares over neighbors
        link = link.base
    p = link.probabilities(link.prior_logits(counts, ends, len(targets))[None])[0]
    wanted = counts / len(targets)
    if name == "awx":  # its inner classes are less than the sum of what lies below
        p, wanted = p[TREE.leaves.tolist()], wanted[TREE.leaves.tolist()]
    torch.testing.assert_close(p, wanted, rtol=0.03, atol=0)
    nothing = torch.zeros_like(counts)
    assert link.prior_logits(nothing, nothing, 0).isfinite().all()


@each_link
def test_members_are_read_like_networks_alone(name):
    torch.manual_seed(0)
    logits = torch.randn(3, 4, len(TREE), dtype=torch.float64)
    link = LINKS[name](TREE)
    for together, alone in zip(link(logits), zip(*map(link, logits), strict=True), strict=True):
        torch.testing.assert_close(together, torch.stack(list(alone)))


@each_link
def test_masses_of_the_terminal_classes_are_what_ends_there(name):
    torch.manual_seed(0)
    space = LabelSpace(TREE, ["a/b"])
    link = LINKS[name](space)
    logits = torch.randn(4, len(TREE), dtype=torch.float64)
    p, masses = link.probabilities(logits), link.log_masses(logits).exp()
    for c in range(len(TREE)):
        rest = p[:, c] - p[:, list(TREE.children(c))].sum(1)
        expected = rest.clamp_min(0) if space.is_terminal[c] else torch.zeros(4).double()
        # A mass is never exactly 0: at least 1e-7 of p ends at an inner terminal class.
        torch.testing.assert_close(masses[:, c], expected, rtol=1e-6, atol=2e-7)
    if link.normalized:
        torch.testing.assert_close(masses.sum(1), torch.ones(4).double(), rtol=0, atol=2e-7)


def test_masses_of_a_dag_are_refused_where_they_need_equations():
    dag = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    with pytest.raises(HierlearnError, match="cannot be read from probabilities; use the"):
        LINKS["sigmoid"](LabelSpace(dag, ["b"])).log_masses(torch.zeros(1, 4))
    leaf = LINKS["sigmoid"](dag).log_masses(torch.zeros(1, 4))
    assert leaf.exp().tolist() == [[0.0, 0.0, 0.0, 0.5]]


def test_an_output_computes_its_log_probabilities_when_asked():
    link = LINKS["sigmoid"](TREE)
    logits = torch.randn(2, 3, len(TREE)).bfloat16()
    output = link.output(logits)
    assert output.logits is logits
    assert output.members == 2
    torch.testing.assert_close(output.log_p, link(logits)[0])
    torch.testing.assert_close(output.member(1).log_not_p, link(logits[1])[1])
    torch.testing.assert_close(output.flat().log_p, link(logits)[0].flatten(0, 1))
    mean = output.mean()
    assert mean.logits is None
    torch.testing.assert_close(mean.probabilities, output.probabilities.mean(0))
    torch.testing.assert_close(mean.log_not_p.exp(), 1 - mean.probabilities)
    other = LINKS["max"](TREE)
    torch.testing.assert_close(output.read_by(other).log_p, other(logits)[0])
    assert mean.read_by(other) is mean
    assert output.read_by(None) is output
    assert repr(output) == "HeadOutput((2, 3, 8) of logits, SigmoidLink)"
    with pytest.raises(HierlearnError, match="has no logits; read log_p and log_not_p"):
        mean.float_logits  # noqa: B018
    with pytest.raises(HierlearnError, match=re.escape("log_p (2,) must match log_not_p (3,)")):
        HeadOutput(torch.zeros(2), torch.zeros(3))


def test_awx_goes_from_the_sum_to_the_maximum():
    torch.manual_seed(0)
    logits = torch.randn(50, len(TREE), dtype=torch.float64) - 2
    units = torch.zeros_like(logits)
    leaves = TREE.leaves.tolist()
    units[:, leaves] = logits[:, leaves].sigmoid()
    one = AWXLink(TREE, order=1).probabilities(logits)
    torch.testing.assert_close(one, TREE.sum_up(units).clamp_max(1 - 1e-6))
    most = AWXLink(TREE, order=math.inf).probabilities(logits)
    torch.testing.assert_close(most, TREE.max_up(units))
    previous = one
    for order in (2, 5, 50, 500):
        p = AWXLink(TREE, order=order).probabilities(logits)
        assert (p <= previous + 1e-15).all()
        assert (p >= most - 1e-15).all()
        previous = p
    torch.testing.assert_close(previous, most, rtol=3e-3, atol=0)


def test_options_of_a_link_are_part_of_how_it_is_written():
    for text, order in (("awx", 5), ("awx:order=3", 3), ("awx:order=1.5", 1.5)):
        link = make_link(TREE, text)
        assert link.order == order
        assert link_name(link) == text
    assert link_name(AWXLink(TREE, order=5)) == "awx"
    assert make_link(TREE, link_name(AWXLink(TREE, math.inf))).order == math.inf
    for text, sentence in (
        ("awx:orders=3", "unknown option of link awx 'orders'.*order"),
        ("awx:order=0.5", "order must be a number of at least 1, not 0.5"),
        ("awx:order=many", "order must be a number of at least 1, not 'many'"),
        ("awx:order", "link awx takes key=value, not 'order'"),
        ("max:order=2", "unknown option of link max 'order'"),
        ("ax", "unknown link 'ax'"),
    ):
        with pytest.raises(HierlearnError, match=sentence):
            make_link(TREE, text)


def test_a_link_that_is_not_registered_says_so():
    class OwnLink(LINKS["sigmoid"]):
        pass

    link = OwnLink(TREE)
    assert make_link(TREE, link) is link
    with pytest.raises(HierlearnError, match="OwnLink is not registered; add it to hierlearn"):
        link_name(link)
    assert link_name(LINKS["max"](TREE)) == "max"
    with pytest.raises(HierlearnError, match="the link is of LabelSpace"):
        make_link(LabelSpace(TREE, ["a"]), link)


def test_a_temperature_scales_the_logits_of_the_softmax():
    logits = torch.randn(4, len(TREE), dtype=torch.float64)
    link = make_link(TREE, "scaled-softmax:temperature=0.5")
    softmax = SoftmaxLink(TREE)
    for found, wanted in zip(link(logits), softmax(logits / 0.5), strict=True):
        assert torch.equal(found, wanted)
    torch.testing.assert_close(link.log_masses(logits), softmax.log_masses(2 * logits))
    counts = torch.arange(1, len(TREE) + 1).double()
    prior = link.prior_logits(counts, counts, 40)
    torch.testing.assert_close(
        link.probabilities(prior[None]),
        softmax.probabilities(softmax.prior_logits(counts, counts, 40)[None]),
    )
    assert link_name(link) == "scaled-softmax:temperature=0.5"
    with pytest.raises(HierlearnError, match="temperature must be a number above 0, not 0"):
        make_link(TREE, "scaled-softmax:temperature=0")
