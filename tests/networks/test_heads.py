"""Heads and networks: one head or several, with logits or without."""

import pytest
import torch
from torch import nn

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.links import LINKS, HeadOutput
from hierlearn.losses import LOSSES
from hierlearn.losses.joint import JointLoss
from hierlearn.memory import Candidates
from hierlearn.networks import HEADS, Head, LinearHead, Network, read_output
from hierlearn.networks.ensemble import is_stackable
from hierlearn.networks.heads import make_head

TREE = Hierarchy.from_paths(["a/b", "a/c", "d"])


class Constant(Head):
    """A head without logits: every node has the probability of one parameter."""

    def __init__(self, label_space):
        super().__init__()
        self.log_odds = nn.Parameter(torch.zeros(len(label_space)))

    def forward(self, features):
        x = self.log_odds.expand(*features.shape[:-1], -1)
        return HeadOutput(nn.functional.logsigmoid(x), nn.functional.logsigmoid(-x))


@pytest.mark.parametrize("link", LINKS)
def test_a_linear_head_gives_what_its_link_makes_of_the_logits(link):
    head = LinearHead(3, TREE, link)
    x = torch.randn(5, 3)
    output = head(x)
    expected = LINKS[link](TREE)(x @ head.linear.weight + head.linear.bias)
    for found, wanted in zip(output.pair, expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_head_begins_with_the_priors_of_its_own_link():
    targets = TREE.encode([["b"]] * 60 + [["c"]] * 30 + [["d"]] * 10).double()
    for link in LINKS:
        if link == "random-walk":  # its base begins with them
            continue
        head = LinearHead(3, TREE, link)
        ends = targets.sum(0)
        ends[TREE.index("a")] = 0
        head.set_prior(targets.sum(0), ends, 100)
        p = head(torch.zeros(1, 3)).probabilities[0].double()
        # The inner classes of awx are less than the sum of what lies below.
        known = TREE.leaves.tolist() if link == "awx" else slice(None)
        torch.testing.assert_close(p[known], targets.mean(0)[known], rtol=0.06, atol=0)


def test_a_network_with_one_head_and_with_several():
    encoder = nn.Linear(4, 3)
    one = Network(encoder, LinearHead(3, TREE, "softmax"))
    x = torch.randn(6, 4)
    assert isinstance(one(x), HeadOutput)
    heads = {"linear": LinearHead(3, TREE, "sigmoid"), "constant": Constant(TREE)}
    both = Network(encoder, heads)
    outputs = both(x)
    assert list(outputs) == ["linear", "constant"]
    average = read_output(outputs)
    expected = sum(one.probabilities for one in outputs.values()) / 2
    torch.testing.assert_close(average.probabilities, expected)
    targets = TREE.encode([["b"], ["c"], ["d"], ["a"], [], ["b"]])
    joint = JointLoss(
        {"linear": LOSSES["hcl"](TREE), "constant": LOSSES["bce"](TREE)},
        {"linear": 1.0, "constant": 0.5},
    )
    total = joint(outputs, targets)
    parts = (
        LOSSES["hcl"](TREE)(outputs["linear"], targets),
        LOSSES["bce"](TREE)(outputs["constant"], targets),
    )
    torch.testing.assert_close(total, parts[0] + 0.5 * parts[1])
    assert joint.selection is not None
    with pytest.raises(HierlearnError, match="the network has heads"):
        joint({"other": outputs["linear"]}, targets)
    with pytest.raises(HierlearnError, match="do not fit heads"):
        JointLoss({"linear": LOSSES["bce"](TREE)}, {"other": 1.0})
    with pytest.raises(HierlearnError, match="at least one head"):
        Network(encoder, {})


def test_how_an_output_is_read():
    link = LINKS["max"](TREE)
    logits = torch.randn(2, 4)
    torch.testing.assert_close(read_output(logits, link).log_p, link(logits)[0])
    head = LINKS["sigmoid"](TREE).output(logits)
    assert read_output(head, link) is head  # a head is taken at its word ...
    torch.testing.assert_close(read_output(head, link, overrides_link=True).log_p, link(logits)[0])
    bare = HeadOutput(*head.pair)
    assert read_output(bare, link, overrides_link=True) is bare  # ... and one without logits always
    with pytest.raises(HierlearnError, match="or logits, not list"):
        read_output([logits], link)
    assert LabelSpace.of(TREE) == link.label_space


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_keeps_the_contract(kind):
    """Made by name, trained, evaluated, stacked, saved: what a network does with any head."""
    space = LabelSpace(TREE)
    heads = [make_head(kind, 6, space) for _ in range(2)]
    features, targets = torch.randn(5, 6), TREE.encode([["a"], ["b"]] * 2 + [[]])
    for head in heads:
        assert isinstance(head, Head)
        network = Network(nn.Identity(), head)
        if head.has_memory:
            itself = torch.eye(5, dtype=torch.bool)
            output = network(torch.cat([features, features]), Candidates(targets, itself))
        else:
            output = network(features)
        value = LOSSES["bce"](space)(output, targets)
        if any(True for _ in head.parameters()):  # others are not trained
            value.backward()
        assert all(one.grad is not None for one in head.parameters())
        network.load_state_dict(network.state_dict())
    trained = any(True for _ in heads[0].parameters())
    assert is_stackable(Network(nn.Identity(), heads[0])) == trained
    with pytest.raises(HierlearnError, match=f"unknown option of head {kind} 'color'"):
        make_head(kind, 6, space, color=1)
