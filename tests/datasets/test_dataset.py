"""Dataset, its summary and the registry."""

import json

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix

import hierlearn
from hierlearn import DATASETS, Dataset, Hierarchy, Labels, LabelSpace, load_dataset
from hierlearn.datasets import Images, Table, describe, read_table, stream_table
from hierlearn.errors import DataError
from hierlearn.lab.corpora.synthetic import with_hierarchy_noise, with_label_noise

H = Hierarchy.from_paths(["animal/dog/pug", "animal/cat", "plant"])
DATA = Dataset(
    inputs=np.array([[1, np.nan], [2, 3], [4, 5], [6, 7]], dtype=np.float32),
    labels=[["animal/dog/pug"], ["animal/dog", "plant"], [], ["animal/cat"]],
    hierarchy=H,
    splits={"train": np.array([0, 1]), "test": np.array([3, 2])},
    name="small",
)


def test_split_and_take_keep_order():
    test = DATA.split("test")
    assert test.labels == [["animal/cat"], []]
    assert test.inputs[:, 0].tolist() == [6, 4]
    assert Dataset(["a", "b"], [[], []], H).take([1]).inputs == ["b"]


def test_bad_splits_and_lengths():
    with pytest.raises(DataError, match="unknown split 'valid'; known: test, train"):
        DATA.split("valid")
    with pytest.raises(DataError, match="inputs have 1 rows but labels have 2"):
        Dataset(["a"], [[], []], H)
    with pytest.raises(DataError, match="split 'test' names row 7, but there are 1 rows"):
        Dataset(["a"], [[]], H, splits={"test": np.array([7])})


@pytest.mark.parametrize("inputs", [DATA.inputs, ["a", "b", "c", "d"]])
def test_rows_are_picked_by_mask_or_slice(inputs):
    data = Dataset(inputs, DATA.labels, H, splits={"test": np.array([True, False, False, True])})
    assert data.splits["test"].tolist() == [0, 3]
    for rows in ([False, True, False, True], np.array([False, True, False, True]), slice(1, 4, 2)):
        assert data.take(rows).labels == [DATA.labels[1], DATA.labels[3]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([True, False], r"is a mask of shape \(2,\), but there are 4 rows"),
        ([0.0, 1.0], "must be row numbers or a mask, not float64"),
        (["0"], "must be row numbers or a mask"),
        ([[0, 1]], r"must be .* of shape \(1, 2\)"),
        ([-1, 2], "names row -1, but there are 4 rows, counted from 0"),
        ([0, 4, 9], "names row 4, but there are 4 rows"),
    ],
)
def test_rows_that_are_none_are_refused(rows, message):
    with pytest.raises(DataError, match=f"^the selection {message}"):
        DATA.take(rows)
    with pytest.raises(DataError, match=f"^split 'train' {message}"):
        Dataset(DATA.inputs, DATA.labels, H, splits={"train": rows})


def test_describe_no_rows():
    for inputs in (DATA.inputs[:0], []):
        summary = describe(Dataset(inputs, [], H))
        assert summary["rows"] == 0
        assert summary["labels"]["terminal_per_row"] == {"min": 0, "mean": 0.0, "max": 0}
    assert describe(DATA.take([]))["rows_per_class"][0]["empty"] == 2


def test_describe_counts_what_is_there():
    summary = describe(DATA)
    assert json.loads(json.dumps(summary)) == summary
    assert summary["rows"] == 4
    assert summary["splits"] == {"train": 2, "test": 2}
    assert summary["inputs"] == {"kind": "numbers", "features": 2, "missing_fraction": 1 / 8}
    assert summary["hierarchy"]["classes_by_level"] == [2, 2, 1]
    assert summary["hierarchy"]["inner_terminal_classes"] == 1
    assert summary["labels"] == {
        "terminal_per_row": {"min": 0, "mean": 1.0, "max": 2},
        "single_path": False,
        "rows_without_label": 1,
        "rows_ending_above_a_leaf": 1,
        "near_duplicates": [],
        "classes_with_one_row": ["plant", "animal/cat", "animal/dog/pug"],
        "classes_without_training_row": 1,
    }
    assert summary["rows_per_class"][1] == {
        "level": 2,
        "classes": 2,
        "fewest": 1,
        "median": 1.5,
        "most": 2,
        "empty": 0,
    }
    assert describe(Dataset(["a b", "c"], [[], []], H))["inputs"]["words_per_row"] == 1.5


SPARSE = Dataset(
    csr_array(np.float32([[0, 1, 0], [2, 0, 0], [0, 0, 0], [0, 3, 4]])),
    DATA.labels,
    H,
    splits=DATA.splits,
    ids=["p", "q", "r", "s"],
)


def test_sparse_rows_are_described():
    summary = describe(SPARSE)
    assert json.loads(json.dumps(summary)) == summary
    assert summary["inputs"] == {"kind": "sparse", "features": 3, "density": 4 / 12}
    stored_zero = csr_array((np.float32([0, 5]), ([0, 0], [1, 2])), shape=(1, 4))
    assert describe(Dataset(stored_zero, [[]], H))["inputs"]["density"] == 1 / 4
    empty = describe(Dataset(csr_array((0, 3), dtype=np.float32), [], H))
    assert empty["inputs"] == {"kind": "sparse", "features": 3, "density": 0.0}


@pytest.mark.parametrize("form", [csr_matrix, csc_array, coo_array])
def test_sparse_rows_of_any_form_are_taken_and_split(form):
    data = Dataset(form(SPARSE.inputs), DATA.labels, H, splits=DATA.splits)
    assert data.inputs.format == "csr"
    test = data.split("test")
    assert test.inputs.toarray().tolist() == [[0, 3, 4], [0, 0, 0]]
    assert test.labels == [["animal/cat"], []]
    assert data.take([False, True, False, False]).inputs.toarray().tolist() == [[2, 0, 0]]
    assert data.take([]).inputs.shape == (0, 3)


@pytest.mark.parametrize("add_noise", [with_label_noise, with_hierarchy_noise])
def test_noise_leaves_sparse_rows_as_they_are(add_noise):
    noisy = add_noise(SPARSE, 1.0)
    assert noisy.labels != SPARSE.labels
    assert noisy.kind == "sparse"
    np.testing.assert_array_equal(noisy.inputs.toarray(), SPARSE.inputs.toarray())
    assert list(noisy.ids) == ["p", "q", "r", "s"]


def test_the_kind_of_the_inputs():
    assert DATA.kind == "numbers"
    assert SPARSE.kind == "sparse"
    assert Dataset(["a"], [[]], H).kind == "texts"
    assert (SPARSE.is_sparse, SPARSE.is_text, DATA.is_sparse) == (True, False, False)


def test_ids_go_with_their_rows():
    assert list(SPARSE.split("test").ids) == ["s", "r"]
    assert list(SPARSE.take([2, 2]).ids) == ["r", "r"]
    assert DATA.take([0]).ids is None
    with pytest.raises(DataError, match="inputs have 1 rows but ids have 2; give one id per row"):
        Dataset(["a"], [[]], H, ids=["1", "2"])


@pytest.mark.parametrize("columns", [{"features": ["x"]}, {"text": "t"}])
def test_rows_in_a_file_are_described_as_in_memory(tmp_path, columns):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    cells = {"x": [1.0, None, 3.0], "t": ["a b", "", "c"], "y": ["k", "m", "k"]}
    pq.write_table(pa.table(cells), tmp_path / "rows.parquet", row_group_size=2)
    path = tmp_path / "rows.parquet"
    held, streamed = (read(path, label="y", **columns) for read in (read_table, stream_table))
    assert describe(streamed) == describe(held)


def test_registry_names_everything_the_docs_promise():
    promised = {"esco", "medline", "naics", "cwe", "omniglot"}
    promised |= {"icd10cm", "diatoms", "imclef07a", "imclef07d", "enron", "synthetic"}
    yeast = ["cellcycle", "derisi", "eisen", "expr", "gasch1", "gasch2", "seq", "spo"]
    promised |= {f"{name}_{kind}" for name in yeast for kind in ("fun", "go")}
    assert set(DATASETS) == promised
    assert hierlearn.DATASETS is DATASETS


def test_unknown_datasets_and_options():
    with pytest.raises(DataError, match="unknown dataset 'diatom'; did you mean 'diatoms'"):
        load_dataset("diatom")
    with pytest.raises(DataError, match=r"dataset 'icd10cm' has no option 'data_dir'; it takes"):
        load_dataset("icd10cm", data_dir=".")


def test_options_of_synthetic_match_the_function():
    import inspect

    from hierlearn.lab.corpora.synthetic import make_synthetic

    names = tuple(inspect.signature(make_synthetic).parameters)
    assert tuple(DATASETS["synthetic"].options) == names
    assert len(load_dataset("synthetic", rows=np.int64(10), decay=1)) == 10


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("synthetic", {"rows": 10.5}, "option rows of dataset 'synthetic' must be an integer"),
        ("synthetic", {"rows": None}, "must be an integer, not None"),
        ("synthetic", {"rows": True}, "must be an integer, not True"),
        ("synthetic", {"decay": "x"}, "option decay .* must be a finite number, not 'x'"),
        ("synthetic", {"decay": float("nan")}, "must be a finite number, not nan"),
        ("synthetic", {"seed": -1}, "seed must be at least 0, not -1"),
        ("icd10cm", {"size": [1]}, r"option size of dataset 'icd10cm' must be a text, not \[1\]"),
        ("diatoms", {"trust": 1}, "option trust .* must be true or false, not 1"),
    ],
)
def test_options_of_another_type_are_refused(name, options, message):
    with pytest.raises(DataError, match=message):
        load_dataset(name, **options)


def test_options_are_read_from_texts_by_their_type():
    entry = DATASETS["synthetic"]
    assert entry.parse("rows", "50") == 50
    assert entry.parse("decay", "1e-1") == 0.1
    assert DATASETS["diatoms"].parse("trust", "True") is True
    assert DATASETS["icd10cm"].parse("size", "small") == "small"
    for text in ("1e3", "1_000", "", "null", "１"):
        with pytest.raises(DataError, match="must be an integer"):
            entry.parse("rows", text)


def test_a_dataset_prints_its_shape_and_not_its_rows(tmp_path):
    data = load_dataset("synthetic", rows=3000)
    lines = repr(data).splitlines()
    assert lines[0].startswith("Dataset('synthetic', 3,000 rows (train ")
    assert lines[0].endswith(f"), numbers of {data.inputs.shape[1]} columns,")
    assert lines[1] == f"        {data.hierarchy!r})"
    assert str(data) == repr(data)
    texts = Dataset(["x" * 1000] * 99, [["animal"]] * 99, H)
    assert repr(texts) == f"Dataset('', 99 rows, texts,\n        {H!r})"
    (tmp_path / "rows.csv").write_text("a,b,class\n" + "1,red,x\n2,blue,y\n" * 500)
    mixed = read_table(tmp_path / "rows.csv", label="class")
    assert repr(mixed.inputs) == "Table(1,000 rows of 2 columns: 1 number, 1 category)"
    wide = Table(
        {f"column {n}": np.zeros(3) for n in range(500)},
        dict.fromkeys((f"column {n}" for n in range(500)), "number"),
    )
    assert repr(wide) == "Table(3 rows of 500 columns: 500 number)"
    assert "1,000 rows, table of 2 columns" in repr(mixed)


def test_what_a_dataset_holds_prints_in_a_line(tmp_path):
    many = "/".join(map(str, range(100)))
    assert repr(Hierarchy.from_paths([many])).endswith("levels 1/1/1/1/1/1/1/1/1/1/1/1/...)")
    images = Images.from_array(np.zeros((50, 4, 4), np.uint8))
    assert repr(images) == "Images(50 images)"
    data = Dataset(images, [["plant"]] * 50, H)
    assert repr(data).splitlines()[0] == "Dataset('', 50 rows, images,"
    for one in (Labels(data.labels, H), LabelSpace(H)):
        assert len(repr(one)) < 160
