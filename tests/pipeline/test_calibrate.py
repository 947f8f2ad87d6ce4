"""Calibration by rows left out of a second training: averages, answers, copies, what is kept."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits, make_classification
from tests.tolerances import FLOAT32

from hierlearn import HierarchicalClassifier, Hierarchy, load
from hierlearn.datasets import Dataset
from hierlearn.decoding.scaling import fit_scaling
from hierlearn.hierarchy.labels import Labels
from hierlearn.pipeline import train
from hierlearn.pipeline.calibrate import copies, left_out
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.pipeline.remember import remember
from hierlearn.training import Plan
from hierlearn.training.prepare import prepare

SETTINGS = {"device": "cpu", "epochs": 8}
NARROW = {"width": 64}


def noisy_classes(rows, classes=8, seed=0):
    """Numbers of classes that overlap, with one label of five at random."""
    x, y = make_classification(
        rows,
        n_features=12,
        n_informative=8,
        n_classes=classes,
        n_clusters_per_class=1,
        flip_y=0.2,
        class_sep=2.0,
        random_state=seed,
    )
    return x.astype(np.float32), [f"{one // 4}/{one}" for one in y]


def noisy_texts(rows, seed=0):
    """Texts of a few words, some of which tell the class of a tree of two levels."""
    draw = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(rows):
        number = int(draw.integers(12))
        said = number if draw.random() < 0.6 else int(draw.integers(12))
        words = [
            f"top{said // 3}",
            f"word{said}",
            *(f"any{one}" for one in draw.integers(0, 900, 6)),
        ]
        texts.append(" ".join(words))
        labels.append(f"{number // 3}/{number}")
    return texts, labels


def noisy_table(rows, seed=0):
    """A mixed table with a text, a category and a number."""
    texts, labels = noisy_texts(rows, seed)
    draw = np.random.default_rng(seed + 1)
    colors = np.array(["red", "green", "blue"])[draw.integers(0, 3, rows)]
    return pd.DataFrame({"note": texts, "color": colors, "size": draw.normal(size=rows)}), labels


def several_labels(rows, seed=0):
    """Numbers with two labels per row, of which one is noise in half of the rows."""
    x, y = noisy_classes(rows, seed=seed)
    _, other = noisy_classes(rows, seed=seed)
    draw = np.random.default_rng(seed)
    other = [one if draw.random() < 0.5 else other[draw.integers(rows)] for one in other]
    return x, [sorted({one, two}) for one, two in zip(y, other, strict=True)]


def sure_and_right(classifier, x, y, scaled=True):
    """The mean probability of the answered classes, and the share that is true."""
    pipeline = classifier.pipeline_
    if not scaled:
        pipeline = replace(pipeline, scaling=None)
    h = pipeline.hierarchy
    p = pipeline.probabilities(classifier._read_inputs(x))
    truth = Labels([[one] if isinstance(one, str) else one for one in y], h).targets()
    decoder = pipeline.make_decoder()
    found = decoder(p)
    if decoder.answers == "class":
        found = torch.nn.functional.one_hot(found, len(h)).bool()
    return float(p[found].mean()), float(truth[found].double().mean()), found


KINDS = {
    "numbers": (noisy_classes, 600, 4, {"network_options": NARROW, "epochs": 10}),
    "texts": (noisy_texts, 1500, 4, {}),
    "mixed table": (noisy_table, 1200, 4, {}),
    "softmax": (noisy_classes, 1000, 4, {"recipe": "softmax", "epochs": 20}),
}


def measured(make, rows, splits, how):
    """Mean probability and share right, without and with scaling, on average over splits.

    A split of few rows leaves little to learn from.
    """
    figures = []
    for seed in range(splits):
        x, y = make(rows + 1200, seed=seed)
        given = (x.iloc[:rows], x.iloc[rows:]) if hasattr(x, "iloc") else (x[:rows], x[rows:])
        model = HierarchicalClassifier(**how, random_state=0, device="cpu")
        model.fit(given[0], y[:rows], Hierarchy.from_paths(sorted(set(y))))
        assert model.pipeline_.config["calibration"]["rows"] >= 100
        figures.append(
            [sure_and_right(model, given[1], y[rows:], one)[:2] for one in (False, True)]
        )
    return np.mean(figures, axis=0)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_as_probable_as_they_are_right(kind):
    (before, right_before), (sure, right) = measured(*KINDS[kind])
    if kind in ("numbers", "softmax"):  # linear models learn their slope from rows left out
        assert abs(before - right_before) > 0.05
    assert abs(sure - right) < (0.04 if kind == "mixed table" else 0.03)  # a race of 1,200 rows
    assert right > right_before - 0.01


@pytest.mark.parametrize("kind", ["texts", "mixed table"])
def test_every_one_of_few_rows_is_left_out_once(kind):
    """The share right of 300 rows is known to 3 points, and a few are lost by fewer rows."""
    make, missed = KINDS[kind][0], []
    for seed in range(4):
        x, y = make(1500, seed=seed)
        given = (x.iloc[:300], x.iloc[300:]) if hasattr(x, "iloc") else (x[:300], x[300:])
        model = HierarchicalClassifier(random_state=0, device="cpu")
        model.fit(given[0], y[:300], Hierarchy.from_paths(sorted(set(y))))
        assert model.pipeline_.config["calibration"]["rows"] == 300
        sure, right, _ = sure_and_right(model, given[1], y[300:])
        missed.append(sure - right)
    assert np.sqrt(np.mean(np.square(missed))) < 0.09


def test_a_forest_is_less_unsure():
    how = {"recipe": "trees", "network_options": {"trees": 20}}
    (before, right_before), (sure, right) = measured(noisy_classes, 600, 2, how)
    assert right == right_before
    assert abs(sure - right) < abs(before - right)


def digits(rows=400):
    """Digits, odd and even, and the same as a dataset."""
    x, y = load_digits(return_X_y=True)
    labels = [f"{'even' if one % 2 == 0 else 'odd'}/{one}" for one in y]
    h = Hierarchy.from_paths(sorted(set(labels)))
    x = x.astype(np.float32)
    return Dataset(x[:rows], [[one] for one in labels[:rows]], h), x[rows:], labels[rows:]


PLAN = Plan(network_options=NARROW, settings=SETTINGS)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrated") / "model"
    dataset, new, labels = digits()
    return train(dataset, PLAN, out=folder), folder, new, labels


def test_only_the_probabilities_change(trained):
    pipeline, _, new, _ = trained
    dataset, _, _ = digits()
    plain = train(dataset, replace(PLAN, calibration=False))
    assert plain.scaling is None
    assert pipeline.scaling is not None
    p, q = plain.probabilities(new), pipeline.probabilities(new)
    assert float((p - q).abs().max()) > 0.01
    assert torch.equal(replace(pipeline, scaling=None).probabilities(new), p)
    assert pipeline.predict(new) == plain.predict(new)


def test_what_was_learned_is_kept(trained, tmp_path):
    pipeline, folder, new, labels = trained
    again = load(folder)
    assert again.scaling == pipeline.scaling
    assert again.config["calibration"] == pipeline.config["calibration"]
    assert torch.equal(again.probabilities(new), pipeline.probabilities(new))
    remember(again, new[:50], [[one] for one in labels[:50]])
    remember(again, new[50:52], [["even/one"], ["odd/two"]])
    again.save(tmp_path / "grown")
    grown = load(tmp_path / "grown")
    assert grown.scaling == pipeline.scaling
    p = grown.probabilities(new)
    assert torch.equal(p, again.probabilities(new))
    for child in range(len(grown.hierarchy)):
        for parent in grown.hierarchy.parents(child):
            assert bool((p[:, child] <= p[:, parent] + 1e-6).all())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["steps", "mass", "log-odds"])
def test_an_exported_model_is_as_sure(trained, tmp_path, kind):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from hierlearn.decoding.scaling import Scaling
    from hierlearn.pipeline.export import export

    dataset, new, _ = digits()
    plan = Plan(recipe="linear", decoder="leaf", calibration=False, settings={"device": "cpu"})
    slopes, shares = (0.5, 0.7, 1.2, 0.9), (0.1, 0.02)
    pipeline = replace(train(dataset, plan), scaling=Scaling(kind, slopes, shares))
    file, *_ = export(pipeline, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(file)
    (found,) = session.run(None, {"inputs": new[:30]})
    FLOAT32.assert_close(torch.from_numpy(found), pipeline.probabilities(new[:30]))


def test_the_estimator_learns_the_same(trained):
    pipeline, _, new, _ = trained
    dataset, _, _ = digits()
    model = HierarchicalClassifier(network_options=NARROW, epochs=8, device="cpu", random_state=0)
    model.fit(dataset.inputs, [one for (one,) in dataset.labels], dataset.hierarchy)
    assert model.pipeline_.scaling == pipeline.scaling
    assert model.predict(new).tolist() == pipeline.predict(new)


def test_validation_rows_need_no_second_training():
    dataset, _, _ = digits()
    pipeline = train(dataset, replace(PLAN, valid_fraction=0.25))
    assert pipeline.config["calibration"]["source"] == "validation rows"
    assert pipeline.config["calibration"]["rows"] == 100


def test_what_is_unknown_of_partial_labels_does_not_count():
    x, y = noisy_classes(300)
    draw = np.random.default_rng(0)
    labels = [[one if draw.random() < 0.4 else one.split("/")[0]] for one in y]
    splits = {"train": np.arange(200), "valid": np.arange(200, 300)}
    dataset = Dataset(x, labels, Hierarchy.from_paths(sorted({*y})), splits)
    found = {}
    for below in ("ignore", "negative"):
        plan = Plan(loss="bce", unlabeled_descendants=below, settings=SETTINGS)
        found[below] = pipeline = train(dataset, plan)
        valid = dataset.split("valid")
        truth = Labels(valid.labels, dataset.hierarchy, unlabeled_descendants=below)
        p = replace(pipeline, scaling=None).probabilities(valid.inputs)
        by_level = not pipeline.make_decoder().keeps_order
        mask = truth.mask() if below == "ignore" else None
        space = pipeline.label_space
        assert pipeline.scaling == fit_scaling(p, truth.targets(), space, mask, by_level=by_level)
    assert found["ignore"].scaling != found["negative"].scaling


def test_too_few_rows_are_left_as_they_are():
    dataset, _, _ = digits(39)
    assert train(dataset, PLAN).scaling is None


def test_several_labels_keep_their_answers():
    x, y = several_labels(800)
    model = HierarchicalClassifier(
        "max", network_options=NARROW, epochs=20, random_state=0, device="cpu"
    )
    model.fit(x[:600], y[:600], Hierarchy.from_paths(sorted({one for row in y for one in row})))
    assert model.pipeline_.scaling.kind == "log-odds"
    *_, before = sure_and_right(model, x[600:], y[600:], scaled=False)
    *_, after = sure_and_right(model, x[600:], y[600:])
    assert torch.equal(before, after)


# ---------------------------------------------------------------------- what is left out


def held_of(dataset, weights=None):
    from hierlearn.training.prepare import PrepareOptions

    prepared = prepare(dataset, PLAN, torch.device("cpu"), PrepareOptions(weights=weights))
    folds = left_out(prepared, Pipeline.from_prepared(prepared), dataset)
    together = np.concatenate(folds)
    assert len(set(together.tolist())) == len(together)
    return folds[0]


def test_copies_are_left_out_together():
    dataset, _, _ = digits(300)
    twice = dataset.take(np.repeat(np.arange(300), 2))
    held = held_of(replace(twice, ids=None))
    assert 100 <= len(held) <= 130
    assert set(held // 2 * 2) <= set(held)
    assert set(held // 2 * 2 + 1) <= set(held)


def test_rows_of_one_id_are_left_out_together():
    dataset, _, _ = digits(300)
    ids = [f"patient {one // 3}" for one in range(300)]
    held = held_of(replace(dataset, ids=ids))
    assert len(held) == 3 * len(set(held // 3))


def test_rows_that_do_not_count_are_not_learned_from():
    dataset, _, _ = digits(300)
    weights = (np.arange(300) % 3 > 0).astype(float)
    held = held_of(dataset, weights)
    assert len(held) == 40
    assert bool((held % 3 > 0).all())


def test_equal_rows_of_different_labels_are_no_copies():
    digests = np.array([5, 5, 7, 7, 9], dtype=np.uint64)
    assert copies(digests, np.array([0, 0, 1, 1, 2])).tolist() == [0, 0, 1, 1, 2]
    assert copies(digests, np.array([0, 1, 1, 1, 2])).tolist() == [0, 1, 2, 3, 4]


def test_a_long_training_is_repeated_once():
    dataset, _, _ = digits(300)

    def trainings(**settings):
        plan = replace(PLAN, settings={**SETTINGS, **settings})
        prepared = prepare(dataset, plan, torch.device("cpu"))
        return len(left_out(prepared, Pipeline.from_prepared(prepared), dataset))

    assert trainings() == 5
    assert trainings(epochs=10_000) == 1


def test_one_class_alone_is_left_as_it_is():
    dataset, _, _ = digits(120)
    same = Dataset(dataset.inputs, [["a"]] * 120, Hierarchy.from_paths(["a"]))
    with pytest.warns(UserWarning, match="every answer will be that class"):
        assert train(same, PLAN).scaling is None
