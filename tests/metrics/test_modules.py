"""The torchmetrics classes equal the functions, in batches and over processes."""

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchmetrics

import warm
from hierlearn import metrics
from hierlearn.errors import HierlearnError
from hierlearn.metrics import modules
from metrics.module_function_pairs import BATCH, SPACE, TREE, module_function_pairs
from metrics.score_batches import ANIMALS, DIAMOND, assert_same, random_batch, tree

WORKER = Path(__file__).with_name("ddp_worker.py")
each_pair = pytest.mark.parametrize("name", module_function_pairs())


def test_every_class_is_paired_with_its_function():
    used = {type(module).__name__ for module, _, _ in module_function_pairs().values()}
    public = {name for name in metrics.__all__ if hasattr(modules, name) and name[0].isupper()}
    assert used - {"FunctionMetric"} == public  # the rest have no class of their own
    for name in public:
        assert getattr(metrics, name) is getattr(modules, name)


@each_pair
@pytest.mark.parametrize("size", [1, 5, 23])
def test_in_batches_it_is_the_function_of_all_rows(name, size):
    module, inputs, function = module_function_pairs()[name]
    for begin in range(0, len(inputs), size):
        module.update(inputs[begin : begin + size], BATCH.targets[begin : begin + size])
    expected = function(inputs, BATCH.targets)
    assert_same(module.compute(), expected)
    module.reset()
    module.update(inputs, BATCH.targets)
    assert_same(module.compute(), expected)


@each_pair
def test_forward_gives_the_batch_and_keeps_the_total(name):
    module, inputs, function = module_function_pairs()[name]
    first, second = slice(0, 12), slice(12, None)
    module(inputs[first], BATCH.targets[first])
    found = module(inputs[second], BATCH.targets[second])
    assert_same(found, function(inputs[second], BATCH.targets[second]))
    assert_same(module.compute(), function(inputs, BATCH.targets))


@each_pair
def test_copies_continue_to_count(name):
    module, inputs, function = module_function_pairs()[name]
    module.update(inputs[:9], BATCH.targets[:9])
    for clone in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        clone.update(inputs[9:], BATCH.targets[9:])
        assert_same(clone.compute(), function(inputs, BATCH.targets))


@each_pair
@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")  # before any update
def test_without_rows_there_is_no_value(name):
    module, inputs, _ = module_function_pairs()[name]
    with pytest.raises(HierlearnError, match=r"no rows|no row with a label was seen"):
        module.compute()
    module.reset()
    module.update(inputs[:0], BATCH.targets[:0])
    with pytest.raises(HierlearnError, match=r"no rows|no row with a label was seen"):
        module.compute()
    module.reset()
    module.update(inputs[:0], BATCH.targets[:0])  # an empty batch does no harm
    module.update(inputs, BATCH.targets)
    assert not module.compute().isnan().all()


@pytest.mark.parametrize("split", [6, 23], ids=["unequal", "one without rows"])
def test_two_processes_give_what_one_gives(split, tmp_path):
    workers = [
        subprocess.Popen(
            [*warm.python(), str(WORKER), str(rank), "2", str(tmp_path / "rendezvous"), str(split)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [worker.communicate(timeout=240) for worker in workers]
    for worker, (_, errors) in zip(workers, outputs, strict=True):
        assert worker.returncode == 0, errors
    for out, _ in outputs:
        values = json.loads(out.splitlines()[-1])
        assert values.keys() == module_function_pairs().keys()
        for name, (_, inputs, function) in module_function_pairs().items():
            expected = function(inputs, BATCH.targets)
            assert_same(torch.tensor(values[name], dtype=torch.float64), expected)


def test_a_collection_takes_them():
    collection = torchmetrics.MetricCollection(
        {name: metrics.METRICS[name].module(SPACE) for name in ("hit@1", "mrr", "au-prc")}
    )
    collection.update(BATCH.scores, BATCH.targets)
    for name, value in collection.compute().items():
        assert_same(value, metrics.METRICS[name](BATCH.scores, BATCH.targets, TREE))


def test_annotated_labels_go_with_update():
    scores, targets = tree([{"dog": 1}, {"cat": 1}]), ANIMALS.encode(["pug", "pug"])
    annotated = torch.zeros_like(targets)
    annotated[:, ANIMALS.index("pug")] = True
    for module, function in (
        (metrics.HierDist, metrics.hier_dist),
        (metrics.MistakeSeverity, metrics.mistake_severity),
    ):
        one = module(ANIMALS, reference="annotated", distance="path")
        one.update(scores, targets, annotated)
        expected = function(
            scores, targets, ANIMALS, reference="annotated", distance="path", annotated=annotated
        )
        assert_same(one.compute(), expected)
        with pytest.raises(HierlearnError, match="reference 'annotated' needs annotated="):
            one.update(scores, targets)


def test_severity_without_a_mistake_is_nan_and_without_a_label_refused():
    one = metrics.MistakeSeverity(ANIMALS)
    one.update(tree([{"dog": 1}]), ANIMALS.encode(["pug"]))
    assert one.compute().isnan()
    one.reset()
    one.update(tree([{"dog": 1}]), ANIMALS.encode([[]]))
    with pytest.raises(HierlearnError, match="none of the 1 rows has a label, so there is no mist"):
        one.compute()


def test_rows_that_do_not_count_alone_are_refused():
    one = metrics.LeafAccuracy(ANIMALS)
    one.update(torch.rand(2, 7), ANIMALS.encode(["dog", "plant"]))
    with pytest.raises(HierlearnError, match="none of the 2 rows has a leaf label, so there is no"):
        one.compute()


def test_what_is_refused_at_construction():
    for make, message in (
        (lambda: metrics.TerminalAccuracy(), "TerminalAccuracy needs a label space or a hierarchy"),
        (lambda: metrics.TerminalAccuracy(["wolf"]), "made of a Hierarchy, not list"),
        (lambda: metrics.HitAtK(k=0), "k = 0 must be an integer of at least 1"),
        (lambda: metrics.HierDist(ANIMALS, k=8), r"k = 8 is outside 1\.\.7, the number of cand"),
        (lambda: metrics.HierDist(ANIMALS, correct_cost="none"), "unknown correct_cost 'none'"),
        (lambda: metrics.HierDist(ANIMALS, candidates="leaf"), "unknown candidates 'leaf'"),
        (lambda: metrics.HierDist(ANIMALS, reference="all"), "unknown reference 'all'"),
        (lambda: metrics.HierDist(DIAMOND, distance="path"), "needs a tree"),
        (lambda: metrics.AveragePrecision(average="samples"), "unknown average 'samples'"),
        (lambda: metrics.HierarchicalF1(ANIMALS, average="weighted"), "unknown average 'weighted'"),
        (lambda: metrics.HierarchicalF1(ANIMALS, beta=0), "beta = 0 must be a positive"),
        (lambda: metrics.ExactMatch(ANIMALS, threshold=2), r"threshold must lie in \[0, 1\]"),
        (lambda: metrics.CoherenceViolations(ANIMALS, tolerance=-1), "tolerance = -1 must be"),
        (lambda: metrics.CalibrationError(ANIMALS, bins=0), "bins = 0 must be an integer"),
    ):
        with pytest.raises(HierlearnError, match=message):
            make()


def test_the_functions_need_no_torchmetrics():
    code = "import sys, hierlearn.metrics; print('torchmetrics' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
    with pytest.raises(AttributeError, match="no attribute 'HitAt'"):
        metrics.HitAt  # noqa: B018


def test_scores_of_half_precision_are_kept_in_float32():
    batch = random_batch(TREE, 10)
    one = metrics.AveragePrecision()
    one.update(batch.scores.bfloat16(), batch.targets)
    assert one.scores[0].dtype == torch.float32
    expected = metrics.average_precision(batch.scores.bfloat16(), batch.targets)
    assert_same(one.compute(), expected)
