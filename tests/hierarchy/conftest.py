"""Small hierarchies, written out so that a test can name its classes."""

import pytest

from hierlearn.hierarchy import Hierarchy


@pytest.fixture
def small_tree():
    """Seven classes: 0 animal, 1 plant, 2 cat, 3 dog, 4 oak, 5 bulldog, 6 pug."""
    return Hierarchy.from_paths(["animal/dog/pug", "animal/dog/bulldog", "animal/cat", "plant/oak"])


@pytest.fixture
def twins():
    """Two classes of the bare name Other, in different branches."""
    return Hierarchy.from_paths(["Electronics/Other", "Clothing/Other", "Clothing/Shoes"])


@pytest.fixture
def diamond():
    """The smallest DAG: d below b and c, both below a."""
    return Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
