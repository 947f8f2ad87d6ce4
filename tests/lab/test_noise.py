"""A noise study: evaluated clean, against naive loops; draw by draw, each cell once; resumed."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.datasets import Dataset
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab import runner as module
from hierlearn.lab.candidates import parse_candidates
from hierlearn.lab.corpora.synthetic import corrupt_hierarchy, make_synthetic
from hierlearn.lab.noise import (
    Cell,
    cells,
    corrupt,
    default_candidates,
    evaluate_decisions,
    noise_study,
)
from hierlearn.lab.noise_figures import DECIDED
from hierlearn.lab.protocol import Noise
from hierlearn.lab.study import Study, StudyError
from hierlearn.lab.summary import summarize
from hierlearn.reports.decisions import Truth
from hierlearn.training.choose import Facts, choose_recipe
from lab.small_studies import dataset, protocol, run

WORDS = ("bce", "leaf-ce")


def train(folder, *, words=WORDS, data=None, seeds=2, on_step=None, **noise):
    return noise_study(
        dataset() if data is None else data,
        parse_candidates(words),
        folder,
        protocol(seeds=seeds),
        noise=Noise(**{"rates": (0, 0.5), "draws": 1, **noise}),
        on_step=on_step,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noise") / "n"
    return train(folder), folder


# ------------------------------------------------------------------ evaluation


def evaluated(data, decided):
    """Evaluate (seeds, N) decided classes as a noise study does."""
    truth = Truth(data.hierarchy, *Labels(data.split("test").labels, data.hierarchy).closed)
    return evaluate_decisions(truth, decided, DECIDED)


TREE = {"a": [], "d": [], "b": ["a"], "c": ["a"], "e": ["d"], "g": ["d"], "f": ["e"], "h": ["e"]}
DAG = {**TREE, "f": ["e", "b"]}
TRUTH = [["f"], ["b"], ["e"], ["c", "g"], [], ["h", "c"], ["g"]]
CHOICES = [["f", "c", "f", "g", "f", "b", "h"], ["h", "b", "e", "b", "c", "g", "d"]]


def above(parents, name):
    """A class and all its ancestors, by climbing."""
    found = {name}
    for parent in parents[name]:
        found |= above(parents, parent)
    return found


def height(parents, name):
    below = [one for one in parents if name in parents[one]]
    return 1 + max(height(parents, one) for one in below) if below else 0


def level(parents, name):
    return 1 + max((level(parents, one) for one in parents[name]), default=0)


def naive(parents, truth, decided):
    """Evaluate decisions straight from the definitions."""
    root = 1 + max(height(parents, name) for name in parents)
    depth = max(level(parents, name) for name in parents)
    right, far, levels = [], [], [[] for _ in range(depth)]
    for labels, decision in zip(truth, decided, strict=True):
        if not labels:
            continue
        closure = set().union(*(above(parents, one) for one in labels))
        ends = {one for one in closure if not any(one in parents[other] for other in closure)}
        right.append(decision in ends)
        common = [
            min(height(parents, c) for c in above(parents, decision) & above(parents, end))
            if above(parents, decision) & above(parents, end)
            else root
            for end in ends
        ]
        far.append(0 if decision in closure else min(common))
        for number in range(depth):
            there = {one for one in closure if level(parents, one) == number + 1}
            if there:
                levels[number].append(bool(there & above(parents, decision)))
    means = {f"level-{number + 1}": np.mean(hits) for number, hits in enumerate(levels)}
    return {"terminal-accuracy": np.mean(right), "lca-height": np.mean(far), **means}


@pytest.mark.parametrize("parents", [TREE, DAG], ids=["tree", "DAG"])
def test_decisions_are_evaluated_as_naive_loops_do(parents):
    h = Hierarchy.from_parents(parents)
    number = {bare: place for place, bare in enumerate(h.bare_names)}
    labels = [[h.names[number[one]] for one in row] for row in TRUTH]
    data = Dataset(np.zeros((7, 1), np.float32), labels, h, splits={"test": range(7)})
    decided = np.array([[number[one] for one in row] for row in CHOICES])
    found = evaluated(data, decided)
    for place, row in enumerate(CHOICES):
        wanted = naive(parents, TRUTH, row)
        assert set(found) == set(wanted)
        for metric, value in wanted.items():
            assert found[metric][place] == pytest.approx(value), metric


@pytest.mark.parametrize("seed", range(3))
def test_who_is_right_in_the_wrong_taxonomy_is_right(seed):
    clean = make_synthetic(rows=80, fan_out=3, seed=seed)
    noisy, numbers = corrupt_hierarchy(clean, 0.7, seed)
    ends = Labels(noisy.split("test").labels, noisy.hierarchy).terminal_ids()
    found = evaluated(clean, numbers[ends][None])
    assert found["terminal-accuracy"] == [1.0]
    assert found["lca-height"] == [0.0]
    assert [found[f"level-{m}"] for m in (1, 2, 3)] == [[1.0]] * 3
    wrong = evaluated(clean, ends[None])["terminal-accuracy"]
    assert wrong != [1.0]  # numbers that are not mapped back


def test_a_level_without_labels_has_no_accuracy():
    h = Hierarchy.from_paths(["a/b"])
    data = Dataset(np.zeros((1, 1), np.float32), [["a"]], h, splits={"test": [0]})
    found = evaluated(data, np.array([[1]]))
    assert found["level-1"] == [1.0]
    assert math.isnan(found["level-2"][0])


# ------------------------------------------------------------------ training


def test_rate_0_is_trained_once_and_is_the_clean_study(trained, tmp_path):
    summary, folder = trained
    names = sorted(path.name for path in (folder / "cells").iterdir())
    assert names == ["clean-draw-0", "hierarchy-0.5-draw-0", "labels-0.5-draw-0"]
    for metric, figures in summary["figures"]["hierarchy"].items():
        assert summary["figures"]["labels"][metric][0] == figures[0]
    clean = run(tmp_path / "s", WORDS)
    shares = summarize(clean)["severity"]
    for number, candidate in enumerate(clean.candidates):
        figure = summary["figures"]["hierarchy"]["terminal-accuracy"][0][number]
        assert figure["values"] == [clean.values(candidate, "terminal-accuracy")]
        score = summary["figures"]["labels"]["au-prc"][0][number]
        assert score["values"] == [clean.values(candidate, "au-prc")]
        distance = summary["figures"]["labels"]["lca-height"][0][number]["mean"]
        severity = sum(h * share for h, share in enumerate(shares[candidate.key]))
        assert distance == pytest.approx(severity)


def test_nothing_changes_without_noise():
    data = dataset()
    noisy, numbers = corrupt(data, Cell("hierarchy", 0.0), 0)
    assert noisy.hierarchy == data.hierarchy
    assert numbers.tolist() == list(range(len(data.hierarchy)))
    decided = np.random.default_rng(0).integers(0, len(data.hierarchy), (2, 48))
    assert evaluated(noisy, numbers[decided]) == evaluated(data, decided)


def test_training_rows_are_corrupted_and_test_rows_are_not(trained):
    summary, folder = trained
    assert summary["corrupted"] == {
        "labels": [[0.0], [pytest.approx(0.5, abs=0.1)]],
        "hierarchy": [[0], [0.5]],
    }
    data = dataset()
    noisy, _ = corrupt(data, Cell("labels", 0.5), 0)
    changed = [row for row in range(len(data)) if noisy.labels[row] != data.labels[row]]
    held = np.concatenate([data.splits["train"], data.splits["valid"]])
    assert len(changed) == round(0.5 * len(held))
    assert set(changed) <= set(held.tolist())
    targets = Labels(data.split("test").labels, data.hierarchy).targets()
    assert torch.equal(Study.open(folder / "cells" / "labels-0.5-draw-0").truth().targets, targets)


def test_runs_that_still_improved_are_named(trained):
    summary, folder = trained
    for kind, name in (("labels", "labels-0.5-draw-0"), ("hierarchy", "hierarchy-0.5-draw-0")):
        runs = Study.open(folder / "cells" / name).runs()
        wanted = {run["candidate"] for run in runs if run["still_improving"]}
        assert set(summary["still_improving"][kind][1]) == wanted
    assert any(any(row) for row in summary["still_improving"].values())  # three epochs are few


def test_figures_are_those_of_the_stored_decisions_mapped_back(trained):
    summary, folder = trained
    data = dataset()
    _, numbers = corrupt_hierarchy(data, 0.5, 0)
    study = Study.open(folder / "cells" / "hierarchy-0.5-draw-0")
    truth = Labels(data.split("test").labels, data.hierarchy).terminal_ids()
    for place, candidate in enumerate(study.candidates):
        decided = study.rows(candidate)["terminal"]
        values = [np.mean(numbers[one] == truth) for one in decided]
        figure = summary["figures"]["hierarchy"]["terminal-accuracy"][1][place]
        assert figure["values"] == [pytest.approx(values)]


def test_an_interrupted_study_goes_on_where_it_was(trained, tmp_path, monkeypatch):
    whole, trainings = module.prepare, []

    def stop_at_the_fourth(*words, **options):
        trainings.append(1)
        if len(trainings) == 4:
            raise KeyboardInterrupt
        return whole(*words, **options)

    monkeypatch.setattr(module, "prepare", stop_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "n")
    monkeypatch.setattr(module, "prepare", lambda *w, **o: trainings.append(2) or whole(*w, **o))
    again = train(tmp_path / "n")
    assert trainings.count(2) == 3  # of six
    assert again["figures"] == trained[0]["figures"]
    trainings.clear()
    more = train(tmp_path / "n", rates=(0, 0.5, 1), kinds=["labels"])
    assert len(trainings) == 2  # another rate adds its own cell alone
    assert more["figures"]["labels"]["level-1"][:2] == again["figures"]["labels"]["level-1"]
    trainings.clear()
    drawn = train(tmp_path / "n", draws=2, kinds=["labels"])
    assert len(trainings) == 4  # another draw adds its own cells alone
    figures = [found["figures"]["labels"]["level-1"][1] for found in (again, drawn)]
    for before, after in zip(*figures, strict=True):
        assert after["values"][:1] == before["values"]


def test_a_draw_has_noise_and_seeds_of_its_own(tmp_path):
    found = train(tmp_path / "n", words=["bce"], draws=2, kinds=["labels"])
    assert (found["unit"], found["draws"], found["seeds"]) == ("draws", 2, 2)
    studies = {
        (rate, draw): Study.open(tmp_path / "n" / "cells" / f"{rate}-draw-{draw}")
        for rate in ("clean", "labels-0.5")
        for draw in range(2)
    }
    for (_, draw), study in studies.items():
        assert study.seeds == [2 * draw, 2 * draw + 1]
    digests = {study.config["dataset"]["digest"] for study in studies.values()}
    assert len(digests) == 3  # the clean rows, and two draws
    for place, rate in enumerate(("clean", "labels-0.5")):
        for metric in ("terminal-accuracy", "au-prc"):
            figure = found["figures"]["labels"][metric][place][0]
            by_draw = [studies[rate, k].values(parse_candidates("bce")[0], metric) for k in (0, 1)]
            assert figure["values"] == by_draw
            assert figure["mean"] == pytest.approx(np.mean(by_draw))
    metadata = studies["labels-0.5", 1].config["metadata"]["noise"]
    assert (metadata["kind"], metadata["rate"], metadata["draw"]) == ("labels", 0.5, 1)


def test_draws_of_one_rate_corrupt_other_rows():
    data = dataset()
    drawn = [corrupt(data, Cell("labels", 0.5, draw), 3)[0] for draw in range(2)]
    assert drawn[0].labels != drawn[1].labels
    later = corrupt(data, Cell("labels", 0.5, 0), 4)[0]
    assert later.labels == drawn[1].labels  # draw k has the noise seed + k
    moved = [corrupt(data, Cell("hierarchy", 0.5, draw), 3)[0] for draw in range(2)]
    assert moved[0].hierarchy != moved[1].hierarchy


def test_what_auto_chooses_is_among_the_candidates():
    data = dataset()
    texts = replace(data, inputs=[f"row {number}" for number in range(len(data))])
    for one in (data, texts):
        names = [candidate.key for candidate in parse_candidates(default_candidates(one))]
        labels = Labels(one.labels, one.hierarchy)
        assert choose_recipe(Facts.of(labels, one.kind))[0] in names
        assert {"bce", "hxe", "loss:hcl", "auto", "max", "flat", "hcl"} <= set(names)
        assert names[0] == "bce"
    assert "quick" in default_candidates(data)
    assert "linear" not in default_candidates(data)
    assert {"neighbors", "linear"} <= set(default_candidates(texts))


def test_steps_are_counted_over_all_trainings(tmp_path):
    seen = []
    train(
        tmp_path / "n",
        words=["bce", "leaf-ce"],
        kinds=["labels"],
        seeds=1,
        on_step=lambda number, step, of: seen.append(number),
    )
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2, 3}


def test_labels_whose_ancestors_are_named_too_stay_one_label(tmp_path):
    data = dataset()
    h = data.hierarchy
    named = [[*h.ancestors(row[0]), row[0]] for row in data.labels]
    assert len(named[0]) == 3
    found = [
        train(tmp_path / name, words=["bce"], data=one, seeds=1, kinds=["hierarchy"])
        for name, one in (("short", data), ("long", replace(data, labels=named)))
    ]
    assert found[0]["figures"] == found[1]["figures"]
    config = Study.open(tmp_path / "long" / "cells" / "hierarchy-0.5-draw-0").config["dataset"][
        "labels"
    ]
    assert config["single_path"]


def test_rows_that_no_split_names_are_trained_on(tmp_path):
    data = dataset()
    bare = replace(data, splits={"test": data.splits["test"]})
    found = train(tmp_path / "n", words=["bce"], data=bare, seeds=1, kinds=["labels"])
    assert found["corrupted"]["labels"][1] == [0.5]


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rates": [0, 1.5]}, r"a rate of noise must lie in \[0, 1\], not 1.5"),
        ({"rates": [-0.1, 0]}, r"must lie in \[0, 1\], not -0.1"),
        ({"rates": [math.nan, 0]}, r"must lie in \[0, 1\], not nan"),
        ({"rates": [0.1]}, "at least two rates of noise, each once, not 0.1"),
        ({"rates": [0, 0.1, 0.1]}, "each once, not 0, 0.1, 0.1"),
        ({"kinds": ["label"]}, "unknown kind of noise 'label'; did you mean 'labels'"),
        ({"kinds": []}, "name at least one kind of noise, of 'labels', 'hierarchy'"),
        ({"draws": 0}, "draws must be at least 1, not 0"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
    ],
)
def test_what_is_refused(options, message, tmp_path):
    with pytest.raises(HierlearnError, match=message):
        train(tmp_path / "n", **{"rates": [0.1, 0.2], **options})
    assert not (tmp_path / "n").exists()


def test_rows_without_a_clean_truth_are_refused(tmp_path):
    data = dataset()
    with pytest.raises(HierlearnError, match="synthetic has no split 'test' to evaluate on"):
        train(tmp_path / "n", data=replace(data, splits={"train": data.splits["train"]}))
    bare = replace(data, labels=[[] for _ in data.labels])
    with pytest.raises(HierlearnError, match="none of the 48 test rows has a label"):
        train(tmp_path / "n", data=bare)


def test_another_study_is_not_written_over(trained, tmp_path):
    folder = trained[1]
    with pytest.raises(
        StudyError, match=r"labels-0.5-draw-0 holds another study \(its dataset differ\)"
    ):
        train(folder, seed=1, kinds=["labels"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(StudyError, match="exists and holds no noise study; name another folder"):
        train(tmp_path / "mine")


def test_the_cells_of_a_study():
    assert [cell.name for cell in cells(["labels", "hierarchy"], [0.0, 0.25], 2)] == [
        "clean-draw-0",
        "labels-0.25-draw-0",
        "hierarchy-0.25-draw-0",
        "clean-draw-1",
        "labels-0.25-draw-1",
        "hierarchy-0.25-draw-1",
    ]
    names = [cell.name for cell in cells(["labels"], [0.1, 0.4], 1)]
    assert names == ["labels-0.1-draw-0", "labels-0.4-draw-0"]
