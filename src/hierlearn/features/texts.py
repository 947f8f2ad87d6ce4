"""Texts: rows of weighted words, word pairs and character n-grams.

    tfidf:  (1 + ln tf) * (1 + ln((1 + N) / (1 + df))) for each n-gram, each row then of length 1

where tf counts the n-gram in the text, and df the texts among the N training texts that contain it.
Words and characters are scaled to length 1 each before the row is, so both count alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.features.preprocessor import Preprocessor, integer_option, nest, nested, stored
from hierlearn.hierarchy.structure import expand_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_array
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind

    Ints = NDArray[np.int64]

AT_ONCE = 1 << 15  # texts
WORD = re.compile(r"\w+")
SHORTEST = 3  # characters of an n-gram of characters
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
        self._columns: list[dict[str, int]] | None = None  # of words, and of characters
        self._idf = np.ones(0, dtype=np.float32)  # one weight per column

    @property
    def columns(self) -> int:
        """The number of n-grams, or 2 to the power of ``bits``."""
        return 1 << self.bits if self.kind == "hashed" else len(self._idf_if_fitted())

    def column_names(self) -> list[str]:
        """Return the n-gram of every column, words first; "hashed" does not know them."""
        if self.kind == "hashed":
            raise HierlearnError("columns of kind 'hashed' have no names; use 'tfidf'")
        self._idf_if_fitted()
        return [name for part in self._columns or () for name in part]

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
        found: list[Counter[str]] = [Counter(), Counter()]
        rows = 0
        for part in parts():
            texts = _checked_texts(part)
            rows += len(texts)
            if self.kind == "tfidf":
                for blocks in self._counts(texts):
                    for total, block in zip(found, blocks, strict=False):
                        own = np.bincount(block.matrix.indices, minlength=len(block.names))
                        if total:
                            for name, count in zip(block.names, own.tolist(), strict=True):
                                total[name] += count
                        else:
                            total.update(dict(zip(block.names, own.tolist(), strict=True)))
        if not rows:
            raise DataError("cannot fit on 0 texts; give the training texts")
        if self.kind == "hashed":
            return self
        limits = (self.min_df, self.char_min_df)
        kept = [
            sorted(name for name, count in total.items() if count >= limit)
            for total, limit in zip(found, limits, strict=True)
        ]
        if not any(kept):
            raise DataError(f"no word occurs in at least min_df={self.min_df} of the {rows} texts")
        # In single precision throughout, as scikit-learn computes it.
        counts = [total[name] for total, names in zip(found, kept, strict=True) for name in names]
        df = np.array(counts, dtype=np.float32)
        self._restore(kept, np.log(np.float32(rows + 1) / (df + 1)) + np.float32(1))
        return self

    def transform(self, inputs: Iterable[str]) -> csr_array[np.float32]:
        """Return the texts as (N, columns) sparse rows."""
        from scipy.sparse import csr_array, hstack, vstack
        from sklearn.preprocessing import normalize

        columns = self.columns
        texts = _checked_texts(inputs)
        if not texts:
            return csr_array(np.zeros((0, columns), dtype=np.float32))
        found = []
        for blocks in self._counts(texts):
            if self.kind == "hashed":
                ready = sum(self._hashed(block, seed) for seed, block in enumerate(blocks))
            else:
                parts = [self._weighted(block, number) for number, block in enumerate(blocks)]
                # No n-gram of a kind may occur often enough.
                some = [normalize(part, copy=False) for part in parts if part.shape[1]]
                ready = hstack(some, format="csr")
            if self.kind == "hashed" or self.char_ngrams:
                ready = normalize(ready, copy=False)
            found.append(ready)
        return csr_array(vstack(found, format="csr") if len(found) > 1 else found[0])

    def _counts(self, texts: Sequence[str]) -> Iterator[list[Counts]]:
        """Yield the counts of words, and of characters, of some texts at a time."""
        for begin in range(0, len(texts), AT_ONCE):
            some = texts[begin : begin + AT_ONCE]
            pieces = Groups.of(split_text(one, strip_accents=self.strip_accents) for one in some)
            blocks = [count_words(pieces, self.ngrams)]
            if self.char_ngrams:
                blocks.append(count_characters(pieces, self.char_ngrams))
            yield blocks

    def _weighted(self, block: Counts, number: int) -> Any:
        """Return the counts of known n-grams, weighted."""
        assert self._columns is not None
        columns = self._columns[number]
        first = len(self._columns[0]) if number else 0
        target = np.array([columns.get(name, -1) for name in block.names], dtype=np.int64)
        found = _moved(block.matrix, target, len(columns))
        np.log(found.data, found.data)
        found.data += np.float32(1)
        found.data *= self._idf[first:][found.indices]
        return found

    def _hashed(self, block: Counts, seed: int) -> Any:
        """Return the counts by the hashes of the n-grams, as scikit-learn's FeatureHasher does."""
        from sklearn.utils.murmurhash import murmurhash3_bytes_s32

        hashes = np.array(
            [murmurhash3_bytes_s32(_encoded(name), seed) for name in block.names], dtype=np.int64
        )
        found = block.matrix.copy()
        found.data *= np.where(hashes >= 0, 1, -1).astype(np.float32)[found.indices]
        return _moved(found, np.abs(hashes) % self.columns, self.columns)

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
        arrays: dict[str, NDArray[Any]] = {"idf": self._idf_if_fitted().copy()}
        for name, part in zip(("words", "characters"), self._columns or (), strict=True):
            joined = _encoded("\n".join(part))  # no n-gram holds a line break
            arrays[name] = np.frombuffer(joined, dtype=np.uint8).copy()
        return settings, arrays

    def plain_state(self) -> dict[str, Any]:
        """Return the state with the n-grams as lists; ``idf`` is first that of the words."""
        names = zip(("words", "characters"), self._columns or (), strict=False)
        return {**super().plain_state(), **{name: list(part) for name, part in names}}

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
            idf, kept = stored(arrays, "idf"), []
            for name in ("words", "characters"):
                joined = stored(arrays, name).astype(np.uint8).tobytes()
                kept.append(joined.decode("utf-8", "surrogatepass").split("\n") if joined else [])
            count, distinct = sum(map(len, kept)), sum(len(set(part)) for part in kept)
            if idf.shape != (distinct,) or count != distinct:
                raise DataError(
                    f"the stored preprocessor is damaged: {count} words, of which {distinct} "
                    f"differ, must match idf {idf.shape}"
                )
            new._restore(kept, idf)
        return new

    def _restore(self, kept: Sequence[list[str]], idf: NDArray[Any]) -> None:
        """Set the n-grams and their weights; both ``fit`` and ``from_state`` end here."""
        self._columns = [{name: number for number, name in enumerate(part)} for part in kept]
        self._idf = idf.astype(np.float32)

    def _idf_if_fitted(self) -> NDArray[np.float32]:
        if self._columns is None:
            raise self._not_fitted()
        return self._idf


def _moved(matrix: Any, target: NDArray[np.int64], columns: int) -> Any:
    """Return a CSR matrix with its columns moved, those that share a place added; -1 drops one."""
    from scipy.sparse import csr_matrix

    kept = target[matrix.indices] >= 0
    sizes = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
    parts = (matrix.data[kept], target[matrix.indices[kept]], sizes)
    found = csr_matrix(parts, shape=(matrix.shape[0], columns))
    found.sum_duplicates()
    return found


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


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
# N-grams of texts: how often runs of words, or of characters within words, occur in each text.
#
# Texts are split at white space first. What the pieces hold is computed once per distinct piece,
# since words repeat: the counts of character n-grams are the product of two sparse matrices,
#
#     (texts x pieces) @ (pieces x n-grams)
#
# Words and character n-grams are those of scikit-learn's analyzers "word", with single characters,
# and "char_wb": a piece is padded with a space on either side, and one that is shorter than n
# counts once.


@dataclass(frozen=True)
class Counts:
    """Which n-grams occur in some texts, and how often.

    Attributes:
        names: the distinct n-grams.
        matrix: (N, len(names)) SciPy CSR matrix of float32 counts.
    """

    names: list[str]
    matrix: Any


@dataclass(frozen=True)
class Groups:
    """Lists of names.

    Attributes:
        names: the distinct ones.
        offsets: (N + 1,) where each list begins.
        numbers: the name at each place, an index of ``names``.
    """

    names: list[str]
    offsets: Ints
    numbers: Ints

    @classmethod
    def of(cls, groups: Iterable[list[str]]) -> Groups:
        """Number the names of lists."""
        index: defaultdict[str, int] = defaultdict()
        index.default_factory = index.__len__
        numbers: list[int] = []
        sizes = [0]
        for group in groups:
            numbers.extend(map(index.__getitem__, group))
            sizes.append(len(group))
        return cls(list(index), np.cumsum(sizes), np.array(numbers, dtype=np.int64))

    @property
    def lists(self) -> Ints:
        """The list of each place."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


def split_text(text: str, *, strip_accents: bool) -> list[str]:
    """Split a text into pieces, in lower case."""
    text = text.lower()
    if strip_accents and not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(one for one in decomposed if not unicodedata.combining(one))
    return text.split()


def count_words(pieces: Groups, longest: int) -> Counts:
    """Count the runs of 1 to ``longest`` words; a word is a run of letters and digits."""
    found = Groups.of(WORD.findall(piece) for piece in pieces.names)
    places, counts = expand_ranges(found.offsets, pieces.numbers)
    words, tokens, text = found.names, found.numbers[places], np.repeat(pieces.lists, counts)
    names, rows, columns = list(words), [text], [tokens]
    runs, first, above = tokens, 0, words  # the runs of n - 1 words that begin at each place
    for length in range(2, longest + 1):
        inside = text[: len(text) - length + 1] == text[length - 1 :]
        starts = np.flatnonzero(inside)
        keys = runs[starts] * len(words) + tokens[starts + length - 1]
        distinct, numbers = np.unique(keys, return_inverse=True)
        above = [
            f"{above[run]} {words[word]}"
            for run, word in zip(
                *(part.tolist() for part in np.divmod(distinct, len(words) or 1)), strict=True
            )
        ]
        first = len(names)
        names += above
        rows.append(text[starts])
        columns.append(first + numbers)
        runs = np.full(len(text), -1, dtype=np.int64)
        runs[starts] = numbers
    return Counts(names, _counted(rows, columns, (len(pieces.offsets) - 1, len(names))))


def count_characters(pieces: Groups, longest: int) -> Counts:
    """Count the runs of 3 to ``longest`` characters within pieces, with a space on either side."""

    def ngrams(piece: str) -> list[str]:
        padded = f" {piece} "
        size = len(padded)
        return [
            padded[begin : begin + length]
            for length in range(SHORTEST, min(longest, size) + 1)
            for begin in range(size - length + 1)
        ]

    found = Groups.of(map(ngrams, pieces.names))
    texts, size = len(pieces.offsets) - 1, len(pieces.names)
    of_pieces = _counted([found.lists], [found.numbers], (size, len(found.names)))
    in_texts = _counted([pieces.lists], [pieces.numbers], (texts, size))
    matrix = in_texts @ of_pieces
    matrix.sort_indices()
    return Counts(found.names, matrix)


def _counted(rows: list[Ints], columns: list[Ints], shape: tuple[int, int]) -> Any:
    """Return a CSR matrix that counts pairs of rows and columns."""
    from scipy.sparse import coo_matrix

    row, column = np.concatenate(rows), np.concatenate(columns)
    ones = np.ones(len(row), dtype=np.float32)
    return coo_matrix((ones, (row, column)), shape=shape).tocsr()


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
