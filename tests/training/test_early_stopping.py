"""Early stopping by hand: who is better, who stops, and whose weights come back."""

import torch
from torch import nn

from hierlearn import Hierarchy
from hierlearn.networks import InputSpec
from hierlearn.networks.ensemble import StackedEnsemble
from hierlearn.networks.linear import linear
from hierlearn.training.solvers.solver import EarlyStopping
from training.datasets import CPU, last_layer

NAN = float("nan")


def best_of(members=1, metric="hit@1", patience=2):
    made = [linear(Hierarchy.from_paths(["a"]), InputSpec.numbers(1)) for _ in range(members)]
    network = StackedEnsemble(made)
    return EarlyStopping(network, members, metric, patience), network


def fill(network, *values):
    with torch.no_grad():
        for member, value in enumerate(values):
            for parameter in network.parameters():
                parameter[member] = value


def run(best, network, figures):
    """Judge epoch after epoch; the weights of an epoch are its number."""
    for epoch, values in enumerate(figures, start=1):
        fill(network, *[epoch] * len(values))
        best.update(values, epoch)
    best.restore()
    return [float(value) for value in last_layer(network).bias.detach().flatten()]


def test_more_is_better_or_less_is():
    up, network = best_of()
    assert run(up, network, [[0.2], [0.5], [0.4]]) == [2]
    assert (up.value, up.epoch, up.stopped) == ([0.5], [2], [False])
    down, network = best_of(metric="hier-dist")
    assert run(down, network, [[0.2], [0.5], [0.1]]) == [3]
    assert (down.value, down.improved_last) == ([0.1], [True])


def test_a_tie_is_not_better():
    best, network = best_of()
    assert run(best, network, [[0.5], [0.5]]) == [1]
    assert best.improved_last == [False]


def test_patience_ends_and_later_figures_do_not_count():
    best, network = best_of(members=2)
    figures = [[0.5, 0.1], [0.4, 0.2], [0.4, 0.3], [0.9, 0.2]]
    assert run(best, network, figures) == [1, 3]
    assert best.stopped == [True, False]
    assert best.value == [0.5, 0.3]
    assert best.mask_stopped([7.0, 8.0]) == [None, 8.0]


def test_without_patience_the_last_weights_stay_and_the_peak_is_known():
    best, network = best_of(patience=None)
    assert run(best, network, [[0.5], [0.6], [0.4]]) == [3]
    assert (best.value, best.epoch, best.weights) == ([None], [0], {})
    assert (best.peak, best.improved_last, best.stopped) == ([0.6], [False], [False])


def test_nan_is_never_better():
    best, network = best_of(members=2, patience=3)
    assert run(best, network, [[NAN, 0.1], [NAN, NAN], [NAN, NAN], [NAN, NAN]]) == [3, 1]
    assert (best.epoch, best.stopped) == ([0, 1], [True, True])


def test_it_is_taken_up_as_it_was():
    best, network = best_of(members=2)
    run(best, network, [[0.5, 0.1], [0.4, 0.2], [0.4, 0.3]])
    again, other = best_of(members=2)
    again.load_state_dict(best.state_dict(), best.tensors(), CPU)
    assert again.state_dict() == best.state_dict()
    fill(other, 9, 9)
    again.restore()
    assert torch.equal(last_layer(other).bias, last_layer(network).bias)


def test_buffers_of_a_network_from_elsewhere_come_back_too():
    network = nn.Sequential(nn.BatchNorm1d(2))
    best = EarlyStopping(network, 1, "hit@1", 1)
    best.update([0.5], 1)
    network(torch.randn(5, 2))
    best.update([0.4], 2)
    best.restore()
    assert int(network[0].num_batches_tracked) == 0
    assert network[0].running_mean.tolist() == [0, 0]
