"""Reasons: what an answer rests on, by leaving parts of the input out."""

import numpy as np
import pytest

from hierlearn import HierarchicalClassifier
from hierlearn.datasets.tables.table import Table
from hierlearn.errors import HierlearnError
from hierlearn.pipeline.explain import Reason, reasons, table_parts, text_parts

TEXTS = ["barks loudly today", "barks at night", "purrs at night", "purrs today", "has leaves"] * 6
LABELS = ["animal/dog", "animal/dog", "animal/cat", "animal/cat", "plant/oak"] * 6


@pytest.fixture(scope="module")
def classifier():
    return HierarchicalClassifier(random_state=0).fit(TEXTS, LABELS)


def test_a_text_is_left_without_each_of_its_words():
    words, without = text_parts("The cat's bed, the BED.")
    assert words == ["the", "cat's", "bed"]
    assert without == [" cat's bed,  BED.", "The  bed, the BED.", "The cat's , the ."]
    assert text_parts("... !") == ([], [])


def test_the_effect_is_what_the_probability_loses(classifier):
    pipeline = classifier.pipeline_
    node = pipeline.hierarchy.index("animal/dog")
    (found,) = reasons(pipeline, ["barks today"], ["animal/dog"], count=5)
    p = pipeline.probabilities(["barks today", " today", "barks "])
    whole, without_barks, without_today = p[:, node].tolist()
    expected = [Reason("barks", whole - without_barks, without_barks)]
    if whole > without_today:
        expected.append(Reason("today", whole - without_today, without_today))
    assert [one.part for one in found] == [one.part for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert (one.effect, one.without) == pytest.approx((other.effect, other.without), abs=1e-5)
    assert found[0].effect > 0.2


def test_the_estimator_names_the_word_that_decides(classifier):
    for text, word in (("barks at night", "barks"), ("purrs today", "purrs")):
        assert classifier.reasons([text])[0][0].part == word
    assert classifier.reasons([""]) == [[]]
    assert len(classifier.reasons(["barks loudly at night today"], count=1)[0]) == 1


def test_cells_of_a_table_are_left_out_and_texts_word_by_word():
    row = Table(
        {
            "note": np.array(["big dog"], dtype=object),
            "color": np.array(["red"], dtype=object),
            "size": np.array([2.5], dtype=np.float32),
            "day": np.array(["2020-01-02"], dtype="datetime64[s]"),
            "empty": np.array([np.nan], dtype=np.float32),
        },
        {"note": "text", "color": "category", "size": "number", "day": "date", "empty": "number"},
    )
    parts, without = table_parts(row)
    assert parts == [
        "note: big", "note: dog", "color: red", "size: 2.5", "day: 2020-01-02T00:00:00"
    ]  # fmt: skip
    assert without.columns["note"].tolist() == [" dog", "big ", "big dog", "big dog", "big dog"]
    assert without.missing("color").tolist() == [False, False, True, False, False]
    assert without.missing("size").tolist() == [False, False, False, True, False]
    assert without.missing("day").tolist() == [False, False, False, False, True]
    assert without.missing("empty").all()


def test_numbers_have_no_parts_and_a_row_without_answer_no_reasons(classifier):
    numbers = HierarchicalClassifier(recipe="hcl", epochs=1).fit(np.eye(4), ["a/b", "a/c"] * 2)
    with pytest.raises(HierlearnError, match="reasons are words of texts and cells of tables"):
        numbers.reasons(np.eye(4))
    assert reasons(classifier.pipeline_, ["barks"], [None]) == [[]]
    with pytest.raises(HierlearnError, match="count must be at least 1"):
        classifier.reasons(["barks"], count=0)
