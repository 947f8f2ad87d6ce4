"""One table, one model, one answer: on the command line, in Python and by the estimator."""

import csv

import numpy as np
import pandas as pd
import pytest

from hierlearn import HierarchicalClassifier, load
from hierlearn.cli import main
from hierlearn.datasets import read_table
from hierlearn.pipeline import train
from hierlearn.training import Plan
from mixed_rows import make_rows

SEED = {"settings": {"seed": 0}}


def mixed_frame(count, seed):
    """A mixed table with numbers of many digits, dates as people write them, and empty cells."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(make_rows(count, seed)).drop(columns=["sku", "shop"])
    days = pd.to_datetime(frame["day"])
    return frame.assign(
        price=np.exp(draw.normal(12, 1, count)) / 7,  # no float32
        ratio=draw.normal(size=count) ** 3 / 3,
        weight=pd.to_numeric(frame["weight"]),
        day=days.dt.strftime("%b %d %Y"),
        brand=frame["brand"].replace("", None),
    )


def number_frame(count, seed):
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, 4, count)
    columns = {f"x{n}": (kinds % (n + 2)) / 3 + draw.normal(0, 0.7, count) for n in range(6)}
    names = np.array(["a/b", "a/c", "d/e", "d/f"])
    return pd.DataFrame({**columns, "class": names[kinds]})


CASES = {
    "linear, mixed": (mixed_frame, {"recipe": "linear"}, {}),
    "network, mixed": (
        mixed_frame,
        {"recipe": "hcl", "network_options": {"width": 16}},
        {"epochs": 6},
    ),
    "network, numbers": (
        number_frame,
        {"recipe": "hcl", "network_options": {"width": 16}},
        {"epochs": 6},
    ),
    "memory, numbers": (number_frame, {"recipe": "neighbors"}, {"epochs": 2}),
}


@pytest.fixture(scope="module", params=CASES, ids=list(CASES))
def models(request, tmp_path_factory):
    """Return a folder trained on a file, the classifier fitted on the frame of it, and new rows."""
    make, options, settings = CASES[request.param]
    folder = tmp_path_factory.mktemp("same")
    for name, count, seed in (("train", 400, 0), ("new", 700, 1)):
        make(count, seed).to_csv(folder / f"{name}.csv", index=False)
    plan = Plan(**options, settings={"seed": 0, **settings})
    train(read_table(folder / "train.csv", label="class"), plan, out=folder / "model")
    frame, new = (pd.read_csv(folder / f"{name}.csv") for name in ("train", "new"))
    classifier = HierarchicalClassifier(random_state=0, **options, **settings)
    classifier.fit(frame.drop(columns="class"), frame["class"].tolist())
    return folder, classifier, new.drop(columns="class")


def test_a_file_and_a_frame_give_the_same_model_and_the_same_answers(models, monkeypatch):
    folder, fitted, new = models
    own = load(folder / "model")
    inputs = new if own.preprocessor.reads == "table" else new.to_numpy()
    expected = own.probabilities(inputs).numpy()
    np.testing.assert_array_equal(fitted.predict_node_proba(new), expected)
    loaded = HierarchicalClassifier.load(folder / "model")
    np.testing.assert_array_equal(loaded.predict_node_proba(new), expected)
    np.testing.assert_array_equal(loaded.predict_node_proba(new[100:101]), expected[100:101])
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        "sys.argv", ["hierlearn", "predict", "model", "new.csv", "-o", "out.csv", "--force"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    with (folder / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == list(loaded.predict(new)) == list(fitted.predict(new))
    decided = [expected[n, own.hierarchy.names.index(row["path"])] for n, row in enumerate(rows)]
    np.testing.assert_allclose([float(row["probability"]) for row in rows], decided, rtol=1e-5)


def test_a_tiny_change_of_one_number_changes_no_answer(models):
    """At most 1 in 10,000, as a rounding of the sixth digit should."""
    _, fitted, new = models
    answers = fitted.predict(new)
    changed = asked = 0
    for name in new.select_dtypes("number"):
        for sign in (1, -1):
            moved = new.assign(**{name: new[name] + sign * 1e-6 * new[name].std()})
            changed += int((fitted.predict(moved) != answers).sum())
            asked += len(new)
    assert changed <= asked / 10_000
    widened = new.assign(
        **{name: new[name].astype(np.float32) for name in new.select_dtypes("number")}
    )
    np.testing.assert_array_equal(fitted.predict(widened), answers)
