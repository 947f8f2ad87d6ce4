"""Corrupted taxonomies: which clean class each of their classes is."""

from dataclasses import replace

import numpy as np
import pytest

from hierlearn import Hierarchy
from hierlearn.datasets import Dataset
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.corpora.synthetic import corrupt_hierarchy, make_synthetic, with_hierarchy_noise


@pytest.mark.parametrize("dag", [0.0, 0.4])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_every_corrupted_class_leads_back_to_its_own(dag, rate):
    clean = make_synthetic(rows=60, fan_out=4, dag=dag, labels_per_row=3)
    titles = {number: f"class {number}" for number in range(len(clean.hierarchy))}
    clean = replace(clean, hierarchy=clean.hierarchy.with_titles(titles))
    noisy, numbers = corrupt_hierarchy(clean, rate, seed=3)
    assert sorted(numbers.tolist()) == list(range(len(clean.hierarchy)))
    for one, number in enumerate(numbers.tolist()):  # the bare names of this one are unique
        assert noisy.hierarchy.bare_names[one] == clean.hierarchy.bare_names[number]
        assert noisy.hierarchy.levels[one] == clean.hierarchy.levels[number]
        assert noisy.hierarchy.titles[one] == f"class {number}"  # a title follows its class
    if rate == 0:
        assert numbers.tolist() == list(range(len(numbers)))
    assert noisy.hierarchy == with_hierarchy_noise(clean, rate, seed=3).hierarchy


def test_rows_lead_back_to_their_own_class_where_names_repeat():
    names = [f"{top}/{name}" for top in "abcd" for name in ("other", top * 2, "x")]
    h = Hierarchy.from_paths([f"{name}/{end}" for name in names for end in ("other", "y")])
    data = Dataset(np.zeros((len(h), 1), np.float32), [[name] for name in h.names], h)
    numbers_moved = 0
    for seed in range(5):
        noisy, numbers = corrupt_hierarchy(data, 0.6, seed)
        found = Labels(noisy.labels, noisy.hierarchy).annotated[1]
        assert numbers[found].tolist() == list(range(len(h)))
        numbers_moved += found.tolist() != list(range(len(h)))
    assert numbers_moved  # so that the map is not the identity by luck


def test_where_names_repeat_the_whole_fraction_moves_and_siblings_differ():
    """As in ImCLEF07D, whose classes are called 0, 1, 2, ... under every parent."""
    h = Hierarchy.from_paths([f"{top}/{name}" for top in "abc" for name in "012"])
    data = Dataset(np.zeros((len(h), 1), np.float32), [[name] for name in h.names], h)
    for rate in (0.5, 1.0):
        noisy, numbers = corrupt_hierarchy(data, rate, seed=1)
        true = [h.parents(number)[0] for number in range(3, len(h))]
        place = np.argsort(numbers)  # clean number -> noisy
        found = [numbers[noisy.hierarchy.parents(place[number])[0]] for number in range(3, len(h))]
        moved = sum(one != other for one, other in zip(found, true, strict=True))
        assert moved == round(rate * 9)
        assert len(set(noisy.hierarchy.names)) == len(h)


def test_an_only_parent_keeps_its_children():
    h = Hierarchy.from_paths(["a/b", "a/c"])
    data = Dataset(np.zeros((1, 1), np.float32), [["c"]], h)
    assert corrupt_hierarchy(data, 1.0)[0].hierarchy == h


def test_ancestors_among_the_labels_do_not_become_labels_of_their_own():
    h = Hierarchy.from_paths([f"{top}/{top}{name}" for top in "ab" for name in "xyz"])
    data = Dataset(np.zeros((1, 1), np.float32), [["a", "a/ax"]], h)
    noisy, numbers = corrupt_hierarchy(data, 1.0)
    (label,) = noisy.labels[0]
    assert label == "b/ax"
    assert h.names[numbers[noisy.hierarchy.names.index(label)]] == "a/ax"
