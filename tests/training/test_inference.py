"""The one loop over rows: results in order, errors in their place, nothing left running."""

import threading
import time

import pytest
import torch
from torch import nn

from hierlearn import Labels
from hierlearn.kernels.cpu import AHEAD, in_order
from hierlearn.links import SoftmaxLink
from hierlearn.networks import NETWORKS, InputSpec, read_output
from hierlearn.networks.ensemble import ensemble_of
from hierlearn.training.inference import member_probabilities
from hierlearn.training.rows import Rows
from training.datasets import CPU, TREE, partial_problem

DATASET = partial_problem(rows=20)
LINK = SoftmaxLink(TREE)


def read(found):
    return read_output(found, LINK, overrides_link=True)


@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.parametrize("size", [3, 20, 4096])
def test_probabilities_of_every_member(members, size):
    rows = Rows(DATASET.inputs, Labels(DATASET.labels, TREE), CPU)
    made = [NETWORKS["mlp"](TREE, InputSpec.numbers(4), width=5, dropout=0.5) for _ in range(2)]
    network = ensemble_of(made).train() if members else made[0].train()
    found = member_probabilities(network, rows, read, batch=size)
    assert network.training
    expected = [LINK.probabilities(one.eval()(rows.inputs).logits) for one in made[: members or 1]]
    torch.testing.assert_close(found, expected)
    assert not found[0].requires_grad


def test_networks_stay_in_the_mode_they_were_in():
    rows = Rows(DATASET.inputs, Labels(DATASET.labels, TREE), CPU)
    network = nn.Linear(4, 8).eval()
    member_probabilities(network, rows, read)
    assert not network.training


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_results_come_in_order(workers):
    def slow(number):
        time.sleep(0.02 if number % 3 == 0 else 0.0)
        return number * number

    assert list(in_order(slow, range(20), workers)) == [number * number for number in range(20)]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_in_its_place(workers):
    def items():
        yield from range(4)
        raise KeyError("reading")

    def function(number):
        if number == 2:
            raise ValueError("computing")
        return number

    found = in_order(function, items(), workers)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(ValueError, match="computing"):
        next(found)
    found = in_order(str, items(), workers)
    assert [next(found) for _ in range(4)] == ["0", "1", "2", "3"]
    with pytest.raises(KeyError, match="reading"):
        next(found)


def test_few_items_are_taken_ahead_and_threads_end():
    taken, before = [], set(threading.enumerate())

    def items():
        for number in range(1000):
            taken.append(number)
            yield number

    found = in_order(lambda number: number, items(), 2)
    for _ in range(5):
        next(found)
        assert len(taken) <= 5 + 2 * (1 + AHEAD)
    assert set(threading.enumerate()) > before
    found.close()
    assert set(threading.enumerate()) == before


def test_each_thread_computes_on_one_core_and_threads_are_given_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = in_order(lambda _: torch.get_num_threads(), range(3), 2)
        assert list(found) == [1, 1, 1]
        assert torch.get_num_threads() == 2
        found = in_order(lambda _: 1 // 0, range(3), 2)
        with pytest.raises(ZeroDivisionError):
            next(found)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
