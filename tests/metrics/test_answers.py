"""The figures of answers, against loops over paths and by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hierlearn import Hierarchy
from hierlearn.decoding import make_decoder
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics import METRICS, measure, measure_rows
from hierlearn.metrics.answers import Answers
from hierlearn.metrics.measure import shown_metrics
from metrics.score_batches import ANIMALS, DIAMOND, batches
from reference.metrics import answers as naive

NAMES = ["accuracy", "exact", "severity", "f1", "calibration", "answered", "complete"]
DECODERS = {
    "leaf": {},
    "stop": {"threshold": 0.4},
    "coherent": {"threshold": 0.6},
    "conformal": {"threshold": 0.5},
}


def the_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in found.items():
        many = value if isinstance(value, list) else [value]
        other = expected[name] if isinstance(expected[name], list) else [expected[name]]
        nan = [float("nan") if one is None else one for one in many]
        assert nan == pytest.approx(other, rel=1e-9, abs=1e-12, nan_ok=True), name


def test_they_are_what_is_shown():
    assert shown_metrics() == NAMES


@given(batches(), st.sampled_from(sorted(DECODERS)), st.booleans(), st.booleans())
def test_naive_loops_agree_on_trees_and_dags(batch, name, partial, inner):
    hierarchy, p = batch.hierarchy, batch.scores
    space = LabelSpace.from_targets(hierarchy, batch.targets) if inner else LabelSpace(hierarchy)
    decoder = make_decoder(space, name, **DECODERS[name])
    answers = [row.nonzero()[:, 0].tolist() for row in decoder.sets(p)]
    truth = [row.nonzero()[:, 0].tolist() for row in batch.targets]
    mask = None
    if partial:
        labels = Labels(hierarchy.decode(batch.targets), hierarchy, unlabeled_descendants="ignore")
        mask = labels.mask()
        if not bool(mask.any()):
            return
    expected = naive.figures(
        *(answers, truth, p.tolist(), batch.parents, set(space.terminals.tolist())),
        known=None if mask is None else mask.tolist(),
    )
    the_same(measure(p, batch.targets, space, NAMES, mask=mask, decoder=decoder), expected)
    rows = measure_rows(p, batch.targets, space, ["exact", "severity"], mask=mask, decoder=decoder)
    assert torch.from_numpy(rows["exact"]).nanmean() == pytest.approx(expected["exact"])


def of(answers, truth, hierarchy=ANIMALS, mask=None, terminals=()):
    """Figures of answers that are given by name, None for no answer; p is 0.8."""
    p = torch.zeros(len(answers), len(hierarchy))
    for row, one in enumerate(answers):
        for name in [one] if isinstance(one, str) else one or []:
            p[row] = torch.maximum(p[row], 0.8 * hierarchy.encode([name])[0])
    space = LabelSpace(hierarchy, terminals)
    decoder = make_decoder(space, "coherent")
    return measure(p, hierarchy.encode(truth), space, NAMES, mask=mask, decoder=decoder)


@pytest.mark.parametrize(
    ("answer", "label", "wrong"),
    [
        ("pug", "pug", 0),
        ("dog", "pug", 1),  # above the truth: the third level is missing
        ("animal", "pug", 2),
        (None, "pug", 3),
        ("pug", "dog", 1),  # below the truth: the third level is too much
        ("bulldog", "pug", 1),
        ("cat", "pug", 2),
        ("oak", "pug", 3),
        ("pug", "oak", 3),  # ragged: two levels are wrong, the third is too much
    ],
)
def test_the_levels_that_an_answer_is_wrong_at(answer, label, wrong):
    found = of([answer], [[label]])
    assert found["exact"] == (wrong == 0)
    assert found["severity"] == (wrong or None)


def test_a_row_counts_at_the_levels_where_it_has_a_label():
    found = of(["pug", "oak", "dog", None], [["pug"], ["oak"], ["pug"], ["cat"]])
    assert found["accuracy"] == [3 / 4, 3 / 4, 1 / 2]
    assert found["exact"] == 2 / 4
    assert found["severity"] == (1 + 2) / 2
    assert found["f1"] == 2 * (3 + 2 + 2) / ((3 + 3) + (2 + 2) + (2 + 3) + (0 + 2))
    assert found["answered"] == 3 / 4
    assert found["complete"] == 2 / 4
    # What is written: pug, oak and dog, each with p of 0.8, and each true.
    assert found["calibration"] == pytest.approx(0.2)
    assert of(["dog"], [["pug"]], terminals=["dog"])["complete"] == 1


def test_several_labels_must_all_be_answered():
    found = of([["pug", "oak"], ["pug"], ["pug", "cat"]], [["pug", "oak"]] * 3)
    assert found["exact"] == 1 / 3
    assert found["accuracy"] == [1 / 3, 1 / 3, 1]
    assert found["severity"] == 2


def test_a_dag_is_right_where_the_classes_of_a_level_are_all_right():
    found = of(["d", "e"], [["e"], ["e"]], DIAMOND)
    assert found["accuracy"] == [1, 0.5, 0.5]  # d also lies below b, e does not
    assert found["severity"] == 2


def test_what_lies_below_a_partial_label_is_neither_right_nor_wrong():
    labels = Labels(["dog", None], ANIMALS, unlabeled_descendants="ignore")
    told = of(["pug", "oak"], [["dog"], []], mask=labels.mask())
    assert told["exact"] == 1
    assert told["severity"] is None
    assert told["f1"] == 1
    assert told["calibration"] is None  # whether it is a pug is not known
    assert of(["pug", "oak"], [["dog"], []])["exact"] == 0
    assert of(["cat"], [["dog"]], mask=labels.mask()[:1])["severity"] == 1


def test_a_row_without_labels_is_right_where_nothing_is_answered():
    found = of([None, "oak"], [[], []])
    assert (found["exact"], found["severity"], found["answered"]) == (0.5, 2, 0.5)
    assert found["accuracy"] == [0.5, None, None]
    # So whoever is exact is right at the first level.
    assert of(["oak", "pug"], [[], ["pug"]])["accuracy"] == [0.5, 1, 1]


def test_other_metrics_leave_unknown_entries_out():
    labels = Labels(["dog", "cat", None], ANIMALS, unlabeled_descendants="ignore")
    p = torch.tensor([[0.9, 0.1, 0.2, 0.8, 0.1, 0.1, 0.7]] * 3)  # all three rows: a pug
    found = measure(p, labels, ANIMALS, ["au-prc", "hier-f1", "hit@1"], mask=labels.mask())
    whole = measure(p[:2], labels.targets()[:2], ANIMALS, ["au-prc", "hier-f1"])
    assert found["hier-f1"] == 2 * 3 / ((2 + 2) + (3 + 2))  # animal, dog; animal, not cat
    assert found["hier-f1"] > whole["hier-f1"]
    assert found["au-prc"] > whole["au-prc"]
    rows = measure_rows(p, labels, ANIMALS, ["hit@1"], mask=labels.mask())["hit@1"]
    assert rows[:2].tolist() == [1, 1]
    assert rows[2] != rows[2]
    assert measure_rows(p, labels, ANIMALS, ["exact"], mask=labels.mask())["exact"][0] == 1


def test_the_best_terminal_class_answers_where_no_decoder_is_given():
    space = LabelSpace(ANIMALS, ["dog"])
    p = torch.tensor([[0.9, 0.1, 0.1, 0.8, 0.1, 0.1, 0.2]])  # dog itself: 0.8 - 0.3
    assert METRICS["exact"](p, ["dog"], space) == 1
    assert METRICS["exact"](p, ["dog"], ANIMALS) == 0
    answers = Answers(p, ["dog"], space)
    assert answers.single.tolist() == [ANIMALS.index("dog")]


def test_what_is_refused():
    p = torch.zeros(1, 7)
    with pytest.raises(HierlearnError, match=r"mask \(2, 7\) must match probabilities \(1, 7\)"):
        measure(p, ["cat"], ANIMALS, ["exact"], mask=torch.ones(2, 7))
    with pytest.raises(HierlearnError, match="f1 is not a mean over rows"):
        measure_rows(p, ["cat"], ANIMALS, ["f1"])
    with pytest.raises(HierlearnError, match="none of the 1 rows has"):
        measure(p, [[]], ANIMALS, ["exact"], mask=torch.zeros(1, 7, dtype=torch.bool))
    flat = Hierarchy.from_paths(["a", "b"])
    with pytest.raises(HierlearnError, match="unknown decoder 'leav'"):
        measure(torch.zeros(1, 2), ["a"], flat, ["exact"], decoder="leav")
