"""Texts: rows of weighted words, word pairs and character n-grams.

    (1 + ln tf) * (1 + ln((1 + N) / (1 + df))) for each n-gram, each row then of length 1

where tf counts the n-gram in the text, and df the texts among the N training texts that contain it.
Words and characters are scaled to length 1 each before the row is, so both count alike.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hierlearn.errors import DataError, HierlearnError
from hierlearn.features.ngrams import (
    FEWEST,
    SHORTEST,
    CompiledCounter,
    Reading,
    Vocabulary,
    characters_in,
    count_ngrams,
    in_chunks,
    takes_kernels,
)
from hierlearn.features.preprocessor import (
    Preprocessor,
    integer_option,
    nest,
    nested,
    stored,
    stored_array,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray
    from scipy.sparse import csr_array
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind
    from hierlearn.features.preprocessor import Produced

THREADS = 2  # that read texts
BLOCKS = ("words", "characters")  # of columns
LARGEST = 4096  # numbers per text
LATENT_AT_ONCE = 1 << 14  # texts
LEAST = 1e-6  # length of a row that has one


class TextPreprocessor(Preprocessor["Iterable[str]", "csr_array[np.float32]"]):
    """Turn texts into weighted n-grams, one column per n-gram, each row of length 1.

    A word is a run of letters and digits, in lower case; single characters count too, because they
    alone tell hepatitis A from hepatitis B. A text without a known n-gram becomes an empty row.

    Args:
        ngrams: the longest run of words that gets a column; 1 for single words, 2 for pairs too.
        char_ngrams: the longest run of characters within a word that gets a column, from 3 on; 0
            for words alone.
        min_df: the number of training texts a word must occur in; 1 by default, because in short
            texts rare words say the most.
        char_min_df: the same of a run of characters.
        strip_accents: whether é and e are the same.
    """

    name: ClassVar[str] = "text"
    reads: ClassVar[Kind] = "texts"
    produces: ClassVar[Produced] = "sparse"

    def __init__(
        self,
        *,
        ngrams: int = 1,
        char_ngrams: int = 0,
        min_df: int = 1,
        char_min_df: int = 2,
        strip_accents: bool = True,
    ) -> None:
        self.ngrams = integer_option("ngrams", ngrams, 1, 10)
        self.char_ngrams = integer_option("char_ngrams", char_ngrams, 0, 20)
        if 0 < self.char_ngrams < SHORTEST:
            raise HierlearnError(
                f"char_ngrams must be 0 or at least {SHORTEST}, not {self.char_ngrams}"
            )
        self.min_df = integer_option("min_df", min_df, 1, 2**31 - 1)
        self.char_min_df = integer_option("char_min_df", char_min_df, 1, 2**31 - 1)
        self.strip_accents = strip_accents
        self._vocabulary: Vocabulary | None = None
        self._read = 0  # characters, so that many calls with some texts each use kernels, too
        self._idf = np.ones(0, dtype=np.float32)  # one weight per column

    @property
    def columns(self) -> int:
        """The number of n-grams."""
        return self._learned(self._vocabulary).columns

    def column_names(self) -> list[str]:
        """Return the n-gram of every column, words first."""
        return [
            *self._learned(self._vocabulary).names(0),
            *self._learned(self._vocabulary).names(1),
        ]

    def fit(self, inputs: Iterable[str]) -> Self:
        """Learn the n-grams of the training texts."""
        texts = _checked_texts(inputs)
        return self.fit_parts(lambda: [texts])

    def fit_parts(self, parts: Callable[[], Iterable[Iterable[str]]]) -> Self:
        """Learn from training texts that do not fit into memory, as ``fit`` does.

        Only the n-grams and their counts are held.

        Args:
            parts: returns the texts in lists, one after another.
        """
        counter, rows = count_ngrams(map(_checked_texts, parts()), self._reading)
        if not rows:
            raise DataError("cannot fit on 0 texts; give the training texts")
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

        vocabulary, texts = self._learned(self._vocabulary), _checked_texts(inputs)
        self._read += characters_in(texts)
        compiled = characters_in(texts) > 0 and takes_kernels(self._read)
        count = vocabulary.reader(compiled=compiled)
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
        return csr_array((data, indices, sizes), shape=(len(texts), vocabulary.columns))

    def _weighted(
        self, indptr: NDArray[np.int32], indices: NDArray[np.int32], data: NDArray[np.float32]
    ) -> csr_array[np.float32]:
        """Return counts as weights."""
        from scipy.sparse import csr_array
        from sklearn.utils.sparsefuncs_fast import inplace_csr_row_normalize_l2

        shape = (len(indptr) - 1, self.columns)
        np.log(data, data)
        data += np.float32(1)
        data *= self._idf[indices]
        # Words and characters are scaled apart, as if each text had a row for either.
        words = np.concatenate([[0], np.cumsum(indices < self._learned(self._vocabulary).sizes[0])])
        ends = indptr[:-1] + np.diff(words[indptr])
        halves = np.append(np.stack([indptr[:-1], ends], axis=1), indptr[-1]).astype(np.int32)
        halved = csr_array((data, indices, halves), shape=(2 * shape[0], shape[1]))
        inplace_csr_row_normalize_l2(halved)
        rows: csr_array[Any] = csr_array((data, indices, indptr), shape=shape)
        if self.char_ngrams:
            inplace_csr_row_normalize_l2(rows)
        return rows

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings, and arrays: idf, and the n-grams as bytes."""
        options = {name: getattr(self, name) for name in self.options()}
        arrays: dict[str, NDArray[Any]] = {"idf": self._idf.copy()}
        for name, part in zip(BLOCKS, self._learned(self._vocabulary).joined, strict=True):
            data = part.encode("utf-8", "surrogatepass")
            arrays[name] = np.frombuffer(data, dtype=np.uint8).copy()
        return {"name": self.name, **options}, arrays

    def plain_state(self) -> dict[str, Any]:
        """Return the state with the n-grams as lists; ``idf`` is first that of the words."""
        vocabulary = self._learned(self._vocabulary)
        names = {name: vocabulary.names(block) for block, name in enumerate(BLOCKS)}
        return {**super().plain_state(), **names}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted preprocessor."""
        new = cls(**{name: stored(settings, name) for name in cls.options()})
        parts = [stored(arrays, name).astype(np.uint8) for name in BLOCKS]
        joined = [part.tobytes().decode("utf-8", "surrogatepass") for part in parts]
        new._vocabulary = Vocabulary(new._reading, joined)
        if new._vocabulary.columns != sum(map(len, new._vocabulary.index)):
            raise DataError("the stored preprocessor is damaged: a word occurs twice")
        new._idf = stored_array(arrays, "idf", (new._vocabulary.columns,)).astype(np.float32)
        return new


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
        return int(self._learned(self._directions).shape[1])

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
        texts, directions = list(inputs), self._learned(self._directions).astype(np.float32)
        found = np.zeros((len(texts), self.columns), dtype=np.float32)
        for begin in range(0, len(texts), LATENT_AT_ONCE):
            rows = slice(begin, begin + LATENT_AT_ONCE)
            found[rows] = self.texts.transform(texts[rows]) @ directions
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        scale = np.where(lengths > LEAST, np.sqrt(np.float32(self.columns)), np.float32(0))
        return np.asarray(found * (scale / np.maximum(lengths, LEAST)), dtype=np.float32)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings of the n-grams, and their directions beside their arrays."""
        directions, (settings, arrays) = self._learned(self._directions).copy(), self.texts.state()
        own = {"name": self.name, "size": self.size, "texts": settings}
        return own, {"directions": directions, **nest("texts", arrays)}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted preprocessor."""
        new = cls(stored(settings, "size"))
        new.texts = TextPreprocessor.from_state(stored(settings, "texts"), nested("texts", arrays))
        directions = stored(arrays, "directions")
        shape = (new.texts.columns, *directions.shape[1:2])
        new._directions = stored_array(arrays, "directions", shape).astype(np.float16)
        return new
