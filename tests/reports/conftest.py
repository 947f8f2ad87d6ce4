"""Studies that were really run, in seconds: of numbers, of hostile texts, of a memory of them."""

from dataclasses import replace

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.datasets import Dataset
from hierlearn.lab.candidates import Candidate, parse_candidates
from hierlearn.lab.compare import run_study
from hierlearn.lab.corpora.synthetic import make_synthetic
from hierlearn.lab.pages import write_report
from hierlearn.lab.protocol import Protocol
from hierlearn.pipeline import train
from hierlearn.reports import write_model_report
from hierlearn.training.settings import Plan
from reports import models

HOSTILE = [
    "<script>hit()</script>|</script><script>hit()</script>",
    "<script>hit()</script>|<img src=x onerror=hit()>",
    "\"onfocus='hit()' autofocus|${hit()}<b>",
    "\"onfocus='hit()' autofocus|--><svg onload=hit()>&lt;",
    "$title|\u202eevil \x01\x0b",
]
WORDS = ("red apple", "green pear", "blue plum", "yellow lime", "</script><script>hit()</script>")


@pytest.fixture(scope="session")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def study(tmp_path_factory, one_thread):
    """Numbers under a ragged tree of three levels, three losses, two seeds."""
    return run_study(
        make_synthetic(rows=300, features=8, fan_out=3, ragged=0.2),
        parse_candidates(["bce", "hxe:alpha=0.3", "loss:hcl"]),
        tmp_path_factory.mktemp("studies") / "numbers",
        Protocol(
            seeds=2,
            settings={"epochs": 4, "learning_rate": 0.01, "device": "cpu"},
            network={"name": "mlp", "options": {"width": 8}},
        ),
    )


def hostile_texts():
    rows = 60
    texts = [f"{WORDS[row % 5]} {row % 7} <img src=x onerror=hit()>" for row in range(rows)]
    return Dataset(
        inputs=texts,
        labels=[[HOSTILE[(row * 3 + row // 7) % 5]] for row in range(rows)],  # cannot be learned
        hierarchy=Hierarchy.from_paths(HOSTILE, sep="|"),
        splits={"train": range(30), "valid": range(30, 40), "test": range(40, 60)},
        name="<img src=x onerror=hit()>",
        source="made up & <b>bold</b>",
    )


@pytest.fixture(scope="session")
def hostile(tmp_path_factory, one_thread):
    """Texts, classes and a loss whose names would act if a page let them."""
    candidates = [
        Candidate("bce", loss="bce", label="<i onclick=hit()>flat</i>"),
        Candidate("hcl", loss="hcl", label='$\\hcl_2$ & "co"'),
    ]
    return run_study(
        hostile_texts(),
        candidates,
        tmp_path_factory.mktemp("studies") / "hostile",
        Protocol(
            seeds=2,
            settings={"epochs": 2, "device": "cpu"},
            network={"name": "token-bag", "options": {"width": 8}},
        ),
    )


@pytest.fixture(scope="session")
def memory_study(tmp_path_factory, one_thread):
    """The same texts with ids; the second candidate answers from a memory, the first does not."""
    texts = hostile_texts()
    other = [*texts.labels[:40], *texts.labels[41:], texts.labels[40]]  # of the test rows
    return run_study(
        replace(texts, labels=other, ids=[f"<b onclick=hit()>{row}</b>" for row in range(60)]),
        ["bce", "neighbors"],
        tmp_path_factory.mktemp("studies") / "memory",
        Protocol(
            seeds=2,
            settings={"epochs": 2, "device": "cpu"},
            network={"name": "token-bag", "options": {"width": 8}},
        ),
    )


@pytest.fixture(scope="session")
def memory_page(memory_study):
    return write_report(memory_study.folder)


@pytest.fixture(scope="session")
def page(study):
    return write_report(study.folder)


@pytest.fixture(scope="session")
def hostile_page(hostile):
    return write_report(hostile.folder)


@pytest.fixture(scope="session")
def number_rows():
    return models.numbers()


@pytest.fixture(scope="session")
def model(number_rows, one_thread):
    """A model of numbers, one path per row."""
    return models.linear(number_rows)


@pytest.fixture(scope="session")
def memory_model(number_rows, one_thread):
    """A model that answers from remembered rows."""
    return models.memory(number_rows)


@pytest.fixture(scope="session")
def set_rows():
    return models.several()


@pytest.fixture(scope="session")
def set_model(set_rows, one_thread):
    """A model of rows with several labels, or none."""
    return models.linear(set_rows)


@pytest.fixture(scope="session")
def model_html(model, number_rows, tmp_path_factory):
    out = tmp_path_factory.mktemp("model") / "page.html"
    return write_model_report(model, number_rows.split("test"), out, split="test")


@pytest.fixture(scope="session")
def set_html(set_model, set_rows, tmp_path_factory):
    out = tmp_path_factory.mktemp("sets") / "page.html"
    return write_model_report(set_model, set_rows.split("test"), out, split="test")


@pytest.fixture(scope="session")
def hostile_model_html(one_thread, tmp_path_factory):
    """The page of a memory of texts whose names, texts and ids would act if a page let them."""
    texts = replace(hostile_texts(), ids=[f"<b onclick=hit()>{row}</b>" for row in range(60)])
    out = tmp_path_factory.mktemp("hostile") / "page.html"
    plan = Plan(recipe="neighbors", settings={"epochs": 1, "device": "cpu"})
    rows = texts.split("test")
    rows = replace(rows, labels=[*rows.labels[1:], *rows.labels[:1]])  # so that there are mistakes
    return write_model_report(train(texts, plan), rows, out, split="test")
