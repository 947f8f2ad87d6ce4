"""The race: what a training with no option set tries, keeps and says."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from hierlearn import (
    Dataset,
    HierarchicalClassifier,
    Hierarchy,
    Labels,
    LabelSpace,
    Plan,
    load,
    train,
)
from hierlearn.links import HeadOutput, make_link
from hierlearn.networks.blend import SPREAD, is_blend, sharpened
from hierlearn.pipeline.blend import BlendTraining
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import SingleTraining, training_job
from hierlearn.training.blending import (
    MEMORY_SHARE,
    best_power,
    decide_race,
    is_free_to_race,
    mixture_weights,
    race,
    race_folds,
    seen_elsewhere,
)
from hierlearn.training.choose import Facts
from hierlearn.training.processes import Processes

CPU = torch.device("cpu")
CLASSES = ["a/b/c", "a/b/d", "a/e", "f/g", "f/h"]
TREE = Hierarchy.from_paths(CLASSES)
WORDS = ["apple pear", "apple plum", "apple nut", "wheel gear", "wheel axle"]


def numbers(count=260, seed=0, **more):
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, 5, count)
    inputs = draw.normal(size=(count, 4)) * 0.7 + np.eye(5, 4)[kinds] * 3
    return Dataset(inputs, [[CLASSES[one]] for one in kinds], TREE, **more)


def texts(count=300, seed=0):
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, 5, count)
    noise = ["red", "old", "big", "new", "odd", "raw"]
    rows = [f"{WORDS[one]} {' '.join(draw.choice(noise, 3))}" for one in kinds]
    return rows, [CLASSES[one] for one in kinds]


def job(dataset, plan=None):
    return training_job(dataset, plan or Plan(), Processes(0, 1, CPU), None, Reporting(bar=False))


# ---------------------------------------- the parts of a decision


def test_weights_of_a_mixture_are_the_most_likely_ones():
    draw = np.random.default_rng(0)
    one, other = draw.uniform(0.01, 1, 400), draw.uniform(0.01, 1, 400) ** 2
    first, second = mixture_weights([one, other])
    grid = np.linspace(0, 1, 1001)
    best = grid[np.argmax([np.log(w * one + (1 - w) * other).sum() for w in grid])]
    assert first + second == pytest.approx(1)
    assert first == pytest.approx(best, abs=0.01)


def test_the_power_is_the_most_likely_one():
    draw = np.random.default_rng(1)
    logs = torch.from_numpy(np.log(draw.dirichlet(np.ones(4), size=300)))
    truth = (2.5 * logs).softmax(dim=1)
    right = torch.multinomial(truth, 1, generator=torch.Generator().manual_seed(0))[:, 0]

    def surprise(power):
        return float(-(power * logs).log_softmax(1).gather(1, right[:, None]).mean())

    found = best_power(logs, right)
    assert surprise(found) <= min(surprise(power) for power in np.linspace(0.3, 7, 400)) + 1e-6
    assert found == pytest.approx(2.5, rel=0.2)


def test_sharpened_masses_are_powers_of_masses():
    names = [*CLASSES, "f"]  # rows may end at f
    space = LabelSpace(TREE, names)
    ids = space.terminal_ids()
    q = torch.from_numpy(np.random.default_rng(2).dirichlet(np.ones(len(ids)), size=6))
    p = TREE.sum_up(torch.zeros(6, len(TREE), dtype=torch.double).index_copy(1, ids, q))
    output = HeadOutput(p.log(), torch.log1p(-p.clamp_max(1 - 1e-15)))
    found = sharpened(output, make_link(space, "softmax"), 3.0).probabilities
    raised = ((1 - SPREAD) * q + SPREAD / len(ids)) ** 3
    raised /= raised.sum(dim=1, keepdim=True)
    expected = TREE.sum_up(torch.zeros_like(p).index_copy(1, ids, raised))
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


def test_rows_of_one_id_are_left_out_together():
    ids = [f"patient {number // 7}" for number in range(300)]
    data = numbers(300)
    folds = race_folds(Labels(data.labels, TREE), ids)
    assert len(folds) == 5  # few rows: each is left out once
    assert sorted(np.concatenate(folds).tolist()) == list(range(300))
    for one in range(5):
        others = np.concatenate([fold for number, fold in enumerate(folds) if number != one])
        assert not {ids[row] for row in folds[one]} & {ids[row] for row in others}
    assert len(race_folds(Labels(data.labels * 20, TREE))) == 1  # many: one fold says enough
    assert race_folds(Labels(data.labels, TREE), ["the same"] * 300) == []


def test_rows_of_classes_that_no_training_row_has_decide_nothing():
    classes = np.array([0, 0, 1, 2, 2, 0])
    folds = [np.array([0, 2]), np.array([3, 4])]
    assert seen_elsewhere(classes, folds).tolist() == [True, False, False, False]
    space = LabelSpace(TREE)
    right = np.resize(space.terminals, 40)
    place = np.searchsorted(space.terminals, right)
    draw = np.random.default_rng(0)
    good, bad = (draw.dirichlet(np.ones(5), size=40) for _ in range(2))
    good[np.arange(20), place[:20]] += 5  # right in the rows that count,
    bad[np.arange(20, 40), place[20:]] += 5  # and in those that do not
    node = {}
    for name, q in (("good", good), ("bad", bad)):
        ends = torch.zeros(40, len(TREE), dtype=torch.double)
        ends[:, space.terminal_ids()] = torch.from_numpy(q / q.sum(axis=1, keepdims=True))
        node[name] = TREE.sum_up(ends)
    chosen, _ = decide_race(node, right, space, "none", np.arange(40) < 20)
    assert chosen.weights.get("good", 0) > 0.8
    chosen, _ = decide_race(node, right, space, "none", np.arange(40) >= 20)
    assert chosen.weights.get("bad", 0) > 0.8


# ---------------------------------------- when there is a race


@pytest.mark.parametrize(
    "plan",
    [
        Plan("quick"),
        Plan(loss="bce"),
        Plan(decoder="leaf"),
        Plan(settings={"epochs": 3}),
        Plan(network_options={"width": 8}),
    ],
    ids=["recipe", "loss", "decoder", "epochs", "width"],
)
def test_what_is_asked_for_is_trained_without_a_race(plan):
    assert not is_free_to_race(plan)
    assert isinstance(job(numbers(), plan), SingleTraining)


def test_rows_that_are_few_or_have_several_labels_follow_the_rule():
    assert isinstance(job(numbers()), BlendTraining)
    assert isinstance(job(numbers(), Plan(settings={"seed": 3})), BlendTraining)
    assert isinstance(job(numbers(150)), SingleTraining)
    several = numbers()
    several.labels[0] = ["a/e", "f/g"]
    assert isinstance(job(several), SingleTraining)
    partial = Plan(unlabeled_descendants="ignore")
    assert isinstance(job(numbers(), partial), SingleTraining)


def test_what_races_is_said_in_words():
    for kind in ("numbers", "texts"):
        columns = {"text": 1, "number": 2} if kind == "texts" else {}
        found = race(Facts(rows=1000, classes=8, depth=3, kind=kind, columns=columns))
        assert "trees" in found
        assert all(one.words for one in found.values())


# ---------------------------------------- from end to end


def test_a_race_keeps_what_predicts_rows_left_out_and_says_so(tmp_path):
    data, new, said = numbers(), numbers(200, seed=5), []
    model = train(
        data, Plan(), tmp_path / "model", reporting=Reporting(bar=False, on_message=said.append)
    )
    assert said[0].startswith("racing 4 models on 260 of 260 rows, left out of their training")
    assert "quick (a memory of similar rows), kernel (a kernel machine)" in said[0]
    # The figure of what is kept is the table's: of its own decoder, after scaling.
    assert re.search(r": quick \d+\.\d%, .*; kept [^%]+$", said[1])
    assert is_blend(model.network)
    again = load(tmp_path / "model")
    p = again.probabilities(new.inputs)
    assert torch.equal(p, model.probabilities(new.inputs))
    assert torch.allclose(TREE.sum_up(p * torch.from_numpy(TREE.heights == 0)), p, atol=1e-4)
    right = np.mean([[a] == b for a, b in zip(again.predict(new.inputs), new.labels, strict=True)])
    assert right > 0.9
    assert again.decoder == "balanced"
    config = again.config
    assert config["recipe"]["because"].startswith("a race: weights by likelihood on 260 rows")
    alone = {key: one for key, one in config["training"]["left_out"].items() if "/" in key}
    assert set(alone) == {"quick/main", "kernel/main", "trees/main", "forest/main"}
    assert config["training"]["left_out"]["blend"] >= max(alone.values()) - 0.02
    assert config["calibration"]["rows"] == 260
    memory = next(part for part in model.network.specs if part.name == "quick")
    share = sum(memory.answers.values()) / model.network.total
    assert share >= MEMORY_SHARE - 1e-9 or share > 0.04  # shares of what is kept
    same = train(data, Plan())
    assert torch.equal(same.probabilities(new.inputs), model.probabilities(new.inputs))


def test_validation_rows_have_no_part_in_it():
    data = numbers(320)
    plan = Plan(valid_fraction=0.25)
    race = job(data, plan)
    assert len(race.held_out) == 80
    assert not set(race.held_out.tolist()) & set(race.rows.tolist())
    model = train(data, plan)
    assert model.config["metrics"]["valid"]["exact"] > 0.85


def test_the_winner_remembers_and_explains():
    data = numbers()
    y = [label for (label,) in data.labels]
    classifier = HierarchicalClassifier().fit(data.inputs, y)
    evidence = classifier.explain(data.inputs[:2])
    assert evidence[0]
    assert sum(one.weight for one in classifier.explain(data.inputs[:1], 500)[0]) <= 1.0 + 1e-6
    strange = np.random.default_rng(3).normal(size=(12, 4)) * 0.3 - 9
    classifier.remember(strange[:6], ["z"] * 6)
    assert (classifier.predict(strange[6:]) == "z").mean() > 0.6


def test_a_table_with_texts_races_trees_of_its_other_columns(tmp_path):
    """Only a product of two numbers tells the classes, which no linear model can."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(500, 2))
    notes = [" ".join(draw.choice(list("abcdefgh"), 60)) + f" row {n}" for n in range(500)]
    frame = pd.DataFrame({"note": notes, "one": x[:, 0], "two": x[:, 1]})
    y = np.where(x.prod(axis=1) > 0, "same/sign", "other/sign")
    model = HierarchicalClassifier(random_state=0, device="cpu").fit(frame[:400], y[:400])
    parts = model.pipeline_.config["recipe"]["parts"]
    assert set(parts) & {"trees", "forest"}
    assert (model.predict(frame[400:]) == y[400:]).mean() > 0.8
    model.save(tmp_path)
    again = load(tmp_path).probabilities(model._read_inputs(frame[400:]))
    assert np.array_equal(again.numpy(), model.predict_node_proba(frame[400:]))


def test_texts_race_linear_models_of_both_kinds():
    rows, y = texts()
    classifier = HierarchicalClassifier().fit(rows, y)
    new, truth = texts(seed=9)
    assert (classifier.predict(new) == np.array(truth)).mean() > 0.95
    assert {part.name for part in classifier.pipeline_.network.specs} <= {
        "linear",
        "linear-flat",
        "linear-smooth",
    }
    assert classifier.pipeline_.decoder == "balanced"
    assert classifier.reasons(new[:1])[0]
    alone = np.concatenate([classifier.predict_node_proba([text]) for text in new[:20]])
    np.testing.assert_array_equal(alone, classifier.predict_node_proba(new)[:20])


@pytest.mark.parametrize(
    ("optimize", "decoder"), [("exact", "leaf"), ("hier-f1", "hier-f1"), ("au-prc", "balanced")]
)
def test_what_answers_are_for_can_be_said(optimize, decoder):
    rows, y = texts()
    classifier = HierarchicalClassifier(optimize=optimize).fit(rows, y)
    expected = decoder if optimize != "au-prc" else classifier.pipeline_.decoder
    assert classifier.pipeline_.decoder == expected
    alone = HierarchicalClassifier(recipe="linear", optimize=optimize).fit(rows, y)
    assert alone.pipeline_.decoder == decoder
