"""N-grams of texts: how often runs of words, or of characters within words, occur in each text.

Texts are split at white space first. What the pieces hold is computed once per distinct piece,
since words repeat: the counts of character n-grams are the product of two sparse matrices,

    (texts x pieces) @ (pieces x n-grams)

Words and character n-grams are those of scikit-learn's analyzers "word", with single characters,
and "char_wb": a piece is padded with a space on either side, and one that is shorter than n counts
once.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.hierarchy.structure import expand_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

WORD = re.compile(r"\w+")
SHORTEST = 3  # characters of an n-gram of characters


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
class Pieces:
    """Texts split at white space.

    Attributes:
        names: the distinct pieces.
        offsets: (N + 1,) where each text begins.
        numbers: the piece at each place, an index of ``names``.
    """

    names: list[str]
    offsets: Ints
    numbers: Ints

    @property
    def texts(self) -> Ints:
        """The text of each place."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


def split_texts(texts: Sequence[str], *, strip_accents: bool) -> Pieces:
    """Split texts into pieces, in lower case."""
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__
    numbers: list[int] = []
    sizes = np.zeros(len(texts) + 1, dtype=np.int64)
    for row, text in enumerate(texts, start=1):
        lowered = text.lower()
        pieces = (without_accents(lowered) if strip_accents else lowered).split()
        numbers.extend(map(index.__getitem__, pieces))
        sizes[row] = len(pieces)
    return Pieces(list(index), np.cumsum(sizes), np.array(numbers, dtype=np.int64))


def without_accents(text: str) -> str:
    """Return a text in which é is e."""
    if text.isascii():
        return text
    return "".join(one for one in unicodedata.normalize("NFKD", text) if not _is_accent(one))


def _is_accent(character: str) -> bool:
    return unicodedata.combining(character) != 0


def count_words(pieces: Pieces, longest: int) -> Counts:
    """Count the runs of 1 to ``longest`` words; a word is a run of letters and digits."""
    words, offsets, found = _distinct(WORD.findall(piece) for piece in pieces.names)
    places, counts = expand_ranges(offsets, pieces.numbers)
    tokens, text = found[places], np.repeat(pieces.texts, counts)
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


def count_characters(pieces: Pieces, longest: int) -> Counts:
    """Count the runs of 3 to ``longest`` characters within pieces."""
    names, offsets, found = _distinct(character_ngrams(piece, longest) for piece in pieces.names)
    texts, size = len(pieces.offsets) - 1, len(pieces.names)
    inside = np.repeat(np.arange(size), np.diff(offsets))
    of_pieces = _counted([inside], [found], (size, len(names)))
    in_texts = _counted([pieces.texts], [pieces.numbers], (texts, size))
    matrix = in_texts @ of_pieces
    matrix.sort_indices()
    return Counts(names, matrix)


def character_ngrams(piece: str, longest: int) -> list[str]:
    """Return the runs of 3 to ``longest`` characters of a piece with a space on either side."""
    padded = f" {piece} "
    size = len(padded)
    found = []
    for length in range(SHORTEST, min(longest, size) + 1):
        found += [padded[begin : begin + length] for begin in range(size - length + 1)]
    return found


def _distinct(groups: Iterable[list[str]]) -> tuple[list[str], Ints, Ints]:
    """Return the distinct names of lists of names, and the lists as numbers in CSR."""
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__
    numbers: list[int] = []
    sizes = [0]
    for group in groups:
        numbers.extend(map(index.__getitem__, group))
        sizes.append(len(group))
    return list(index), np.cumsum(sizes), np.array(numbers, dtype=np.int64)


def _counted(rows: list[Ints], columns: list[Ints], shape: tuple[int, int]) -> Any:
    """Return a CSR matrix that counts pairs of rows and columns."""
    from scipy.sparse import coo_matrix

    row, column = np.concatenate(rows), np.concatenate(columns)
    ones = np.ones(len(row), dtype=np.float32)
    return coo_matrix((ones, (row, column)), shape=shape).tocsr()
