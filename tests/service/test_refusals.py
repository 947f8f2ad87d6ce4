"""Bad input is refused with one sentence, and never with a 500."""

import json
import re
import select
import socket
import time
from contextlib import ExitStack, suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hierlearn.service.app import LARGE, Door, PredictBody, count_brackets, parse_body
from hierlearn.service.batching import Refusal
from service.client import SECONDS, TOKEN, Running

ROW = {"a": 1, "b": 2.0, "kind": "x", "note": "purrs", "day": "2024-01-11"}


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):
    words = ["--max-rows", "50", "--max-body", "1", "--timeout", "200", "--missing", "error"]
    found = Running(models / "table", *words, cwd=tmp_path_factory.mktemp("server"))
    yield found
    found.end()


@pytest.fixture(scope="module")
def hasty(models, tmp_path_factory):
    words = ("--timeout", "2", "--max-connections", "30", "--allow-host", "Model.Example.")
    found = Running(models / "table", *words, cwd=tmp_path_factory.mktemp("hasty"))
    yield found
    found.end()


@pytest.fixture(scope="module")
def numbers(models, tmp_path_factory):
    found = Running(models / "numbers", "--max-rows", "50", cwd=tmp_path_factory.mktemp("numbers"))
    yield found
    found.end()


def given_row(**cells):
    return {"rows": [ROW, {**ROW, **cells}]}


PLACE = "row 1 (counted from 0), column "
BAD = {
    "not UTF-8": (
        b'{"rows": ["\xff"]}',
        400,
        "not JSON in UTF-8: invalid unicode code point at line 1 column 1",
    ),
    "no JSON": (b"{rows}", 400, "not JSON"),
    "nothing": (b"", 400, "not JSON"),
    "NaN": (b'{"rows": [{"a": NaN}]}', 400, "give null where a number is missing"),
    "nested": (b"[" * 50_000, 400, "recursion limit exceeded"),
    "nested deeply": (b'{"rows": ' + b"[" * 100_000, 413, "more lists and objects than rows may"),
    "long": (b"[" * 100_000, 413, "more lists and objects than rows may"),
    "digits": (b'{"rows": [[' + b"9" * 10_000 + b"]]}", 400, "not JSON"),
    "half a character": (b'{"rows": [{"note": "\\ud800"}]}', 400, "surrogate"),
    "a list": (b"[]", 422, 'an object such as {"rows": [...]}, not list of 0 entries'),
    "no rows": ({}, 422, "rows are missing"),
    "rows: null": ({"rows": None}, 422, "rows must be a list of objects with 5 columns"),
    "empty": ({"rows": []}, 422, "rows is empty"),
    "texts": ({"rows": ["a"]}, 422, "row 0 (counted from 0) is 'a'; give objects with 5 columns"),
    "mixed": ({"rows": [ROW, 3]}, 422, "row 1 (counted from 0) is 3"),
    "a column less": (
        {"rows": [ROW, {"a": 1}]},
        422,
        "lacks 4 columns: 'b', 'kind', 'note', 'day'",
    ),
    "no number": (given_row(a="x1"), 422, f"{PLACE}'a': 'x1' is not a finite number"),
    "boolean": (given_row(a=True), 422, f"{PLACE}'a': True is not a finite number"),
    "list": (given_row(a=[1]), 422, f"{PLACE}'a': list of 1 entry is not a finite number"),
    "infinite": (
        b'{"rows": [' + json.dumps(ROW).replace("1", "1e999", 1).encode() + b"]}",
        422,
        "inf",
    ),
    "large": (given_row(a=1e200), 422, "does not fit into float32"),
    "larger": (given_row(a=10**400), 422, "is not a finite number"),
    "missing": (given_row(a=None), 422, f"{PLACE}'a': the value is missing, but none was in"),
    "object": (given_row(kind={}), 422, f"{PLACE}'kind': a dict is no value of a column"),
    "no date": (given_row(day="soon"), 422, f"{PLACE}'day': 'soon' is not a date of the form"),
    "top": ({**given_row(), "top": 0}, 422, "top must be an integer of at least 1, not 0"),
    "much": ({**given_row(), "top": 6}, 422, "top must be at most 5"),
    "levels": ({**given_row(), "by_level": 1}, 422, "by_level must be true or false"),
    "field": ({**given_row(), "tops": 1}, 422, "unknown field 'tops'; did you mean 'top'?"),
    "decoder": ({**given_row(), "decoder": "x"}, 422, "unknown decoder 'x'"),
    "number": ({**given_row(), "decoder": 7}, 422, "decoder must be a name"),
    "threshold": ({**given_row(), "decoder": "stop", "threshold": 7}, 422, "threshold"),
    "text": ({**given_row(), "threshold": "7"}, 422, "threshold must be a number"),
    "rows": ({"rows": [ROW] * 51}, 413, "51 rows; send at most 50 at once"),
    "bytes": (b" " * (1 << 20) + b"{}", 413, "more than 1,048,576 bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_refusal_names_what_is_wrong(server, name):
    body, code, sentence = BAD[name]
    got, found = server.post("/predict", body)
    assert got == code, found
    assert sentence in found["error"]
    assert "\n" not in found["error"]
    assert len(found["error"]) < 700


def test_vectors_of_another_width(numbers):
    assert len(numbers.predict([[1, 2], [3.5, 1]])) == 2
    assert numbers.predict([[1, 2]]) == numbers.predict([{"a": 1, "b": 2}])
    code, found = numbers.post("/predict", {"rows": [[1, 2], [1, 2, 3]]})
    assert (code, found["error"]) == (
        422,
        "row 1 (counted from 0) has 3 numbers, but the model reads 2",
    )
    code, found = numbers.post("/explain", {"rows": [[1, 2]], "count": 1000})
    assert (code, found["error"]) == (422, "count must be at most 100, not 1000")


def test_the_wrong_method_or_path(server):
    assert server.get("/predict")[0] == 405
    assert server.get("/nothing")[0] == 404
    assert server.post("/docs", {})[0] == 405


def test_remember_needs_the_token(server, models, started):
    for token in ("", "wrong", f"{TOKEN}x", "é"):
        code, found = server.post("/remember", {}, Authorization=f"Bearer {token}".encode("latin1"))
        assert code == 401
        assert "Authorization: Bearer TOKEN" in found["error"]
    assert server.post("/remember", {}, Authorization=f"Basic {TOKEN}")[0] == 401
    code, found = server.remember([ROW], ["plant/oak"])
    assert code == 422
    assert "this model has no memory" in found["error"]
    closed = started(models / "numbers", token=None)
    code, found = closed.remember([[1, 2]], ["plant/oak"])
    assert code == 403
    assert "started without a token" in found["error"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
CELLS = st.fixed_dictionaries(dict.fromkeys(ROW, JSON))
ROWS = st.lists(CELLS | JSON | st.just(ROW), max_size=4)
BODIES = st.fixed_dictionaries(
    {"rows": ROWS | JSON},
    optional={
        "top": JSON,
        "by_level": JSON,
        "decoder": JSON | st.sampled_from(["stop", "leaf", "coherent", "top-down"]),
        "threshold": JSON | st.floats(0, 1),
        "count": JSON,
        "labels": JSON | st.lists(st.text(max_size=5) | JSON, max_size=4),
        "ids": JSON,
        "x": JSON,
    },
)
quick = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@quick
@given(BODIES | JSON, st.sampled_from(["/predict", "/explain", "/remember"]))
@example({"rows": [{**ROW, "note": "\x00"}]}, "/predict")
@example({"rows": [{**ROW, "kind": 1e300}]}, "/predict")
@example({"rows": [ROW], "decoder": "stop", "threshold": float("nan")}, "/predict")
def test_no_body_is_answered_with_a_500(server, body, path):
    code, _ = server.post(path, body, Authorization=f"Bearer {TOKEN}")
    assert code in (200, 400, 422)


@quick
@given(
    st.lists(st.lists(JSON | st.floats(-9, 9), min_size=2, max_size=2) | JSON, max_size=3),
    st.lists(st.text(max_size=8) | st.lists(st.text(max_size=8), max_size=2), max_size=3),
    st.none() | st.lists(st.text(max_size=3), max_size=3),
)
@example([[1, 2]], ["animal/"], None)
@example([[1, 2]], ["/"], ["1"])
@example([[1, 2]], ["\x00"], None)
@example([[1, 2]], [[]], None)
def test_no_labels_are_answered_with_a_500(numbers, rows, labels, ids):
    code, _ = numbers.remember(rows, labels, ids=ids)
    assert code in (200, 400, 422)
    assert len(numbers.predict([[1, 2]])) == 1


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_are_answered_with_a_500(server, body):
    assert server.post("/predict", body)[0] in (400, 422)


RAW = [
    b"\x00\xff\x16\x03\x01" * 40,
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
    b"POST /no HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    b"POST /predict HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"POST /predict HTTP/1.1\r\n" + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
    b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{",  # and then nothing
    b"GET /%ff%fe\x80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
]


@pytest.mark.parametrize("content", RAW, ids=range(len(RAW)))
def test_what_is_not_http_leaves_the_server_alive(server, content):
    with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as raw:
        try:
            raw.sendall(content)
            if content.endswith(b"{"):
                raw.shutdown(socket.SHUT_WR)
            answer = raw.recv(100)
        except ConnectionError:
            answer = b""
    assert not answer.startswith(b"HTTP/1.1 5")
    assert server.get("/health")[0] == 200


def test_a_body_that_does_not_arrive_is_given_up(hasty):
    with hasty.begun() as raw:
        assert raw.recv(1000).startswith(b"HTTP/1.1 408")
    assert hasty.get("/health")[0] == 200


# ---------------------------------------------------------------------- who is let in


@pytest.mark.parametrize("code", [400, 421, 200])
def test_only_hosts_that_the_server_goes_by_are_answered(hasty, code):
    hosts = {
        200: ["localhost", "LOCALHOST:8000", "127.0.0.1", "[::1]:8", "model.example:80"],
        400: ["", "a b", "[::1", "a/b", "localhost:port", "a\tb", "ü"],
        421: ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", "[::2]"],
    }
    for host in hosts[code]:
        value = f"host: {host}\r\n".encode("latin1")
        for path in (b"/health", b"/docs", b"/nothing"):
            with hasty.raw(b"GET " + path + b" HTTP/1.1\r\n" + value + b"\r\n") as raw:
                got = int(raw.recv(1000).split()[1])
            assert got == (404 if code == 200 and path == b"/nothing" else code), (host, path)
    if code == 421:
        _, found = hasty.post("/explain", {"rows": [ROW]}, host="evil.example")
        assert found["error"].endswith("--allow-host evil.example")
    with hasty.raw(b"GET /health HTTP/1.0\r\n\r\n") as raw:
        assert b" 400 " in raw.recv(1000)


def test_the_names_of_a_host():
    known = Door(None, ("0.0.0.0", "Example.org.", "[FE80::1]"))
    assert known.answers("example.org", None)
    assert known.answers("fe80::1", None)
    assert known.answers("192.0.2.7", ("192.0.2.7", 80))  # the address that a connection came to
    assert not known.answers("192.0.2.7", ("192.0.2.8", 80))
    assert not known.answers("evil.example", ("192.0.2.7", 80))
    assert Door(None, ("*",)).answers("evil.example", None)


SILENT = [b"", b"GET /health HTTP/1.1\r\nhost: local", b"POST /predict HTTP/1.1\r\n"]


def test_connections_that_say_nothing_keep_nobody_out(hasty):
    """More of them than the server may have; whoever says something is answered meanwhile."""
    with ExitStack() as stack:
        held = [stack.enter_context(hasty.raw(SILENT[n % 3])) for n in range(90)]
        for _ in range(3):
            code, _, answer = hasty.get("/health")
            assert (code, answer) == (200, {"status": "alive"})
            assert len(hasty.predict([ROW])) == 1
        for one in held:  # the first made room, the last are closed when their time is over
            with suppress(ConnectionError):
                assert one.recv(10) == b""


def test_a_connection_that_is_idle_is_closed(hasty):
    answers = []
    with hasty.raw(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n") as raw:
        while part := raw.recv(1000):  # ends where the server closes
            answers.append(part)
    assert b"".join(answers).count(b"HTTP/1.1 200") == 1
    with hasty.raw(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n") as raw:
        answer = b""
        while not answer.endswith(b"}"):
            answer += raw.recv(1000)
        with suppress(ConnectionError):  # a header that arrives byte by byte is none
            while not select.select([raw], [], [], 0.2)[0]:
                raw.sendall(b"G")
            assert raw.recv(100) == b""


# ---------------------------------------------------------------------- large bodies


def test_a_body_that_is_too_large_is_told_so(server):
    """Not reset, also where the client sends all of it before it looks for an answer."""
    rows = b'{"rows": [' + b" " * (40 << 20) + b"]}"
    for path, code in (("/predict", 413), ("/explain", 413), ("/remember", 401), ("/no", 404)):
        for headers in ({}, {"Connection": "close"}, {"Connection": "close"}):
            got, found = server.post(path, rows, **headers)
            assert got == code
            assert "error" in found
    connection = server.connect()
    connection.putrequest("POST", "/predict")
    connection.putheader("transfer-encoding", "chunked")
    connection.endheaders()
    for _ in range(40):
        connection.send(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
    connection.send(b"0\r\n\r\n")
    assert connection.getresponse().status == 413
    connection.close()


def test_one_that_asks_first_is_told_before_it_sends(server):
    with server.raw(
        b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n"
        b"expect: 100-continue\r\n\r\n"
    ) as raw:
        assert raw.recv(100).startswith(b"HTTP/1.1 413")


MANY = {
    "rows": b'{"rows": [' + b"[]," * 300_000 + b"[]]}",
    "a row": b'{"rows": [[' + b"[]," * 300_000 + b"[]]]}",
    "an object": b'{"rows": [{"a": [' + b"{}," * 300_000 + b"{}]}]}",
    "another field": b'{"rows": [], "top": [' + b"[]," * 300_000 + b"[]]}",
}


@pytest.mark.parametrize("name", MANY)
def test_what_has_too_many_lists_and_objects_is_not_read(name, monkeypatch):
    monkeypatch.setattr("hierlearn.service.app.from_json", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(Refusal) as caught:
        parse_body(MANY[name], PredictBody, 50)
    assert caught.value.code == 413
    assert "at most 50 rows at once" in caught.value.message


def test_brackets_in_texts_are_no_lists():
    rows = [["[{" * 40_000], ['"[\\" [' * 40_000]]
    body = json.dumps({"rows": rows}).encode()
    assert len(body) > LARGE
    assert parse_body(body, PredictBody, 50).rows == rows


def test_numbers_are_read_exactly():
    numbers = np.random.default_rng(0).normal(size=20_000) * 10.0 ** np.arange(-300, 300, 0.03)
    body = json.dumps({"rows": [numbers.tolist(), [1, -0.0, 10**30]]}).encode()
    assert repr(parse_body(body, PredictBody, 50).rows) == repr(json.loads(body)["rows"])


def test_a_large_body_does_not_hold_up_others(server):
    """It is read in a thread of its own, by a fast parser."""
    many = [{**ROW, "note": "purrs " * 3000}] * 50
    assert len(server.predict(many)) == 50


def test_strings_that_do_not_end_are_counted_in_linear_time():
    """In the largest body that may be sent; a regular expression would take days."""
    body = b'{"rows": [' + b"[" * 2000 + b'"' + rb"\"" * (8 << 20)
    begin = time.process_time()
    with pytest.raises(Refusal) as caught:
        parse_body(body, PredictBody, 50)
    assert caught.value.code == 413
    assert time.process_time() - begin < 5


STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


@given(JSON)
def test_brackets_of_strings_do_not_count(value):
    text = json.dumps(value).encode()
    plain = STRINGS.sub(b"", text)
    assert count_brackets(text) == plain.count(b"[") + plain.count(b"{")
