"""The start of a training: a hidden unit per label set, by hand."""

import numpy as np
import pytest
import torch

from hierlearn import Dataset, Hierarchy
from hierlearn.errors import HierlearnError
from hierlearn.training import Plan
from hierlearn.training.prepare import prepare

TREE = Hierarchy.from_paths(["a/b", "a/c", "d/e", "d/f"])
LABELS = [["a/b"]] * 9 + [["d/e"]] * 4 + [["a/c", "d/f"]] * 2 + [["d"]]


def network_of(**options):
    inputs = np.random.default_rng(0).normal(size=(len(LABELS), 3))
    chosen = {"network": "mlp", "loss": "bce", "network_options": {"width": 6}, **options}
    settings = {one: chosen.pop(one) for one in ("head_init", "ensemble_size") if one in chosen}
    plan = Plan(**chosen, settings=settings)
    return prepare(Dataset(inputs, LABELS, TREE), plan, torch.device("cpu")).network


def weights_of(**options):
    return network_of(**options).heads["main"].linear.weight.detach()


def expected(scales, units=6):
    """Return the weights of the units, the most frequent label set first."""
    rows = torch.zeros(len(scales), len(TREE))
    c = (6 / (units + len(TREE))) ** 0.5
    for row, (names, scale) in enumerate(
        zip(
            [["a", "a/b"], ["d", "d/e"], ["a", "a/c", "d", "d/f"], ["d"]][: len(scales)],
            scales,
            strict=True,
        )
    ):
        for name in names:
            rows[row, TREE.index(name)] = c * scale
    return rows


def test_every_label_set_has_a_unit_and_the_others_stay_random():
    before, found = weights_of(), weights_of(head_init="patterns")
    torch.testing.assert_close(found[:4], expected([1, 1, 1, 1]))
    assert torch.equal(found[4:], before[4:])


def test_with_fewer_units_than_sets_the_most_frequent_have_one():
    found = weights_of(head_init="patterns", network_options={"width": 2})
    torch.testing.assert_close(found, expected([1, 1], units=2))


def test_members_share_these_weights_and_differ_in_the_rest():
    found = network_of(head_init="patterns", ensemble_size=3)
    weight = found.network.heads["main"].linear.weight.detach()
    for member in weight:
        torch.testing.assert_close(member[:4], expected([1, 1, 1, 1]))
    assert not torch.equal(weight[0, 4:], weight[1, 4:])


@pytest.mark.parametrize(
    "options", [{"network": "linear", "network_options": {}}, {"head": "neighbors"}]
)
def test_without_a_linear_head_after_a_hidden_layer_it_is_refused(options):
    with pytest.raises(HierlearnError, match="head_init 'patterns' is for a linear head after"):
        network_of(head_init="patterns", **options)


def test_what_is_no_way_to_start_is_refused():
    with pytest.raises(HierlearnError, match="unknown head_init 'pattern'; did you mean"):
        network_of(head_init="pattern")
