"""Preprocessing against scikit-learn's own imputer, scaler and vectorizers."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load, save
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hierlearn.errors import DataError, HierlearnError
from hierlearn.features import preprocessing
from hierlearn.features.preprocessing import (
    PREPROCESSORS,
    NumericPreprocessor,
    TextPreprocessor,
    from_state,
)

NAN, INF = float("nan"), float("inf")
TEXTS = [
    "Cholera due to Vibrio cholerae 01, biovar cholerae",
    "Acute hepatitis A",
    "Acute hepatitis B",
    "Ménière's disease, left ear",
]


def some_numbers(rows, seed=0):
    """Columns of very different size, a constant one, and a tenth of the values missing."""
    rng = np.random.default_rng(seed)
    values = rng.normal([0.0, 1e6, -3.0, 1e-5], [1.0, 2.0, 1e4, 1e-6], size=(rows, 4))
    values = np.hstack([values, np.full((rows, 1), 0.1)])
    values[rng.random(values.shape) < 0.1] = NAN
    return values


def restored(preprocessor):
    """What a model folder would give back: through JSON text and safetensors bytes."""
    state, arrays = preprocessor.state()
    return from_state(json.loads(json.dumps(state)), load(save(arrays)))


def same_sparse(a, b):
    assert a.shape == b.shape
    assert a.data.dtype == b.data.dtype
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(a, part), getattr(b, part))


# --- numbers ---


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("chunk", [1, 64, 2**20])
def test_numbers_are_those_of_simple_imputer_and_standard_scaler(dtype, chunk, monkeypatch):
    monkeypatch.setattr(preprocessing, "CHUNK", chunk)
    train, other = some_numbers(200).astype(dtype), some_numbers(50, seed=1).astype(dtype)
    # The oracle computes in float64 too, or its float32 means would be the less exact ones.
    oracle = make_pipeline(SimpleImputer(), StandardScaler()).fit(train.astype(np.float64))
    ours = NumericPreprocessor().fit(train)
    for rows in (train, other):
        result = ours.transform(rows)
        assert result.dtype == np.float32
        # Relative to a deviation of 1; float32 holds 7 digits, and column 1 loses none in float64.
        np.testing.assert_allclose(
            result, oracle.transform(rows.astype(np.float64)), rtol=1e-6, atol=1e-6
        )


@settings(max_examples=50, deadline=None)
@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.just(NAN) | st.integers(-1000, 1000).map(float),
    )
)
def test_numbers_agree_with_the_oracle_whatever_is_missing(values):
    imputer = SimpleImputer(keep_empty_features=True)
    oracle = make_pipeline(imputer, StandardScaler()).fit(values.astype(np.float64))
    result = NumericPreprocessor().fit_transform(values)
    np.testing.assert_allclose(result, oracle.transform(values), rtol=1e-5, atol=1e-6)


def test_without_standardizing_only_the_missing_change():
    train = np.array([[1.0, NAN], [NAN, 4.0], [2.0, 8.0]])
    result = NumericPreprocessor(standardize=False).fit_transform(train)
    np.testing.assert_array_equal(result, [[1.0, 6.0], [1.5, 4.0], [2.0, 8.0]])


def test_the_statistics_come_from_the_training_rows_alone():
    train, other = some_numbers(100), some_numbers(30, seed=1)
    ours = NumericPreprocessor().fit(train)
    before = ours.transform(train)
    alone = ours.transform(other[:1])
    ours.transform(other * 1000)
    np.testing.assert_array_equal(ours.transform(train), before)
    np.testing.assert_array_equal(ours.transform(other)[:1], alone)
    missing = ours.transform(np.full((1, 5), NAN))
    np.testing.assert_array_equal(missing, np.zeros((1, 5)))


def test_fitting_again_forgets():
    ours = NumericPreprocessor().fit(some_numbers(100))
    ours.fit([[0.0], [2.0]])
    np.testing.assert_array_equal(ours.transform([[3.0]]), [[2.0]])


def test_a_constant_column_keeps_scale_1_and_becomes_exactly_0():
    # 0.1 has no exact mean in binary; a scale made of rounding errors would blow this up.
    train = np.full((1000, 1), 0.1)
    ours = NumericPreprocessor().fit(train)
    np.testing.assert_array_equal(ours.transform(train), np.zeros((1000, 1)))
    np.testing.assert_allclose(ours.transform([[1.1]]), [[1.0]], rtol=1e-6)


@pytest.mark.parametrize("standardize", [True, False])
def test_a_column_never_seen_becomes_0_even_when_it_has_a_value_later(standardize):
    ours = NumericPreprocessor(standardize=standardize).fit([[NAN, 1.0], [NAN, 3.0]])
    np.testing.assert_array_equal(ours.transform([[5.0, 2.0], [NAN, 2.0]])[:, 0], [0.0, 0.0])


def test_a_column_constant_in_one_chunk_only_is_not_constant(monkeypatch):
    monkeypatch.setattr(preprocessing, "CHUNK", 1)
    for train in ([[0.0], [2.0], [2.0], [0.0]], [[0.0], [0.0], [2.0], [2.0]]):
        result = NumericPreprocessor().fit_transform(train)
        np.testing.assert_array_equal(result, np.array(train) - 1)
        result = NumericPreprocessor().fit_transform(np.array(train) * 10)
        np.testing.assert_array_equal(result, np.array(train) - 1)


def test_a_large_mean_does_not_eat_the_deviation():
    train = (16_777_200 + np.arange(10)).astype(np.float32)[:, None]
    result = NumericPreprocessor().fit_transform(train)
    np.testing.assert_allclose(result.std(), 1.0, rtol=1e-6)


@pytest.mark.parametrize("values", [[[1, 2], [3, 5]], [[True, False], [False, False]]])
def test_integers_and_booleans_are_numbers(values):
    assert NumericPreprocessor().fit_transform(values).dtype == np.float32


def test_the_inputs_are_left_alone():
    train = some_numbers(20).astype(np.float32)
    copy = train.copy()
    NumericPreprocessor().fit_transform(train)
    np.testing.assert_array_equal(train, copy)


def test_no_rows_transform_to_no_rows():
    assert NumericPreprocessor().fit(some_numbers(5)).transform(np.zeros((0, 5))).shape == (0, 5)


@pytest.mark.parametrize("standardize", [True, False])
def test_numbers_restored_are_equal_bit_for_bit(standardize):
    train = np.hstack([some_numbers(100), np.full((100, 1), NAN)])
    ours = NumericPreprocessor(standardize=standardize).fit(train)
    theirs = restored(ours)
    assert theirs.standardize == standardize
    assert theirs.columns == ours.columns == 6
    rows = some_numbers(50, seed=2)
    rows = np.hstack([rows, rows[:, :1]])
    assert ours.transform(rows).tobytes() == theirs.transform(rows).tobytes()


def test_the_state_is_a_copy():
    ours = NumericPreprocessor().fit([[0.0], [2.0]])
    ours.state()[1]["mean"][:] = 100
    np.testing.assert_array_equal(ours.transform([[3.0]]), [[2.0]])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([1.0, 2.0], "inputs (2,) must be (N, D)"),
        ([["a", "b"]], "inputs are of dtype <U1, not numbers; mark missing ones by NaN"),
        ([[1.0, None]], "inputs are of dtype object, not numbers"),
        ([[1.0, 2.0], [3.0, INF]], "row 1, column 1 (counted from 0): inf is no number"),
        ([[-INF, 2.0]], "row 0, column 0 (counted from 0): -inf is no number"),
    ],
)
def test_bad_numbers_are_refused_in_fit_and_transform(inputs, message):
    fitted = NumericPreprocessor().fit([[0.0, 1.0]])
    for call in (NumericPreprocessor().fit, fitted.transform):
        with pytest.raises(DataError, match=re.escape(message)):
            call(inputs)


def test_another_number_of_columns_is_refused_showing_both():
    fitted = NumericPreprocessor().fit(np.zeros((2, 3)))
    with pytest.raises(DataError, match="inputs have 4 columns but 3 were fitted"):
        fitted.transform(np.zeros((2, 4)))


def test_fitting_on_no_rows_is_refused():
    with pytest.raises(DataError, match="cannot fit on 0 rows"):
        NumericPreprocessor().fit(np.zeros((0, 3)))


def test_numbers_that_overflow_are_refused_rather_than_made_infinite():
    with pytest.raises(DataError, match=r"column 1 .* too large to square"):
        NumericPreprocessor().fit([[0.0, 1e300], [0.0, -1e300]])
    fitted = NumericPreprocessor().fit([[0.0], [1e-30]])
    with pytest.raises(DataError, match=r"row 1, column 0 .*: 1e\+30 does not fit float32"):
        fitted.transform([[0.0], [1e30]])


def test_an_unknown_way_to_impute_is_refused():
    with pytest.raises(HierlearnError, match=r"unknown impute 'median'.* known: mean"):
        NumericPreprocessor(impute="median")


# --- texts ---


@pytest.mark.parametrize("ngrams", [1, 2])
def test_tfidf_is_that_of_scikit_learn(ngrams):
    oracle = TfidfVectorizer(
        token_pattern=r"(?u)\b\w+\b",
        strip_accents="unicode",
        sublinear_tf=True,
        ngram_range=(1, ngrams),
        dtype=np.float32,
    ).fit(TEXTS)
    ours = TextPreprocessor(ngrams=ngrams).fit(TEXTS)
    for texts in (TEXTS, ["cholera cholera hepatitis", "unseen"]):
        result = ours.transform(texts)
        assert isinstance(result, csr_array)
        assert result.dtype == np.float32
        same_sparse(result, csr_array(oracle.transform(texts)))
    assert ours.columns == len(oracle.vocabulary_)


def test_tfidf_is_the_documented_formula():
    """Naive loops over the words, in double precision."""
    tokens = [
        re.findall(r"\w+", text.lower().replace("é", "e").replace("è", "e")) for text in TEXTS
    ]
    words = sorted({word for row in tokens for word in row})
    expected = np.zeros((len(TEXTS), len(words)))
    for number, row in enumerate(tokens):
        for word in row:
            df = sum(word in other for other in tokens)
            tf = row.count(word)
            expected[number, words.index(word)] = (1 + np.log(tf)) * (
                1 + np.log((1 + len(TEXTS)) / (1 + df))
            )
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    ours = TextPreprocessor().fit(TEXTS)
    np.testing.assert_allclose(ours.transform(TEXTS).toarray(), expected, rtol=1e-6)
    assert ours.state()[0]["words"] == words


def test_hashed_is_that_of_scikit_learn_and_needs_no_fit():
    oracle = HashingVectorizer(
        token_pattern=r"(?u)\b\w+\b", strip_accents="unicode", n_features=2**10, dtype=np.float32
    )
    ours = TextPreprocessor("hashed", bits=10)
    assert ours.columns == 1024
    result = ours.transform(TEXTS)
    assert isinstance(result, csr_array)
    same_sparse(result, csr_array(oracle.transform(TEXTS)))
    same_sparse(result, ours.fit(TEXTS[:1]).transform(TEXTS))


@pytest.mark.parametrize("kind", ["tfidf", "hashed"])
def test_rows_have_length_1_and_single_letters_and_case_and_accents_are_read_well(kind):
    ours = TextPreprocessor(kind).fit(TEXTS)
    rows = ours.transform(TEXTS).toarray()
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-6)
    assert (rows[1] != rows[2]).any()
    same_sparse(ours.transform(["MENIERE'S disease, LEFT ear"]), ours.transform([TEXTS[3]]))


def test_accents_may_count():
    ours = TextPreprocessor(strip_accents=False).fit(TEXTS)
    assert ours.transform(["Ménière"]).nnz == 1
    assert ours.transform(["Meniere"]).nnz == 0


@pytest.mark.parametrize("kind", ["tfidf", "hashed"])
def test_texts_without_known_words_are_empty_rows(kind):
    ours = TextPreprocessor(kind).fit(TEXTS)
    result = ours.transform(["", "  ,;- "])
    assert result.shape == (2, ours.columns)
    assert result.nnz == 0
    assert ours.transform([]).shape == (0, ours.columns)
    assert ours.transform([]).dtype == np.float32
    if kind == "tfidf":
        assert ours.transform(["quokka wombat"]).nnz == 0


def test_the_words_come_from_the_training_texts_alone():
    ours = TextPreprocessor().fit(TEXTS[:2])
    before = ours.transform(TEXTS)
    assert ours.transform(["disease"]).nnz == 0
    ours.transform(["disease", "disease hepatitis"])
    same_sparse(ours.transform(TEXTS), before)
    assert "disease" not in ours.state()[0]["words"]


def test_min_df_drops_rare_words():
    ours = TextPreprocessor(min_df=2).fit(TEXTS)
    assert ours.state()[0]["words"] == ["acute", "hepatitis"]


def test_texts_may_come_as_an_array_or_a_stream():
    ours = TextPreprocessor().fit(np.array(TEXTS))
    same_sparse(ours.transform(iter(TEXTS)), ours.transform(TEXTS))


@pytest.mark.parametrize(
    "preprocessor",
    [
        TextPreprocessor(),
        TextPreprocessor(ngrams=2, min_df=2),
        TextPreprocessor(strip_accents=False),
        TextPreprocessor("hashed"),
        TextPreprocessor("hashed", ngrams=3, bits=8, strip_accents=False),
    ],
    ids=["tfidf", "pairs", "accents", "hashed", "hashed triples"],
)
def test_texts_restored_are_equal_bit_for_bit(preprocessor):
    ours = preprocessor.fit(TEXTS)
    theirs = restored(ours)
    texts = [*TEXTS, "acute cholera cholera, left", "", "zebra"]
    same_sparse(ours.transform(texts), theirs.transform(texts))
    assert theirs.columns == ours.columns
    assert theirs.state()[0] == ours.state()[0]


@pytest.mark.parametrize("kind", ["tfidf", "hashed"])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [(None, "None (NoneType)"), (NAN, "nan (float)"), (3, "3 (int)"), (b"a", "b'a' (bytes)")],
)
def test_what_is_no_text_is_refused_with_its_row(kind, wrong, words):
    fitted = TextPreprocessor(kind).fit(TEXTS)
    for call in (TextPreprocessor(kind).fit, fitted.transform):
        with pytest.raises(DataError, match=re.escape(f"row 1 (counted from 0) is {words}, not")):
            call(["cholera", wrong])


def test_a_single_text_is_refused():
    with pytest.raises(DataError, match="a single text; give a list of texts"):
        TextPreprocessor().fit("cholera")


@pytest.mark.parametrize(
    ("texts", "min_df", "message"),
    [
        ([], 1, "cannot fit on 0 texts"),
        (["", " - "], 1, "no word occurs in at least min_df=1 of the 2 texts"),
        (["a", "b"], 2, "no word occurs in at least min_df=2 of the 2 texts"),
        (["a", "a"], 3, "no word occurs in at least min_df=3 of the 2 texts"),
    ],
)
def test_texts_without_words_cannot_be_fitted(texts, min_df, message):
    with pytest.raises(DataError, match=message):
        TextPreprocessor(min_df=min_df).fit(texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "tf-idf"}, "unknown kind of text preprocessing 'tf-idf'; did you mean 'tfidf'"),
        ({"ngrams": 0}, "ngrams must be a whole number from 1 to 10, not 0"),
        ({"ngrams": True}, "ngrams must be a whole number from 1 to 10, not True"),
        ({"min_df": 0.5}, "min_df must be a whole number from 1 to 2147483647, not 0.5"),
        ({"kind": "hashed", "bits": 31}, "bits must be a whole number from 1 to 30, not 31"),
        ({"kind": "hashed", "min_df": 1}, "min_df is for kind 'tfidf'"),
        ({"bits": 10}, "bits is for kind 'hashed'"),
    ],
)
def test_bad_settings_are_refused_at_once(arguments, message):
    with pytest.raises(HierlearnError, match=re.escape(message)):
        TextPreprocessor(**arguments)


# --- both ---


@pytest.mark.parametrize("name", sorted(PREPROCESSORS))
def test_every_preprocessor_asks_to_be_fitted_first(name):
    preprocessor = PREPROCESSORS[name]()
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


def test_arrays_of_different_length_are_refused():
    state, arrays = NumericPreprocessor().fit([[1.0, 2.0]]).state()
    with pytest.raises(
        DataError, match=r"mean \(2,\), scale \(1,\), observed \(2,\) and missing \(2,\)"
    ):
        from_state(state, {**arrays, "scale": np.ones(1)})


def test_scikit_learn_is_imported_only_where_it_is_used():
    program = (
        "import sys; from hierlearn.features.preprocessing import TextPreprocessor; "
        "TextPreprocessor('hashed'); assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("sizes", [[50], [1, 49], [7, 0, 20, 23]])
def test_numbers_in_parts_give_what_they_give_at_once(sizes, monkeypatch):
    monkeypatch.setattr("hierlearn.features.moments.CHUNK", 60)  # 12 rows a block
    values = some_numbers(50)
    whole = NumericPreprocessor().fit(values)
    parts = np.split(values, np.cumsum(sizes)[:-1])
    ours = NumericPreprocessor().fit_parts(lambda: iter(parts))
    for name, array in whole.state()[1].items():
        np.testing.assert_array_equal(ours.state()[1][name], array)


def test_what_was_missing_in_training_is_known_and_kept():
    values = np.array([[1.0, NAN, NAN], [2.0, 3.0, NAN], [3.0, NAN, NAN]])
    ours = restored(NumericPreprocessor().fit(values))
    assert ours.missing.tolist() == [0, 2, 3]
    ours.missing[:] = 9
    assert ours.missing.tolist() == [0, 2, 3]
    with pytest.raises(DataError, match="is not fitted yet"):
        _ = NumericPreprocessor().missing


@pytest.mark.parametrize("options", [{}, {"ngrams": 2}, {"min_df": 2}, {"strip_accents": False}])
def test_texts_in_parts_give_what_they_give_at_once(options):
    texts = [*TEXTS, *(f"case {number} of hepatitis {number % 7}" for number in range(60))]
    whole = TextPreprocessor(**options).fit(texts)
    ours = TextPreprocessor(**options).fit_parts(lambda: [texts[:5], [], texts[5:]])
    assert ours.state()[0] == whole.state()[0]
    np.testing.assert_array_equal(ours.state()[1]["idf"], whole.state()[1]["idf"])
    same_sparse(ours.transform(texts), whole.transform(texts))


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
