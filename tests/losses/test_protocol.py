"""The protocol of the losses: what a head gives, members, weights, torch.func, two backwards."""

import random

import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.devise import DeViSELoss
from hierlearn.lab.baselines.teacher import TeacherLoss
from hierlearn.links import LINKS, HeadOutput
from hierlearn.losses import LOSSES, BCELoss, ElementwiseLoss, HCLLoss, Loss, MixedLoss

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
DAG = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("c", "e")])
each_loss = pytest.mark.parametrize("name", LOSSES)
MAKERS = {
    **LOSSES,
    # A mass that is read from p is at least 1e-7 of it, which a low temperature goes below.
    "devise": lambda space, **o: DeViSELoss(space, link="scaled-softmax:temperature=1", **o),
    "hcl softmax": lambda space, **o: HCLLoss(space, link="softmax", scope="ancestors", **o),
    "hcl conditional": lambda space, **o: HCLLoss(space, link="conditional", floor=0.0, **o),
    "hcl focal": lambda space, **o: HCLLoss.paper(space, base="focal", **o),
    "hcl losses": lambda space, **o: HCLLoss(space, normalize="losses", **o),
    "teacher subtrees": lambda space, **o: TeacherLoss(space, tasks="subtrees", floor=0.0, **o),
    "teacher accuracy": lambda space, **o: TeacherLoss(
        space, score="accuracy", link="softmax", **o
    ),
    "mixed hcl": lambda space, **o: MixedLoss(space, parts={"bce": 1.0, "hcl": 2.0}, **o),
}
each_maker = pytest.mark.parametrize("name", MAKERS)


def batch(hierarchy=TREE, rows=6, seed=0, members=None):
    """Logits, closed targets of one class per row, and a mask."""
    generator = torch.Generator().manual_seed(seed)
    lead = () if members is None else (members,)
    shape = (*lead, rows, len(hierarchy))
    logits = torch.randn(shape, dtype=torch.float64, generator=generator)
    numbers = torch.randint(0, len(hierarchy), shape[:-1], generator=generator)
    rows_of_labels = [[int(c)] for c in numbers.flatten()]
    targets = hierarchy.encode(rows_of_labels, numbers=True).view(shape)
    return logits, targets, torch.rand(shape, generator=generator) < 0.8


# ---------------------------------------------------------------------- what a loss says of itself


@each_loss
def test_an_entry_says_what_it_is(name):
    entry = LOSSES[name]
    assert isinstance(entry.uses_hierarchy, bool)
    assert entry.default_link in LINKS
    assert entry.reading_link is None or entry.reading_link in LINKS
    assert callable(entry.function)
    loss = entry(TREE)
    assert isinstance(loss, Loss)
    for option, values in entry.search_space.items():
        assert len(values) > 1
        for value in values:
            entry(TREE, **{option: value})


def test_flat_losses_do_not_change_with_the_hierarchy_above_the_classes():
    """A loss that claims not to use the hierarchy is the same on another tree of these classes."""
    flat = Hierarchy.from_paths(["b", "c", "x"])
    logits = torch.randn(5, 3, dtype=torch.float64)
    targets = flat.encode([["b"], ["c"], ["x"], ["c"], []])
    for name, entry in LOSSES.items():
        found = entry(flat)(logits, targets)
        if not entry.uses_hierarchy:
            tree = Hierarchy.from_paths(["a/b", "a/c", "x"])
            order = [tree.names.index(one) for one in ("a/b", "a/c", "x")]
            wide = torch.randn(5, 4, dtype=torch.float64)
            wide[:, order] = logits
            known = torch.ones(5, 4, dtype=torch.bool)
            known[:, tree.index("a")] = False  # what the tree adds is left out
            closed = tree.encode([["a/b"], ["a/c"], ["x"], ["a/c"], []])
            torch.testing.assert_close(entry(tree)(wide, closed, known), found, msg=name)


# ---------------------------------------------------------------------- what a head gives


@each_maker
@pytest.mark.parametrize("masked", [False, True])
def test_an_output_with_logits_is_the_same_as_the_logits(name, masked):
    logits, targets, mask = batch()
    loss, twin = MAKERS[name](TREE), MAKERS[name](TREE)
    known = mask if masked else None
    torch.testing.assert_close(
        loss(twin.link.output(logits), targets, known), twin(logits, targets, known)
    )


@each_maker
@pytest.mark.parametrize("masked", [False, True])
def test_a_head_without_logits_trains_every_loss(name, masked):
    """The pair of a head, without its logits, gives the value and gradient of the logits."""
    logits, targets, mask = batch()
    known = mask if masked else None
    space = LabelSpace.from_targets(TREE, targets)
    values, gradients = [], []
    for bare in (False, True):
        loss = MAKERS[name](space)
        x = logits.clone().requires_grad_()
        output = loss.link.output(x)
        value = loss(HeadOutput(*output.pair) if bare else output, targets, known)
        value.backward()
        values.append(value.detach())
        gradients.append(x.grad)
    # A mass that is read from p is never below 1e-7 of it.
    close = {"rtol": 1e-6, "atol": 1e-8} if name != "cond-softmax" else {}
    torch.testing.assert_close(*values, **close)
    torch.testing.assert_close(*gradients, **close)


def test_a_head_is_taken_at_its_word_where_its_link_differs():
    logits, targets, _ = batch()
    head = LINKS["conditional"](TREE)
    torch.testing.assert_close(
        BCELoss(TREE)(head.output(logits), targets), BCELoss(TREE, link=head)(logits, targets)
    )
    # A softmax loss needs a distribution over the terminal classes: it reads such logits itself.
    leaf = LOSSES["leaf-ce"](TREE)
    torch.testing.assert_close(
        leaf(LINKS["sigmoid"](TREE).output(logits), targets), leaf(logits, targets)
    )


def test_the_label_space_decides_what_the_softmax_is_over():
    """B1: a confident logit of an inner terminal class counts, however the loss was made."""
    h = Hierarchy.from_paths(["dog/pug", "cat"])
    logits = torch.zeros(1, 3)
    logits[0, h.index("dog")] = 50.0
    targets = h.encode([["dog"]])
    space = LabelSpace(h, ["dog"])
    for options in ({"link": "softmax"}, {"link": LINKS["softmax"](space)}):
        assert HCLLoss(space, reduction="sum", **options)(logits, targets) < 1e-6
    assert HCLLoss(h, link="softmax", reduction="sum")(logits, targets) > 0.4


# ---------------------------------------------------------------------- members


@each_maker
@pytest.mark.filterwarnings("ignore::hierlearn.losses.CollapseWarning")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_members_have_the_losses_and_gradients_of_networks_alone(name, masked, weighted):
    logits, targets, mask = batch(rows=9, members=3)
    # The second member is far worse than the others, so that a selection cannot be shared.
    logits = logits * torch.tensor([1.0, 9.0, 0.1], dtype=torch.float64)[:, None, None]
    known = mask if masked else None
    weight = torch.rand(3, 9, dtype=torch.float64) if weighted else None
    together, apart = (logits.clone().requires_grad_() for _ in range(2))
    loss = MAKERS[name](TREE)
    loss.set_members(3)
    alone = [MAKERS[name](TREE) for _ in range(3)]
    for _ in range(2):  # the second epoch selects by what the first has gathered
        found = loss(together, targets, known, weight)
        expected = torch.stack(
            [
                one(
                    apart[k],
                    targets[k],
                    None if known is None else known[k],
                    None if weight is None else weight[k],
                )
                for k, one in enumerate(alone)
            ]
        )
        assert found.shape == (3,)
        torch.testing.assert_close(found, expected)
        upstream = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
        (found @ upstream).backward()
        (expected @ upstream).backward()
        torch.testing.assert_close(together.grad, apart.grad)
        if loss.selection is not None:
            picked = torch.stack([one.selection for one in alone])
            assert torch.equal(loss.selection, picked)
        for one in (loss, *alone):
            one.end_epoch()


def test_the_selections_of_members_differ():
    """The test above would not see a selection that all members share, were theirs the same."""
    logits, targets, _ = batch(rows=9, members=3)
    logits = logits * torch.tensor([1.0, 9.0, 0.1], dtype=torch.float64)[:, None, None]
    for link in ("sigmoid", "softmax"):
        loss = HCLLoss(TREE, link=link)
        loss(logits, targets)
        assert len({tuple(one) for one in loss.selection.tolist()}) > 1
        assert loss.last["selected_by_level"].shape == (3, TREE.depth)


@each_loss
def test_members_keep_their_axis_under_every_reduction(name):
    logits, targets, _ = batch(rows=4, members=2)
    values = LOSSES[name](TREE, reduction="none")(logits, targets)
    assert values.shape in ((2, 4, len(TREE)), (2, 4))
    total = LOSSES[name](TREE, reduction="sum")(logits, targets)
    torch.testing.assert_close(total, values.flatten(1).sum(1))


# ---------------------------------------------------------------------- weights


def weighted_oracle(loss, logits, targets, mask, weight):
    """The weighted mean by loops over unreduced losses."""
    values = loss(logits, targets, mask)
    total = count = 0.0
    for row in range(len(logits)):
        if values.dim() == 1:
            if (targets[row] & mask[row]).any():
                total += float(weight[row] * values[row])
                count += float(weight[row])
            continue
        for number in range(logits.shape[1]):
            if mask[row, number]:
                total += float(weight[row] * values[row, number])
                count += float(weight[row])
    return total, count


@each_loss
def test_the_weighted_mean_by_loops(name):
    logits, targets, mask = batch(rows=8)
    weight = torch.rand(8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    if "hcl" in name and name != "hcl-hier":
        return  # the curriculum is in the next test
    unreduced = LOSSES[name](TREE, reduction="none")
    total, count = weighted_oracle(unreduced, logits, targets, mask, weight)
    loss = LOSSES[name](TREE)
    assert float(loss(logits, targets, mask, weight)) == pytest.approx(total / count)
    assert float(loss.count(targets, mask, weight)) == pytest.approx(count)
    summed = LOSSES[name](TREE, reduction="sum")(logits, targets, mask, weight)
    assert float(summed) == pytest.approx(total)


@each_maker
@pytest.mark.filterwarnings("ignore::hierlearn.losses.CollapseWarning")
def test_a_row_of_weight_2_is_as_good_as_two_rows(name):
    if name == "sample-curriculum":
        pytest.skip("its weights scale losses; they do not copy rows in the selection")
    logits, targets, mask = batch(rows=5)
    copies = random.Random(0).choices([1, 2, 3], k=5)
    index = torch.repeat_interleave(torch.arange(5), torch.tensor(copies))
    weighted, copied = MAKERS[name](TREE), MAKERS[name](TREE)
    for _ in range(2):
        found = weighted(logits, targets, mask, torch.tensor(copies).double())
        torch.testing.assert_close(found, copied(logits[index], targets[index], mask[index]))
        weighted.end_epoch()
        copied.end_epoch()


@each_maker
def test_equal_weights_change_nothing_and_zero_leaves_out(name):
    logits, targets, mask = batch(rows=5)
    loss = MAKERS[name](TREE)
    equal = loss(logits, targets, mask, torch.full((5,), 0.25).double())
    if not (isinstance(loss, HCLLoss) or name in ("mixed hcl", "sample-curriculum")):
        torch.testing.assert_close(equal, MAKERS[name](TREE)(logits, targets, mask))
    some = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0]).double()
    if name != "sample-curriculum":
        torch.testing.assert_close(
            MAKERS[name](TREE)(logits, targets, mask, some),
            MAKERS[name](TREE)(logits[::2], targets[::2], mask[::2]),
        )
    nothing = MAKERS[name](TREE)(logits, targets, mask, torch.zeros(5).double())
    assert nothing == 0


@each_maker
@pytest.mark.parametrize("weighted", [False, True])
def test_a_mean_times_its_count_is_the_sum(name, weighted):
    """What processes weigh their means by is what the mean divides by."""
    logits, targets, mask = batch(rows=7)
    weight = torch.rand(7, dtype=torch.float64) if weighted else None
    mean, total = (MAKERS[name](TREE, reduction=kind) for kind in ("mean", "sum"))
    for known in (None, mask):
        count = mean.count(targets, known, weight)
        torch.testing.assert_close(
            mean(logits, targets, known, weight) * count, total(logits, targets, known, weight)
        )


def test_shapes_that_do_not_fit_are_refused():
    logits, targets, _ = batch(rows=4)
    loss = BCELoss(TREE)
    with pytest.raises(HierlearnError, match=r"weight \(3,\) must be \(4,\), one number per row"):
        loss(logits, targets, weight=torch.ones(3))
    with pytest.raises(HierlearnError, match=r"output \(4, 5\) must be \(N, 8\), or \(M, N, 8\)"):
        loss(HeadOutput(torch.zeros(4, 5), torch.zeros(4, 5)), targets)
    pair = HeadOutput(*loss.link(logits))
    with pytest.raises(HierlearnError, match="must match log-probabilities"):
        loss(pair, targets[:2])
    with pytest.raises(HierlearnError, match="LeafCELoss is not a loss of single entries"):
        HCLLoss(TREE, base=LOSSES["leaf-ce"](TREE))


# ---------------------------------------------------------------------- torch.func, two backwards


@each_maker
def test_torch_func_grad_is_backward(name):
    logits, targets, mask = batch()
    for hierarchy in (TREE,):
        loss = MAKERS[name](hierarchy)
        x = logits.clone().requires_grad_()
        MAKERS[name](hierarchy)(x, targets, mask).backward()
        found = torch.func.grad(lambda z, loss=loss: loss(z, targets, mask))(logits)
        torch.testing.assert_close(found, x.grad)


@each_maker
def test_vmap_over_members_is_a_loop(name):
    logits, targets, mask = batch(members=3)
    loss = MAKERS[name](TREE)
    found = torch.func.vmap(loss)(logits, targets, mask)
    expected = torch.stack([MAKERS[name](TREE)(logits[k], targets[k], mask[k]) for k in range(3)])
    torch.testing.assert_close(found, expected)


@each_maker
def test_per_example_gradients(name):
    """vmap over grad, one row at a time, as in differential privacy."""
    logits, targets, _ = batch(rows=4)
    loss = MAKERS[name](TREE)

    def of_a_row(x, y):
        return loss(x[None], y[None])

    found = torch.func.vmap(torch.func.grad(of_a_row))(logits, targets)
    for row in range(4):
        x = logits[row : row + 1].clone().requires_grad_()
        MAKERS[name](TREE)(x, targets[row : row + 1]).backward()
        torch.testing.assert_close(found[row], x.grad[0])


@each_maker
def test_double_backward(name):
    for hierarchy in (TREE, DAG):
        try:
            loss = MAKERS[name](hierarchy)
        except HierlearnError:
            continue  # trees only
        logits, targets, mask = batch(hierarchy, rows=3, seed=3)
        for known in (None, mask):
            x = logits.clone().requires_grad_()
            assert torch.autograd.gradgradcheck(
                lambda z, known=known, loss=loss, targets=targets: loss(z, targets, known), (x,)
            )


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own
def test_hessians_of_hcl_by_both_ways():
    logits, targets, mask = batch(rows=3)
    loss = HCLLoss(TREE)
    by_func = torch.func.hessian(lambda z: loss(z, targets, mask))(logits)
    by_autograd = torch.autograd.functional.hessian(lambda z: loss(z, targets, mask), logits)
    torch.testing.assert_close(by_func, by_autograd)
    assert by_func.abs().max() > 0


def test_transforms_leave_the_state_of_a_curriculum_alone():
    logits, targets, _ = batch()
    loss = HCLLoss.paper(TREE)
    torch.func.grad(lambda z: loss(z, targets))(logits)
    assert loss.selection is None
    assert not loss.ever_selected.any()


# ---------------------------------------------------------------------- losses of one's own


class Balanced(ElementwiseLoss):
    """A loss that depends on the batch: rare classes weigh more."""

    def losses(self, output, targets, mask):
        counts = targets.to(output.log_p.dtype).mean(dim=0) + 0.1
        return -torch.where(targets, output.log_p, output.log_not_p) / counts


class BalancedBCE(BCELoss):
    """The same as a subclass of a loss whose rows are independent."""

    def losses(self, output, targets, mask):
        return super().losses(output, targets, mask) / (targets.double().mean(dim=0) + 0.1)


@pytest.mark.parametrize("kind", [Balanced, BalancedBCE])
def test_a_loss_of_the_whole_batch_never_mixes_members(kind):
    logits, targets, mask = batch(members=2)
    assert not kind.rows_independent
    together = kind(TREE)(logits, targets, mask)
    apart = [kind(TREE)(logits[k], targets[k], mask[k]) for k in range(2)]
    torch.testing.assert_close(together, torch.stack(apart))


def test_built_in_losses_declare_what_holds():
    for name, entry in LOSSES.items():
        loss = entry(TREE, reduction="none")
        if loss.rows_independent:
            logits, targets, mask = batch(rows=8)
            logits[3:] *= 5
            halves = [loss(logits[part], targets[part], mask[part]) for part in HALVES]
            torch.testing.assert_close(torch.cat(halves), loss(logits, targets, mask), msg=name)
    assert BCELoss.rows_independent
    assert not HCLLoss.rows_independent


HALVES = (slice(0, 3), slice(3, 8))


class Named(ElementwiseLoss):
    """Its label space has another name."""

    def __init__(self, hierarchy, *, power=2.0, **options):
        super().__init__(hierarchy, **options)
        self.power = power

    def losses(self, output, targets, mask):
        return output.probabilities**self.power


def test_the_options_of_a_loss_are_its_own():
    assert Named.option_names() == ["power", "link"]
    assert BCELoss.option_names() == ["log_base", "pos_weight", "link", "class_weight"]
    assert "base" in HCLLoss.option_names()
    with pytest.raises(HierlearnError, match="a loss takes a HeadOutput or logits, not dict"):
        BCELoss(TREE)({"main": torch.zeros(1, 8)}, torch.zeros(1, 8))


@each_loss
def test_probabilities_of_exactly_0_and_1_are_no_nan(name):
    """A memory may be sure: a missed positive costs a lot, a hit nothing, and nothing is NaN."""
    space = LabelSpace(TREE, ["a/b"])
    targets = TREE.encode([["a/b/c"], ["h"], ["a/b"]])
    hit, missed = targets.double(), targets.roll(1, dims=0).double()
    costs = []
    for p in (hit, missed):
        pair = HeadOutput(p.log(), (1 - p).log())
        assert pair.log_p.isfinite().all()
        value = LOSSES[name](space)(pair, targets)
        assert not value.isnan()
        costs.append(float(value))
    if name != "soft-labels":  # whose labels hold a little of every class
        assert abs(costs[0]) < 10
    if name not in ("hcl-cl", "hcl-paper", "sample-curriculum"):  # which leave out what is too hard
        assert costs[1] > costs[0]
