"""The registry of preprocessing steps: what every step offers, and how one is chosen."""

import pytest

from features.cases import TEXTS
from hierlearn.errors import DataError
from hierlearn.features import FEATURES, NumericPreprocessor, TextPreprocessor, from_state


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_every_preprocessor_asks_to_be_fitted_first(name):
    preprocessor = FEATURES[name]()
    assert preprocessor.name == name
    for call in (
        lambda: preprocessor.transform([]),
        preprocessor.state,
        lambda: preprocessor.columns,
    ):
        with pytest.raises(DataError, match=r"is not fitted yet; call fit\(training rows\)"):
            call()


def damaged(preprocessor, *, without=None, **changed):
    state, arrays = preprocessor.state()
    state = {key: value for key, value in {**state, **changed}.items() if key != without}
    return state, {key: value for key, value in arrays.items() if key != without}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (({}, {}), "damaged: it lacks 'name'"),
        (({"name": "numerik"}, {}), "unknown preprocessor 'numerik'; did you mean 'numeric'"),
        (damaged(NumericPreprocessor().fit([[1.0]]), without="scale"), "lacks 'scale'"),
        (damaged(NumericPreprocessor().fit([[1.0]]), without="impute"), "lacks 'impute'"),
        (damaged(TextPreprocessor().fit(TEXTS), without="idf"), "lacks 'idf'"),
        (damaged(TextPreprocessor().fit(["b c"]), words=["b"]), r"1 words, .* match idf \(2,\)"),
        (damaged(TextPreprocessor().fit(["b c"]), words=["b", "b"]), "2 words, of which 1 differ"),
    ],
)
def test_a_damaged_state_is_refused(state, message):
    with pytest.raises(DataError, match=message):
        from_state(*state)


def test_parts_without_rows_or_words_are_refused():
    with pytest.raises(DataError, match="cannot fit on 0 rows"):
        NumericPreprocessor().fit_parts(list)
    for parts in ([], [[]]):
        with pytest.raises(DataError, match="cannot fit on 0 texts"):
            TextPreprocessor().fit_parts(lambda parts=parts: parts)
    with pytest.raises(DataError, match="no word occurs in at least min_df=2 of the 2 texts"):
        TextPreprocessor(min_df=2).fit_parts(lambda: [["a"], ["b"]])
    with pytest.raises(DataError, match=r"row 1 .* is 3 .*, not a text"):
        TextPreprocessor().fit_parts(lambda: [["a", 3]])
    assert TextPreprocessor("hashed", bits=4).fit_parts(lambda: [["a"]]).columns == 16
