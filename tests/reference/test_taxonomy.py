"""The reference taxonomy: examples worked out by hand."""

from reference.loss_examples import DAG, TREE
from reference.taxonomy import (
    ancestors_or_self,
    children,
    descendants_or_self,
    heights,
    lca_height,
    leaves,
    levels,
    root_height,
    terminal_labels,
)


def test_taxonomy_of_a_tree():
    assert children(TREE) == [[], [2, 4], [], [], [0, 3], []]
    assert levels(TREE) == [3, 1, 2, 3, 2, 1]
    assert heights(TREE) == [0, 2, 0, 0, 1, 0]
    assert root_height(TREE) == 3
    assert leaves(TREE) == [0, 2, 3, 5]
    assert ancestors_or_self(TREE, 0) == [0, 1, 4]
    assert descendants_or_self(TREE, 1) == [0, 1, 2, 3, 4]
    assert lca_height(TREE, 0, 3) == 1  # dog
    assert lca_height(TREE, 0, 2) == 2  # animal
    assert lca_height(TREE, 0, 5) == 3  # only the root
    assert lca_height(TREE, 0, 4) == 1  # dog is its own ancestor
    assert terminal_labels([1, 1, 1, 0, 1, 0], TREE) == [0, 2]


def test_taxonomy_of_a_dag():
    assert levels(DAG) == [1, 1, 2, 3, 4]
    assert heights(DAG) == [3, 2, 2, 1, 0]
    assert root_height(DAG) == 4
    assert ancestors_or_self(DAG, 4) == [0, 1, 2, 3, 4]
    assert descendants_or_self(DAG, 1) == [1, 3, 4]
    # 2 and 1 share no class above them; 3 and 2 share 2 (height 2) and 0 (height 3)
    assert lca_height(DAG, 1, 2) == 4
    assert lca_height(DAG, 3, 2) == 2
    # the smallest height, not the largest level: two siblings under a high and a low parent
    two_ways = [[], [], [0, 1], [0, 1], [0], [4]]
    assert heights(two_ways) == [2, 1, 0, 0, 1, 0]
    assert lca_height(two_ways, 2, 3) == 1
    assert lca_height([[], [], [0, 1], [0, 1], [1], [4]], 2, 3) == 1  # in either order
