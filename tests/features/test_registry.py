"""The registry of preprocessing steps: what every step offers, and how one is chosen."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from features.example_rows import TEXTS
from features.saved_state import save_and_load
from hierlearn import Dataset, Hierarchy
from hierlearn.datasets import Table
from hierlearn.errors import DataError, HierlearnError
from hierlearn.features import (
    FEATURES,
    NumericPreprocessor,
    PiecewiseLinearPreprocessor,
    Preprocessor,
    TextPreprocessor,
    from_state,
    make_preprocessor,
    preprocessor_for,
)

H = Hierarchy.from_paths(["a", "b"])
NUMBERS = Dataset(np.float32([[1, 2], [3, 5]]), [["a"], ["b"]], H)
SPARSE = Dataset(csr_array(NUMBERS.inputs), [["a"], ["b"]], H)
WORDS = Dataset(["one two", "three"], [["a"], ["b"]], H)
COLUMNS = {"x": np.float32([1, 2]), "t": np.array(["one two", "three"], dtype=object)}
MIXED = Dataset(Table(COLUMNS, {"x": "number", "t": "text"}), [["a"], ["b"]], H)
DATASETS = {"numbers": NUMBERS, "texts": WORDS, "sparse": SPARSE, "table": MIXED}

# A step that needs the source of a backbone is tested in a file of its own.
WITHOUT_A_SOURCE = sorted(set(FEATURES) - {"tokens"})


class Ranges(Preprocessor):
    """A step of one's own: every column to [0, factor]."""

    name = "ranges"
    reads = "numbers"

    def __init__(self, *, factor=1.0):
        self.factor = factor
        self.low = self.high = None

    @property
    def columns(self):
        return len(self.low)

    def fit(self, inputs):
        self.low, self.high = inputs.min(axis=0), inputs.max(axis=0)
        return self

    def transform(self, inputs):
        return self.factor * (inputs - self.low) / (self.high - self.low)

    def state(self):
        return {"name": self.name, "factor": self.factor}, {"low": self.low, "high": self.high}

    @classmethod
    def from_state(cls, settings, arrays):
        new = cls(factor=settings["factor"])
        new.low, new.high = arrays["low"], arrays["high"]
        return new


def test_the_data_chooses_the_step():
    assert isinstance(preprocessor_for(NUMBERS), NumericPreprocessor)
    assert isinstance(make_preprocessor(None, WORDS), TextPreprocessor)
    assert preprocessor_for(SPARSE) is None
    assert preprocessor_for(NUMBERS, standardize=False).standardize is False
    assert preprocessor_for(WORDS, standardize=False, ngrams=2).ngrams == 2
    with pytest.raises(HierlearnError, match="unknown option of preprocessing 'standardise'; did"):
        preprocessor_for(WORDS, standardise=False)


def test_an_option_of_a_step_that_was_not_named_is_refused():
    message = "option 'bins' is of preprocessing 'piecewise-linear', but inputs that are numbers go"
    with pytest.raises(HierlearnError, match=message):
        preprocessor_for(NUMBERS, bins=3)


def test_a_step_is_chosen_by_name():
    assert make_preprocessor("text", WORDS, ngrams=2).ngrams == 2
    assert make_preprocessor("piecewise-linear", NUMBERS, bins=3).bins == 3
    with pytest.raises(DataError, match="preprocessing 'text' reads texts, but the inputs are num"):
        make_preprocessor("text", NUMBERS)
    with pytest.raises(HierlearnError, match="unknown option of preprocessing 'text' 'standardize"):
        make_preprocessor("text", WORDS, standardize=True)
    with pytest.raises(HierlearnError, match="unknown preprocessing 'texts'; did you mean 'text'"):
        make_preprocessor("texts", WORDS)


def test_no_step_for_a_kind_of_inputs_is_an_error(monkeypatch):
    monkeypatch.delitem(FEATURES, "text")
    monkeypatch.delitem(FEATURES, "latent")
    monkeypatch.delitem(FEATURES, "tokens")
    monkeypatch.delitem(FEATURES, "images")
    message = "no preprocessing of numeric, piecewise-linear, table accepts inputs that are texts"
    with pytest.raises(DataError, match=message):
        preprocessor_for(WORDS)


def test_a_custom_step_is_made_fitted_saved_and_restored(monkeypatch):
    monkeypatch.setitem(FEATURES, "ranges", Ranges)
    step = make_preprocessor("ranges", NUMBERS, factor=2.0).fit(NUMBERS.inputs)
    assert step.transform(NUMBERS.inputs).tolist() == [[0, 0], [2, 2]]
    assert save_and_load(step).transform(NUMBERS.inputs).tolist() == [[0, 0], [2, 2]]
    in_parts = Ranges().fit_parts(lambda: [NUMBERS.inputs[:1], NUMBERS.inputs[1:]])
    assert in_parts.high.tolist() == [3, 5]
    assert step.newly_missing(NUMBERS.inputs) == {}
    assert step.as_module() is None
    assert isinstance(preprocessor_for(NUMBERS), NumericPreprocessor)  # the first that accepts
    monkeypatch.setitem(FEATURES, "other", Ranges)
    with pytest.raises(HierlearnError, match="Ranges is registered as 'other' but has the name 'r"):
        make_preprocessor("other", NUMBERS)


def test_texts_in_parts_are_joined_for_a_step_that_does_not_say_how():
    class Longest(Ranges):
        reads = "texts"

        def fit(self, inputs):
            self.longest = max(map(len, inputs))
            return self

    assert Longest().fit_parts(lambda: [["a"], [], ["bcd", "e"]]).longest == 3


@pytest.mark.parametrize("name", [one for one in WITHOUT_A_SOURCE if one != "images"])
def test_every_step_says_what_it_reads_and_returns(name):
    step = FEATURES[name]
    for kind, dataset in DATASETS.items():
        assert step.accepts(dataset) == (step.reads == kind)
    made = step().fit(DATASETS[step.reads].inputs)
    found = made.transform(DATASETS[step.reads].inputs)
    assert hasattr(found, "tocsr") == (made.produces == "sparse")
    assert made.produces == step.produces_for(DATASETS[step.reads])
    assert found.shape == (2, made.columns)
    assert found.dtype == np.float32
    assert step.options()


def test_a_step_tells_how_many_columns_it_reads():
    assert NumericPreprocessor().fit(NUMBERS.inputs).input_columns == 2
    assert PiecewiseLinearPreprocessor().fit(NUMBERS.inputs).input_columns == 2
    assert TextPreprocessor().fit(WORDS.inputs).input_columns is None
    own = Ranges().fit(NUMBERS.inputs)
    assert (own.input_columns, own.produces) == (None, "numbers")


@pytest.mark.parametrize("name", WITHOUT_A_SOURCE)
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
    arrays |= {key: np.frombuffer(value, dtype=np.uint8) for key, value in changed.items()}
    state = {key: value for key, value in state.items() if key != without}
    return state, {key: value for key, value in arrays.items() if key != without}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (({}, {}), "damaged: it lacks 'name'"),
        (({"name": "numerik"}, {}), "unknown preprocessor 'numerik'; did you mean 'numeric'"),
        (damaged(NumericPreprocessor().fit([[1.0]]), without="scale"), "lacks 'scale'"),
        (damaged(NumericPreprocessor().fit([[1.0]]), without="impute"), "lacks 'impute'"),
        (damaged(TextPreprocessor().fit(TEXTS), without="idf"), "lacks 'idf'"),
        (damaged(TextPreprocessor().fit(["b c"]), words=b"b"), r"1 words, .* match idf \(2,\)"),
        (damaged(TextPreprocessor().fit(["b c"]), words=b"b\nb"), "2 words, of which 1 differ"),
        (damaged(TextPreprocessor().fit(["b c"]), without="words"), "lacks 'words'"),
    ],
)
def test_a_damaged_state_is_refused(state, message):
    with pytest.raises(DataError, match=message):
        from_state(*state)


def test_parts_without_rows_or_words_are_refused():
    for step in (NumericPreprocessor, PiecewiseLinearPreprocessor):
        with pytest.raises(DataError, match="cannot fit on 0 rows"):
            step().fit_parts(list)
    for parts in ([], [[]]):
        with pytest.raises(DataError, match="cannot fit on 0 texts"):
            TextPreprocessor().fit_parts(lambda parts=parts: parts)
    with pytest.raises(DataError, match="no word occurs in at least min_df=2 of the 2 texts"):
        TextPreprocessor(min_df=2).fit_parts(lambda: [["a"], ["b"]])
    with pytest.raises(DataError, match=r"row 1 .* is 3 .*, not a text"):
        TextPreprocessor().fit_parts(lambda: [["a", 3]])


def test_the_order_of_the_registry_does_not_choose(monkeypatch):
    for name in ("text", "numeric"):
        step = FEATURES[name]
        monkeypatch.delitem(FEATURES, name)
        monkeypatch.setitem(FEATURES, name, step)
    assert type(preprocessor_for(WORDS)) is FEATURES["text"]
    assert type(preprocessor_for(NUMBERS)) is FEATURES["numeric"]


@pytest.mark.parametrize("state", [-1, None, "numeric", [], {}, {"name": -1}])
def test_what_is_no_state_is_called_damaged(state):
    from hierlearn.errors import DataError
    from hierlearn.features import FEATURES, from_state

    with pytest.raises(DataError):
        from_state(state, {})
    for step in FEATURES.values():
        with pytest.raises(DataError):
            step.from_state(state, {})
