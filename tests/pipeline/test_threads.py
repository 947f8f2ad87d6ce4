"""Batches in threads: results in order, errors in their place, nothing left running."""

import threading
import time

import pytest
import torch

from hierlearn import LabelSpace
from hierlearn.features import NumericPreprocessor
from hierlearn.lab.corpora.synthetic import make_synthetic
from hierlearn.links import make_link
from hierlearn.networks import InputSpec
from hierlearn.networks.build import NetworkSpec, build_network
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.inference import AHEAD, in_order, worker_count

SPACE = LabelSpace.of(make_synthetic(rows=10, features=3).hierarchy)


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


def pipeline_of(spec, preprocessor=None):
    network = torch.nn.Linear(3, len(SPACE)) if spec is None else build_network(spec, SPACE)
    link = make_link(SPACE, "softmax")
    return Pipeline(SPACE, network, link, preprocessor=preprocessor, network_spec=spec)


def test_only_light_networks_of_our_own_run_in_several_threads():
    spec = NetworkSpec("mlp", InputSpec.numbers(3))
    count = torch.get_num_threads()
    step = NumericPreprocessor().fit([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    assert worker_count(pipeline_of(spec)) == count
    assert worker_count(pipeline_of(spec, step)) == count
    assert worker_count(pipeline_of(None)) == 0  # a module that was passed in

    class Mine(NumericPreprocessor):
        pass

    assert worker_count(pipeline_of(spec, Mine())) == 0
