"""Fmax, Smin and information content: against loops, worked examples, and what they refuse."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hierlearn import Hierarchy
from hierlearn.errors import DataError, HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.cafa import (
    Coherence,
    cafa_curve,
    cafa_curves,
    fmax,
    information_content,
    namespace_classes,
    read_information,
    smin,
)
from hierlearn.metrics import METRICS
from metrics.score_batches import DIAMOND, batches
from reference.metrics import cafa as reference
from tolerances import FLOAT64

GRID = [step / 100 for step in range(1, 101)]


@given(batch=batches(), data=st.data())
@settings(max_examples=60)
def test_the_curve_is_the_loop(batch, data):
    scores, targets = batch.scores.double(), batch.targets
    classes = data.draw(st.lists(st.integers(0, len(batch.hierarchy) - 1), min_size=1, unique=True))
    ic = reference.information_content(targets.tolist(), batch.parents)
    FLOAT64.assert_close(
        information_content(targets, batch.hierarchy), torch.tensor(ic, dtype=torch.float64)
    )
    if not targets.any():
        with pytest.raises(HierlearnError, match="no row has a label in the namespace of these"):
            cafa_curve(scores, targets, batch.hierarchy, classes=classes)
        return
    expected = reference.figures(
        scores.tolist(), targets.tolist(), batch.parents, ic, classes, GRID
    )
    curve = cafa_curve(scores, targets, batch.hierarchy, classes=classes)
    assert (curve.fmax, curve.weighted_fmax, curve.smin) == FLOAT64.approx(expected)
    best = int((curve.thresholds - curve.fmax_threshold).abs().argmin())
    assert float(curve.f[best]) == curve.fmax
    assert not (curve.f[best + 1 :] >= curve.fmax).any()  # the largest of the best thresholds
    for threshold in (0.25, 0.5, 1.0):
        place, part = GRID.index(threshold), curve
        loop = reference.at_threshold(
            scores.tolist(), targets.tolist(), batch.parents, ic, classes, threshold
        )
        found = [part.precision, part.recall, part.weighted_precision, part.weighted_recall]
        found += [part.uncertainty, part.misinformation]
        assert [float(one[place]) for one in found] == FLOAT64.approx(loop)


@given(batch=batches())
@settings(max_examples=30)
def test_coherent_columns_are_the_maximum_over_descendants(batch):
    assert torch.equal(
        Coherence(batch.hierarchy)(batch.scores), batch.hierarchy.max_up(batch.scores)
    )


def test_a_worked_example():
    # a above b and c; two rows: {a, b} and {a, c}.
    h = Hierarchy.from_edges([("a", "b"), ("a", "c")], named_by="id")
    targets = h.encode([["b"], ["c"]])
    p = torch.tensor([[0.9, 0.6, 0.4], [0.9, 0.6, 0.4]], dtype=torch.float64)
    # ic: a in both rows 0; b and c in one of the two rows that have a: 1 bit each.
    assert information_content(targets, h).tolist() == [0.0, 1.0, 1.0]
    curve = cafa_curve(p, targets, h)
    # t <= 0.4: a, b, c: pr 2/3, rc 1, F 0.8; t <= 0.6: a, b: pr 3/4, rc 3/4; t <= 0.9: a: 1, 1/2.
    assert curve.fmax == pytest.approx(0.8)
    assert curve.fmax_threshold == 0.4
    # ru and mi at t <= 0.4: 0 and 1; at t <= 0.6: 0.5 and 0.5; above: 1 and 0.
    assert curve.smin == pytest.approx(math.sqrt(0.5))
    assert curve.smin_threshold == 0.6
    assert curve.coverage[0] == 1
    assert curve.coverage[-1] == 0


def test_rows_known_by_the_root_alone_count_as_in_cafaeval():
    """What cafaeval 1.3 prints for these three files; (rows, pr, rc, Fmax) up to .95."""
    h = Hierarchy.from_edges([("root", "A"), ("root", "B")], named_by="id")
    h = h.with_aliases(namespaces=dict.fromkeys(h.names, "process"))
    targets = h.encode([["A"], ["root"]])
    p = 0.95 * h.encode([["A"], ["B"]]).double()
    every = np.arange(len(h))
    for groups, pr, rc, best in ((None, 0.5, 0.5, 0.5), ({"process": every}, 0.75, 1.0, 6 / 7)):
        curve = cafa_curves(p, targets, h, groups)["process"]
        assert curve.rows == 2
        assert curve.fmax_threshold == 0.95
        assert (float(curve.precision[0]), float(curve.recall[0])) == (pr, rc)
        assert curve.fmax == pytest.approx(best)


def test_a_part_of_into_another_namespace_is_no_edge_as_in_cafaeval():
    """What cafaeval 1.3 prints for these files: Fmax 2/3 of P at .3 (pr 1, rc .5), and 1 of F."""
    edges = [("P", "P1"), ("F", "F1"), ("P1", "F1")]
    h = Hierarchy.from_edges(edges, named_by="id")
    h = h.with_aliases(namespaces={name: name[0] for name in h.names})
    rows = [["F1"], ["P1"]]
    p = torch.zeros(2, len(h), dtype=torch.float64)
    for row, name, score in ((0, "F1", 0.9), (1, "F1", 0.8), (1, "P", 0.3)):
        p[row, h.index(name)] = score
    assert {name: len(own) for name, own in namespace_classes(h).items()} == {"P": 1, "F": 1}
    groups = {name: h.in_namespace(name) for name in h.namespace_names}
    for targets in (rows, Labels(rows, h)):
        found = cafa_curves(p, targets, h, groups)
        assert (found["F"].rows, found["P"].rows) == (1, 1)
        assert found["F"].fmax == 1
        assert (float(found["P"].precision[29]), float(found["P"].recall[29])) == (1, 0.5)
        assert found["P"].fmax == pytest.approx(2 / 3)
        assert found["P"].fmax_threshold == 0.3


@given(batch=batches(), data=st.data())
@settings(max_examples=60)
def test_namespaces_are_the_loop_over_each_alone(batch, data):
    h = batch.hierarchy
    classes = range(len(h))
    spaces = [data.draw(st.sampled_from(["p", "f", None])) for _ in classes]
    h = h.with_aliases(namespaces=dict(zip(h.names, spaces, strict=True)))
    parents = [[p for p in batch.parents[c] if spaces[p] == spaces[c]] for c in classes]
    one_row = st.lists(st.sampled_from(classes), min_size=1, max_size=3, unique=True)
    given_labels = [data.draw(one_row) for _ in batch.scores]
    targets = [
        [value > 0 for value in reference.coherent([float(c in row) for c in classes], parents)]
        for row in given_labels
    ]
    rows = [[h.names[c] for c in row] for row in given_labels]
    ic = reference.information_content(targets, parents)
    FLOAT64.assert_close(information_content(rows, h), torch.tensor(ic, dtype=torch.float64))
    counted = namespace_classes(h)
    found = cafa_curves(batch.scores.double(), Labels(rows, h), h)
    for name in {*spaces} - {None}:
        own = [c for c in classes if spaces[c] == name]
        below = [c for c in own if parents[c]]
        assert (name in counted) == bool(below)
        if not below:
            continue
        assert counted[name].tolist() == below
        assert (name in found) == any(row[c] for row in targets for c in own)
        if name in found:
            args = batch.scores.tolist(), targets, parents, ic, below, GRID
            expected = reference.figures(*args, own)
            curve = found[name]
            assert (curve.fmax, curve.weighted_fmax, curve.smin) == FLOAT64.approx(expected)


def test_information_is_conditional_on_all_parents_together():
    # d lies below b and c: of four rows, two have both, one of these has d.
    rows = [["b"], ["b", "c"], ["d"], ["e"], []]
    labels = Labels(rows, DIAMOND)
    found = dict(zip(DIAMOND.names, information_content(labels, DIAMOND).tolist(), strict=True))
    assert found["a"] == 0  # the row without labels does not count
    assert found["b"] == pytest.approx(math.log2(4 / 3))
    assert found["c"] == pytest.approx(math.log2(4 / 3))
    assert found["d"] == 1.0
    assert found["e"] == pytest.approx(math.log2(3))
    assert information_content(labels, DIAMOND).equal(
        information_content(labels.targets(), DIAMOND)
    )


def test_information_of_a_class_without_rows_is_finite():
    h = Hierarchy.from_paths(["a/b", "a/c", "x/y"])
    found = dict(zip(h.names, information_content([["a/b"]] * 8, h).tolist(), strict=True))
    assert found == {"a": 0.0, "x": 3.0, "a/b": 0.0, "a/c": 3.0, "x/y": 0.0}


def test_perfect_and_empty_answers():
    targets = DIAMOND.encode([["d"], ["e"], ["b"]])
    assert fmax(targets.double(), targets, DIAMOND) == 1
    assert smin(targets.double(), targets, DIAMOND) == 0
    nothing = cafa_curve(torch.zeros(3, len(DIAMOND)), targets, DIAMOND)
    assert nothing.fmax == 0
    ic = information_content(targets, DIAMOND)
    assert nothing.smin == pytest.approx(float((targets.double() @ ic).mean()))


def test_namespaces_leave_out_their_top_classes():
    h = Hierarchy.from_edges([("p", "p1"), ("p", "p2"), ("f", "f1")], named_by="id")
    assert namespace_classes(h)["all"].tolist() == [0, 1, 2, 3, 4]
    h = h.with_aliases(namespaces={n: "process" if n[0] == "p" else "function" for n in h.names})
    groups = namespace_classes(h)
    assert {k: [h.names[n] for n in v] for k, v in groups.items()} == {
        "function": ["f1"],
        "process": ["p1", "p2"],
    }
    targets = h.encode([["p1", "f1"], ["p2"]])
    p = h.encode([["p1"], ["p1"]]).double()
    found = cafa_curves(p, targets, h)
    assert (found["function"].rows, found["process"].rows) == (1, 2)
    assert found["function"].fmax == 0
    assert found["process"].fmax == 0.5
    for name, curve in found.items():
        assert curve.fmax == cafa_curve(p, targets, h, classes=groups[name]).fmax


def test_given_information_counts():
    targets = DIAMOND.encode([["d"]])
    p = DIAMOND.encode([["e"]]).double()
    ic = torch.arange(5, dtype=torch.float64)
    wrong = targets ^ p.bool()
    both = (targets & ~p.bool()).double() @ ic, (p.bool() & ~targets).double() @ ic
    assert wrong.any()
    assert smin(p, targets, DIAMOND, information=ic) == pytest.approx(
        min(math.hypot(*(float(x) for x in both)), float(targets.double() @ ic))
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"information": torch.ones(4)}, r"information \(4,\) must be \(5,\)"),
        ({"information": -torch.ones(5)}, "information must be finite and at least 0"),
        ({"classes": []}, "classes must be a list of class numbers"),
        ({"classes": [7]}, r"classes must lie in 0\.\.4"),
    ],
)
def test_what_is_refused(options, message):
    targets = DIAMOND.encode([["d"]])
    with pytest.raises(HierlearnError, match=message):
        cafa_curve(targets.double(), targets, DIAMOND, **options)


def test_they_are_registered():
    assert METRICS["fmax"].direction == METRICS["weighted-fmax"].direction == "up"
    assert METRICS["smin"].direction == "down"
    targets = DIAMOND.encode([["d"], ["e"]])
    p = torch.full((2, 5), 0.3)
    for name in ("fmax", "weighted-fmax", "smin"):
        module = METRICS[name].module(DIAMOND)
        module.update(p, targets)
        assert module.compute() == METRICS[name](p, targets, DIAMOND)


def test_a_file_of_information(tmp_path):
    path = tmp_path / "ia.txt"
    path.write_text("b\t1.5\nGO:other\t2\n\nd\t0\n")
    assert read_information(path, DIAMOND).tolist() == [0, 1.5, 0, 0, 0]
    for text, message in {
        "b 1.5\n": "line 1: 'b 1.5' is not a class, a tab and its information",
        "b\t-1\n": r"line 1: 'b\\t-1' is not a class, .* a number of at least 0",
        "x\t1\n": "names no class of the hierarchy",
    }.items():
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_information(path, DIAMOND)


def test_a_large_taxonomy_in_chunks(monkeypatch):
    h = Hierarchy.from_parents(np.concatenate([[-1], np.arange(60) // 2]))
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(40, len(h), generator=generator)
    targets = h.encode(torch.randint(0, len(h), (40, 2), generator=generator).tolist())
    whole = cafa_curve(p, targets, h)
    monkeypatch.setattr("hierlearn.hierarchy.structure.CHUNK", 200)
    parts = cafa_curve(p, targets, h)
    FLOAT64.assert_close(whole.f, parts.f)
    FLOAT64.assert_close(whole.s, parts.s)
