"""Texts: rows of weighted words.

    tfidf:  (1 + ln tf) * (1 + ln((1 + N) / (1 + df))) for each word, each row then of length 1

where tf counts the word in the text, and df the texts among the N training texts that contain it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.features.preprocessor import Preprocessor, integer_option, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray
    from scipy.sparse import csr_array
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind


class TextPreprocessor(Preprocessor["Iterable[str]", "csr_array[np.float32]"]):
    """Turn texts into weighted words, one column per word, each row of length 1.

    A word is a run of letters and digits, in lower case; single characters count too, because they
    alone tell hepatitis A from hepatitis B. A text without a known word becomes an empty row.

    Args:
        kind: "tfidf" learns the words of the training texts and gives little weight to those that
            many texts contain. "hashed" learns nothing and gives each word a column by its hash,
            so it suits streams and transforms without ``fit``; words may share a column, and
            their weights are plain counts.
        ngrams: the longest run of words that gets a column; 1 for single words, 2 for pairs too.
        min_df: the number of training texts a word must occur in, for "tfidf"; 1 unless given,
            because in short texts rare words say the most.
        bits: "hashed" has 2 to the power of ``bits`` columns; 16 unless given.
        strip_accents: whether é and e are the same.
    """

    name: ClassVar[str] = "text"
    reads: ClassVar[Kind] = "texts"
    produces: ClassVar[Literal["numbers", "sparse"]] = "sparse"
    kinds: ClassVar[tuple[str, ...]] = ("tfidf", "hashed")

    def __init__(
        self,
        kind: Literal["tfidf", "hashed"] = "tfidf",
        *,
        ngrams: int = 1,
        min_df: int | None = None,
        bits: int | None = None,
        strip_accents: bool = True,
    ) -> None:
        if kind not in self.kinds:
            raise HierlearnError(unknown_name("kind of text preprocessing", kind, self.kinds))
        if kind == "hashed" and min_df is not None:
            raise HierlearnError("min_df is for kind 'tfidf'; 'hashed' does not count words")
        if kind == "tfidf" and bits is not None:
            raise HierlearnError("bits is for kind 'hashed'; 'tfidf' has a column for each word")
        self.kind = kind
        self.ngrams = integer_option("ngrams", ngrams, 1, 10)
        self.min_df = integer_option("min_df", 1 if min_df is None else min_df, 1, 2**31 - 1)
        # 30, because scikit-learn numbers the columns with signed 32-bit integers.
        self.bits = integer_option("bits", 16 if bits is None else bits, 1, 30)
        self.strip_accents = strip_accents
        self._words: list[str] | None = None
        self._idf = np.ones(0, dtype=np.float32)  # one weight per word
        self._tfidf: Any = None

    @property
    def columns(self) -> int:
        """The number of words, or 2 to the power of ``bits``."""
        if self.kind == "hashed":
            return 1 << self.bits
        if self._words is None:
            raise self._not_fitted()
        return len(self._words)

    def fit(self, inputs: Iterable[str]) -> Self:
        """Learn the words of the training texts; "hashed" only checks that they are texts."""
        texts = _checked_texts(inputs)
        if not texts:
            raise DataError("cannot fit on 0 texts; give the training texts")
        if self.kind == "tfidf":
            vectorizer = self._make_tfidf(None)
            try:
                vectorizer.fit(texts)
            except ValueError:  # scikit-learn has several wordings for a vocabulary without words
                raise self._no_words(len(texts)) from None
            self._restore(vectorizer.get_feature_names_out().tolist(), vectorizer.idf_)
        return self

    def fit_parts(self, parts: Callable[[], Iterable[Iterable[str]]]) -> Self:
        """Learn from training texts that do not fit into memory, as ``fit`` does.

        Only the words and their counts are held.

        Args:
            parts: returns the texts in lists, one after another.
        """
        words: Counter[str] = Counter()
        rows = 0
        analyse = self._make_tfidf(None).build_analyzer()
        for part in parts():
            for text in _checked_texts(part):
                rows += 1
                if self.kind == "tfidf":
                    words.update(set(analyse(text)))
        if not rows:
            raise DataError("cannot fit on 0 texts; give the training texts")
        if self.kind == "hashed":
            return self
        kept = sorted(word for word, count in words.items() if count >= self.min_df)
        if not kept:
            raise self._no_words(rows)
        # In single precision throughout, as scikit-learn computes it.
        df = np.array([words[word] for word in kept], dtype=np.float32)
        self._restore(kept, np.log(np.float32(rows + 1) / (df + 1)) + np.float32(1))
        return self

    def _no_words(self, rows: int) -> DataError:
        return DataError(f"no word occurs in at least min_df={self.min_df} of the {rows} texts")

    def transform(self, inputs: Iterable[str]) -> csr_array[np.float32]:
        """Return the texts as (N, columns) sparse rows."""
        from scipy.sparse import csr_array

        vectorizer = self._make_hashed() if self.kind == "hashed" else self._tfidf
        if vectorizer is None:
            raise self._not_fitted()
        texts = _checked_texts(inputs)
        if not texts:  # which scikit-learn refuses
            return csr_array(np.zeros((0, self.columns), dtype=np.float32))
        return csr_array(vectorizer.transform(texts))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings; for "tfidf" with the list of words, and the array idf beside it."""
        settings = {
            "name": self.name,
            "kind": self.kind,
            "ngrams": self.ngrams,
            "strip_accents": self.strip_accents,
        }
        if self.kind == "hashed":
            return {**settings, "bits": self.bits}, {}
        if self._words is None:
            raise self._not_fitted()
        settings |= {"min_df": self.min_df, "words": list(self._words)}
        return settings, {"idf": self._idf.copy()}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted preprocessor."""
        new = cls(
            stored(settings, "kind"),
            ngrams=stored(settings, "ngrams"),
            min_df=settings.get("min_df"),
            bits=settings.get("bits"),
            strip_accents=bool(stored(settings, "strip_accents")),
        )
        if new.kind == "tfidf":
            words, idf = stored(settings, "words"), stored(arrays, "idf")
            if idf.shape != (len(set(words)),):
                raise DataError(
                    f"the stored preprocessor is damaged: {len(words)} words, of which "
                    f"{len(set(words))} differ, must match idf {idf.shape}"
                )
            new._restore(words, idf)
        return new

    def _restore(self, words: list[str], idf: NDArray[Any]) -> None:
        """Set the words and their weights; both ``fit`` and ``from_state`` end here."""
        self._words = list(words)
        self._idf = idf.astype(np.float32)
        self._tfidf = self._make_tfidf(self._words)
        self._tfidf.idf_ = self._idf

    def _make_tfidf(self, words: list[str] | None) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer

        return TfidfVectorizer(
            **self._analysis(), min_df=self.min_df, sublinear_tf=True, vocabulary=words
        )

    def _make_hashed(self) -> Any:
        from sklearn.feature_extraction.text import HashingVectorizer

        return HashingVectorizer(**self._analysis(), n_features=self.columns)

    def _analysis(self) -> dict[str, Any]:
        """Return how texts become words, the same for both kinds."""
        return {
            "token_pattern": r"(?u)\b\w+\b",
            "ngram_range": (1, self.ngrams),
            "strip_accents": "unicode" if self.strip_accents else None,
            "norm": "l2",
            "dtype": np.float32,
        }


def _checked_texts(inputs: Iterable[str]) -> list[str]:
    """Return inputs as a list of texts, or refuse the first row that is none."""
    if isinstance(inputs, (str, bytes)):
        raise DataError("inputs are a single text; give a list of texts")
    texts = list(inputs)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(
                f"row {row} (counted from 0) is {text!r} ({type(text).__name__}), not a text; "
                f"give an empty text where there is none"
            )
    return texts
