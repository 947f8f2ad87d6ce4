"""N-grams by dictionaries and by kernels: against naive loops, and against each other."""

import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.saved_state import assert_same_sparse, save_and_load
from hierlearn.features import TextPreprocessor, from_state, ngrams
from hierlearn.features.ngrams import Names, Reading, Vocabulary, count_ngrams
from reference.ngrams import in_how_many
from reference.ngrams import ngrams as ngrams_of

numba = pytest.importorskip("numba", reason="the kernels need numba")

# Accents composed and not, emoji with joiners, surrogates, Turkish i, final sigma, zero width,
# ligatures, Hangul, letters whose decomposition is upper case, digits of other scripts, NUL.
ODD = [
    *"aab  bcABC_-'.,012éÉüßſΣςσİıIi\u0301\u0327\u0345\u200b\u200d\ufeff\x00\x1c\x85\xa0\u2003\t\n",
    *"漢字가각ﾊﾞﬁ½²٣Ǆᾳ\u0bcd\U0001f600\U0001f468\U0001d400\ud83d\ude00\udc80",
]
TEXT = st.text(st.sampled_from(ODD) | st.characters(codec=None), max_size=60)
SETTINGS = st.tuples(st.integers(1, 4), st.sampled_from([0, 3, 4, 5, 9]), st.booleans())


def odd_texts(count, seed, most=40):
    draw = random.Random(seed)
    return ["".join(draw.choices(ODD, k=draw.randint(0, most))) for _ in range(count)]


def texts_of(words, count, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=8)) for _ in range(count)]


@pytest.fixture(params=["dictionaries", "kernels"])
def compiled(request, monkeypatch):
    monkeypatch.setattr(ngrams, "FEWEST", 0 if request.param == "kernels" else 1 << 60)
    monkeypatch.setattr(ngrams, "SOME", 1)
    return request.param == "kernels"


def kept(texts, reading, limits=(1, 1)):
    counter, rows = count_ngrams([texts], reading)
    assert rows == len(texts)
    assert type(counter).__name__ == ("PlainCounter" if ngrams.FEWEST else "CompiledCounter")
    return counter.kept(limits)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limits", [(1, 1), (2, 3)])
def test_counts_are_those_of_naive_loops(compiled, seed, limits):
    texts = odd_texts(40, seed)
    settings = (1 + seed % 3, (5, 0, 4)[seed % 3], seed % 2 == 0)
    blocks = kept(texts, Reading(*settings), limits)
    for (joined, counts), expected, limit in zip(
        blocks, in_how_many(texts, *settings), limits, strict=True
    ):
        wanted = {name: count for name, count in expected.items() if count >= limit}
        names = joined.split("\n") if joined else []
        assert names == sorted(wanted)
        assert dict(zip(names, counts.tolist(), strict=True)) == wanted
    vocabulary = Vocabulary(Reading(*settings), [joined for joined, _ in blocks])
    places = vocabulary.index
    others = [*texts[:5], *odd_texts(30, seed + 100), "", "ab" * 500]
    found = vocabulary.reader(compiled=compiled)(others)
    assert found.counts.dtype == np.float32
    for row, text in enumerate(others):
        own = slice(*found.indptr[row : row + 2])
        expected = {
            index[name] + block * len(places[0]): count
            for block, index in enumerate(places)
            for name, count in ngrams_of(text, *settings)[block].items()
            if name in index
        }
        assert found.indices[own].tolist() == sorted(expected)
        assert found.counts[own].tolist() == [expected[k] for k in sorted(expected)]


@given(st.lists(TEXT, max_size=12), st.lists(TEXT, max_size=6), SETTINGS, st.integers(20, 200))
def test_either_way_gives_the_same_bits(texts, others, settings, at_once):
    reading = Reading(*settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "AT_ONCE", at_once)
        blocks = {}
        for fewest in (0, 1 << 60):
            patch.setattr(ngrams, "FEWEST", fewest)
            blocks[fewest] = kept(texts, reading)
    for (name, counts), (other, other_counts) in zip(*blocks.values(), strict=True):
        assert name == other
        assert np.array_equal(counts, other_counts)
    vocabulary = Vocabulary(reading, [joined for joined, _ in blocks[0]])
    plain, fast = (vocabulary.reader(compiled=way)([*texts, *others]) for way in (False, True))
    for expected, found in zip(plain, fast, strict=True):
        assert expected.dtype == found.dtype
        assert np.array_equal(expected, found)


def test_weights_are_the_same_bits_in_one_call_and_in_many(monkeypatch):
    words = ["".join(random.Random(k).choices("abcdeé", k=1 + k % 9)) for k in range(3000)]
    texts = texts_of(words, 600)
    monkeypatch.setattr(ngrams, "AT_ONCE", 5000)
    models = {}
    for fewest in (0, 1 << 60):
        monkeypatch.setattr(ngrams, "FEWEST", fewest)
        models[fewest] = TextPreprocessor(ngrams=2, char_ngrams=5).fit(texts)
        models[fewest, "rows"] = models[fewest].transform(texts)
    assert_same_sparse(models[0, "rows"], models[1 << 60, "rows"])
    again = save_and_load(models[0])
    monkeypatch.setattr(ngrams, "FEWEST", 1 << 14)
    for begin in range(0, 600, 150):  # the first calls take dictionaries, the later ones kernels
        found = again.transform(texts[begin : begin + 150])
        assert_same_sparse(found, models[0, "rows"][begin : begin + 150])
    assert "_compiled" in vars(again._vocabulary)
    assert "index" not in vars(models[0]._vocabulary)


def test_tables_grow(compiled):
    words = [f"{number:x}" for number in range(30_000)]
    texts = [" ".join(words[begin : begin + 500]) for begin in range(0, 30_000, 500)]
    (joined, counts), (characters, _) = kept(texts, Reading(2, 4, True))
    assert joined.count("\n") + 1 == 30_000 + 29_940
    assert np.array_equal(np.unique(counts), [1])
    assert set(characters.split("\n")) == set(in_how_many(texts, 1, 4)[1])


def test_one_word_of_a_hundred_thousand_characters(compiled):
    text = "".join(random.Random(0).choices("acgt", k=100_000))
    (joined, _), (characters, _) = kept([text, "acgt"], Reading(1, 5, True))
    assert joined == "\n".join(sorted([text, "acgt"]))
    inner = [name for name in characters.split("\n") if " " not in name]
    assert len(inner) == 4**3 + 4**4 + 4**5
    vocabulary = Vocabulary(Reading(1, 5, True), [joined, characters])
    found = vocabulary.reader(compiled=compiled)([text])
    assert found.counts.sum() == 1 + 100_000 + 99_999 + 99_998


def test_names_that_share_a_hash_stay_apart(monkeypatch):
    """With a factor of 0 all names of a table have the same key."""
    kernels = pytest.importorskip("hierlearn.kernels.ngrams_numba")
    monkeypatch.setattr(kernels, "ODD", np.uint64(0))
    monkeypatch.setattr(kernels, "number_names", numba.njit(kernels.number_names.py_func))
    words = ["oak", "elm", "oaks", "oa", "elm", "fir", "oak"]
    codes = ngrams.code_points("".join(words))
    ends = np.cumsum([len(word) for word in words])
    names = Names()
    spans = ends - [len(word) for word in words], ends
    assert names.numbers(codes, spans).tolist() == [0, 1, 2, 3, 1, 4, 0]
    assert len(set(names.keys[names.keys != 0].tolist())) == 1
    assert names.strings(np.arange(5)) == ["oak", "elm", "oaks", "oa", "fir"]
    other = ngrams.code_points("ashfir")
    found = names.numbers(other, (np.array([0, 3]), np.array([3, 6])), add=False)
    assert found.tolist() == [-1, 4]


def test_few_texts_import_no_numba_and_no_kernels():
    program = (
        "import sys; from hierlearn.features import TextPreprocessor; "
        "m = TextPreprocessor(ngrams=2, char_ngrams=5).fit(['oak elm', 'elm fir']); "
        "m.transform(['oak'] * 5000); "
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_numba_dictionaries_count_as_many_texts_as_there_are(monkeypatch):
    texts = texts_of(["oak", "elm", "fir"], 20_000)
    fast = TextPreprocessor(ngrams=2, char_ngrams=3).fit(texts)
    monkeypatch.setattr(ngrams, "has_numba", lambda: False)
    plain = TextPreprocessor(ngrams=2, char_ngrams=3).fit(texts)
    assert type(plain._vocabulary.index[0]) is dict
    assert plain.column_names() == fast.column_names()
    assert_same_sparse(plain.transform(texts[:2000]), fast.transform(texts[:2000]))
    assert "_compiled" not in vars(plain._vocabulary)


def test_each_kernel_is_compiled_for_one_type_of_arguments():
    from hierlearn.kernels import ngrams_numba

    texts = odd_texts(20, 0)
    for reading in (Reading(2, 5, True), Reading(1, 0, False)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ngrams, "FEWEST", 0)
            blocks = kept(texts, reading)
        Vocabulary(reading, [joined for joined, _ in blocks]).reader(compiled=True)(texts)
    compiled = [one for one in vars(ngrams_numba).values() if hasattr(one, "signatures")]
    assert max(len(one.signatures) for one in compiled) == 1  # 0 for parts of what was cached


def test_a_state_as_it_was_stored_before_there_were_kernels(compiled):
    settings = {
        "name": "text",
        "ngrams": 2,
        "char_ngrams": 4,
        "strip_accents": True,
        "min_df": 1,
        "char_min_df": 2,
    }
    arrays = {
        "idf": np.array([1.5, 2.0, 1.25, 1.0, 1.75], dtype=np.float32),
        "words": np.frombuffer(b"elm\nelm oak\noak", dtype=np.uint8),
        "characters": np.frombuffer(b" el\nelm ", dtype=np.uint8),  # without its prefix "elm"
    }
    model = from_state(settings, arrays)
    found = model.transform(["Elm oak! elm", "oak"]).toarray()
    assert ("_compiled" in vars(model._vocabulary)) == compiled
    tf = np.float32(1) + np.log(np.float32(2))
    words, characters = np.array([tf * 1.5, 2, 1.25]), np.array([tf * 1.0, tf * 1.75])
    row = [*(words / np.linalg.norm(words)), *(characters / np.linalg.norm(characters))]
    np.testing.assert_allclose(found[0], np.array(row) / np.sqrt(2), rtol=1e-6)
    np.testing.assert_allclose(found[1], [0, 0, 1, 0, 0])
    stored, again = model.state()
    assert stored == settings
    assert all(np.array_equal(again[name], arrays[name]) for name in arrays)
