"""N-grams of texts: how often runs of words, and of characters within words, occur.

A text is split at white space into pieces. Its words, runs of letters and digits, are those of
scikit-learn's analyzer "word" with single characters, and its runs of 3 and more characters those
of "char_wb": each piece is padded with a space on either side, and a run lies within a piece.

There are two ways with equal results, and tests compare them. Few texts take dictionaries: one is
read in tens of microseconds, and nothing is compiled or loaded. From ``FEWEST`` characters on the
kernels of ``kernels/ngrams_numba`` read some texts at a time: lower case and decomposition by
Python, for all of them joined; then code points, and a table of what Python says about each. Only
what stands between text and numbers is there twice, splitting and numbering; weights are not.
Strings with one 64-bit hash are told apart by their characters, and the keys of runs are exact.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hierlearn.hierarchy.structure import expand_ranges
from hierlearn.kernels.choose import has_numba

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

AT_ONCE = 1 << 20  # characters
SOME = 1 << 12  # characters of texts read together; fewer always take dictionaries
FEWEST = 1 << 19  # characters, in some calls, for which kernels are worth loading
WORD = re.compile(r"\w+")
SHORTEST = 3  # characters of an n-gram of characters
LINE, SPACE = 10, 32
IS_WORD, IS_SPACE, IS_COMBINING, IS_KNOWN = 1, 2, 4, 8
LOOK_UP, ADD, WHOLE = 0, 1, 2  # modes of ``number_runs``


@dataclass(frozen=True)
class Reading:
    """What is read of a text.

    Attributes:
        ngrams: the longest run of words.
        char_ngrams: the longest run of characters; 0 for none.
        strip_accents: whether é and e are the same.
    """

    ngrams: int
    char_ngrams: int
    strip_accents: bool


class Occurrences(NamedTuple):
    """How often the columns occur in texts, as CSR rows with sorted indices."""

    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    counts: NDArray[np.float32]


def count_ngrams(
    parts: Iterable[Sequence[str]], reading: Reading
) -> tuple[PlainCounter | CompiledCounter, int]:
    """Return the counts of n-grams of texts that come in parts, and the number of texts."""
    chunks = in_chunks(parts)
    first = next(chunks, [])
    compiled = takes_kernels(characters_in(first))
    counter = CompiledCounter(reading) if compiled else PlainCounter(reading)
    rows = 0
    while first:
        counter.add(first)
        rows += len(first)
        first = next(chunks, [])
    return counter, rows


def characters_in(texts: Sequence[str]) -> int:
    """Return how many characters texts have, 0 where they are few."""
    size = sum(map(len, texts))
    return size if size >= SOME else 0


def takes_kernels(size: int) -> bool:
    """Whether so many characters are worth loading the kernels, and numba can be imported."""
    return size >= FEWEST and has_numba()


def in_chunks(parts: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Yield texts, some at a time, whatever parts they come in."""
    held: list[str] = []
    size = 0
    for part in parts:
        for text in part:
            if held and size + len(text) > AT_ONCE:
                yield held
                held, size = [], 0
            held.append(text)
            size += len(text) + 1
    if held:
        yield held


class Vocabulary:
    """N-grams with a column each: those of words first, then those of characters.

    Args:
        reading: what is read of a text.
        joined: the n-grams of words, and of characters, joined by line breaks.
    """

    def __init__(self, reading: Reading, joined: Sequence[str]) -> None:
        self.reading = reading
        self.joined = tuple(joined)
        self.sizes = [part.count("\n") + 1 if part else 0 for part in self.joined]
        self.columns = sum(self.sizes)

    def names(self, block: int) -> list[str]:
        """Return the n-grams of words (0), or of characters (1)."""
        return self.joined[block].split("\n") if self.joined[block] else []

    @cached_property
    def index(self) -> list[dict[str, int]]:
        """The number of each n-gram, among those of words and among those of characters."""
        return [{name: place for place, name in enumerate(self.names(k))} for k in (0, 1)]

    @cached_property
    def _compiled(self) -> CompiledVocabulary:
        return CompiledVocabulary(self)

    def reader(self, *, compiled: bool) -> Callable[[Sequence[str]], Occurrences]:
        """Return what counts the columns of texts."""
        if compiled:
            lists = self._compiled.lists
            return lambda some: compiled_rows(some, self.reading, self.columns, lists)

        def numbers(block: int, names: list[str]) -> list[int]:
            get, first = self.index[block].get, self.sizes[0] * block
            return [found + first for name in names if (found := get(name)) is not None]

        return lambda some: plain_rows(some, self.reading, self.columns, numbers)


# ---------------------------------------------------------------------- few texts: dictionaries


def split_text(text: str, *, strip_accents: bool) -> list[str]:
    """Split a text into pieces, in lower case."""
    text = text.lower()
    if strip_accents and not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(one for one in decomposed if not unicodedata.combining(one))
    return text.split()


def word_runs(pieces: list[str], longest: int) -> list[str]:
    """Return the runs of 1 to ``longest`` words."""
    words = WORD.findall(" ".join(pieces))
    found = list(words)
    for length in range(2, longest + 1):
        found += map(" ".join, zip(*(words[k:] for k in range(length)), strict=False))
    return found


def character_runs(piece: str, longest: int) -> list[str]:
    """Return the runs of 3 to ``longest`` characters of a piece with a space on either side."""
    padded = f" {piece} "
    size = len(padded)
    return [
        padded[begin : begin + length]
        for length in range(SHORTEST, min(longest, size) + 1)
        for begin in range(size - length + 1)
    ]


class PlainCounter:
    """Counts in how many texts n-grams occur, in dictionaries."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.found: list[Counter[str]] = [Counter(), Counter()]

    def add(self, texts: Sequence[str]) -> None:
        reading, (words, characters) = self.reading, self.found
        for text in texts:
            pieces = split_text(text, strip_accents=reading.strip_accents)
            words.update(set(word_runs(pieces, reading.ngrams)))
            if reading.char_ngrams:
                own = (character_runs(piece, reading.char_ngrams) for piece in set(pieces))
                characters.update(set().union(*own))

    def kept(self, limits: Sequence[int]) -> list[tuple[str, Ints]]:
        """Return n-grams of words, and of characters, that occur in enough texts, with how many.

        The n-grams are sorted and joined by line breaks, which none of them holds.
        """
        blocks = []
        for found, limit in zip(self.found, limits, strict=True):
            names = sorted(name for name, count in found.items() if count >= limit)
            counts = np.array([found[name] for name in names], dtype=np.int64)
            blocks.append(("\n".join(names), counts))
        return blocks


def plain_rows(
    texts: Sequence[str],
    reading: Reading,
    columns: int,
    numbers: Callable[[int, list[str]], list[int]],
) -> Occurrences:
    """Count the columns of texts.

    Args:
        texts: the texts.
        reading: what is read of them.
        columns: how many columns there are.
        numbers: returns the column of each n-gram of words (0) or of characters (1) that has one.
    """
    of_pieces: dict[str, list[int]] = {}
    found: list[int] = []
    sizes = [0]
    for text in texts:
        pieces = split_text(text, strip_accents=reading.strip_accents)
        found += numbers(0, word_runs(pieces, reading.ngrams))
        for piece in pieces if reading.char_ngrams else ():
            if piece not in of_pieces:
                of_pieces[piece] = numbers(1, character_runs(piece, reading.char_ngrams))
            found += of_pieces[piece]
        sizes.append(len(found))
    number = np.array(found, dtype=np.int64)
    row = np.repeat(np.arange(len(texts)), np.diff(sizes))
    distinct, counts = np.unique(row * columns + number, return_counts=True)
    rows, indices = np.divmod(distinct, max(columns, 1))
    return Occurrences(
        np.searchsorted(rows, np.arange(len(texts) + 1)).astype(np.int32),
        indices.astype(np.int32),
        counts.astype(np.float32),
    )


# ---------------------------------------------------------------------- many texts: kernels

Spans = tuple["Ints", "Ints"]  # where they begin, and end
Lists = tuple["Ints", "NDArray[np.int32]"]  # where each begins in numbers, and the numbers
KINDS = np.zeros(0x110000, dtype=np.uint8)  # what Python says about the characters met so far


def runs_of(reading: Reading) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the shortest and the longest run of words, and of characters."""
    return (1, reading.ngrams), (SHORTEST, reading.char_ngrams)


def code_points(text: str) -> NDArray[np.int32]:
    """Return the characters of a text as numbers."""
    data = text.encode("utf-32-le", "surrogatepass")
    return np.frombuffer(data, dtype="<i4").astype(np.int32)


def kinds_of(codes: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return flags of characters; Python is asked once about each."""
    kinds = KINDS[codes]
    if not kinds.all():
        for code in np.unique(codes[kinds == 0]).tolist():
            one = chr(code)
            flags = IS_WORD * bool(WORD.match(one)) + IS_SPACE * one.isspace()
            KINDS[code] = IS_KNOWN + flags + IS_COMBINING * bool(unicodedata.combining(one))
        kinds = KINDS[codes]
    return kinds


def spans_of(inside: NDArray[np.bool_]) -> Spans:
    """Return where runs of true entries begin and end; the first and the last entry are false."""
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    return edges[::2].copy(), edges[1::2].copy()


class Chunk:
    """Some texts as code points, in lower case, each character of white space a space.

    Attributes:
        codes: the characters; there is a space before and after each text.
        words: the spans of the words.
        pieces: the spans of the pieces, which white space divides.
        word_texts: (N + 1,) the first word of each text.
        piece_texts: (N + 1,) the first piece of each text.
    """

    def __init__(self, texts: Sequence[str], reading: Reading) -> None:
        joined = "\n".join(["", *texts, ""])
        if joined.count("\n") > len(texts) + 1:  # elsewhere a line break is a space like others
            joined = "\n".join(["", *(text.replace("\n", " ") for text in texts), ""])
        joined = joined.lower()
        if reading.strip_accents and not joined.isascii():
            joined = unicodedata.normalize("NFKD", joined)
        codes = code_points(joined)
        kinds = kinds_of(codes)
        if reading.strip_accents and (combining := kinds & IS_COMBINING).any():
            codes, kinds = codes[combining == 0], kinds[combining == 0]
        ends = np.flatnonzero(codes == LINE)
        spaces = (kinds & IS_SPACE) != 0
        self.words = spans_of((kinds & IS_WORD) != 0)
        self.pieces = spans_of(~spaces)
        self.word_texts = np.searchsorted(self.words[0], ends)
        self.piece_texts = np.searchsorted(self.pieces[0], ends)
        codes[spaces] = SPACE
        self.codes = codes


def room_for_runs(spans: Spans, shortest: int, longest: int) -> Lists:
    """Return empty lists for the numbers of all runs within spans."""
    starts = np.maximum(spans[1] - spans[0] - (shortest - 1), 0)
    most = int(starts.sum()) * (longest - shortest + 1)
    return np.zeros(len(starts) + 1, dtype=np.int64), np.empty(most, dtype=np.int32)


class Numbers:
    """A hash table that is at most half full."""

    def __init__(self) -> None:
        self.keys = np.zeros(1 << 12, dtype=np.uint64)
        self.ids = np.zeros(1 << 12, dtype=np.int32)
        self.used = 0

    def reserve(self, more: int) -> None:
        """Make room for more entries."""
        from hierlearn.kernels.ngrams_numba import rehash

        size = len(self.keys)
        while self.used + more > size // 2:
            size *= 2
        if size > len(self.keys):
            old = self.keys, self.ids
            self.keys = np.zeros(size, dtype=np.uint64)
            self.ids = np.zeros(size, dtype=np.int32)
            rehash(*old, self.keys, self.ids)


class Names(Numbers):
    """Distinct strings, numbered in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = np.zeros(0, dtype=np.int32)  # their characters, one after another
        self.offsets = np.zeros(1, dtype=np.int64)

    def numbers(
        self, codes: NDArray[np.int32], spans: Spans, *, add: bool = True
    ) -> NDArray[np.int32]:
        """Return the numbers of strings, -1 for a new one unless they are added."""
        from hierlearn.kernels.ngrams_numba import number_names

        begins, ends = spans
        if add:
            self.reserve(len(begins))
            self.offsets = enlarged(self.offsets, self.used + len(begins) + 1)
            filled = int(self.offsets[self.used])
            self.arena = enlarged(self.arena, filled + int((ends - begins).sum()))
        found = np.empty(len(begins), dtype=np.int32)
        table = self.keys, self.ids, self.arena, self.offsets
        self.used = number_names(codes, begins, ends, *table, self.used, add, found)
        return found

    def strings(self, numbers: Ints) -> list[str]:
        """Return some of the strings, none of which holds a line break."""
        places, sizes = expand_ranges(self.offsets[: self.used + 1], numbers)
        codes = np.insert(self.arena[places], np.cumsum(sizes), LINE)
        return text_of(codes).split("\n")[:-1]


class Runs(Numbers):
    """Distinct runs of symbols, numbered in the order in which they came.

    A run begins with one that was numbered before it, unless it is a shortest one.
    """

    def __init__(self, shortest: int, longest: int) -> None:
        super().__init__()
        self.shortest, self.longest = shortest, longest

    def numbers(self, symbols: NDArray[np.int32], spans: Spans, mode: int) -> Lists:
        """Return the numbers of all runs within each span."""
        from hierlearn.kernels.ngrams_numba import number_runs

        begins, ends = spans
        offsets, found = room_for_runs(spans, self.shortest, self.longest)
        done = 0
        while True:
            done, self.used = number_runs(
                symbols,
                begins,
                ends,
                done,
                self.shortest,
                self.longest,
                self.keys,
                self.ids,
                self.used,
                len(self.keys) // 2,
                mode,
                offsets,
                found,
            )
            if done == len(begins):
                return offsets, found[: offsets[-1]]
            more = int(ends[done] - begins[done]) * (self.longest - self.shortest + 1)
            self.reserve(more)

    def symbols(self, numbers: Ints) -> NDArray[np.int64]:
        """Return (runs, longest) the symbols of some runs, -1 after the last."""
        keys = np.zeros(self.used, dtype=np.uint64)
        keys[self.ids[self.keys != 0]] = self.keys[self.keys != 0]
        found = np.full((len(numbers), self.longest), -1, dtype=np.int64)
        key = keys[numbers]
        above = []  # the last symbols of the runs that have more than the shortest, last one first
        while (longer := key < np.uint64(1 << 63)).any():
            symbol = (key & np.uint64(0xFFFFFFFF)).astype(np.int64)
            above.append(np.where(longer, symbol, -1))
            parent = (key >> np.uint64(32)).astype(np.int64) - 1
            key = np.where(longer, keys[np.where(longer, parent, 0)], key)
        width = 21 if self.shortest > 1 else 31
        for place in range(self.shortest):
            found[:, place] = key >> np.uint64(width * place) & np.uint64((1 << width) - 1)
        for count, last in enumerate(above, 1):  # those with as many symbols more
            longer = last >= 0
            # What was there moves on by one place: symbols come last one first.
            begin = self.shortest
            found[longer, begin + 1 : begin + count] = found[longer, begin : begin + count - 1]
            found[longer, begin] = last[longer]
        return found


def enlarged(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return an array of at least a size, twice as long or more where it must grow."""
    if size <= len(array):
        return array
    found = np.zeros(max(size, 2 * len(array)), dtype=array.dtype)
    found[: len(array)] = array
    return found


def text_of(codes: NDArray[np.int32]) -> str:
    """Return code points as a text."""
    return codes.astype("<i4").tobytes().decode("utf-32-le", "surrogatepass")


def distinct_pieces(chunk: Chunk) -> tuple[NDArray[np.int32], Spans]:
    """Return the numbers of pieces, and the first span of each, with the spaces around it."""
    numbers = Names().numbers(chunk.codes, chunk.pieces)
    before = np.concatenate([[-1], np.maximum.accumulate(numbers)[:-1]]) if len(numbers) else -1
    first = np.flatnonzero(numbers > before)
    begins, ends = chunk.pieces
    return numbers, (begins[first] - 1, ends[first] + 1)


class CompiledCounter:
    """Counts as ``PlainCounter`` does, by kernels: words on one thread, characters on another."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.words = Names()
        self.runs = [Runs(*limits) for limits in runs_of(reading)]
        self.counts = [np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)]

    def add(self, texts: Sequence[str]) -> None:
        chunk = Chunk(texts, self.reading)

        def words() -> None:
            symbols = self.words.numbers(chunk.codes, chunk.words)
            spans = chunk.word_texts[:-1].copy(), chunk.word_texts[1:].copy()
            lists = self.runs[0].numbers(symbols, spans, ADD)
            self._count(0, np.arange(len(texts) + 1), np.arange(len(texts), dtype=np.int32), lists)

        def characters() -> None:
            pieces, spans = distinct_pieces(chunk)
            lists = self.runs[1].numbers(chunk.codes, spans, ADD)
            self._count(1, chunk.piece_texts, pieces, lists)

        with ThreadPoolExecutor(1) as other:
            running = other.submit(words)
            if self.reading.char_ngrams:
                characters()
            running.result()

    def _count(self, block: int, texts: Ints, pieces: NDArray[np.int32], lists: Lists) -> None:
        from hierlearn.kernels.ngrams_numba import count_texts

        used = self.runs[block].used
        self.counts[block] = enlarged(self.counts[block], used)
        seen = np.full(used, -1, dtype=np.int32)
        count_texts(texts, pieces, *lists, seen, self.counts[block])

    def kept(self, limits: Sequence[int]) -> list[tuple[str, Ints]]:
        return [self._kept(block, limit) for block, limit in enumerate(limits)]

    def _kept(self, block: int, limit: int) -> tuple[str, Ints]:
        """Return the runs that occur in enough texts, sorted as strings, and in how many."""
        numbers = np.flatnonzero(self.counts[block] >= limit)
        if not len(numbers):
            return "", numbers
        symbols = self.runs[block].symbols(numbers)
        inside = symbols >= 0
        distinct, places = np.unique(symbols[inside], return_inverse=True)
        strings = list(map(chr, distinct)) if block else self.words.strings(distinct)
        order = np.array(sorted(range(len(strings)), key=strings.__getitem__))
        rank = np.empty(len(order), dtype=np.uint64)
        rank[order] = np.arange(1, len(order) + 1)
        # As many symbols as fit into a number are compared at a time; 0 comes after a run's end.
        # That a space sorts before all letters makes runs of words sort as their strings do.
        width = self.runs[block].longest
        ranks = np.zeros((len(symbols), width), dtype=np.uint64)
        ranks[inside] = rank[places]
        bits = len(order).bit_length()
        per = 64 // bits
        keys = []
        for begin in range(0, width, per):
            key = np.zeros(len(ranks), dtype=np.uint64)
            for place in range(begin, min(begin + per, width)):
                key = key << np.uint64(bits) | ranks[:, place]
            keys.append(key)
        rows = np.lexsort(keys[::-1])
        # Written one after another, with a line break as the last symbol of each.
        gap = "" if block else " "
        parts = [strings[one] + gap for one in order.tolist()] + ["\n"]
        offsets = np.cumsum([0, *map(len, parts)])
        lines = np.zeros((len(rows), width + 1), dtype=np.int64)
        lines[:, :-1] = ranks[rows]
        lines[np.arange(len(rows)), inside.sum(axis=1)[rows]] = len(parts)
        which, _ = expand_ranges(offsets, lines[lines > 0] - 1)
        text = text_of(code_points("".join(parts))[which])
        text = text if block else text.replace(" \n", "\n")
        return text[:-1], self.counts[block][numbers[rows]].astype(np.int64)


class CompiledVocabulary:
    """The columns of n-grams in the tables of kernels."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.words = Names()
        self.runs = [Runs(*limits) for limits in runs_of(vocabulary.reading)]
        self.columns = []  # of each run its column, -1 for none
        for block, runs in enumerate(self.runs):
            codes = symbols = code_points(f"\n{vocabulary.joined[block]}\n")
            begins, ends = spans_of(codes != LINE)
            if block == 0:
                words = spans_of((codes != LINE) & (codes != SPACE))
                symbols = self.words.numbers(codes, words)
                begins, ends = (np.searchsorted(words[0], one) for one in (begins, ends))
            sizes = ends - begins
            usable = np.flatnonzero((sizes >= runs.shortest) & (sizes <= runs.longest))
            offsets, found = runs.numbers(symbols, (begins[usable], ends[usable]), WHOLE)
            columns = np.full(runs.used, -1, dtype=np.int32)
            columns[found[offsets[1:] - 1]] = usable + vocabulary.sizes[0] * block
            self.columns.append(columns)

    def lists(self, block: int, chunk: Chunk, spans: Spans) -> Lists:
        """Return the columns of the runs within spans of words (0), or characters (1)."""
        codes = chunk.codes
        symbols = codes if block else self.words.numbers(codes, chunk.words, add=False)
        offsets, found = self.runs[block].numbers(symbols, spans, LOOK_UP)
        return offsets, self.columns[block][found]


def compiled_rows(
    texts: Sequence[str],
    reading: Reading,
    columns: int,
    lists_of: Callable[[int, Chunk, Spans], Lists],
) -> Occurrences:
    """Count the columns of texts, as ``plain_rows`` does.

    Args:
        texts: the texts.
        reading: what is read of them.
        columns: how many columns there are.
        lists_of: returns the columns of the runs within spans of words (0), or characters (1);
            negative for none.
    """
    from hierlearn.kernels.ngrams_numba import count_columns

    chunk, count = Chunk(texts, reading), len(texts)
    words = chunk.word_texts
    offsets, numbers = lists_of(0, chunk, (words[:-1].copy(), words[1:].copy()))
    text_lists, pieces = np.arange(count + 1), np.arange(count, dtype=np.int32)
    if reading.char_ngrams:
        # A text is the list of its words, followed by those of its pieces.
        own, spans = distinct_pieces(chunk)
        more = lists_of(1, chunk, spans)
        pieces = np.insert(own + np.int32(count), chunk.piece_texts[:-1], pieces)
        text_lists = text_lists + chunk.piece_texts
        offsets = np.concatenate([offsets, offsets[-1] + more[0][1:]])
        numbers = np.concatenate([numbers, more[1]])
    most = int(np.diff(offsets)[pieces].sum())
    indptr = np.zeros(count + 1, dtype=np.int32)
    indices, counts = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.float32)
    held = np.zeros(columns, dtype=np.int32), np.zeros(columns // 64 + 1, dtype=np.uint64)
    count_columns(text_lists, pieces, offsets, numbers, *held, indptr, indices, counts)
    return Occurrences(indptr, indices[: indptr[-1]].copy(), counts[: indptr[-1]].copy())
