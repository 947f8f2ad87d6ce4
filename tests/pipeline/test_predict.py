"""The answers of a model as rows of facts, against a loop over the decisions."""

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from hierlearn import Hierarchy, LabelSpace
from hierlearn.datasets.tables.stream import Chunk
from hierlearn.decoding import make_decoder
from hierlearn.errors import DataError
from hierlearn.features import NumericPreprocessor
from hierlearn.links import SigmoidLink
from hierlearn.networks import InputSpec
from hierlearn.networks.linear import linear
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.answers import NAMES, AnswerFormatter, Layout, answer_file
from hierlearn.pipeline.missing import MissingWarning
from hierlearn.pipeline.predict import predict_chunks
from tolerances import FLOAT32

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g"])
P = torch.tensor(
    [
        # a    f    a/b  a/e  f/g  a/b/c a/b/d
        [0.9, 0.1, 0.8, 0.1, 0.1, 0.7, 0.1],
        [0.9, 0.1, 0.8, 0.1, 0.1, 0.4, 0.4],
        [0.4, 0.4, 0.2, 0.2, 0.4, 0.1, 0.1],
        [0.6, 0.6, 0.1, 0.6, 0.6, 0.1, 0.0],
    ]
)


def model_of(terminals=(), hierarchy=TREE):
    rows = np.array([[1.0, 2.0], [3.0, np.nan]])
    space = LabelSpace(hierarchy, terminals)
    return Pipeline(
        space,
        linear(space, InputSpec.numbers(2)),
        SigmoidLink(space),
        preprocessor=NumericPreprocessor().fit(rows),
        config={"feature_names": ["width", "height"]},
    )


def answers(p, decoder, model, label_sep=";"):
    return AnswerFormatter(model, decoder, label_sep)(p)


def test_one_class_a_row():
    found = answers(P, make_decoder(TREE, "stop", threshold=0.5), model_of())
    assert tuple(found) == NAMES
    assert found["path"] == ["a/b/c", "a/b", "", "a/e"]
    assert found["class"] == ["c", "b", "", "e"]
    assert found["probability"] == pytest.approx([0.7, 0.8, 1.0, 0.6])
    assert found["level"] == [3, 2, 0, 2]
    assert found["stopped"] == [False, True, True, False]


def test_where_rows_may_end_at_an_inner_class_it_is_not_stopped_early():
    found = answers(P, make_decoder(TREE, "stop"), model_of(["a/b"]))
    assert found["stopped"] == [False, False, True, False]


def test_a_set_a_row_lists_its_most_specific_classes():
    found = answers(P, make_decoder(TREE, "coherent"), model_of(), label_sep=" | ")
    assert found["path"] == ["a/b/c", "a/b", "", "a/e | f/g"]
    assert found["class"] == ["c", "b", "", "e | g"]
    assert found["probability"] == ["0.7", "0.8", "", "0.6 | 0.6"]
    assert found["level"] == ["3", "2", "", "2 | 2"]
    assert found["stopped"] == [False, True, True, False]


def test_titles_are_a_column_of_their_own():
    model = model_of(hierarchy=TREE.with_titles({"a/b": "B", "a/b/c": "C", "f/g": "G"}))
    found = answers(P, make_decoder(TREE, "stop", threshold=0.5), model)
    assert tuple(found) == ("path", "class", "title", "probability", "level", "stopped")
    assert found["path"] == ["a/b/c", "a/b", "", "a/e"]
    assert found["title"] == ["C", "B", "", ""]
    found = answers(P, make_decoder(TREE, "coherent"), model, label_sep=" | ")
    assert found["path"] == ["a/b/c", "a/b", "", "a/e | f/g"]
    assert found["title"] == ["C", "B", "", " | G"]


@pytest.mark.parametrize("name", ["stop", "leaf", "argmax"])
def test_levels_of_one_class_a_row_by_walking_up(name):
    decoder = make_decoder(TREE, name)
    titled = model_of(hierarchy=TREE.with_titles({"a/b": "B", "a/b/c": "C", "f/g": "G"}))
    levels = ["one", "two", "three"]
    found = AnswerFormatter(titled, decoder, layout=Layout(levels))(P)
    for row, number in enumerate(decoder(P).tolist()):
        walk = {}
        while number >= 0:
            walk[int(TREE.levels[number])] = number
            number = next(iter(TREE.parents(number)), -1)
        for place, level in enumerate(levels, 1):
            here = walk.get(place)
            if here is None:
                assert (found[level][row], found[f"{level}_title"][row]) == ("", "")
                assert found[f"{level}_probability"].tolist()[row] is None
            else:
                path = TREE.names[here]
                assert found[level][row] == path.split("/")[-1]
                assert found[f"{level}_title"][row] == {"a/b": "B", "a/b/c": "C", "f/g": "G"}.get(
                    path, ""
                )
                assert found[f"{level}_probability"][row] == float(P[row, here])


def test_a_level_that_no_row_of_a_batch_reaches_is_a_column_of_numbers_in_parquet(tmp_path):
    model, decoder = model_of(), make_decoder(TREE, "stop", threshold=0.5)
    formatter = AnswerFormatter(model, decoder, layout=Layout(["one", "two", "three"]))
    with answer_file(tmp_path / "out.parquet", ["one", "three_probability"]) as file:
        for p in (P[2:], P[:1]):  # the third level is reached by the last row only
            file.append(formatter(p), {})
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.to_pydict()["three_probability"] == [None, None, float(P[0, 5])]


def test_candidates_are_told_by_the_subtrees_that_hold_them():
    decoder = make_decoder(TREE, "conformal", threshold=0.35)
    found = answers(P[:2], decoder, model_of())
    assert found["path"] == ["a/b/c", "a/b"]  # both leaves of a/b in the second row
    assert found["stopped"] == [False, True]
    decoder = make_decoder(TREE, "conformal", threshold=0.35, spread=1.0)
    assert answers(P[:1], decoder, model_of())["path"] == ["a/b"]  # 0.8 for two leaves
    inside = make_decoder(TREE, "subset", allowed=["a"], decoder="conformal", threshold=0.45)
    assert answers(P[:1], inside, model_of())["path"] == ["a/b/c"]


def test_chunks_are_answered_in_order_and_a_new_gap_is_named():
    model = model_of()
    draw = np.random.default_rng(0).standard_normal((9, 2)).astype(np.float32)
    draw[3, 1] = np.nan  # as in training
    decoder = make_decoder(TREE, "argmax")
    parts = [Chunk(draw[:5], range(2, 7)), Chunk(draw[5:], range(7, 11))]
    found = [
        path
        for part, _ in predict_chunks(AnswerFormatter(model, decoder), parts, Path("rows.csv"))
        for path in part["path"]
    ]
    assert found == answers(model.probabilities(draw), decoder, model)["path"]
    draw[7, 0] = np.nan
    with pytest.warns(
        MissingWarning, match=r"^1 of \d+ rows lacks a value .*: 'width' \(1\); an av"
    ):
        list(predict_chunks(AnswerFormatter(model, decoder), parts, Path("rows.csv")))
    model.missing = "error"
    with pytest.raises(DataError) as caught:
        list(predict_chunks(AnswerFormatter(model, decoder), parts, Path("rows.csv")))
    assert str(caught.value) == (
        "rows.csv, line 9, column 'width': the value is missing, but none was in training, so the "
        "model cannot know what that means; fill it in, or leave out missing='error'"
    )


def test_batches_of_many_classes_are_small(monkeypatch):
    from hierlearn.lab.corpora.synthetic import make_synthetic
    from hierlearn.pipeline import pipeline, train
    from hierlearn.training import Plan

    dataset = make_synthetic(rows=40, features=3)
    model = train(dataset, Plan(loss="bce", settings={"epochs": 1}))
    whole = model.probabilities(dataset.inputs)
    monkeypatch.setattr(pipeline, "ENTRIES", 7 * len(dataset.hierarchy))
    parts = list(model.stream_probabilities(dataset.inputs))
    assert [len(part) for part in parts] == [4] * 10
    FLOAT32.assert_close(torch.cat(parts), whole)


def test_no_function_is_called_for_each_row(tmp_path):
    """Counted, as seconds depend on the machine: more rows take as many calls."""
    model, decoder = model_of(), make_decoder(TREE, "leaf")
    draw = np.random.default_rng(0).standard_normal((4000, 2)).astype(np.float32)

    def calls(rows):
        count = 0

        def add(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call")

        chunks = [Chunk(draw[:rows], range(2, rows + 2))]
        with answer_file(tmp_path / "out.csv", NAMES) as file:
            sys.setprofile(add)
            try:
                formatter = AnswerFormatter(model, decoder)
                for columns, kept in predict_chunks(formatter, chunks, Path("rows.csv")):
                    file.append(columns, kept)
            finally:
                sys.setprofile(None)
        return count

    calls(10)  # what is made once
    few, many = calls(10), calls(4000)
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 4001
    assert abs(many - few) < 100
