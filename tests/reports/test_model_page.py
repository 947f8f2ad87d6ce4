"""The page of a model: its figures against scikit-learn, SciPy and loops; what it leaves out."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import (
    classification_report,
    confusion_matrix,
    precision_recall_fscore_support,
)

from hierlearn import Hierarchy
from hierlearn.datasets import Dataset, read_table
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.answers import binned_error
from hierlearn.pipeline import evaluate
from hierlearn.pipeline.explain import explain
from hierlearn.reports import decisions as classes
from hierlearn.reports import plots as reliability
from hierlearn.reports import plots as risk
from hierlearn.reports import write_model_report
from hierlearn.reports.page import class_cell, model_page, outcome, wilson
from tolerances import FLOAT64


@pytest.fixture(scope="module")
def found(model, number_rows):
    return outcome(model, number_rows.split("test"))


@pytest.fixture(scope="module")
def names(model, number_rows, found):
    """The true and the predicted path of every row, made without the code of the page."""
    test = number_rows.split("test")
    space = model.label_space
    p = model.probabilities(test.inputs)
    predicted = [space.terminal_names[one] for one in p[:, space.terminals.tolist()].argmax(dim=1)]
    assert not space.has_inner_terminals
    return [labels[0] for labels in test.labels], predicted


def embedded(path):
    text = path if isinstance(path, str) else path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


# ---------------------------------------------------------------------- the figures


def test_leaves_have_the_figures_of_the_classification_report(found, names):
    truth, predicted = names
    told = classification_report(truth, predicted, output_dict=True, zero_division=np.nan)
    counts, hierarchy = classes.class_counts(found), found.space.hierarchy
    compared = 0
    for number in hierarchy.leaves.tolist():
        name = hierarchy.names[number]
        rows, decided, right = (counts[key][number] for key in ("rows", "decided", "right"))
        if name not in told:
            assert rows == decided == 0
            continue
        compared += 1
        assert rows == told[name]["support"]
        for value, whole in (("precision", decided), ("recall", rows)):
            shown = right / whole if whole else np.nan
            assert shown == FLOAT64.approx(told[name][value])
        assert 2 * right / (rows + decided) == FLOAT64.approx(np.nan_to_num(told[name]["f1-score"]))
    assert compared > 5


def test_inner_classes_count_what_lies_below_them(found, names):
    counts, hierarchy = classes.class_counts(found), found.space.hierarchy
    for number, name in enumerate(hierarchy.names):
        sides = [[f"{path}/".startswith(f"{name}/") for path in side] for side in names]
        precision, recall, f, _ = precision_recall_fscore_support(
            *sides, average="binary", zero_division=0
        )
        rows, decided, right = (counts[key][number] for key in ("rows", "decided", "right"))
        assert [right / max(decided, 1), right / max(rows, 1)] == FLOAT64.approx(
            [precision, recall]
        )
        assert 2 * right / max(rows + decided, 1) == FLOAT64.approx(f)
        assert counts["level"][number] == name.count("/") + 1


def test_confusions_are_those_of_the_confusion_matrix(found, names):
    hierarchy = found.space.hierarchy
    matrix = confusion_matrix(*names, labels=hierarchy.names)
    np.fill_diagonal(matrix, 0)
    pairs = classes.confusions(found, most=10**6)
    assert len(pairs) == np.count_nonzero(matrix)
    assert [one["rows"] for one in pairs] == sorted(matrix[matrix > 0].tolist(), reverse=True)
    support = Counter(names[0])
    for one in pairs:
        left, right = (hierarchy.names[one[key]] for key in ("true", "decided"))
        assert matrix[one["true"], one["decided"]] == one["rows"]
        assert one["of"] == support[left]
        common = [a for a, b in zip(left.split("/"), right.split("/"), strict=False) if a == b]
        if left.split("/")[: len(common)] != common:
            common = []
        assert one["lca"] == (hierarchy.names.index("/".join(common)) if common else -1)
        below = [name for name in hierarchy.names if name.startswith("/".join(common))]
        deepest = max(name.count("/") + 1 for name in below)
        assert one["height"] == deepest - len(common)
    assert len(classes.confusions(found, most=2)) == 2


def test_the_first_figures_are_those_of_evaluate(model, number_rows, found, model_html):
    told = evaluate(model, number_rows.split("test"))
    assert {name: found.metrics[name] for name in told} == told
    text = model_html.read_text(encoding="utf-8")
    assert f"<b>{100 * told['exact']:.2f} %</b><span>exact answers" in text
    for value in told["accuracy"]:
        assert f">{100 * value:.2f} %</td>" in text
    for value in (
        f"{told['severity']:.3f}",
        f"{told['f1']:.3f}",
        f"{100 * told['calibration']:.2f} %",
    ):
        assert f"<dd>{value}</dd>" in text
    assert f"<b>the answers</b> error {100 * told['calibration']:.2f} %" in text
    low, high = binomtest(round(told["exact"] * len(found)), len(found)).proportion_ci(
        method="wilson"
    )
    assert f"95 % interval {100 * low:.1f} to {100 * high:.1f}<" in text


@pytest.mark.parametrize(("right", "rows"), [(0, 7), (3, 7), (7, 7), (640, 1000)])
def test_the_interval_is_wilsons(right, rows):
    told = binomtest(right, rows).proportion_ci(method="wilson")
    assert wilson(right / rows, rows) == pytest.approx((told.low, told.high), abs=1e-6)


def test_an_answer_above_the_label_is_a_mistake_everywhere(model, number_rows):
    test = number_rows.split("test")
    inner = replace(model, label_space=LabelSpace(model.hierarchy, [model.hierarchy.names[0]]))
    told = outcome(inner, test)
    decided = told.decisions.decided[0]
    names = [model.hierarchy.names[c] for c in decided]
    right = np.array([name == row[0] for name, row in zip(names, test.labels, strict=True)])
    assert ((told.decisions.heights[0] == 0) == right).all()
    assert told.metrics["exact"] == right.mean()
    above = [
        f"{row[0]}/".startswith(f"{one}/") for one, row in zip(names, test.labels, strict=True)
    ]
    assert np.any(above & ~right)
    text = model_page(inner, test)
    shown = re.search(r'class="value">([0-9.]+) % wrong', text)[1]
    assert shown == f"{100 * (1 - right.mean()):.1f}"


def test_answers_that_stop_are_those_of_the_decoder(model, number_rows):
    test = number_rows.split("test")
    unsure = replace(model, decoder="stop", decoder_options={"threshold": 0.6})
    told, found = evaluate(unsure, test), outcome(unsure, test)
    assert found.metrics["complete"] == told["complete"] < told["answered"] < 1
    text = model_page(unsure, test)
    assert f"<dt>Rows with an answer</dt><dd>{100 * told['answered']:.2f} %</dd>" in text
    answers = unsure.predict(test.inputs)
    for row in np.flatnonzero(found.decisions.mistakes[0]):
        answer, label = answers[row], test.labels[row][0]
        assert answer
        assert answer != label
        assert not label.startswith(f"{answer}/")


def test_a_path_breaks_between_classes():
    tree = Hierarchy.from_paths(["a<b/c"])
    assert class_cell(tree, 1) == "a&lt;b/<wbr>c"


def test_reliability_is_that_of_a_loop_over_answers(found):
    hierarchy = found.space.hierarchy
    decided = found.answers.single.tolist()
    every, *levels = reliability.reliabilities(found, bins=10)
    assert every.error == pytest.approx(float(binned_error(*found.answers.sure_and_right(), 10)))
    assert [one.level for one in levels] == [1, 2, 3]
    for one in (every, *levels):
        bins = {}
        for row, c in enumerate(decided):
            path = hierarchy.names[c].split("/")
            depth = len(path) if one.level is None else one.level
            label = found.dataset.labels[row][0].split("/")
            if depth > len(path) or (one.level is not None and depth > len(label)):
                continue
            number = hierarchy.index("/".join(path[:depth]))
            sure = float(found.p[row, number].double())
            place = min(int(sure * 10 + 1e-12), 9)
            bins.setdefault(place, []).append((sure, path[:depth] == label[:depth]))
        assert len(bins) == len(one.rows)
        error = 0.0
        for place, number in zip(sorted(bins), range(len(one.rows)), strict=True):
            sure, right = (np.mean(side) for side in zip(*bins[place], strict=True))
            assert one.rows[number] == len(bins[place])
            assert [one.p[number], one.right[number]] == pytest.approx([sure, right])
            error += len(bins[place]) / one.rows.sum() * abs(sure - right)
        assert one.error == pytest.approx(error)


def test_leaving_rows_unanswered_is_that_of_a_loop(found):
    curve = risk.leave_curve(found)
    p, decided = found.decisions.probability[0], found.decisions.decided[0]
    right = found.targets.numpy()[np.arange(len(found)), decided]
    assert len(curve.thresholds) == len(np.unique(p))
    for number, threshold in enumerate(curve.thresholds):
        kept = p >= threshold
        assert curve.answered[number] == pytest.approx(kept.mean())
        assert curve.risk[number] == pytest.approx(1 - right[kept].mean())
    assert curve.risk[0] == pytest.approx(1 - found.metrics["exact"])


def test_stopping_is_that_of_the_decoder(model, found):
    curve = risk.stop_curve(found)
    levels = np.append(found.space.hierarchy.levels, 0)
    depth = found.space.hierarchy.levels * found.targets.numpy()
    for number in range(0, len(curve.thresholds), 9):
        answers = model.make_decoder("stop", threshold=curve.thresholds[number])(found.p).numpy()
        given = answers >= 0
        assert curve.answered[number] == pytest.approx(given.mean())
        assert curve.depth[number] == pytest.approx(levels[answers].sum() / depth.max(axis=1).sum())
        if given.any():
            right = found.targets.numpy()[np.flatnonzero(given), answers[given]]
            assert curve.risk[number] == pytest.approx(1 - right.mean())
    place = curve.within(0.2)
    assert place is None or curve.risk[place] <= 0.2
    assert curve.within(-1) is None


# ---------------------------------------------------------------------- the page


def test_the_page_holds_the_counts_and_the_mistakes(found, model_html):
    data = embedded(model_html)
    assert data["classes"] == classes.class_counts(found)
    recall = [
        round(1000 * right / rows) if rows else 0
        for right, rows in zip(data["classes"]["right"], data["classes"]["rows"], strict=True)
    ]
    assert data["candidates"][0]["accuracy"][:-1] == recall
    for row, name in data["rows"].items():
        assert name == f"id {found.dataset.ids[int(row)]}"
    assert "evidence" not in data["candidates"][0]  # no memory


def test_it_needs_no_network(model_html):
    text = model_html.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)


def test_the_same_model_and_rows_give_the_same_bytes(model, number_rows, model_html):
    assert model_page(model, number_rows.split("test"), "test") == model_html.read_text(
        encoding="utf-8"
    )


def test_several_labels_leave_out_what_does_not_apply(set_model, set_rows, set_html):
    text, data = set_html.read_text(encoding="utf-8"), embedded(set_html)
    assert 'id="confusions"' not in text
    assert "confused" not in data["candidates"][0]
    for section in ("results", "classes", "calibration", "risk", "hierarchy", "settings"):
        assert f'<section id="{section}"' in text
    assert "exact answers: the right set" in text
    test = set_rows.split("test")
    assert data["support"][-1] == sum(bool(labels) for labels in test.labels)
    assert f"{len(test)} rows of sets" in text  # those without a label count here


def test_sets_have_the_figures_of_scikit_learn(set_model, set_rows):
    found = outcome(set_model, set_rows.split("test"))
    hierarchy = found.space.hierarchy
    predicted = (found.p >= 0.5).numpy()
    for number in reversed(range(len(hierarchy))):  # close the sets by hand
        for parent in hierarchy.parents(number):
            predicted[:, parent] |= predicted[:, number]
    decoder = set_model.make_decoder()
    if decoder.answers == "set":
        predicted = decoder(found.p).numpy()
    told = precision_recall_fscore_support(found.targets.numpy(), predicted, zero_division=0)
    counts = {key: np.array(value) for key, value in classes.class_counts(found).items()}
    assert counts["right"] / np.maximum(counts["decided"], 1) == pytest.approx(told[0])
    assert counts["right"] / np.maximum(counts["rows"], 1) == pytest.approx(told[1])
    assert counts["rows"].tolist() == told[3].tolist()


def test_mistakes_of_a_memory_name_the_rows_that_misled(memory_model, number_rows):
    test = number_rows.split("test")
    data = embedded(model_page(memory_model, test, "test"))
    one = data["candidates"][0]
    assert len(one["evidence"]) == len(one["worst"]) > 0
    told = explain(memory_model, test.take([row for row, *_ in one["worst"]]).inputs, 3)
    train_ids = {number_rows.ids[row] for row in number_rows.splits["train"]}
    for shown, own in zip(one["evidence"], told, strict=True):
        assert [row["id"] for row in shown] == [f"id {row.id}" for row in own][: len(shown)]
        assert {row["id"].removeprefix("id ") for row in shown} <= train_ids


@pytest.mark.parametrize(
    ("split", "trained_on", "said"),
    [
        ("train", None, "the model was probably trained on them"),
        ("test", 3, "The model was trained on 3 of these"),
        ("test", 0, None),
        ("train", 0, None),
        ("test", None, None),
    ],
)
def test_training_rows_are_warned_of(model, number_rows, split, trained_on, said):
    text = model_page(model, number_rows.split(split), split, trained_on)
    assert ('class="warning"' in text) == (said is not None)
    assert said is None or said in text


def test_rows_without_a_label_count_as_in_evaluate(model, number_rows):
    test = number_rows.split("test")
    some = replace(test, labels=[[], [], *test.labels[2:]])
    text = model_page(model, some, "all")
    assert f"{len(test)} rows of" in text
    assert "2 rows without a label" in text
    assert f"<b>{100 * evaluate(model, some)['exact']:.2f} %</b>" in text
    none = replace(test, labels=[[]] * len(test))
    with pytest.raises(HierlearnError, match=f"none of the {len(test)} rows has a label"):
        model_page(model, none)


def test_a_model_without_mistakes_has_no_empty_section(model, number_rows, found):
    right = np.flatnonzero(found.decisions.heights[0] == 0)
    text = model_page(model, number_rows.split("test").take(right))
    assert 'id="mistakes"' not in text
    assert 'id="confusions"' not in text
    assert "<b>100.00 %</b>" in text


def test_rows_are_named_by_line_where_they_have_no_id(model, number_rows, tmp_path):
    test = number_rows.split("test")
    lines = [f"{n},{labels[0]}" for n, labels in enumerate(test.labels)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,label", *lines]) + "\n")
    read = read_table(tmp_path / "rows.csv", label="label", text="x", hierarchy=test.hierarchy)
    named = Dataset(test.inputs, test.labels, test.hierarchy, lines=read.lines)
    for row, name in embedded(model_page(model, named))["rows"].items():
        assert name == f"line {int(row) + 2}"  # the header is line 1
    plain = Dataset(test.inputs, test.labels, test.hierarchy)
    for row, name in embedded(model_page(model, plain))["rows"].items():
        assert name == f"row {int(row) + 1}"


def test_rows_of_another_hierarchy_are_refused(model, set_rows, tmp_path):
    with pytest.raises(HierlearnError, match="labeled by another hierarchy"):
        write_model_report(model, set_rows, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
