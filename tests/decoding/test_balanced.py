"""Balanced and hier-f1: the terminal class of the best expected worth, against loops over pairs."""

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy, HierlearnError, LabelSpace
from hierlearn.decoding import make_decoder


def ragged(seed, count):
    """Return a label space of random paths, some of which end at inner classes."""
    draw = np.random.default_rng(seed)
    paths = {
        "/".join(str(draw.integers(0, 3)) for _ in range(draw.integers(1, 5))) for _ in range(count)
    }
    return LabelSpace(Hierarchy.from_paths(sorted(paths)), sorted(paths))


def f1(a, b):
    """Hierarchical F1 of two paths, by counting the classes that they share."""
    one, other = a.split("/"), b.split("/")
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return 2 * shared / (len(one) + len(other))


@pytest.mark.parametrize("exact", [0.0, 0.5, 1.0])
def test_the_worth_of_a_class_is_its_mean_over_where_rows_end(exact):
    for seed in range(20):
        space = ragged(seed, 2 + seed % 8)
        names = [space.hierarchy.names[number] for number in space.terminals]
        q = np.random.default_rng(seed).dirichlet(np.full(len(names), 0.5), size=10)
        ends = torch.zeros(10, len(space.hierarchy), dtype=torch.double)
        ends[:, space.terminal_ids()] = torch.from_numpy(q)
        worth = np.array(
            [
                [
                    sum(
                        q[row, t] * (exact * (t == c) + (1 - exact) * f1(names[c], names[t]))
                        for t in range(len(names))
                    )
                    for c in range(len(names))
                ]
                for row in range(10)
            ]
        )
        decoder = make_decoder(space, "balanced", exact=exact)
        p = space.hierarchy.sum_up(ends)
        np.testing.assert_allclose(decoder.expected(p), worth, atol=1e-12)
        place = {number: at for at, number in enumerate(space.terminals.tolist())}
        found = worth[np.arange(10), [place[one] for one in decoder(p).tolist()]]
        np.testing.assert_allclose(found, worth.max(axis=1), atol=1e-12)


def test_a_likely_shallow_class_wins_by_exactness_and_loses_by_f1():
    space = LabelSpace(Hierarchy.from_paths(["no", "yes/a/x", "yes/a/y", "yes/b"]))
    p = {"no": 0.4, "yes": 0.6, "yes/a": 0.5, "yes/a/x": 0.26, "yes/a/y": 0.24, "yes/b": 0.1}
    row = torch.tensor([[p[name] for name in space.hierarchy.names]])

    def answer(name, **options):
        return space.hierarchy.names[int(make_decoder(space, name, **options)(row))]

    assert answer("leaf") == answer("balanced", exact=1.0) == "no"
    assert answer("hier-f1") == answer("balanced", exact=0.0) == "yes/a/x"


def test_what_is_refused():
    with pytest.raises(HierlearnError, match=r"exact must lie between 0 and 1, not 1\.5"):
        make_decoder(Hierarchy.from_paths(["a", "b"]), "balanced", exact=1.5)
