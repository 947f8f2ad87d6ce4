"""The Clus ARFF reader on small files that hold every form, and on broken ones."""

import os
from pathlib import Path

import numpy as np
import pytest

from hierlearn.datasets import read_arff
from hierlearn.errors import DataError, HierarchyError, HierlearnError

TREE = """% a comment
@relation 'small set'
@ATTRIBUTE width numeric
@attribute 'the color' {red, 'light blue', "gr,een"}
@Attribute height REAL
@attribute class hierarchical a,a/b,a/b/c,d,d/e

@DATA
% another comment
1,red,2.5,a/b/c
?,'light blue',-1e-3,a/b@d/e

3,"gr,een",?,d
"""

DAG = """@relation go
@attribute x numeric
@attribute class hierarchical root/p,root/q,p/r,q/r,r/s
@data
1,s
2,p@q
"""


def write(tmp_path, text, name="x.arff", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def test_tree_form(tmp_path):
    data = read_arff(write(tmp_path, TREE))
    assert data.feature_names == (
        "width",
        "the color=red",
        "the color=light blue",
        "the color=gr,een",
        "height",
    )
    nan = np.nan
    expected = [[1, 1, 0, 0, 2.5], [nan, 0, 1, 0, -1e-3], [3, 0, 0, 1, nan]]
    np.testing.assert_array_equal(data.inputs, np.array(expected, dtype=np.float32))
    assert data.inputs.dtype == np.float32
    assert data.labels == [["a/b/c"], ["a/b", "d/e"], ["d"]]
    assert data.hierarchy.names == ("a", "d", "a/b", "d/e", "a/b/c")


def test_crlf_and_byte_order_mark_change_nothing(tmp_path):
    plain = read_arff(write(tmp_path, TREE))
    dos = read_arff(write(tmp_path, "\ufeff" + TREE.replace("\n", "\r\n"), "y.arff"))
    np.testing.assert_array_equal(plain.inputs, dos.inputs)
    assert plain.labels == dos.labels
    assert plain.hierarchy == dos.hierarchy


def test_dag_form(tmp_path):
    data = read_arff(write(tmp_path, DAG))
    assert not data.hierarchy.is_tree
    assert data.hierarchy.parents("r") == ("p", "q")
    assert data.labels == [["s"], ["p", "q"]]
    assert data.hierarchy.encode(data.labels).sum(1).tolist() == [4, 2]


def test_sparse_rows(tmp_path):
    head = TREE.split("@DATA")[0]
    rows = "@data\n{0\t5, 3 \t a/b@d}\n{}\n{1 'light blue',2 ?,3 a}\n"
    data = read_arff(write(tmp_path, head + rows))
    expected = [[5, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, np.nan]]
    np.testing.assert_array_equal(data.inputs, np.array(expected, dtype=np.float32))
    assert data.labels == [["a/b", "d"], [], ["a"]]


def test_a_missing_nominal_value_is_missing_in_all_its_columns(tmp_path):
    head = TREE.split("@DATA")[0]
    data = read_arff(write(tmp_path, head + "@data\n1,?,2,a\n"))
    assert np.isnan(data.inputs[0, 1:4]).all()


def test_the_class_may_stand_first_and_be_empty(tmp_path):
    text = "@attribute c hierarchical a,b\n@attribute x numeric\n@data\na,1\n?,2\n"
    data = read_arff(write(tmp_path, text))
    assert data.labels == [["a"], []]
    assert data.inputs.ravel().tolist() == [1, 2]


HEAD = """@relation r
@attribute x numeric
@attribute n {u,v}
@attribute c hierarchical a,a/b
@data
"""


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,u\n", r"x\.arff, line 6: 2 values, but the header has 3 attributes"),
        ("1,u,a\n1,u,a,9\n", r"line 7: 4 values, but the header has 3"),
        ("1,u,a\n\nred,u,a\n", r"line 8, column 'x': 'red' is not a finite number; write \?"),
        ("1,u,a\n-inf,v,a\n", r"line 7, column 'x': '-inf' is not a finite number"),
        ("1e99,u,a\n", r"line 6, column 'x': '1e99' does not fit into float32"),
        ("1,w,a\n", r"line 6, column 'n': unknown value 'w'; known: 'u', 'v'"),
        ("1,u,a/c\n", r"line 6: unknown label 'a/c'; did you mean 'a/b'"),
        ("1,u,b\n", r"line 6: unknown label 'b'"),  # tree form labels are whole paths
        ("1,u,root\n", r"line 6: label 'root' is the implicit root, which is no class"),
        ("1,u,a@\n", r"line 6: label '' is the implicit root"),
        ("1,'u,a\n", r"line 6: a quotation mark ' is never closed"),
        ("{0 1\n", r"line 6: a sparse row is not closed"),
        ("{0 1, 0 2}\n", r"line 6: index 0 occurs twice"),
        ("{9 1}\n", r"line 6: index 9, but the header has 3"),
        ("{0 1,, 2 a}\n", r"line 6: '' is not an index and a value"),
        ("{0}\n", r"line 6: '0' is not an index and a value"),
        ("{x 1}\n", r"line 6: 'x 1' is not an index and a value"),
        ("", r"x\.arff has no rows after @data"),
    ],
)
def test_malformed_rows_name_file_line_and_column(tmp_path, rows, message):
    with pytest.raises(HierlearnError, match=message):
        read_arff(write(tmp_path, HEAD + rows))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"x\.arff is empty"),
        ("@attribute x numeric\n@data\n1\n", r"has no class: a Clus file needs"),
        ("@attribute x numeric\n", r"has no @data line; is the file cut off"),
        ("@attribute x date\n@data\n", r"line 1: attribute 'x' has the type 'date'; known"),
        ("hello\n@data\n", r"line 1: expected @attribute or @data, got 'hello'"),
    ],
)
def test_malformed_headers(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_arff(write(tmp_path, text))


def test_bad_hierarchies_name_their_line(tmp_path):
    text = "@attribute c hierarchical root/a,a/b,b/a\n@data\na\n"
    with pytest.raises(HierarchyError, match=r"x\.arff, line 1: cycle: 'a' -> 'b' -> 'a'"):
        read_arff(write(tmp_path, text))
    with pytest.raises(HierarchyError, match=r"line 1: a hierarchy needs at least one class"):
        read_arff(write(tmp_path, "@attribute c hierarchical\n@data\na\n"))


def test_non_utf8_is_named(tmp_path):
    text = HEAD.replace("relation r", "relation größe") + "1,u,a\n"
    with pytest.raises(DataError, match=r"line 1: byte 0xf6 is not UTF-8"):
        read_arff(write(tmp_path, text, encoding="latin1"))


def real_file(name):
    folders = [os.environ.get("HIERLEARN_DATA"), Path(__file__).parents[3] / "shared/data/hmc"]
    for folder in filter(None, folders):
        if (path := Path(folder) / name).exists():
            return path
    return pytest.skip(f"{name} is not at hand; set HIERLEARN_DATA to the folder that has it")


def test_real_imclef_against_a_plain_split():
    path = real_file("ImCLEF07D_Train.arff")
    data = read_arff(path)
    lines = path.read_text().split("@DATA")[1].split()
    cells = [line.split(",") for line in lines]
    np.testing.assert_array_equal(data.inputs, np.array([row[:-1] for row in cells], np.float32))
    assert data.labels == [row[-1].split("@") for row in cells]
    assert data.inputs.shape == (10000, 80)


# ---------------------------------------------------------------------- size


def wide_nominal(values, rows):
    names = ",".join(f"v{number}" for number in range(values))
    head = f"@attribute x numeric\n@attribute color {{{names}}}\n@attribute c hierarchical a,a/b\n"
    return head + "@data\n" + "".join(f"1,v{row % values},a/b\n" for row in range(rows))


def test_columns_beyond_memory_are_refused_before_a_row_is_read(tmp_path, monkeypatch):
    path = write(tmp_path, wide_nominal(200_000, 2_000))
    monkeypatch.setattr(
        "hierlearn.datasets.tables.arff.split_row", None
    )  # whoever reads a row fails
    with pytest.raises(DataError) as caught:
        read_arff(path)
    assert str(caught.value) == (
        f"{path}: attribute 'color' has 200,000 values, each of which is a column; with 2,000 rows "
        f"that takes 1.6 GB of memory for 1.5 MB of text; leave the attribute out, declare it "
        f"numeric, or write a CSV file, where rare categories share a column"
    )


def test_sparse_rows_of_many_attributes_are_refused_before_they_are_filled(tmp_path, monkeypatch):
    head = "".join(f"@attribute a{number} numeric\n" for number in range(20_000))
    path = write(tmp_path, f"{head}@attribute c hierarchical a,a/b\n@data\n" + "{}\n" * 8_000)
    monkeypatch.setattr("hierlearn.datasets.tables.arff.split_row", None)
    with pytest.raises(DataError, match=r"it has 20,001 attributes; with 8,000 rows that takes"):
        read_arff(path)


def test_one_column_per_value_takes_the_memory_of_its_columns(tmp_path):
    import tracemalloc

    path = write(tmp_path, wide_nominal(2_000, 3_000))
    tracemalloc.start()
    data = read_arff(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data.inputs.shape == (3_000, 2_001)
    assert (data.inputs[:, 1:].sum(axis=1) == 1).all()
    assert (data.inputs[:, 1:].argmax(axis=1) == np.arange(3_000) % 2_000).all()
    assert most < 1.5 * data.inputs.nbytes
