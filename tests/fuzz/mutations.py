"""Seeded mutations: of bytes, of text, and of values as JSON holds them."""

import copy
import json

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


def mutate_bytes(rng, content, most=6):
    """Return content with a few bits, bytes, slices or tokens changed."""
    content = bytearray(content)
    for _ in range(rng.randint(1, most)):
        place = rng.randrange(len(content) + 1)
        end = min(len(content), place + rng.choice([1, 1, 2, 8, 64, 1000]))
        how = rng.randrange(8)
        if how == 0 and place < len(content):
            content[place] ^= 1 << rng.randrange(8)
        elif how == 1 and place < len(content):
            content[place] = rng.randrange(256)
        elif how == 2:
            del content[place:end]
        elif how == 3:
            content[place:place] = content[place:end] * rng.choice([1, 2, 50])
        elif how == 4:
            del content[place:]
        elif how == 5:
            other = rng.randrange(len(content) + 1)
            content[place:end] = content[other : other + end - place]
        else:
            content[place:place] = rng.choice(TOKENS)
    return bytes(content)


def mutate_value(rng, value, most=3):
    """Return a JSON value with a few entries replaced, removed, repeated or added."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, most)):
        holder, key = None, None
        found = value
        while isinstance(found, (dict, list)) and found and (holder is None or rng.random() < 0.75):
            holder = found
            key = rng.choice(list(found)) if isinstance(found, dict) else rng.randrange(len(found))
            found = found[key]
        if holder is None:
            return copy.deepcopy(rng.choice(VALUES))
        how = rng.randrange(6)
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(found))
        elif how == 1:
            holder[rng.choice(["", "a", "name", "x" * 5000, "\0"])] = copy.deepcopy(found)
        elif how == 2 and isinstance(found, (int, float)) and not isinstance(found, bool):
            holder[key] = rng.choice([-found, found + 1, found * 10**9, found / 3, str(found)])
        elif how == 2 and isinstance(found, str):
            holder[key] = mutate_bytes(rng, found.encode(), 2).decode(errors="replace")
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return value


def mutate_json(rng, content):
    """Return the bytes of a JSON text, mutated as bytes or as a value."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, content)
    return json.dumps(mutate_value(rng, json.loads(content))).encode()
