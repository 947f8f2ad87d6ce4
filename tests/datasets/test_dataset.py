"""Dataset, its facts and the registry."""

import json

import numpy as np
import pytest

import hierlearn
from hierlearn import DATASETS, Dataset, Hierarchy, load_dataset
from hierlearn.datasets import describe
from hierlearn.errors import DataError

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
    with pytest.raises(DataError, match="split 'test' names row 7 of a dataset of 1 rows"):
        Dataset(["a"], [[]], H, splits={"test": np.array([7])})


def test_describe_counts_what_is_there():
    facts = describe(DATA)
    assert json.loads(json.dumps(facts)) == facts
    assert facts["rows"] == 4
    assert facts["splits"] == {"train": 2, "test": 2}
    assert facts["inputs"] == {"kind": "numeric", "features": 2, "missing_share": 1 / 8}
    assert facts["hierarchy"]["classes_by_level"] == [2, 2, 1]
    assert facts["hierarchy"]["inner_terminal_classes"] == 1
    assert facts["labels"] == {
        "terminal_per_row": {"min": 0, "mean": 1.0, "max": 2},
        "one_path_a_row": False,
        "rows_without_label": 1,
        "rows_ending_above_a_leaf": 1,
        "classes_without_training_row": 1,
    }
    assert facts["rows_per_class"][1] == {
        "level": 2,
        "classes": 2,
        "fewest": 1,
        "median": 1.5,
        "most": 2,
        "empty": 0,
    }
    assert describe(Dataset(["a b", "c"], [[], []], H))["inputs"]["words_per_row"] == 1.5


def test_registry_names_everything_the_docs_promise():
    promised = {"icd10cm", "diatoms", "imclef07a", "imclef07d", "enron", "synthetic"}
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

    from hierlearn.datasets import make_synthetic

    assert DATASETS["synthetic"].options == tuple(inspect.signature(make_synthetic).parameters)
    assert len(load_dataset("synthetic", rows=10)) == 10
