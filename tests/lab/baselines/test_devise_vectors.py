"""Label vectors: inner products against loops, fewer dimensions, and files of vectors."""

import random

import numpy as np
import pytest

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import DataError, HierlearnError
from hierlearn.lab.baselines import devise as embedding
from hierlearn.lab.baselines.devise import read_vectors, similarities, taxonomy_vectors
from losses.random_batches import random_hierarchy
from reference.devise import dag_similarity, tree_similarity

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
SPACE = LabelSpace(TREE, ["a"])


def drawn(seed, dag):
    rng = random.Random(seed)
    hierarchy = random_hierarchy(rng, dag=dag)
    inner = [c for c in range(len(hierarchy)) if rng.random() < 0.3]
    parents = [list(hierarchy.parents(c)) for c in range(len(hierarchy))]
    return LabelSpace(hierarchy, inner), parents


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("dag", [False, True], ids=["tree", "DAG"])
def test_inner_products_are_the_similarities(seed, dag):
    space, parents = drawn(seed, dag)
    loop = dag_similarity if dag else tree_similarity
    wanted = [[loop(parents, a, b) for b in space.terminals] for a in space.terminals]
    np.testing.assert_allclose(similarities(space), wanted, atol=1e-12)
    vectors = taxonomy_vectors(space)
    np.testing.assert_allclose(vectors @ vectors.T, wanted, atol=1e-10)


def test_on_a_tree_both_definitions_agree():
    parents = [list(TREE.parents(c)) for c in range(len(TREE))]
    for a in SPACE.terminals:
        for b in SPACE.terminals:
            assert dag_similarity(parents, a, b) == pytest.approx(tree_similarity(parents, a, b))


def test_fewer_dimensions_keep_the_largest_eigenvalues():
    exact = similarities(SPACE)
    values = np.sort(np.linalg.eigvalsh(exact))[::-1]
    vectors = taxonomy_vectors(SPACE, 5)
    assert vectors.shape == (6, 5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)
    largest = np.abs(vectors).argmax(axis=0)
    assert (vectors[largest, range(5)] > 0).all()  # signs do not depend on the solver
    lengths = np.sqrt(np.diag(exact) - np.diag(exact - low_rank(exact, 5)))
    found = (vectors * lengths[:, None]) @ (vectors * lengths[:, None]).T
    error = np.linalg.norm(exact - found)
    assert error == pytest.approx(np.linalg.norm(values[5:]), abs=1e-10)


def low_rank(matrix, rank):
    values, basis = np.linalg.eigh(matrix)
    return (basis[:, -rank:] * values[-rank:]) @ basis[:, -rank:].T


def test_many_classes_are_decomposed_at_random_to_the_same_products(monkeypatch):
    paths = [f"{a}/{b}/{c}" for a in range(4) for b in range(3) for c in range(a + b + 2)]
    space = LabelSpace(Hierarchy.from_paths(paths))
    exact = taxonomy_vectors(space, 12)  # one per group; all others have the same eigenvalue
    monkeypatch.setattr(embedding, "DENSE", 10)
    found = taxonomy_vectors(space, 12)
    np.testing.assert_allclose(found @ found.T, exact @ exact.T, atol=1e-4)
    assert np.array_equal(taxonomy_vectors(space, 12), found)


def test_a_class_without_a_part_in_the_dimensions_is_named():
    with pytest.raises(HierlearnError, match=r"1 dimension of .* none for the class 'h'; use a la"):
        taxonomy_vectors(SPACE, 1)


def test_files_of_vectors(tmp_path):
    rng = np.random.default_rng(0)
    every = rng.normal(size=(len(TREE), 3)).astype("float32")
    wanted = every[SPACE.terminals] / np.linalg.norm(every[SPACE.terminals], axis=1)[:, None]
    np.save(tmp_path / "all.npy", every)
    np.save(tmp_path / "terminal.npy", every[SPACE.terminals])
    for name in ("all.npy", "terminal.npy"):
        np.testing.assert_allclose(read_vectors(tmp_path / name, SPACE), wanted, rtol=1e-6)


def test_a_matrix_of_other_rows_or_another_file_is_refused(tmp_path):
    np.save(tmp_path / "v.npy", np.ones((3, 2)))
    with pytest.raises(DataError, match="has 3 label vectors, but the classes are 8, or 6 of term"):
        read_vectors(tmp_path / "v.npy", SPACE)
    with pytest.raises(DataError, match=r"files that end in .npy or .safetensors"):
        read_vectors(tmp_path / "v.txt", SPACE)
