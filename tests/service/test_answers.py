"""The answers of a server are those of hierlearn predict, however requests are joined."""

import csv
import html
import json
import re
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from hierlearn.cli import main
from hierlearn.pipeline import Pipeline
from hierlearn.pipeline.explain import explain, reasons
from service.client import Running
from service.conftest import write_rows
from tolerances import FLOAT32_SUMS

COLUMNS = ("a", "b", "kind", "note", "day")
NUMBERS = ("a", "b")


@pytest.fixture(scope="module")
def fresh(models, tmp_path_factory):
    """A table of new rows, and the same rows as JSON."""
    path = tmp_path_factory.mktemp("fresh") / "new.csv"
    write_rows(path, 60, seed=1)
    with path.open() as file:
        cells = list(csv.DictReader(file))
    rows = [
        {n: (float(row[n]) if row[n] else None) if n in NUMBERS else row[n] for n in COLUMNS}
        for row in cells
    ]
    return path, rows


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):
    found = Running(models / "table", "--max-batch", "32", cwd=tmp_path_factory.mktemp("server"))
    yield found
    found.end()


@pytest.fixture
def predicted(models, fresh, tmp_path, monkeypatch, capsys):
    """The rows of the file that hierlearn predict writes."""

    def run(*words, model="table"):
        out = tmp_path / "answers.csv"
        line = ["predict", str(models / model), str(fresh[0]), "--out", str(out), "--force", *words]
        monkeypatch.setattr(sys, "argv", ["hierlearn", *line])
        with pytest.raises(SystemExit) as caught:
            main()
        assert not caught.value.code, capsys.readouterr()
        with out.open() as file:
            return list(csv.DictReader(file))

    return run


def assert_same(answers, expected):
    assert len(answers) == len(expected)
    for found, wanted in zip(answers, expected, strict=True):
        wanted.pop("id", None)
        assert list(found) == list(wanted)
        for name, value in found.items():
            if isinstance(value, float):
                assert value == FLOAT32_SUMS.approx(float(wanted[name]))
            elif isinstance(value, bool):
                assert str(value) == wanted[name].capitalize()
            else:
                assert ("" if value is None else str(value)) == wanted[name]


OPTIONS = [
    ({}, ()),
    ({"top": 2}, ("--top", "2")),
    ({"by_level": True, "decoder": "stop"}, ("--by-level", "--decoder", "stop")),
    ({"decoder": "stop", "threshold": 0.99}, ("--decoder", "stop", "--threshold", "0.99")),
    ({"decoder": "argmax"}, ("--decoder", "argmax")),
]


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=lambda one: " ".join(map(str, one)))
def test_a_batch_is_answered_as_the_command_answers(server, fresh, predicted, options, words):
    assert_same(server.predict(fresh[1], **options), predicted(*words))


def test_single_rows_of_many_clients_are_joined_and_answered_alike(server, fresh, predicted):
    before = server.metric('hierlearn_batch_rows_count{queue="predict"}') or 0
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda row: server.predict([row])[0], fresh[1] * 3))
    assert_same(found, predicted() * 3)
    batches = server.metric('hierlearn_batch_rows_count{queue="predict"}') - before
    assert batches < len(fresh[1]) * 3


def test_requests_with_different_options_in_one_batch(server, fresh):
    rows = fresh[1][:12]
    options = [one for one, _ in OPTIONS] * 4
    alone = [server.predict(rows, **one) for one in options]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda one: server.predict(rows, **one), options))
    for some, others in zip(alone, together, strict=True):
        for one, other in zip(some, others, strict=True):
            assert list(one) == list(other)
            for name, value in one.items():
                close = isinstance(value, float)
                assert other[name] == (FLOAT32_SUMS.approx(value) if close else value)


def test_a_long_request_is_computed_in_parts_and_answered_in_order(server, fresh):
    rows = fresh[1] * 4  # 240 rows in batches of 32
    found = server.predict(rows)
    assert [one["path"] for one in found] == [one["path"] for one in server.predict(fresh[1])] * 4


def test_a_cell_that_only_a_new_row_lacks_is_imputed(server, fresh):
    whole = fresh[1][:2]
    (answer, other) = server.predict([{**whole[0], "day": None}, whole[1]])
    assert list(answer) == list(other)
    assert other == server.predict(whole)[1]


def test_the_row_of_an_error_in_a_long_request(server, fresh):
    rows = [*fresh[1], *fresh[1]]
    rows[101] = {**rows[101], "a": "many"}
    code, found = server.post("/predict", {"rows": rows})
    assert code == 422
    remedy = "'many' is not a finite number; give null if it is missing"
    assert found["error"] == f"row 101 (counted from 0), column 'a': {remedy}"


def test_a_bad_request_does_not_touch_those_it_was_joined_with(server, fresh):
    good, bad = fresh[1][:3], [{**fresh[1][0], "day": "yesterday"}]
    expected = [one["path"] for one in server.predict(good)]
    with ThreadPoolExecutor(16) as pool:
        found = list(
            pool.map(lambda rows: server.post("/predict", {"rows": rows}), [good, bad] * 40)
        )
    assert [code for code, _ in found] == [200, 422] * 40
    assert all([x["path"] for x in one["answers"]] == expected for _, one in found[::2])


def test_explain_shows_the_cells_that_an_answer_rests_on(server, models, fresh):
    code, found = server.post("/explain", {"rows": fresh[1][:20], "count": 2})
    assert code == 200
    pipeline = Pipeline.load(models / "table")
    from hierlearn.datasets.tables.stream import TableStream

    (chunk,) = TableStream(fresh[0], features=pipeline.preprocessor.kinds)
    expected = reasons(
        pipeline, chunk.inputs[:20], [one["path"] for one in found["answers"]], count=2
    )
    for one, own in zip(found["answers"], expected, strict=True):
        assert [x["part"] for x in one["parts"]] == [x.part for x in own]
        assert [x["effect"] for x in one["parts"]] == FLOAT32_SUMS.approx([x.effect for x in own])


def test_explain_shows_the_remembered_rows(models, fresh, started):
    server = started(models / "texts")
    rows = [row["note"] for row in fresh[1][:10]]
    code, found = server.post("/explain", {"rows": rows, "count": 2})
    assert code == 200
    expected = explain(Pipeline.load(models / "texts"), rows, 2)
    for one, own in zip(found["answers"], expected, strict=True):
        assert [(x["id"], x["labels"], x["text"]) for x in one["rows"]] == [
            (x.id, list(x.labels), x.text) for x in own
        ]
    objects = [{"note": text, "more": 1} for text in rows]  # other columns are ignored
    assert server.predict(objects) == server.predict(rows)


def test_openapi_describes_the_rows_of_this_model(server, fresh):
    code, _, found = server.get("/openapi.json")
    assert code == 200
    schema = found["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]
    body = schema["schema"]
    item = body["properties"]["rows"]["items"]
    assert item["required"] == list(COLUMNS)
    assert "number" in item["properties"]["a"]["type"]
    assert "YYYY-MM-DD" in item["properties"]["day"]["description"]
    answer = found["paths"]["/predict"]["post"]["responses"]["200"]["content"]["application/json"]
    properties = answer["schema"]["properties"]["answers"]["items"]["properties"]
    assert set(server.predict(fresh[1][:1], by_level=True)[0]) <= set(properties)
    for path in ("/predict", "/explain"):  # the example of the page is answered
        own = found["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert server.post(path, own["example"])[0] == 200
    assert {"/remember", "/model", "/hierarchy", "/health", "/ready", "/metrics"} <= {
        *found["paths"]
    }


def test_the_page_loads_nothing_from_elsewhere(server):
    code, headers, page = server.get("/docs")
    assert code == 200
    assert not re.search(r"https?://|//[\w.]+\.\w+/|@import|src=", page)
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "innerHTML" not in page  # names of classes and columns stay text


def test_the_first_page_says_how_to_ask(server, models):
    code, headers, page = server.get("/")
    assert code == 200
    assert headers["content-type"].startswith("text/html")
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["x-content-type-options"] == "nosniff"
    h = Pipeline.load(models / "table").hierarchy
    assert f"{len(h)} classes on {h.depth} levels" in page
    assert 'href="docs"' in page
    assert not re.search("<script|src=|@import", page)
    command = html.unescape(re.search("<pre>(.*)</pre>", page, re.DOTALL)[1])
    words = shlex.split(command)
    assert words[0] == "curl"
    assert words[-1] == f"http://127.0.0.1:{server.port}/predict"
    code, found = server.post("/predict", json.loads(words[words.index("-d") + 1]))
    assert code == 200
    assert len(found["answers"]) == 1


def test_what_the_model_is(server, models):
    _, _, found = server.get("/model")
    pipeline = Pipeline.load(models / "table")
    assert found["columns"] == pipeline.preprocessor.kinds
    assert found["fingerprint"] == pipeline.hierarchy.fingerprint
    _, _, classes = server.get("/hierarchy")
    assert [one["path"] for one in classes["classes"]] == list(pipeline.hierarchy.names)
    assert classes["classes"][-1]["parents"] == ["animal/dog"]
    assert json.dumps(classes)


LINE = re.compile(r'[a-z_]+(\{(\w+="(\\.|[^"\\])*",?)+\})? (\+Inf|[\d.e+-]+)')


def test_metrics_are_in_the_format_of_prometheus(server, fresh):
    before = server.metric('hierlearn_requests_total{path="/predict",code="200"}') or 0
    server.predict(fresh[1][:5])
    assert server.get("/nothing/here")[0] == 404
    _, headers, text = server.get("/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    values = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line for line in values if not LINE.fullmatch(line)] == []
    assert server.metric('hierlearn_requests_total{path="/predict",code="200"}') == before + 1
    assert server.metric('hierlearn_requests_total{path="other",code="404"}') >= 1
    assert server.metric("hierlearn_queue_rows") == 0
    assert "nothing/here" not in text
    buckets = [line for line in values if line.startswith("hierlearn_request_seconds_bucket{")]
    counts = [float(line.rpartition(" ")[2]) for line in buckets if 'path="/predict"' in line]
    assert counts == sorted(counts)
    assert counts[-1] == server.metric('hierlearn_request_seconds_count{path="/predict"}')


@pytest.fixture(scope="module")
def careful(models, tmp_path_factory):
    """A server that keeps a risk by labeled rows of its own; some labels it does not know."""
    folder = tmp_path_factory.mktemp("careful")
    write_rows(folder / "known.csv", 90, seed=2)
    lines = (folder / "known.csv").read_text().splitlines()
    lines[3] = lines[3].rpartition("/")[0] + "/new"
    (folder / "known.csv").write_text("\n".join(lines) + "\n")
    found = Running(models / "table", "--calibrate", str(folder / "known.csv"), cwd=folder)
    yield found, folder / "known.csv"
    found.end()


@pytest.mark.parametrize("risk", [0.05, 0.3])
def test_a_risk_is_kept_as_the_command_keeps_it(careful, fresh, predicted, risk):
    server, known = careful
    assert "a risk is kept by 90 rows of" in "".join(server.said)
    assert "1 row has 1 label that training never saw" in "".join(server.said)
    wanted = predicted("--risk", str(risk), "--calibrate", str(known))
    assert_same(server.predict(fresh[1], risk=risk), [dict(row) for row in wanted])
    assert any(row["stopped"] == "true" for row in wanted)
    code, found = server.post("/explain", {"rows": fresh[1][:3], "risk": risk})
    assert code == 200
    assert [one["path"] for one in found["answers"]] == [row["path"] for row in wanted[:3]]
    sets = predicted("--risk", str(risk), "--calibrate", str(known), "--decoder", "conformal")
    answers = server.predict(fresh[1], risk=risk, decoder="conformal")
    assert [one["path"] for one in answers] == [row["path"] for row in sets]


def test_a_risk_that_cannot_be_kept_is_refused(server, careful, fresh):
    rows = fresh[1][:1]
    code, found = server.post("/predict", {"rows": rows, "risk": 0.1})
    assert code == 422
    assert found["error"] == (
        "the server has no rows to keep a risk by; start it with --calibrate, or give a threshold "
        "instead of risk"
    )
    for more, said in (
        ({"risk": 1}, "risk must be a number between 0 and 1, not 1"),
        ({"risk": True}, "risk must be a number between 0 and 1, not True"),
        ({"risk": 0.1, "threshold": 0.5}, "risk finds the threshold itself; leave threshold out"),
        ({"risk": 0.1, "decoder": "leaf"}, "decoder leaf cannot be calibrated; a risk takes stop"),
        ({"risk": 0.001}, "needs at least 999 calibration rows, but there are 90"),
    ):
        code, found = careful[0].post("/predict", {"rows": rows, **more})
        assert code == 422
        assert said in found["error"]
