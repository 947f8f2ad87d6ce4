"""TeacherLoss against tests/reference/teacher.py, and on learning curves with a known answer."""

import copy
import re

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.lab.baselines.teacher import TeacherLoss, slopes, task_probabilities, tasks_of
from hierlearn.losses import BCELoss, MixedLoss
from losses.oracle_checks import CLOSE, DAG, assert_same
from losses.random_batches import RAGGED, random_batch
from reference import teacher as reference

PAIR = Hierarchy.from_paths(["a/b", "c/d"])


def epochs_of(batch, count, seed):
    """Logits that drift from epoch to epoch, with the same targets and another mask each."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        step = torch.randn(batch.logits.shape, generator=generator, dtype=torch.float64)
        batch.logits = batch.logits + step
        known = torch.rand(batch.logits.shape, generator=generator) < 0.6
        yield batch.logits.clone(), batch.targets, None if batch.mask is None else known


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("options", [{}, {"tasks": "subtrees", "floor": 0.0}], ids=str)
def test_the_reference(seed, options):
    batch = random_batch(seed, dag=True)
    chosen = {"window": 3, "temperature": 0.2, "floor": 0.25, **options}
    loss = TeacherLoss(batch.hierarchy, reduction="none", **chosen)
    loss.set_seeds([seed])
    epochs = list(epochs_of(batch, 6, seed))
    plain = [
        (x.tolist(), y.int().tolist(), None if m is None else m.tolist()) for x, y, m in epochs
    ]
    named = {**chosen, "kind": chosen.get("tasks", "levels")}
    named.pop("tasks", None)
    expected = reference.teacher(plain, batch.parents, seed=seed, **named)
    for (logits, targets, mask), (losses, task, rewards) in zip(epochs, expected, strict=True):
        x = logits.clone().requires_grad_()
        found = loss(x, targets, mask)
        assert_same(found, losses)
        assert_same(loss.rewards, rewards)
        members = reference.tasks_of(batch.parents, named["kind"])[task]
        assert loss.selection.nonzero().flatten().tolist() == sorted(members)
        found.sum().backward()
        weights = torch.where(loss.selection, 1.0, chosen["floor"]).double()
        slope = weights * (x.detach().sigmoid() - targets.double())
        CLOSE.assert_close(x.grad, slope if mask is None else torch.where(mask, slope, 0.0))
        loss.end_epoch()


def test_tasks_are_levels_or_subtrees_which_share_classes_in_a_dag():
    assert [one.tolist() for one in tasks_of(RAGGED, "levels")] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    named = [[RAGGED.names[c] for c in one] for one in tasks_of(RAGGED, "subtrees")]
    assert named == [["a", "a/b", "a/e", "a/b/c", "a/b/d"], ["f", "f/g"], ["h"]]
    shared = Hierarchy.from_edges([("a", "c"), ("b", "c")])
    named = [[shared.bare_names[c] for c in one] for one in tasks_of(shared, "subtrees")]
    assert named == [["a", "c"], ["b", "c"]]


def test_the_slope_of_a_line_is_found_through_gaps():
    nan = torch.nan
    scores = [[1.0, 3, 5, 7], [nan, 4, nan, 3], [nan, nan, nan, 9], [nan] * 4]
    found = slopes(torch.tensor(scores, dtype=torch.float64))
    CLOSE.assert_close(found, torch.tensor([2.0, -0.5, 0, 0], dtype=torch.float64))


def with_scores(loss, scores):
    """Let epochs pass in which each of the tasks has the mean loss that is asked for."""
    tasks = tasks_of(loss.hierarchy, loss.tasks)
    for values in scores:
        p = torch.empty(1, len(loss.hierarchy), dtype=torch.float64)
        for classes, value in zip(tasks, values, strict=True):
            p[:, classes] = torch.tensor(-value, dtype=torch.float64).exp()
        loss(p.logit(), loss.hierarchy.encode([loss.hierarchy.names]))
        loss.end_epoch()


@pytest.mark.parametrize("curve", [[0.9, 0.7, 0.5], [0.3, 0.5, 0.7]], ids=["learned", "forgotten"])
def test_the_task_that_changes_is_trained(curve):
    """One level has the same loss in all epochs; the other is learned, or forgotten."""
    for moving in (0, 1):
        loss = TeacherLoss(PAIR, temperature=0.02)
        pairs = [(x, 0.4) if moving == 0 else (0.4, x) for x in curve]
        with_scores(loss, pairs)
        assert loss.probabilities[moving] > 1 - 1e-9
        assert (
            loss.selection.nonzero().flatten().tolist() == tasks_of(PAIR, "levels")[moving].tolist()
        )


def test_what_stands_still_since_a_window_is_not_worth_training():
    curve = [(0.9, 0.40), (0.1, 0.40), (0.1, 0.39), (0.1, 0.38), (0.1, 0.37)]
    loss = TeacherLoss(PAIR, window=3)
    with_scores(loss, curve)
    assert loss.probabilities[1] > 0.8


def test_the_temperature_needs_no_unit():
    rewards = torch.tensor([0.02, -0.01], dtype=torch.float64)
    odds = task_probabilities(rewards, 0.5)
    assert float(odds[0] / odds[1]) == pytest.approx(2.718281828)  # exp((1 - 0.5) / 0.5)
    equal = torch.full((2,), 0.5, dtype=torch.float64)
    CLOSE.assert_close(task_probabilities(torch.zeros(2, dtype=torch.float64), 0.5), equal)


def test_all_tasks_are_drawn_as_often_as_they_are_probable():
    counts = torch.zeros(3, dtype=torch.float64)
    for seed in range(600):
        loss = TeacherLoss(RAGGED)
        loss.set_seeds([seed])
        counts += torch.stack([loss.selection[one[0]] for one in tasks_of(RAGGED, "levels")])
    assert (counts - 200).abs().max() < 50  # more than four standard deviations


def test_members_draw_by_their_own_seeds():
    loss = TeacherLoss(RAGGED)
    loss.set_members(3)
    assert len(set(map(tuple, loss.selection.tolist()))) == 1
    loss.set_seeds([5, 6, 7])
    for member, seed in enumerate((5, 6, 7)):
        alone = TeacherLoss(RAGGED)
        alone.set_seeds([seed])
        assert torch.equal(loss.selection[member], alone.selection)
    assert len(set(map(tuple, loss.selection.tolist()))) > 1


def test_a_loaded_state_goes_on_with_the_same_choices():
    batch = random_batch(3, masked=False)
    loss = TeacherLoss(batch.hierarchy)
    loss.set_seeds([11])
    for _ in range(2):
        loss(batch.logits, batch.targets)
        loss.end_epoch()
    loss(batch.logits, batch.targets)  # in the middle of an epoch
    other = TeacherLoss(batch.hierarchy)
    other.load_state_dict(copy.deepcopy(loss.state_dict()))
    for _ in range(6):
        for one in (loss, other):
            one.end_epoch()
            one(2 * batch.logits, batch.targets)
        assert torch.equal(loss.selection, other.selection)
        assert torch.equal(loss.rewards, other.rewards)


def test_an_epoch_without_a_known_entry_of_a_task_has_no_score():
    loss = TeacherLoss(PAIR)
    targets, mask = PAIR.encode([["a/b"]]), torch.tensor([[True, True, False, False]])
    for known in (None, mask, None):
        loss(torch.zeros(1, 4), targets, known)
        loss.end_epoch()
    first, second = loss.scores[:, -3:].isfinite().tolist()
    assert sorted([first, second]) == [[True, False, True], [True, True, True]]
    assert loss.rewards.tolist() == [0.0, 0.0]
    loss.end_epoch()  # without any row
    assert loss.rewards.isfinite().all()


def test_a_part_of_a_mixed_loss_draws_by_the_seed_too():
    mixed, alone = MixedLoss(RAGGED, parts={"bce": 0.5, "teacher": 0.5}), TeacherLoss(RAGGED)
    for seed in range(4):
        mixed.set_seeds([seed])
        alone.set_seeds([seed])
        assert torch.equal(mixed.selection, alone.selection)


def test_with_one_task_it_is_binary_cross_entropy():
    flat = Hierarchy.from_paths(["a", "b", "c"])
    logits, targets = torch.randn(4, 3), flat.encode([["a"], ["b"], ["b", "c"], []])
    torch.testing.assert_close(TeacherLoss(flat)(logits, targets), BCELoss(flat)(logits, targets))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": "nodes"}, "unknown tasks 'nodes'; known: levels, subtrees"),
        ({"window": 1}, "window must be an integer of at least 2 epochs, not 1"),
        ({"window": 2.5}, "window must be an integer of at least 2 epochs, not 2.5"),
        ({"temperature": 0}, "temperature must be above 0, not 0"),
        ({"floor": 1}, "floor must lie in [0, 1), not 1; 1 would train every task"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(HierlearnError, match=re.escape(message)):
        TeacherLoss(DAG, **options)
