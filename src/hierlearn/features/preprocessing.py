"""Preprocessing fitted on the training rows only: numbers standardized, texts as weighted words.

``fit`` sees the training rows; ``transform`` applies what it learned to any rows. ``state`` gives
that as JSON and arrays, which a model folder stores without pickle, and ``from_state`` restores a
preprocessor that transforms bit for bit as the original does. With x the value of a column, and the
mean and the deviation taken over the training rows:

    numbers:  (x - mean) / deviation, a missing x being the mean
    tfidf:    (1 + ln tf) * (1 + ln((1 + N) / (1 + df))) for each word, each row then of length 1

where tf counts the word in the text, and df the texts among the N training texts that hold it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.features.moments import CHUNK, find_moments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray
    from scipy.sparse import csr_array
    from typing_extensions import Self

    from hierlearn.features.moments import Parts

Inputs = TypeVar("Inputs", contravariant=True)
Outputs = TypeVar("Outputs", covariant=True)


class Preprocessor(ABC, Generic[Inputs, Outputs]):
    """What turns the inputs of a dataset into the numbers a model reads."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def columns(self) -> int:
        """The number of columns that ``transform`` returns."""

    @abstractmethod
    def fit(self, inputs: Inputs) -> Self:
        """Learn from the training rows; whatever was learned before is forgotten."""

    @abstractmethod
    def transform(self, inputs: Inputs) -> Outputs:
        """Return the rows as numbers; the preprocessor does not change."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings, fit for JSON and holding ``name``, and the arrays."""

    @classmethod
    @abstractmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a preprocessor from what ``state`` returned."""

    def fit_transform(self, inputs: Inputs) -> Outputs:
        """Learn from the training rows and return them transformed."""
        return self.fit(inputs).transform(inputs)

    def _not_fitted(self) -> DataError:
        return DataError(f"this {type(self).__name__} is not fitted yet; call fit(training rows)")


class NumericPreprocessor(Preprocessor["ArrayLike", "NDArray[np.float32]"]):
    """Fill in missing numbers, then bring every column to mean 0 and deviation 1.

    NaN means missing; infinity is refused. A column that is constant over the training rows is only
    centered. A column without any training value becomes 0 for all rows, because no model can have
    learned from it.

    Args:
        impute: what a missing number becomes; "mean" is the mean of the column's training values.
        standardize: whether to center and scale; otherwise numbers only become float32.
    """

    name: ClassVar[str] = "numeric"

    def __init__(self, *, impute: Literal["mean"] = "mean", standardize: bool = True) -> None:
        if impute != "mean":
            raise HierlearnError(unknown_name("impute", impute, ["mean"]))
        self.impute = impute
        self.standardize = standardize
        self._mean: NDArray[np.float64] | None = None  # (D,)
        self._scale = np.ones(0)  # (D,)
        self._observed = np.ones(0, dtype=bool)  # (D,) whether any training value was there
        self._missing = np.zeros(0, dtype=np.int64)  # (D,) training values that were missing

    @property
    def columns(self) -> int:
        """D, the number of columns."""
        if self._mean is None:
            raise self._not_fitted()
        return len(self._mean)

    def fit(self, inputs: ArrayLike) -> Self:
        """Learn the mean and the deviation of each column of (N, D) training rows."""
        values = _checked_numbers(inputs)
        return self.fit_parts(lambda: [values])

    def fit_parts(self, parts: Parts) -> Self:
        """Learn from training rows that do not fit into memory.

        Args:
            parts: gives the rows as (n, D) arrays, one after another; it is called twice.
        """
        found = find_moments(parts)
        # By extremes, because rounding of the mean leaves a constant column a tiny deviation.
        constant = (found.low == found.high) | (found.deviation == 0)
        self._missing = found.rows - found.count
        self._observed = found.count > 0
        self._mean = np.where(found.low == found.high, found.low, found.mean)
        self._scale = np.where(constant, 1.0, found.deviation)
        return self

    @property
    def missing(self) -> NDArray[np.int64]:
        """(D,) how many training values of each column were missing."""
        if self._mean is None:
            raise self._not_fitted()
        return self._missing.copy()

    def transform(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return (N, D) rows with nothing missing."""
        if self._mean is None:
            raise self._not_fitted()
        values = _checked_numbers(inputs)
        if values.shape[1] != self.columns:
            raise DataError(
                f"inputs have {values.shape[1]} columns but {self.columns} were fitted; "
                f"give the columns of the training rows"
            )
        result = np.empty(values.shape, dtype=np.float32)
        with np.errstate(over="ignore"):  # the result is checked below
            for rows, chunk in _chunks(values):
                filled = np.where(np.isnan(chunk), self._mean, chunk)
                if self.standardize:
                    filled = (filled - self._mean) / self._scale
                result[rows] = filled
        result[:, ~self._observed] = 0
        _refuse(~np.isfinite(result), values, "does not fit float32 when transformed")
        return result

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings, and the arrays mean, scale, observed and missing, each (D,)."""
        if self._mean is None:
            raise self._not_fitted()
        settings = {"name": self.name, "impute": self.impute, "standardize": self.standardize}
        arrays = {
            "mean": self._mean,
            "scale": self._scale,
            "observed": self._observed,
            "missing": self._missing,
        }
        return settings, {key: array.copy() for key, array in arrays.items()}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted preprocessor."""
        new = cls(
            impute=_stored(settings, "impute"), standardize=bool(_stored(settings, "standardize"))
        )
        keys = ("mean", "scale", "observed", "missing")
        mean, scale, observed, missing = (_stored(arrays, key) for key in keys)
        if not mean.shape == scale.shape == observed.shape == missing.shape == (mean.size,):
            raise DataError(
                f"the stored preprocessor is damaged: mean {mean.shape}, scale {scale.shape}, "
                f"observed {observed.shape} and missing {missing.shape} must have the same length"
            )
        new._mean = mean.astype(np.float64)
        new._scale = scale.astype(np.float64)
        new._observed = observed.astype(bool)
        new._missing = missing.astype(np.int64)
        return new


class TextPreprocessor(Preprocessor["Iterable[str]", "csr_array[np.float32]"]):
    """Turn texts into weighted words, one column a word, each row of length 1.

    A word is a run of letters and digits, in lower case; single ones count too, because they alone
    part hepatitis A from hepatitis B. A text without a known word becomes an empty row.

    Args:
        kind: "tfidf" learns the words of the training texts and weighs down those that many texts
            hold. "hashed" learns nothing and gives each word a column by its hash, so that it suits
            streams and transforms without ``fit``; words may share a column, and their weights
            are plain counts.
        ngrams: the longest run of words that gets a column; 1 for single words, 2 for pairs too.
        min_df: the number of training texts a word must occur in, for "tfidf"; 1 unless given,
            because in short texts the rare words tell most.
        bits: "hashed" has 2 to the power of ``bits`` columns; 16 unless given.
        strip_accents: whether é and e are the same.
    """

    name: ClassVar[str] = "text"
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
        self.ngrams = _whole_number("ngrams", ngrams, 1, 10)
        self.min_df = _whole_number("min_df", 1 if min_df is None else min_df, 1, 2**31 - 1)
        # 30, because scikit-learn numbers the columns with signed 32-bit integers.
        self.bits = _whole_number("bits", 16 if bits is None else bits, 1, 30)
        self.strip_accents = strip_accents
        self._words: list[str] | None = None
        self._idf = np.ones(0, dtype=np.float32)  # a weight a word
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
            parts: gives the texts in lists, one after another.
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
            _stored(settings, "kind"),
            ngrams=_stored(settings, "ngrams"),
            min_df=settings.get("min_df"),
            bits=settings.get("bits"),
            strip_accents=bool(_stored(settings, "strip_accents")),
        )
        if new.kind == "tfidf":
            words, idf = _stored(settings, "words"), _stored(arrays, "idf")
            if idf.shape != (len(set(words)),):
                raise DataError(
                    f"the stored preprocessor is damaged: {len(words)} words, of which "
                    f"{len(set(words))} differ, must match idf {idf.shape}"
                )
            new._restore(words, idf)
        return new

    def _restore(self, words: list[str], idf: NDArray[Any]) -> None:
        """Take on the words and their weights; both ``fit`` and ``from_state`` end here."""
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


PREPROCESSORS: dict[str, type[Preprocessor[Any, Any]]] = {
    NumericPreprocessor.name: NumericPreprocessor,
    TextPreprocessor.name: TextPreprocessor,
}


def from_state(
    settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> Preprocessor[Any, Any]:
    """Restore a preprocessor of any class from what its ``state`` returned."""
    name = _stored(settings, "name")
    if name not in PREPROCESSORS:
        raise DataError(unknown_name("preprocessor", str(name), PREPROCESSORS))
    return PREPROCESSORS[name].from_state(settings, arrays)


def _stored(mapping: Mapping[str, Any], key: str) -> Any:
    if key not in mapping:
        raise DataError(f"the stored preprocessor is damaged: it lacks {key!r}")
    return mapping[key]


def _whole_number(name: str, value: Any, low: int, high: int) -> int:
    """Return a setting, or refuse what is no whole number from ``low`` to ``high``."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise HierlearnError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return int(value)


def _checked_numbers(inputs: ArrayLike) -> NDArray[Any]:
    """Return inputs as an (N, D) array of real numbers without infinities, in their own dtype."""
    values = np.asarray(inputs)
    if values.ndim != 2:
        raise DataError(f"inputs {values.shape} must be (N, D): a row an example, a column a value")
    if values.dtype.kind not in "fiub":
        raise DataError(
            f"inputs are of dtype {values.dtype}, not numbers; mark missing ones by NaN"
        )
    if values.dtype.kind == "f":
        _refuse(np.isinf(values), values, "is no number to compute with; mark missing ones by NaN")
    return values


def _refuse(wrong: NDArray[np.bool_], values: NDArray[Any], reason: str) -> None:
    """Raise an error that names the first wrong value, if there is one."""
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise DataError(
            f"row {row}, column {column} (counted from 0): {values[row, column].item()} {reason}"
        )


def _chunks(values: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield slices of rows, and the rows as float64: the whole at once might not fit."""
    step = max(1, CHUNK // max(1, values.shape[1]))
    for begin in range(0, len(values), step):
        rows = slice(begin, begin + step)
        yield rows, values[rows].astype(np.float64)


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
