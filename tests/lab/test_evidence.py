"""The remembered rows of a study: what is stored of them, and that they give the answers."""

import copy
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from hierlearn.hierarchy.labels import Labels
from hierlearn.lab import runner
from hierlearn.lab.evidence import COUNT, find_evidence
from hierlearn.lab.study import Study
from hierlearn.networks.ensemble import LoopedEnsemble, StackedEnsemble, networks_in
from hierlearn.networks.memories import embed, neighbors_of
from hierlearn.pipeline.explain import explain
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.service.engine import count_cores
from hierlearn.training.inference import memorize
from hierlearn.training.prepare import prepare
from hierlearn.training.recipes import RECIPES, Recipe
from lab import small_studies as small

MEMORY = Recipe("bce", "answers from three rows", head="neighbors", head_options={"neighbors": 3})
WORDS = ("bce", "neighbors")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A candidate without a memory, the recipe, and one that answers from three rows alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RECIPES, "three", MEMORY)
        yield small.run(tmp_path_factory.mktemp("study") / "s", (*WORDS, "three"))


def test_only_a_memory_has_evidence(study):
    plain, neighbors, three = study.candidates
    assert study.evidence(plain) is None
    for candidate in (neighbors, three):
        found = study.evidence(candidate)
        assert found.rows.shape == found.weights.shape == (2, len(study.truth()), COUNT)
        assert (found.rows.dtype, found.weights.dtype) == (np.int32, np.float32)
        assert (np.diff(found.weights) <= 0).all()
        assert found.weights.sum(axis=2).max() <= 1 + 1e-5
        assert (np.unique(found.rows) == np.arange(len(found.ids))).all()  # stored where it occurs
        assert found.texts is None
    assert not list((study.folder / "evidence").glob("bce*"))


def test_labels_and_ids_are_those_of_training_rows(study):
    data, hierarchy = small.dataset(), study.hierarchy
    found = study.evidence(study.candidates[1])
    terminal = Labels(data.labels, hierarchy).terminal
    for number, name in enumerate(found.ids):
        row = int(name)  # rows without an id are named by their number
        assert row not in data.splits["test"]
        own = found.classes[found.offsets[number] : found.offsets[number + 1]]
        assert own.tolist() == terminal[1][terminal[0][row] : terminal[0][row + 1]].tolist()


def test_where_three_rows_answer_their_weights_are_the_probability(study):
    """The oracle: the share of the rows at or below a class is the probability of the class."""
    candidate, hierarchy = study.candidates[2], study.hierarchy
    found, rows = study.evidence(candidate), study.rows(candidate)
    closed = [
        set(hierarchy.closure(found.classes[begin:end].tolist()))
        for begin, end in zip(found.offsets[:-1], found.offsets[1:], strict=True)
    ]
    decided = rows["terminal"]
    expected = [
        [
            sum(w for w, one in zip(found.weights[s, n], found.rows[s, n], strict=True)
                if decided[s, n] in closed[one])
            for n in range(decided.shape[1])
        ]
        for s in range(2)
    ]  # fmt: skip
    assert rows["probability"] == pytest.approx(np.array(expected), abs=1e-5)
    assert found.weights.sum(axis=2) == pytest.approx(1, abs=1e-5)
    assert (found.rows[0] != found.rows[1]).any()  # each seed has its own neighbors


def test_seeds_have_the_evidence_of_the_model_trained_alone():
    data = small.dataset()
    plan = small.protocol(seeds=1, seed=1).plan(small.parse_candidates("neighbors")[0])
    prepared = prepare(data, plan, torch.device("cpu"))
    runner.fit(prepared, [])
    test = data.split("test")
    found = find_evidence(prepared.network, prepared.answer, runner.ready_rows(prepared, test))
    told = explain(Pipeline.from_prepared(prepared), test.inputs, COUNT)
    for row, expected in enumerate(told):
        assert [found.ids[one] for one in found.rows[0, row]] == [one.id for one in expected]
        assert found.weights[0, row] == pytest.approx([one.weight for one in expected], rel=1e-4)


def test_a_head_without_a_memory_that_answers_has_no_evidence():
    data = small.dataset()
    plan = small.protocol().plan(small.parse_candidates("neighbors")[0])
    prepared = prepare(data, plan, torch.device("cpu"))
    test = runner.ready_rows(prepared, data.split("test"))
    assert find_evidence(prepared.network, prepared.answer, test) is None  # nothing remembered yet
    runner.fit(prepared, [])
    assert find_evidence(prepared.network, "main", test) is not None
    assert find_evidence(prepared.network, "bce", test) is None


def test_looped_members_have_the_evidence_of_stacked_ones():
    data = small.dataset()
    plan = small.protocol(seeds=1).plan(small.parse_candidates("neighbors")[0])
    alone = [
        prepare(data, replace(plan, settings={**plan.settings, "seed": seed}), torch.device("cpu"))
        for seed in (0, 1, 2)
    ]
    members = [networks_in(one.network)[0] for one in alone]
    test = runner.ready_rows(alone[0], data.split("test"))
    found = []
    for made in (LoopedEnsemble, StackedEnsemble):
        network = made([copy.deepcopy(one) for one in members])
        memorize(network, alone[0].rows)
        found.append(find_evidence(network, "main", test))
    looped, stacked = found
    assert looped.rows.shape[0] == 3
    assert looped.weights == pytest.approx(stacked.weights, rel=1e-3)
    assert (looped.rows == stacked.rows).mean() > 0.99  # half precision: ties may swap


def test_weights_decide_the_order_where_rows_count_differently():
    """The nearest row is not the weightiest where rows have weights of their own."""
    data = small.dataset()
    plan = small.protocol().plan(small.parse_candidates("neighbors")[0])
    prepared = prepare(data, plan, torch.device("cpu"))
    draw = np.random.default_rng(0).random(len(prepared.rows)) + 1e-3
    prepared.rows.weights = torch.as_tensor(draw**8, dtype=torch.float32)
    runner.fit(prepared, [])
    test = runner.ready_rows(prepared, data.split("test"))
    found = find_evidence(prepared.network, "main", test)
    weights, _ = neighbors_of(
        prepared.network,
        "main",
        embed(prepared.network, test.take(torch.arange(len(test))))["main"],
    )
    assert (weights.diff() > 0).any()
    assert (np.diff(found.weights) <= 0).all()
    assert found.weights[..., 0] == pytest.approx(weights.amax(-1).detach().numpy(), rel=1e-4)


def test_a_resumed_study_has_the_evidence_of_a_whole_one(study, tmp_path):
    small.run(tmp_path, WORDS)
    whole = study.evidence(study.candidates[1])
    again = Study.open(tmp_path)
    lines = (tmp_path / "runs.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "runs.jsonl").write_text("".join(lines[:3]))  # cut off within the second candidate
    shutil.rmtree(tmp_path / "evidence")
    assert again.evidence(again.candidates[1]) is None
    resumed = small.run(tmp_path, WORDS).evidence(again.candidates[1])
    assert (resumed.rows == whole.rows).all()
    assert (resumed.weights == whole.weights).all()
    assert (resumed.classes == whole.classes).all()
    assert list(resumed.ids) == list(whole.ids)


def test_two_at_a_time_have_the_evidence_of_one_after_the_other(tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, count_cores() // 2))
    try:
        alone = small.run(tmp_path / "one", WORDS)
    finally:
        torch.set_num_threads(threads)
    both = small.run(tmp_path / "two", WORDS, executor=2)
    for one, other in zip(alone.candidates, both.candidates, strict=True):
        if (expected := alone.evidence(one)) is None:
            assert both.evidence(other) is None
            continue
        found = both.evidence(other)
        assert (found.rows == expected.rows).all()
        assert (found.weights == expected.weights).all()
        assert found.ids == expected.ids


def test_a_study_that_replaces_another_keeps_none_of_its_evidence(tmp_path):
    candidate = small.parse_candidates("neighbors")[0]
    study = small.run(tmp_path, ("neighbors",))
    assert study.evidence(candidate) is not None
    study.add(candidate, runner.Result(study.runs(), study.rows(candidate), []))  # has no memory
    assert study.evidence(candidate) is None
