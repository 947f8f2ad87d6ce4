"""Preprocessing of texts against scikit-learn's own vectorizers."""

import re
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer

from features.example_rows import NAN, TEXTS
from features.saved_state import assert_same_sparse, save_and_load
from hierlearn.errors import DataError, HierlearnError
from hierlearn.features import TextPreprocessor, ngrams


@pytest.fixture(autouse=True, params=["dictionaries", "kernels"])
def _way(request, monkeypatch):
    """Every test counts n-grams either way."""
    if request.param == "kernels":
        monkeypatch.setattr(ngrams, "SOME", 1)
        monkeypatch.setattr(ngrams, "FEWEST", 1)


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
        assert_same_sparse(result, csr_array(oracle.transform(texts)))
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
    assert ours.column_names() == words


def test_rows_have_length_1_and_single_letters_and_case_and_accents_are_read_well():
    ours = TextPreprocessor().fit(TEXTS)
    rows = ours.transform(TEXTS).toarray()
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-6)
    assert (rows[1] != rows[2]).any()
    assert_same_sparse(ours.transform(["MENIERE'S disease, LEFT ear"]), ours.transform([TEXTS[3]]))


def test_accents_can_be_kept():
    ours = TextPreprocessor(strip_accents=False).fit(TEXTS)
    assert ours.transform(["Ménière"]).nnz == 1
    assert ours.transform(["Meniere"]).nnz == 0


def test_texts_without_known_words_are_empty_rows():
    ours = TextPreprocessor().fit(TEXTS)
    result = ours.transform(["", "  ,;- "])
    assert result.shape == (2, ours.columns)
    assert result.nnz == 0
    assert ours.transform([]).shape == (0, ours.columns)
    assert ours.transform([]).dtype == np.float32
    assert ours.transform(["quokka wombat"]).nnz == 0


def test_the_words_come_from_the_training_texts_alone():
    ours = TextPreprocessor().fit(TEXTS[:2])
    before = ours.transform(TEXTS)
    assert ours.transform(["disease"]).nnz == 0
    ours.transform(["disease", "disease hepatitis"])
    assert_same_sparse(ours.transform(TEXTS), before)
    assert "disease" not in ours.column_names()


def test_min_df_drops_rare_words():
    ours = TextPreprocessor(min_df=2).fit(TEXTS)
    assert ours.column_names() == ["acute", "hepatitis"]


def test_texts_may_come_as_an_array_or_a_stream():
    ours = TextPreprocessor().fit(np.array(TEXTS))
    assert_same_sparse(ours.transform(iter(TEXTS)), ours.transform(TEXTS))


@pytest.mark.parametrize(
    "preprocessor",
    [
        TextPreprocessor(),
        TextPreprocessor(ngrams=2, min_df=2),
        TextPreprocessor(strip_accents=False),
    ],
    ids=["words", "pairs", "accents"],
)
def test_texts_restored_are_equal_bit_for_bit(preprocessor):
    ours = preprocessor.fit(TEXTS)
    theirs = save_and_load(ours)
    texts = [*TEXTS, "acute cholera cholera, left", "", "zebra"]
    assert_same_sparse(ours.transform(texts), theirs.transform(texts))
    assert theirs.columns == ours.columns
    assert theirs.state()[0] == ours.state()[0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [(None, "None (NoneType)"), (NAN, "nan (float)"), (3, "3 (int)"), (b"a", "b'a' (bytes)")],
)
def test_what_is_no_text_is_refused_with_its_row(wrong, words):
    fitted = TextPreprocessor().fit(TEXTS)
    for call in (TextPreprocessor().fit, fitted.transform):
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
        ({"ngrams": 0}, "ngrams must be an integer from 1 to 10, not 0"),
        ({"ngrams": True}, "ngrams must be an integer from 1 to 10, not True"),
        ({"min_df": 0.5}, "min_df must be an integer from 1 to 2147483647, not 0.5"),
    ],
)
def test_bad_settings_are_refused_at_once(arguments, message):
    with pytest.raises(HierlearnError, match=re.escape(message)):
        TextPreprocessor(**arguments)


def test_scikit_learn_is_imported_only_where_it_is_used():
    program = (
        "import sys; from hierlearn.features import TextPreprocessor; "
        "TextPreprocessor(); assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("options", [{}, {"ngrams": 2}, {"min_df": 2}, {"strip_accents": False}])
def test_texts_in_parts_give_what_they_give_at_once(options):
    texts = [*TEXTS, *(f"case {number} of hepatitis {number % 7}" for number in range(60))]
    whole = TextPreprocessor(**options).fit(texts)
    ours = TextPreprocessor(**options).fit_parts(lambda: [texts[:5], [], texts[5:]])
    assert ours.state()[0] == whole.state()[0]
    np.testing.assert_array_equal(ours.state()[1]["idf"], whole.state()[1]["idf"])
    assert_same_sparse(ours.transform(texts), whole.transform(texts))


# ---------------------------------------------------------------------- characters

CASES = [*TEXTS, "a  b\tab a-b", "x", "İstanbul ﬁne naïve", "tab\u00a0space", "", "aaaa aaaa"]


def char_wb(longest, **options):
    return TfidfVectorizer(
        analyzer="char_wb",
        ngram_range=(3, longest),
        strip_accents="unicode",
        sublinear_tf=True,
        dtype=np.float32,
        **options,
    )


@pytest.mark.parametrize("min_df", [1, 2])
@pytest.mark.parametrize(("ngrams", "longest"), [(1, 3), (2, 5), (3, 8)])
def test_words_and_characters_are_those_of_scikit_learn(ngrams, longest, min_df):
    words = TfidfVectorizer(
        token_pattern=r"(?u)\b\w+\b",
        strip_accents="unicode",
        sublinear_tf=True,
        ngram_range=(1, ngrams),
        dtype=np.float32,
    )
    oracles = [words.fit(CASES), char_wb(longest, min_df=min_df).fit(CASES)]
    ours = TextPreprocessor(ngrams=ngrams, char_ngrams=longest, char_min_df=min_df).fit(CASES)
    names = [name for one in oracles for name in one.get_feature_names_out()]
    assert ours.column_names() == names
    texts = [*CASES, "acute cholera cholera", "zzzz", "unseen hepatitis"]
    blocks = [one.transform(texts).toarray() for one in oracles]
    expected = np.hstack(blocks)
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-30)
    np.testing.assert_allclose(ours.transform(texts).toarray(), expected, rtol=1e-5, atol=1e-7)


def test_many_texts_are_read_a_part_at_a_time(monkeypatch):
    ours = TextPreprocessor(ngrams=2, char_ngrams=4).fit(CASES)
    monkeypatch.setattr("hierlearn.features.ngrams.AT_ONCE", 40)
    again = TextPreprocessor(ngrams=2, char_ngrams=4).fit(CASES)
    assert again.column_names() == ours.column_names()
    monkeypatch.undo()
    whole = ours.transform(CASES)
    monkeypatch.setattr("hierlearn.features.ngrams.AT_ONCE", 40)
    assert_same_sparse(again.transform(CASES), whole)


def test_the_vocabulary_is_stored_as_bytes():
    ours = TextPreprocessor(ngrams=2, char_ngrams=5).fit(CASES)
    settings, arrays = ours.state()
    assert not any(isinstance(value, list) for value in settings.values())
    assert {name: one.dtype for name, one in arrays.items()} == {
        "idf": np.float32,
        "words": np.uint8,
        "characters": np.uint8,
    }
    theirs = save_and_load(ours)
    assert theirs.column_names() == ours.column_names()
    assert_same_sparse(theirs.transform(CASES), ours.transform(CASES))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"char_ngrams": 2}, "char_ngrams must be 0 or at least 3, not 2"),
        ({"char_ngrams": 21}, "char_ngrams must be an integer from 0 to 20, not 21"),
    ],
)
def test_bad_settings_of_characters_are_refused(arguments, message):
    with pytest.raises(HierlearnError, match=re.escape(message)):
        TextPreprocessor(**arguments)


def test_few_texts_without_a_repeated_run_of_characters():
    texts = ["oak elm", "fox cat", "red"]
    found = TextPreprocessor(ngrams=2, char_ngrams=5).fit_transform(texts)
    words = TextPreprocessor(ngrams=2).fit_transform(texts)
    assert np.array_equal(found.toarray(), words.toarray())
