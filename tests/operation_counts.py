"""How many operations the hot paths take, against the budget in operation_counts.json.

    operations   calls of torch's operators (aten), forward and backward
    tensors      what they allocate, in float32 tensors of (N, C)
    waits        reads of a value by Python, each of which would wait for a GPU

Seconds depend on the machine, these numbers do not. As a script it prints what is measured, and
``python tests/operation_counts.py --update`` writes it into the budget; words that follow, such as
``loss/hcl``, limit both to the paths that begin so.
"""

import argparse
import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hierlearn import Dataset, Hierarchy, Plan
from hierlearn.datasets import Images
from hierlearn.kernels import choose
from hierlearn.lab.corpora.synthetic import make_synthetic
from hierlearn.links import LINKS, make_link
from hierlearn.losses import LOSSES
from hierlearn.pipeline import Pipeline
from hierlearn.training.prepare import prepare
from hierlearn.training.processes import Processes
from hierlearn.training.solvers import SOLVERS, Run
from hierlearn.training.solvers.gradient import Trainer

BUDGET = Path(__file__).with_suffix(".json")
UPDATE = "python tests/operation_counts.py --update"
MEASURES = ("operations", "tensors", "waits")
ROUNDING = 1.005  # of tensors whose size depends on values, which processors round differently
SLACK = 0.2  # by which a path may be cheaper than its budget until that must be lowered
OTHER_TORCH = 1.25  # by which another release of torch may exceed the budget
CPU = torch.device("cpu")
ROWS = 64
VALUES = {"_local_scalar_dense", "equal", "masked_select", "nonzero", "_unique2", "unique_dim"}
LINKS_OF_TREES = ("siblings",)
RECIPES = {
    "quick": Plan(recipe="quick"),
    "neighbors": Plan(recipe="neighbors"),
    "hcl": Plan(recipe="hcl"),
    "hcl, 2 networks": Plan(recipe="hcl", settings={"ensemble_size": 2}),
    "max": Plan(recipe="max"),
    "paper": Plan(recipe="paper"),
    "flat": Plan(recipe="flat"),
    "softmax of images": Plan(recipe="softmax", preprocessing_options={"image_size": 12}),
    "hcl of texts": Plan(recipe="hcl"),
}
KERNELS = (  # losses that have CPU kernels
    *("bce", "cond-softmax", "focal", "hcl", "hcl-cl", "hcl-hier", "hxe", "leaf-ce"),
    *("mcloss", "mixed", "soft-labels"),
)
SOLVED = {"linear of texts": Plan(recipe="linear")}  # which takes no steps


# ---------------------------------------------------------------------- counting


class Counter(TorchDispatchMode):
    """Count what torch does.

    Args:
        entries: N times C.
    """

    def __init__(self, entries):
        super().__init__()
        self.entries = entries
        self.operations = self.bytes = self.waits = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        known = {one.untyped_storage().data_ptr() for one in given}
        for one in tree_leaves(found):
            if isinstance(one, torch.Tensor):
                storage = one.untyped_storage()
                self.bytes += 0 if storage.data_ptr() in known else storage.nbytes()
        self.operations += 1
        self.waits += reads_value(func.overloadpacket.__name__, args)
        return found

    def counts(self):
        tensors = round(self.bytes / (4 * self.entries), 2)
        return {"operations": self.operations, "tensors": tensors, "waits": self.waits}


def reads_value(name, args):
    """Whether an operator reads values, or must know how many there are."""
    if name in ("index", "index_put", "index_put_"):
        return any(one is not None and one.dtype == torch.bool for one in args[1])
    return name in VALUES


@contextmanager
def one_thread():
    """Compute in one thread, as the number of parts may depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def count(function, entries, kernels=False):
    """Return what a call takes after two that fill caches and check values.

    Args:
        function: the call.
        entries: N times C.
        kernels: whether CPU kernels take what they can.
    """
    used = mock.patch.multiple(choose, has_numba=lambda: kernels, FEWEST=1)
    with one_thread(), used:
        function()
        function()
        with Counter(entries) as counter:
            function()
    return counter.counts()


# ---------------------------------------------------------------------- losses and links


def shapes():
    """Return a ragged tree and a DAG of about as many classes."""
    paths = [f"{a}/{b}/{c}" for a in range(4) for b in range(a + 2) for c in range(b + 3)]
    tree = Hierarchy.from_paths([*paths, "alone", "short/end"])
    edges = [
        (f"{level}{n}", f"{level + 1}{m}")
        for level in (1, 2)
        for n in range(8)
        for m in (n, n + 1, n + 9)
    ]
    return {"tree": tree, "DAG": Hierarchy.from_edges(edges)}


def batch(hierarchy):
    """Return logits, and targets of one class each."""
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(ROWS, len(hierarchy), generator=draw).requires_grad_()
    labels = torch.randint(0, len(hierarchy), (ROWS,), generator=draw)
    return logits, hierarchy.encode(labels.tolist(), numbers=True)


def loss_step(name, hierarchy, kernels=False):
    """Count the step of a loss, forward and backward."""
    logits, targets = batch(hierarchy)
    loss = LOSSES[name](hierarchy)

    def step():
        logits.grad = None
        loss(logits, targets).backward()

    return count(step, logits.numel(), kernels)


def link_step(name, hierarchy, kernels=False):
    """Count the log-probabilities of a link, forward and backward."""
    logits, _ = batch(hierarchy)
    link = make_link(hierarchy, name)
    gradient = torch.ones_like(logits)

    def step():
        logits.grad = None
        torch.autograd.backward(link.log_probabilities(logits), [gradient, gradient])

    return count(step, logits.numel(), kernels)


# ---------------------------------------------------------------------- training and predicting


@cache
def rows_of(name):
    """Return small data of the kind that a recipe is for."""
    numbers = make_synthetic(rows=200, features=12, depth=2, fan_out=4, seed=0)
    if "texts" in name:
        words = [
            " ".join(f"w{n % 7}{value:.0f}" for n, value in enumerate(row))
            for row in numbers.inputs
        ]
        return Dataset(words, numbers.labels, numbers.hierarchy, numbers.splits)
    if "images" in name:
        images = np.random.default_rng(0).integers(
            0, 256, (len(numbers), 3, 16, 16), dtype=np.uint8
        )
        return Dataset(Images.from_array(images), numbers.labels, numbers.hierarchy, numbers.splits)
    return numbers


def prepared_for(name):
    """Return the rows of a recipe, and what is prepared of them."""
    plan = (RECIPES | SOLVED)[name]
    settings = {"device": "cpu", "batch_size": ROWS, "epochs": 2, **plan.settings}
    dataset = rows_of(name)
    return dataset, prepare(dataset, replace(plan, settings=settings), CPU)


def trainer_for(ready):
    """Return a gradient loop that has not begun."""
    settings = ready.decision.settings
    return Trainer(
        ready.network, ready.loss, ready.rows, settings, valid=ready.valid, read=ready.read
    )


def training_step(name):
    """Count one step of a recipe."""
    _, ready = prepared_for(name)
    trainer = trainer_for(ready)
    order = trainer.rows.order(trainer.seeds, 0)
    index = (order if trainer.is_ensemble else order[0])[..., :ROWS]
    trainer.network.train()

    def step():
        trainer.step = 0
        trainer.train_step(index, 0, 0)

    return count(step, ROWS * len(ready.label_space))


def validation(name):
    """Count one validation of a recipe."""
    _, ready = prepared_for(name)
    trainer = trainer_for(ready)
    return count(lambda: trainer._validate(0), len(ready.valid) * len(ready.label_space))


def predicting(name):
    """Count the answers of a recipe for a block of rows."""
    dataset, ready = prepared_for(name)
    if name in SOLVED:
        SOLVERS[ready.decision.settings.optimizer].fit(ready, Run(Processes(0, 1, CPU)))
    else:
        trainer = trainer_for(ready)
        trainer.step = trainer.steps  # only a memory is filled: weights do not matter here
        trainer.train()
    pipeline = Pipeline.from_prepared(ready)
    block = dataset.take(np.arange(ROWS)).inputs

    def answer():
        (p,) = pipeline.stream_probabilities(block, tiled=False)  # tiles have more rows
        chosen = pipeline.make_decoder()
        return pipeline.hierarchy.decode(chosen(p)) if chosen.answers == "set" else chosen(p)

    return count(answer, ROWS * len(ready.label_space))


# ---------------------------------------------------------------------- the budget


def paths():
    """Return what measures every path, by its name."""
    found = {}
    for shape, hierarchy in shapes().items():
        for name, loss in LOSSES.items():
            if hierarchy.is_tree or not loss.needs_tree:
                found[f"loss/{name}/{shape}"] = partial(loss_step, name, hierarchy)
        for name in LINKS:
            if hierarchy.is_tree or name not in LINKS_OF_TREES:
                found[f"link/{name}/{shape}"] = partial(link_step, name, hierarchy)
    tree = shapes()["tree"]
    for name in KERNELS:
        found[f"kernel/{name}/tree"] = partial(loss_step, name, tree, kernels=True)
    found["kernel/softmax link/tree"] = partial(link_step, "softmax", tree, kernels=True)
    found |= {f"step/{name}": partial(training_step, name) for name in RECIPES}
    found |= {f"validation/{name}": partial(validation, name) for name in RECIPES}
    found |= {f"predict/{name}": partial(predicting, name) for name in RECIPES | SOLVED}
    return found


def release():
    """Return the release of torch without its last number."""
    return ".".join(torch.__version__.split(".")[:2])


def read_budget():
    """Return the release of torch of the budget, and the budget by path."""
    held = json.loads(BUDGET.read_text())
    return held["torch"], held["paths"]


def complaints(path, allowed, found, *, same_torch=True):
    """Return what is wrong with the counts of a path.

    Args:
        path: its name.
        allowed: the budget; None where there is none.
        found: what was counted.
        same_torch: whether the budget is of this release of torch.
    """
    if allowed is None:
        return [f"{path} has no budget; write one with {UPDATE} {path}"]
    said = []
    for measure in MEASURES:
        most, now = allowed[measure], found[measure]
        rounding = ROUNDING if measure == "tensors" else 1
        if now > most * (rounding if same_torch else OTHER_TORCH):
            said.append(
                f"{path} takes {now} {measure}, and {most} are allowed; make it cheaper, or raise "
                f"the budget with {UPDATE} {path}"
            )
        elif same_torch and now < most * (1 - SLACK):
            said.append(
                f"{path} takes {now} {measure}, far fewer than the {most} that are allowed; lower "
                f"the budget with {UPDATE} {path}"
            )
    return said


def write_budget(counts):
    """Write a budget with one line per path."""
    lines = ",\n".join(f"    {json.dumps(path)}: {json.dumps(one)}" for path, one in counts.items())
    BUDGET.write_text(f'{{\n  "torch": "{release()}",\n  "paths": {{\n{lines}\n  }}\n}}\n')


def main(words):
    parser = argparse.ArgumentParser(description="Count the operations of the hot paths.")
    parser.add_argument("begins", nargs="*", help="only paths that begin so")
    parser.add_argument("--update", action="store_true", help="write what is found as the budget")
    asked = parser.parse_args(words)
    held = read_budget()[1] if BUDGET.exists() else {}
    counts, over = {}, 0
    for path, measure in paths().items():
        before = held.get(path)
        if asked.begins and not path.startswith(tuple(asked.begins)):
            if before is not None:
                counts[path] = before
            continue
        now = counts[path] = measure()
        same = before == now
        over += bool(before is None or any(now[one] > before[one] for one in MEASURES))
        change = "" if same else f"  was {before and [*before.values()]}"
        print(f"{path:45} {[*now.values()]}{change}", flush=True)
    if asked.update:
        write_budget(counts)
        return 0
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
