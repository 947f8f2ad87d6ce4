"""Mutations as hypothesis draws them: of bytes, and of values as JSON holds them.

What is drawn are plain tuples of integers, so that hypothesis can shrink them: to few edits, at the
beginning, of the first kinds below. ``apply_edits`` and ``edit_value`` carry them out.
"""

import copy
import json

from hypothesis import strategies as st

TOKENS = [
    *(
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xc3",
        b"\r",
        b"\n\n",
        b'"',
        b"'",
        b'""',
        b"\\",
        b"\t",
    ),
    *(b",", b";", b"|", b"/", b"//", b"@", b"?", b"{", b"}", b"[", b"]", b"<", b":", b"#", b"%"),
    *(b"nan", b"inf", b"-inf", b"1e400", b"-0", b"1_000", b"0x10", b"9" * 5000, b"true", b"null"),
    *(b"!!python/object:os.system", b"&a", b"*a", b"<<: *a", b"!!int x", b"2020-13-45", b"1:30:00"),
    *(b"a" * 20_000, "\u202e\x1b[31m".encode(), "\ud7ff\u0000".encode(), "²".encode(), b"{" * 3000),
    *(
        b"../../etc/passwd",
        b"/dev/zero",
        b"[Term]\nid: x\nis_a: x\n",
        b"@data\n",
        b"@attribute a {",
    ),
]
VALUES = [
    *(None, True, False, 0, -1, 1, 2, 3.5, -1e308, 1e308, 2**31, 2**63, 2**64, -(2**63), 10**30),
    *("", "a", "a/b", "..", "/dev/zero", "a" * 10_000, "\0", "\x1b[31m", "mlp", "os:system", "1"),
    *([], [[]], [None], [1, "a"], {}, {"a": 1}, {"name": "x"}, [[[[[]]]]], float("inf")),
    *(list(range(100)), {"depth": 10**6}, {"width": 10**9}, [-1], ["model.safetensors"]),
]
NAMES = ["", "a", "name", "x" * 5000, "\0"]
LENGTHS = (1, 1, 2, 8, 64, 1000)
SPAN = 1 << 16  # places are drawn as parts of this one, whatever the length of the file

places = st.integers(0, SPAN - 1)
byte_edits = st.tuples(st.integers(0, 7), places, st.sampled_from(LENGTHS), places)
several_byte_edits = st.lists(byte_edits, min_size=1, max_size=4)
paths = st.lists(st.integers(0, 999), min_size=1, max_size=6)
value_edits = st.tuples(st.integers(0, 5), paths, places, byte_edits)
several_value_edits = st.lists(value_edits, min_size=1, max_size=3)


def at(place, count):
    """Return one of the numbers below ``count``."""
    return place * count // SPAN


def apply_edits(content, edits):
    """Return content with a few bits, bytes, slices or tokens changed."""
    content = bytearray(content)
    for how, drawn, length, more in edits:
        place = at(drawn, len(content) + 1)
        end = min(len(content), place + length)
        if how == 0:
            content[place:place] = TOKENS[at(more, len(TOKENS))]
        elif how == 1:
            del content[place:end]
        elif how == 2:
            del content[place:]
        elif how == 3:
            content[place:place] = content[place:end] * (1, 2, 50)[more % 3]
        elif how == 4:
            other = at(more, len(content) + 1)
            content[place:end] = content[other : other + end - place]
        elif place == len(content):
            content.append(more % 256)
        elif how == 5:
            content[place] = more % 256
        else:
            content[place] ^= 1 << (more % 8)
    return bytes(content)


def edit_value(value, edits):
    """Return a JSON value with a few entries replaced, removed, repeated or added."""
    value = copy.deepcopy(value)
    for how, path, more, byte_edit in edits:
        holder, key, found = None, None, value
        for step in path:
            if not isinstance(found, (dict, list)) or not found:
                break
            holder = found
            key = list(found)[step % len(found)] if isinstance(found, dict) else step % len(found)
            found = found[key]
        odd = copy.deepcopy(VALUES[at(more, len(VALUES))])
        if holder is None:
            return odd
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(found))
        elif how == 1:
            holder[NAMES[at(more, len(NAMES))]] = copy.deepcopy(found)
        elif how == 2 and isinstance(found, (int, float)) and not isinstance(found, bool):
            changed = (-found, found + 1, found * 10**9, found / 3, str(found))
            holder[key] = changed[at(more, len(changed))]
        elif how == 2 and isinstance(found, str):
            holder[key] = apply_edits(found.encode(), [byte_edit]).decode(errors="replace")
        else:
            holder[key] = odd
    return value


def edit_json(content, edits):
    """Return the bytes of a JSON text with its value edited."""
    return json.dumps(edit_value(json.loads(content), edits)).encode()
