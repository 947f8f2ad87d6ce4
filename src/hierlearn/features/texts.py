"""Texts: rows of weighted words, word pairs and character n-grams.

    tfidf:  (1 + ln tf) * (1 + ln((1 + N) / (1 + df))) for each n-gram, each row then of length 1

where tf counts the n-gram in the text, and df the texts among the N training texts that contain it.
Words and characters are scaled to length 1 each before the row is, so both count alike.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.features.ngrams import (
    FEWEST,
    SHORTEST,
    CompiledCounter,
    Reading,
    Vocabulary,
    characters_in,
    count_ngrams,
    encoded,
    hashed_reader,
    in_chunks,
    takes_kernels,
)
from hierlearn.features.preprocessor import Preprocessor, integer_option, nest, nested, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray
    from scipy.sparse import csr_array
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind

THREADS = 2  # that read texts
LARGEST = 4096  # numbers per text
LATENT_AT_ONCE = 1 << 14  # texts
LEAST = 1e-6  # length of a row that has one


class TextPreprocessor(Preprocessor["Iterable[str]", "csr_array[np.float32]"]):
    """Turn texts into weighted n-grams, one column per n-gram, each row of length 1.

    A word is a run of letters and digits, in lower case; single characters count too, because they
    alone tell hepatitis A from hepatitis B. A text without a known n-gram becomes an empty row.

    Args:
        kind: "tfidf" learns the n-grams of the training texts and gives little weight to those that
            many texts contain. "hashed" learns nothing and gives each n-gram a column by its hash,
            so it suits streams and transforms without ``fit``; n-grams may share a column, and
            their weights are plain counts.
        ngrams: the longest run of words that gets a column; 1 for single words, 2 for pairs too.
        char_ngrams: the longest run of characters within a word that gets a column, from 3 on; 0
            for words alone.
        min_df: the number of training texts a word must occur in, for "tfidf"; 1 unless given,
            because in short texts rare words say the most.
        char_min_df: the same of a run of characters; 2 unless given.
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
        char_ngrams: int = 0,
        min_df: int | None = None,
        char_min_df: int | None = None,
        bits: int | None = None,
        strip_accents: bool = True,
    ) -> None:
        if kind not in self.kinds:
            raise HierlearnError(unknown_name("kind of text preprocessing", kind, self.kinds))
        for name, value in (("min_df", min_df), ("char_min_df", char_min_df)):
            if kind == "hashed" and value is not None:
                raise HierlearnError(f"{name} is for kind 'tfidf'; 'hashed' does not count words")
        if kind == "tfidf" and bits is not None:
            raise HierlearnError("bits is for kind 'hashed'; 'tfidf' has a column for each word")
        self.kind = kind
        self.ngrams = integer_option("ngrams", ngrams, 1, 10)
        self.char_ngrams = integer_option("char_ngrams", char_ngrams, 0, 20)
        if 0 < self.char_ngrams < SHORTEST:
            raise HierlearnError(
                f"char_ngrams must be 0 or at least {SHORTEST}, not {self.char_ngrams}"
            )
        self.min_df = integer_option("min_df", 1 if min_df is None else min_df, 1, 2**31 - 1)
        self.char_min_df = integer_option(
            "char_min_df", 2 if char_min_df is None else char_min_df, 1, 2**31 - 1
        )
        # 30, because scikit-learn numbers the columns with signed 32-bit integers.
        self.bits = integer_option("bits", 16 if bits is None else bits, 1, 30)
        self.strip_accents = strip_accents
        self._vocabulary: Vocabulary | None = None
        self._read = 0  # characters, so that many calls with some texts each use kernels, too
        self._idf = np.ones(0, dtype=np.float32)  # one weight per column

    @property
    def columns(self) -> int:
        """The number of n-grams, or 2 to the power of ``bits``."""
        return 1 << self.bits if self.kind == "hashed" else self._fitted().columns

    def column_names(self) -> list[str]:
        """Return the n-gram of every column, words first; "hashed" does not know them."""
        if self.kind == "hashed":
            raise HierlearnError("columns of kind 'hashed' have no names; use 'tfidf'")
        vocabulary = self._fitted()
        return [*vocabulary.names(0), *vocabulary.names(1)]

    def fit(self, inputs: Iterable[str]) -> Self:
        """Learn the n-grams of the training texts; "hashed" only checks that they are texts."""
        texts = _checked_texts(inputs)
        return self.fit_parts(lambda: [texts])

    def fit_parts(self, parts: Callable[[], Iterable[Iterable[str]]]) -> Self:
        """Learn from training texts that do not fit into memory, as ``fit`` does.

        Only the n-grams and their counts are held.

        Args:
            parts: returns the texts in lists, one after another.
        """
        checked = (_checked_texts(part) for part in parts())
        if self.kind == "hashed":
            counter, rows = None, sum(map(len, checked))
        else:
            counter, rows = count_ngrams(checked, self._reading)
        if not rows:
            raise DataError("cannot fit on 0 texts; give the training texts")
        if counter is None:
            return self
        blocks = counter.kept((self.min_df, self.char_min_df))
        if not any(joined for joined, _ in blocks):
            raise DataError(f"no word occurs in at least min_df={self.min_df} of the {rows} texts")
        # In single precision throughout, as scikit-learn computes it.
        df = np.concatenate([counts for _, counts in blocks]).astype(np.float32)
        self._vocabulary = Vocabulary(self._reading, [joined for joined, _ in blocks])
        self._idf = np.log(np.float32(rows + 1) / (df + 1)) + np.float32(1)
        self._read = FEWEST if isinstance(counter, CompiledCounter) else 0
        return self

    @property
    def _reading(self) -> Reading:
        return Reading(self.ngrams, self.char_ngrams, self.strip_accents)

    def transform(self, inputs: Iterable[str]) -> csr_array[np.float32]:
        """Return the texts as (N, columns) sparse rows."""
        from scipy.sparse import csr_array

        columns = self.columns
        texts = _checked_texts(inputs)
        self._read += characters_in(texts)
        compiled = characters_in(texts) > 0 and takes_kernels(self._read)
        if self.kind == "hashed":
            count = hashed_reader(self._reading, columns, compiled=compiled)
        else:
            count = self._fitted().reader(compiled=compiled)
        chunks = list(in_chunks([texts]))
        if len(chunks) < 2:
            found = [self._weighted(*count(some)) for some in chunks]
        else:
            with ThreadPoolExecutor(THREADS) as threads:
                found = list(threads.map(lambda some: self._weighted(*count(some)), chunks))
        if len(found) == 1:
            return found[0]
        sizes = np.concatenate([[0], *(np.diff(part.indptr) for part in found)]).cumsum()
        if sizes[-1] < 2**31:
            sizes = sizes.astype(np.int32)
        # What was joined is let go at once, as both together may take much memory.
        data = np.concatenate([np.zeros(0, np.float32), *(part.data for part in found)])
        numbers = [np.zeros(0, np.int32), *(part.indices for part in found)]
        del found
        indices = np.concatenate(numbers)
        del numbers
        return csr_array((data, indices, sizes), shape=(len(texts), columns))

    def _weighted(
        self, indptr: NDArray[np.int32], indices: NDArray[np.int32], data: NDArray[np.float32]
    ) -> csr_array[np.float32]:
        """Return counts as weights."""
        from scipy.sparse import csr_array
        from sklearn.utils.sparsefuncs_fast import inplace_csr_row_normalize_l2

        shape = (len(indptr) - 1, self.columns)
        if self.kind == "tfidf":
            np.log(data, data)
            data += np.float32(1)
            data *= self._idf[indices]
            # Words and characters are scaled apart, as if each text had a row for either.
            words = np.concatenate([[0], np.cumsum(indices < self._fitted().sizes[0])])
            ends = indptr[:-1] + np.diff(words[indptr])
            halves = np.append(np.stack([indptr[:-1], ends], axis=1), indptr[-1]).astype(np.int32)
            halved = csr_array((data, indices, halves), shape=(2 * shape[0], shape[1]))
            inplace_csr_row_normalize_l2(halved)
        rows: csr_array[Any] = csr_array((data, indices, indptr), shape=shape)
        if self.kind == "hashed" and self.char_ngrams:
            rows.eliminate_zeros()  # n-grams with one column and different signs
        if self.kind == "hashed" or self.char_ngrams:
            inplace_csr_row_normalize_l2(rows)
        return rows

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings; for "tfidf" arrays beside them: idf, and the n-grams as bytes."""
        settings = {
            "name": self.name,
            "kind": self.kind,
            "ngrams": self.ngrams,
            "char_ngrams": self.char_ngrams,
            "strip_accents": self.strip_accents,
        }
        if self.kind == "hashed":
            return {**settings, "bits": self.bits}, {}
        settings |= {"min_df": self.min_df, "char_min_df": self.char_min_df}
        joined = self._fitted().joined
        arrays: dict[str, NDArray[Any]] = {"idf": self._idf.copy()}
        for name, part in zip(("words", "characters"), joined, strict=True):
            arrays[name] = np.frombuffer(encoded(part), dtype=np.uint8).copy()
        return settings, arrays

    def plain_state(self) -> dict[str, Any]:
        """Return the state with the n-grams as lists; ``idf`` is first that of the words."""
        names = enumerate(("words", "characters") if self._vocabulary else ())
        return {**super().plain_state(), **{name: self._fitted().names(k) for k, name in names}}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted preprocessor."""
        new = cls(
            stored(settings, "kind"),
            ngrams=stored(settings, "ngrams"),
            char_ngrams=stored(settings, "char_ngrams"),
            min_df=settings.get("min_df"),
            char_min_df=settings.get("char_min_df"),
            bits=settings.get("bits"),
            strip_accents=bool(stored(settings, "strip_accents")),
        )
        if new.kind == "tfidf":
            idf = stored(arrays, "idf")
            parts = [stored(arrays, name).astype(np.uint8) for name in ("words", "characters")]
            joined = [part.tobytes().decode("utf-8", "surrogatepass") for part in parts]
            new._vocabulary = Vocabulary(new._reading, joined)
            count, distinct = new._vocabulary.columns, sum(map(len, new._vocabulary.index))
            if idf.shape != (distinct,) or count != distinct:
                raise DataError(
                    f"the stored preprocessor is damaged: {count} words, of which {distinct} "
                    f"differ, must match idf {idf.shape}"
                )
            new._idf = idf.astype(np.float32)
        return new

    def _fitted(self) -> Vocabulary:
        if self._vocabulary is None:
            raise self._not_fitted()
        return self._vocabulary


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


# ----------------------------------------------------------------------
# Latent: texts as a few hundred numbers, so that similar texts lie near each other.
#
#     z = x V,    then each row scaled to length sqrt(k)
#
# where x are the weighted n-grams of a text and V the k leading right singular vectors of those of
# the training texts (latent semantic analysis; Deerwester et al., 1990). A memory compares these.


class LatentPreprocessor(Preprocessor["Iterable[str]", "NDArray[np.float32]"]):
    """Turn texts into (N, size) numbers; a text without a known n-gram becomes zeros.

    Args:
        size: numbers per text; fewer where there are fewer texts or n-grams.
        ngrams: the longest run of words that counts.
        char_ngrams: the longest run of characters within a word that counts, from 3 on; 0 for none.
        min_df: the number of training texts that a word must occur in.
        char_min_df: the same of a run of characters.
    """

    name: ClassVar[str] = "latent"
    reads: ClassVar[Kind] = "texts"
    by_default: ClassVar[bool] = False
    produces: ClassVar[Literal["numbers", "sparse"]] = "numbers"

    def __init__(
        self,
        size: int = 300,
        *,
        ngrams: int = 2,
        char_ngrams: int = 5,
        min_df: int = 1,
        char_min_df: int = 2,
    ) -> None:
        self.size = integer_option("size", size, 1, LARGEST)
        self.texts = TextPreprocessor(
            ngrams=ngrams, char_ngrams=char_ngrams, min_df=min_df, char_min_df=char_min_df
        )
        self._directions: NDArray[np.float16] | None = None  # (n-grams, k)

    @property
    def columns(self) -> int:
        """How many numbers a text has."""
        if self._directions is None:
            raise self._not_fitted()
        return int(self._directions.shape[1])

    def fit(self, inputs: Iterable[str]) -> Self:
        """Learn the n-grams of the training texts and their leading directions."""
        from sklearn.utils.extmath import randomized_svd

        texts = list(inputs)
        x = self.texts.fit(texts).transform(texts)
        size = min(self.size, *x.shape)
        _, _, directions = randomized_svd(x, size, n_iter=3, random_state=0)
        # In half precision from the start, so that a stored one transforms alike.
        self._directions = np.ascontiguousarray(directions.T).astype(np.float16)
        return self

    def transform(self, inputs: Iterable[str]) -> NDArray[np.float32]:
        """Return the texts as (N, columns) numbers."""
        if self._directions is None:
            raise self._not_fitted()
        texts, directions = list(inputs), self._directions.astype(np.float32)
        found = np.zeros((len(texts), self.columns), dtype=np.float32)
        for begin in range(0, len(texts), LATENT_AT_ONCE):
            rows = slice(begin, begin + LATENT_AT_ONCE)
            found[rows] = self.texts.transform(texts[rows]) @ directions
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        scale = np.where(lengths > LEAST, np.sqrt(np.float32(self.columns)), np.float32(0))
        return np.asarray(found * (scale / np.maximum(lengths, LEAST)), dtype=np.float32)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings of the n-grams, and their directions beside their arrays."""
        if self._directions is None:
            raise self._not_fitted()
        settings, arrays = self.texts.state()
        own = {"name": self.name, "size": self.size, "texts": settings}
        return own, {"directions": self._directions.copy(), **nest("texts", arrays)}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted preprocessor."""
        new = cls(stored(settings, "size"))
        new.texts = TextPreprocessor.from_state(stored(settings, "texts"), nested("texts", arrays))
        directions = stored(arrays, "directions")
        if directions.ndim != 2 or len(directions) != new.texts.columns:
            raise DataError(
                f"the stored preprocessor is damaged: directions {directions.shape} must have "
                f"{new.texts.columns:,} rows, one per n-gram"
            )
        new._directions = directions.astype(np.float16)
        return new
