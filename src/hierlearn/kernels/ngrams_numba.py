"""N-grams, compiled: strings and runs of symbols get numbers, and their numbers are counted.

Two hash tables with linear probing; an empty slot has key 0.

    names    the key is a 64-bit hash of a string. Two strings may share one, so a match counts
             only if the characters at the place of its number are the same.
    runs     a trie. A run of ``shortest`` symbols has them in its key, and a longer one has the
             number of the run without its last symbol, and that symbol: keys are exact.

Characters are code points, and words the numbers of a table of names. A *span* is what lies from
``begins[k]`` up to ``ends[k]``; all arrays are contiguous and writable, so that each kernel is
compiled for one type of arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hierlearn.kernels.tree_numba import kernel, part

U = np.uint64
ONE = U(1)
FIRST = U(1 << 63)  # in the keys of the shortest runs
ODD, SECOND = U(0xFF51AFD7ED558CCD), U(0xC4CEB9FE1A85EC53)
HALF = U(33)
CHARACTER = U(21)  # bits of a code point
PARENT = U(32)  # bits of a symbol in the key of a longer run
# The place of the only bit of a number, by the top six bits of its product with this constant.
DE_BRUIJN = U(0x03F79D71B4CB0A89)
PLACES = np.zeros(64, dtype=np.int64)
for _place in range(64):
    PLACES[((1 << _place) * 0x03F79D71B4CB0A89 >> 58) & 63] = _place


@part()
def mixed(key: Any) -> Any:
    """Return a number all of whose bits depend on all bits of the key."""
    key = (key ^ (key >> HALF)) * ODD
    key = (key ^ (key >> HALF)) * SECOND
    return key ^ (key >> HALF)


@kernel
def rehash(keys: Any, ids: Any, new_keys: Any, new_ids: Any) -> None:
    """Put all entries into a larger table; sizes are powers of 2."""
    last = U(len(new_keys) - 1)
    for old in range(len(keys)):
        if keys[old] != U(0):
            slot = mixed(keys[old]) & last
            while new_keys[slot] != U(0):
                slot = (slot + ONE) & last
            new_keys[slot], new_ids[slot] = keys[old], ids[old]


@kernel
def number_names(
    codes: Any,
    begins: Any,
    ends: Any,
    keys: Any,
    ids: Any,
    arena: Any,
    offsets: Any,
    used: int,
    add: bool,
    found: Any,
) -> int:
    """Write the number of each span of characters, -1 if it is new and none are added.

    Args:
        codes: the characters.
        begins: where the spans begin.
        ends: where they end.
        keys: (S,) of the table.
        ids: (S,) of the table.
        arena: the characters of all names, one after another.
        offsets: where each name begins in ``arena``.
        used: how many names there are.
        add: whether a new name gets a number; there must be room for all.
        found: (spans,) the numbers.

    Returns:
        How many names there are now.
    """
    last = U(len(keys) - 1)
    for k in range(len(begins)):
        begin, size = begins[k], ends[k] - begins[k]
        key = U(size)
        for place in range(begin, begin + size):
            key = (key ^ U(codes[place])) * ODD
            key ^= key >> HALF
        if key == U(0):
            key = ONE
        slot = mixed(key) & last
        number = -1
        while keys[slot] != U(0):
            if keys[slot] == key:
                one = ids[slot]
                start = offsets[one]
                same = offsets[one + 1] - start == size
                place = 0
                while same and place < size:
                    same = arena[start + place] == codes[begin + place]
                    place += 1
                if same:
                    number = one
                    break
            slot = (slot + ONE) & last
        if number < 0 and add:
            number = used
            keys[slot], ids[slot] = key, number
            start = offsets[used]
            for place in range(size):
                arena[start + place] = codes[begin + place]
            offsets[used + 1] = start + size
            used += 1
        found[k] = number
    return used


@kernel
def number_runs(
    symbols: Any,
    begins: Any,
    ends: Any,
    first: int,
    shortest: int,
    longest: int,
    keys: Any,
    ids: Any,
    used: int,
    room: int,
    mode: int,
    offsets: Any,
    found: Any,
) -> Any:
    """Write the numbers of the runs of symbols within spans; -1 is no symbol.

    Args:
        symbols: characters or words.
        begins: where the spans begin.
        ends: where they end.
        first: the span to go on with.
        shortest: how many symbols a run has at least: 3 characters, or 1 word.
        longest: how many it has at most.
        keys: (S,) of the trie.
        ids: (S,) of the trie.
        used: how many runs there are.
        room: how many there may be before the trie must grow.
        mode: 0 looks up, 1 adds new runs, 2 adds them and reads each span as one run.
        offsets: where the numbers of each span begin in ``found``.
        found: the numbers.

    Returns:
        The span to go on with once the trie has grown, and how many runs there are now.
    """
    last = U(len(keys) - 1)
    for k in range(first, len(begins)):
        begin, end, out = begins[k], ends[k], offsets[k]
        starts = end - begin - shortest + 1
        if mode and used + max(starts, 0) * (longest - shortest + 1) > room:
            return k, used
        for start in range(begin, begin + starts):
            key = FIRST
            known = True
            for place in range(start, start + shortest):
                known = known and symbols[place] >= 0
                key |= U(symbols[place]) << (CHARACTER * U(place - start))
            place = start + shortest
            while known:
                slot = mixed(key) & last
                while keys[slot] != U(0) and keys[slot] != key:
                    slot = (slot + ONE) & last
                if keys[slot] == U(0):
                    if mode == 0:
                        break
                    keys[slot], ids[slot] = key, used
                    used += 1
                found[out] = ids[slot]
                out += 1
                known = place < end and place < start + longest and symbols[place] >= 0
                if known:
                    key = (U(ids[slot]) + ONE) << PARENT | U(symbols[place])
                    place += 1
            if mode == 2:
                break
        offsets[k + 1] = out
    return len(begins), used


@kernel
def count_texts(texts: Any, lists: Any, offsets: Any, numbers: Any, seen: Any, counts: Any) -> None:
    """Count in how many texts each number occurs.

    Args:
        texts: (N + 1,) where the lists of each text begin in ``lists``.
        lists: which lists of numbers the texts are made of.
        offsets: where each list begins in ``numbers``.
        numbers: the numbers.
        seen: (numbers,) -1 everywhere.
        counts: (numbers,) what is added to.
    """
    for row in range(len(texts) - 1):
        for token in range(texts[row], texts[row + 1]):
            one = lists[token]
            for place in range(offsets[one], offsets[one + 1]):
                number = numbers[place]
                if seen[number] != row:
                    seen[number] = row
                    counts[number] += 1


@kernel
def count_columns(
    texts: Any,
    lists: Any,
    offsets: Any,
    numbers: Any,
    counts: Any,
    marks: Any,
    indptr: Any,
    indices: Any,
    data: Any,
) -> None:
    """Write how often each column occurs in each text, as CSR rows with sorted indices.

    Columns that occur are marked by bits, 64 to a number, whose marks are marked in turn: reading
    the marks in order sorts the columns.

    Args:
        texts: (N + 1,) where the lists of each text begin in ``lists``.
        lists: which lists of numbers the texts are made of.
        offsets: where each list begins in ``numbers``.
        numbers: the columns; negative for no column.
        counts: (columns,) zeros, and zeros again at the end.
        marks: (columns / 64 + 1,) zeros, as above.
        indptr: (N + 1,) of the result, like the two below.
        indices: room for all numbers of all texts.
        data: the same.
    """
    above = np.zeros(len(marks) // 64 + 1, dtype=np.uint64)
    out = 0
    for row in range(len(texts) - 1):
        lowest, highest = len(above), -1
        for token in range(texts[row], texts[row + 1]):
            one = lists[token]
            for place in range(offsets[one], offsets[one + 1]):
                column = numbers[place]
                if column < 0:
                    continue
                block = column >> 6
                counts[column] += 1
                marks[block] |= ONE << U(column & 63)
                top = block >> 6
                above[top] |= ONE << U(block & 63)
                lowest, highest = min(lowest, top), max(highest, top)
        for top in range(lowest, highest + 1):
            while above[top] != U(0):
                bit = above[top] & (~above[top] + ONE)
                above[top] ^= bit
                block = (top << 6) + PLACES[(bit * DE_BRUIJN) >> U(58)]
                while marks[block] != U(0):
                    bit = marks[block] & (~marks[block] + ONE)
                    marks[block] ^= bit
                    column = (block << 6) + PLACES[(bit * DE_BRUIJN) >> U(58)]
                    indices[out], data[out] = column, counts[column]
                    counts[column] = 0
                    out += 1
        indptr[row + 1] = out
