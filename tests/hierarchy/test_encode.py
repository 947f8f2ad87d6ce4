"""encode and decode: closed multi-hot targets, dense and sparse, and back to the labels."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.sparse import coo_array, csr_array, csr_matrix

from hierlearn.errors import HierlearnError, LabelError
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.labels import Labels
from reference import hierarchy as reference
from strategies import Taxonomy, labeled


@given(labeled())
def test_encode_equals_the_reference(drawn):
    taxonomy, rows = drawn
    h, numbers = taxonomy.build()
    targets = h.encode([[h.names[numbers[node]] for node in row] for row in rows])
    assert targets.dtype == torch.bool
    assert targets.shape == (len(rows), len(h))
    assert targets[:, numbers].tolist() == reference.encode(taxonomy.parents, rows)


@given(labeled())
def test_names_numbers_and_containers_encode_alike(drawn):
    taxonomy, rows = drawn
    h, _ = taxonomy.build()
    names = [[taxonomy.ids[node] for node in row] for row in rows]
    targets = h.encode(names)
    assert torch.equal(targets, h.encode(set(row) for row in names))
    assert torch.equal(targets, h.encode(tuple(tuple(row) for row in names)))
    assert torch.equal(targets, h.encode((name for name in row) for row in names))
    assert torch.equal(targets, h.encode([np.array(row, dtype=object) for row in names]))
    assert torch.equal(targets, h.encode([row or None for row in names]))
    assert torch.equal(targets, h.encode([h.closure(row) for row in names]))


@given(labeled())
def test_numbers_encode_like_names(drawn):
    taxonomy, rows = drawn
    # No name of digits alone, which a number could be mistaken for.
    letters = Taxonomy(tuple(f"x{name}" for name in taxonomy.names), taxonomy.parents)
    h, numbers = letters.build()
    targets = h.encode([[letters.ids[node] for node in row] for row in rows])
    rows = [[numbers[node] for node in row] for row in rows]
    assert torch.equal(h.encode(rows, numbers=True), targets)
    small = [np.array(row, dtype=np.int16) for row in rows]
    assert torch.equal(h.encode(small, numbers=True), targets)


@given(labeled())
def test_sparse_equals_dense(drawn):
    taxonomy, rows = drawn
    h, numbers = taxonomy.build()
    rows = [[h.names[numbers[node]] for node in row] for row in rows]
    sparse = h.encode(rows, sparse=True)
    assert isinstance(sparse, csr_array)
    assert sparse.dtype == bool
    assert sparse.shape == (len(rows), len(h))
    assert sparse.has_canonical_format
    assert np.array_equal(sparse.toarray(), h.encode(rows).numpy())
    assert h.decode(sparse) == h.decode(h.encode(rows))
    assert h.decode(sparse, terminal=False) == h.decode(h.encode(rows), terminal=False)


@given(labeled())
def test_decode_gives_the_terminal_labels(drawn):
    taxonomy, rows = drawn
    h, numbers = taxonomy.build()
    targets = h.encode([[h.names[numbers[node]] for node in row] for row in rows])
    decoded = h.decode(targets)
    every = h.decode(targets, terminal=False)
    for row, found, all_found in zip(rows, decoded, every, strict=True):
        terminal = {numbers[node] for node in reference.terminal(taxonomy.parents, row)}
        assert found == [h.names[c] for c in sorted(terminal)]
        assert tuple(h.index(name) for name in all_found) == h.closure(numbers[n] for n in row)
    assert torch.equal(h.encode(decoded), targets)
    assert torch.equal(h.encode(every), targets)


def test_a_number_that_is_also_the_name_of_another_class_raises():
    h = Hierarchy.from_edges([(1, 2), (1, 3)])
    assert h.names == ("1", "1/2", "1/3")
    message = "row 1: label 2 could be the class number 2 ('1/3') or the class named '2'; give"
    with pytest.raises(LabelError, match=re.escape(message)):
        h.encode([["2"], [2]])
    assert h.decode(h.encode([[2]], numbers=True)) == [["1/3"]]
    same = Hierarchy.from_edges([(None, 0), (None, 1)])
    assert same.encode([[0], [1]]).int().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("rows", [[1, 0], np.array([1, 0]), [[1], [0]], [np.int32(1), None]])
def test_an_integer_is_a_class_number_only_where_that_is_said(small_tree, rows):
    """scikit-learn's LabelEncoder numbers labels in another order than a hierarchy does."""
    message = "row 0: label 1 is an integer, and no class has that name; give names, or pass num"
    for read in (small_tree.encode, lambda rows: Labels(rows, small_tree)):
        with pytest.raises(LabelError, match=message):
            read(rows)
    assert small_tree.decode(small_tree.encode(rows, numbers=True))[0] == ["plant"]
    assert Labels(rows, small_tree, numbers=True).annotated[1][0] == 1


def test_an_integer_may_be_a_name():
    years = Hierarchy.from_edges([(None, 1998), (1998, 1999)])
    assert years.decode(years.encode([1999, [1998]])) == [["1998/1999"], ["1998"]]
    with pytest.raises(LabelError, match=r"label 7 is an integer.* class number of 0\.\.1$"):
        years.encode([7])


def test_worked_examples(small_tree):
    targets = small_tree.encode([["animal/dog/pug"], ["plant"], "cat", None, [], ["animal", "oak"]])
    assert targets.int().tolist() == [
        [1, 0, 0, 1, 0, 0, 1],
        [0, 1, 0, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0],
    ]
    assert small_tree.decode(targets) == [
        ["animal/dog/pug"],
        ["plant"],
        ["animal/cat"],
        [],
        [],
        ["animal", "plant/oak"],
    ]
    assert small_tree.decode(targets, terminal=False)[0] == [
        "animal",
        "animal/dog",
        "animal/dog/pug",
    ]


def test_a_row_may_be_one_label(small_tree):
    rows = ["cat", np.str_("cat"), 2, np.int32(2), ("cat",), {"cat"}, iter(["cat"]), ["cat", "cat"]]
    targets = small_tree.encode(rows, numbers=True)
    assert torch.equal(targets, targets[:1].expand_as(targets))
    assert targets[0].nonzero().flatten().tolist() == [0, 2]


def test_no_rows(small_tree):
    assert small_tree.encode([]).shape == (0, 7)
    assert small_tree.encode([], sparse=True).shape == (0, 7)
    assert small_tree.decode(torch.zeros(0, 7, dtype=torch.bool)) == []
    assert small_tree.encode([None, []]).sum() == 0
    assert small_tree.decode(small_tree.encode([None, []], sparse=True)) == [[], []]


def test_look_up_and_close(small_tree):
    offsets, numbers = small_tree.look_up([["pug", "animal"], None, "oak"])
    assert offsets.tolist() == [0, 2, 2, 3]
    assert numbers.tolist() == [6, 0, 4]
    offsets, numbers = small_tree.close(offsets, numbers)
    assert offsets.tolist() == [0, 3, 3, 5]
    assert numbers.tolist() == [0, 3, 6, 1, 4]


def test_most_specific_in_a_dag(diamond):
    rows, numbers = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 1, 3])
    assert diamond.most_specific(rows, numbers).tolist() == [False, True, True, False, True]
    # The targets need not be closed: b has a positive child, a has none.
    assert diamond.most_specific(np.zeros(2, dtype=int), np.array([0, 3])).tolist() == [True, True]


@pytest.mark.parametrize("kind", [csr_array, csr_matrix, coo_array])
def test_decode_takes_any_sparse_kind(small_tree, kind):
    dense = small_tree.encode(["pug", ["oak", "cat"]])
    assert small_tree.decode(kind(dense.numpy())) == small_tree.decode(dense)
    assert small_tree.decode(dense.float()) == small_tree.decode(dense)
    assert small_tree.decode(dense.long() * 3) == small_tree.decode(dense)


def test_decode_ignores_stored_zeros(small_tree):
    places = (np.array([0, 0]), np.array([0, 1]))
    stored = csr_array((np.array([True, False]), places), shape=(1, 7))
    assert stored.nnz == 2
    assert small_tree.decode(stored) == [["animal"]]
    assert small_tree.decode(stored, terminal=False) == [["animal"]]


def test_decode_orders_labels_by_class(small_tree):
    unsorted = csr_array((np.ones(2, dtype=bool), np.array([4, 2]), np.array([0, 2])), shape=(1, 7))
    assert small_tree.decode(unsorted) == [["animal/cat", "plant/oak"]]


def test_rows_of_a_large_table_stay_apart():
    # Row 65,536 of 65,536 classes begins at 2**32: keys of 32 bits would run into row 0.
    size = 1 << 16
    h = Hierarchy.from_parents([-1, *[0] * (size - 1)])
    top, below = 0, h.children(0)[0]
    places = np.array([[0, size, size], [top, top, below]], dtype=np.int32)
    targets = csr_array((np.ones(3, dtype=bool), tuple(places)), shape=(size + 1, size))
    assert targets.indices.dtype == np.int32  # as most of SciPy makes it
    decoded = h.decode(targets)
    assert decoded[0] == [h.names[top]]
    assert decoded[size] == [h.names[below]]


@pytest.mark.parametrize("shape", [(7,), (2, 6), (2, 7, 1), ()])
def test_decode_refuses_other_shapes(small_tree, shape):
    with pytest.raises(HierlearnError, match=re.escape(f"targets {shape} must be (N, 7)")):
        small_tree.decode(torch.zeros(shape, dtype=torch.bool))


def test_decode_refuses_a_sparse_array_of_another_width(small_tree):
    with pytest.raises(HierlearnError, match=re.escape("targets (2, 6) must be (N, 7)")):
        small_tree.decode(csr_array((2, 6), dtype=bool))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["cat"], ["cat", "dgo"]], "row 1: unknown label 'dgo'; did you mean 'dog'?"),
        (["cat", "animal/dog/pag"], "row 1: unknown label 'animal/dog/pag'; did you mean "),
        (["cat", None, 7], "row 2: class number 7 is outside 0..6 of this hierarchy"),
        ([[-1]], "row 0: class number -1 is outside 0..6 of this hierarchy"),
        ([True], "row 0: a label is a class name or number, not True (bool)"),
        ([[None]], "row 0: a label is a class name or number, not None (NoneType)"),
        ([[2.0]], "row 0: a label is a class name or number, not 2.0 (float)"),
        ([["cat"], 2.0], "row 1: labels are a name or a list of names, not 2.0 (float)"),
        ([float("nan")], "row 0: labels are a name or a list of names, not nan (float)"),
        ([[["cat"]]], "row 0: a label is a class name or number, not ['cat'] (list)"),
        ([b"\x00"], "row 0: labels are a name or a list of names, not b'\\x00' (bytes)"),
        ([[b"cat"]], "row 0: a label is a class name or number, not b'cat' (bytes)"),
        ([""], "row 0: label '' is the implicit root, which is no class; leave the row's labels"),
        ([["/"]], "row 0: label '/' is the implicit root"),
        (["cat", ["root"]], "row 1: label 'root' is the implicit root"),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_errors_name_the_row(small_tree, rows, message, sparse):
    with pytest.raises(LabelError, match=re.escape(message)):
        small_tree.encode(rows, numbers=True, sparse=sparse)


def test_a_string_is_not_a_list_of_rows(small_tree):
    with pytest.raises(LabelError, match="list"):
        small_tree.encode("animal")


def test_ambiguous_labels_name_the_row(twins):
    message = "row 1: label 'Other' is ambiguous: it could be 'Clothing/Other', 'Electronics/Other'"
    with pytest.raises(LabelError, match=re.escape(message)):
        twins.encode([["Clothing/Other"], ["Other"]])
