"""Spoiled taxonomies: which clean class each of their classes is."""

import numpy as np
import pytest

from hierlearn import Hierarchy
from hierlearn.datasets import Dataset, make_synthetic, with_hierarchy_noise
from hierlearn.datasets.noise import spoil_hierarchy
from hierlearn.labels import Labels


@pytest.mark.parametrize("dag", [0.0, 0.4])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_every_spoiled_class_leads_back_to_its_own(dag, rate):
    clean = make_synthetic(rows=60, fan_out=4, dag=dag, labels_per_row=3)
    noisy, numbers = spoil_hierarchy(clean, rate, seed=3)
    assert sorted(numbers.tolist()) == list(range(len(clean.hierarchy)))
    for one, number in enumerate(numbers.tolist()):  # the bare names of this one are unique
        assert noisy.hierarchy.bare_names[one] == clean.hierarchy.bare_names[number]
        assert noisy.hierarchy.levels[one] == clean.hierarchy.levels[number]
    if rate == 0:
        assert numbers.tolist() == list(range(len(numbers)))
    assert noisy.hierarchy == with_hierarchy_noise(clean, rate, seed=3).hierarchy


def test_rows_lead_back_to_their_own_class_where_names_repeat():
    names = [f"{top}/{name}" for top in "abcd" for name in ("other", top * 2, "x")]
    h = Hierarchy.from_paths([f"{name}/{end}" for name in names for end in ("other", "y")])
    data = Dataset(np.zeros((len(h), 1), np.float32), [[name] for name in h.names], h)
    numbers_moved = 0
    for seed in range(5):
        noisy, numbers = spoil_hierarchy(data, 0.6, seed)
        found = Labels(noisy.labels, noisy.hierarchy).annotated[1]
        assert numbers[found].tolist() == list(range(len(h)))
        numbers_moved += found.tolist() != list(range(len(h)))
    assert numbers_moved  # so that the map is not the identity by luck
