"""The demo: an SVM, hierlearn and HCL on the same texts, an answer with its evidence, a stop.

The rows are five chapters of ICD-10-CM. Training rows are official descriptions of diagnoses, test
rows the other words that doctors use for them, so that no test row has a copy among the training
rows.

The row of HCL is the paper's loss with class losses averaged over the batch, on one linear layer:
with sums, as printed, it stops learning most classes (docs/study.md).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.registry import load_dataset
from hierlearn.decoding import make_decoder
from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.names import shorten
from hierlearn.lab.statistics import bootstrap_interval
from hierlearn.pipeline.explain import explain
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.train import train
from hierlearn.terminal import Text, print_plain, print_table
from hierlearn.training.settings import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline.pipeline import Pipeline
    from hierlearn.terminal import Console

    Bools = NDArray[np.bool_]

LONGEST = 58  # letters of a title
ABOUT_HCL = (
    "HCL is the paper's, on one linear layer, with class losses averaged over each batch;\n"
    "what it does as printed: hierlearn paper"
)
RISK = 0.05  # of an answer that may stop early
QUIET = Reporting(bar=False)
HCL = Plan(
    loss="hcl-paper",
    loss_options={"normalize": "losses"},
    network="linear",
    settings={"epochs": 20, "batch_size": 256, "learning_rate": 0.03, "patience": None},
)


@dataclass(frozen=True)
class Method:
    """A row of the table.

    Attributes:
        name: what a reader calls it.
        right: (N, L) whether the answer to each test row is right at each level.
        seconds: to train it, features included.
    """

    name: str
    right: Bools
    seconds: float

    @property
    def accuracy(self) -> list[float]:
        """The fraction of right answers at each level."""
        found: list[float] = self.right.mean(axis=0).tolist()
        return found

    @property
    def severity(self) -> float:
        """How many levels a wrong answer is wrong at, on average."""
        wrong = ~self.right[:, -1]
        return float((~self.right[wrong]).sum(axis=1).mean()) if wrong.any() else 0.0


@dataclass(frozen=True)
class Demo:
    """What the demo found.

    Attributes:
        dataset: the rows.
        methods: the table.
        gain: by how much the second method is right more often at the last level than the first,
            with the ends of its 95 % interval.
        explained: the lines of an answer with its evidence.
        stopped: those of an answer that stops where it is sure; none where no such answer is right.
    """

    dataset: Dataset
    methods: tuple[Method, ...]
    gain: tuple[float, float, float]
    explained: list[str]
    stopped: list[str]


def run_demo(out: Path, say: Callable[[str], None], dataset: Dataset | None = None) -> Demo:
    """Train and evaluate; the memory is saved as ``out``/model.

    Args:
        out: a folder.
        say: called with one line before each step.
        dataset: texts with one path each, of the same depth; five chapters of ICD-10-CM if None.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    dataset = dataset or load_dataset("icd10cm", size="small")
    test = dataset.split("test")
    methods: list[Method] = []

    def measure(name: str, about: str, train_model: Callable[[], Any]) -> tuple[Any, list[str]]:
        """Train a model and add its row; return it with its answers to the test rows."""
        say(about)
        begun = time.perf_counter()
        model = train_model()
        seconds = time.perf_counter() - begun
        answers = list(model.predict(test.inputs))
        methods.append(Method(name, right_levels(dataset, answers), seconds))
        return model, answers

    rows = dataset.split("train")
    svm = make_pipeline(TfidfVectorizer(sublinear_tf=True), LinearSVC())
    measure(
        "linear SVM (flat)",
        "a linear SVM over the categories, on words, as scikit-learn's users would begin",
        lambda: svm.fit(rows.inputs, [labels[0] for labels in rows.labels]),
    )
    default, answers = measure(
        "hierlearn, no option",
        "hierlearn with no option set",
        lambda: train(dataset, Plan(), reporting=QUIET),
    )
    plan = Plan(recipe="quick")
    memory, recalled = measure(
        "hierlearn, a memory",
        "hierlearn with a memory, whose answers come with evidence",
        lambda: train(dataset, plan, out / "model", force=True, reporting=QUIET),
    )
    measure(
        "HCL, the paper's loss",
        "HCL, the loss of Goyal and Ghosh (2020), on one linear layer",
        lambda: train(dataset, HCL, reporting=QUIET),
    )
    gain = methods[1].right[:, -1].astype(np.float64) - methods[0].right[:, -1]
    return Demo(
        dataset=dataset,
        methods=tuple(methods),
        gain=(float(gain.mean()), *bootstrap_interval(gain)),
        explained=with_evidence(memory, test, recalled),
        stopped=stop_early(default, dataset, answers),
    )


def right_levels(dataset: Dataset, answers: Sequence[str]) -> Bools:
    """Return (N, L) whether each answer to a test row has the right class at each level."""
    hierarchy = dataset.hierarchy
    truth = Labels(dataset.split("test").labels, hierarchy).targets()
    found = Labels([[answer] for answer in answers], hierarchy).targets()
    both = (truth & found).numpy()
    levels = hierarchy.levels
    return np.stack(
        [both[:, levels == level].any(axis=1) for level in range(1, hierarchy.depth + 1)], axis=1
    )


def with_evidence(memory: Pipeline, test: Dataset, answers: Sequence[str]) -> list[str]:
    """Return the lines of a right answer that rests on several other rows, with these."""
    texts: Any = test.inputs
    right = [row for row, labels in enumerate(test.labels) if answers[row] == labels[0]][:200]
    found = explain(memory, [texts[row] for row in right], count=3)
    best = int(np.argmin([abs(some[0].weight - 0.5) for some in found]))
    row, hierarchy = right[best], test.hierarchy
    return [
        f'"{texts[row]}"',
        f"  -> {titled(answers[row], hierarchy)}, because the memory holds",
        *(
            f'     {100 * one.weight:3.0f} %  "{one.text}" '
            f"({hierarchy.bare_names[hierarchy.index(one.labels[0])]})"
            for one in found[best]
        ),
    ]


def stop_early(pipeline: Pipeline, dataset: Dataset, answers: Sequence[str]) -> list[str]:
    """Return the lines of an answer that stops above a mistake; none where there is none.

    The threshold is calibrated on one half of the test rows, and evaluated on the other.
    """
    test, hierarchy = dataset.split("test"), dataset.hierarchy
    texts: Any = test.inputs
    p, targets = pipeline.probabilities(texts), Labels(test.labels, hierarchy).targets()
    half = np.random.default_rng(0).permutation(len(texts))
    known, new = half[: len(half) // 2], half[len(half) // 2 :]
    decoder: Any = make_decoder(pipeline.label_space, "stop")
    threshold = decoder.calibrate(p[known], targets[known], risk=RISK).threshold
    decided = make_decoder(pipeline.label_space, "stop", threshold=threshold)(p[new]).tolist()
    wrong, lines = 0, list[str]()
    for row, number in zip(new.tolist(), decided, strict=True):
        is_right = number < 0 or bool(targets[row, number])
        wrong += not is_right
        truth, first = test.labels[row][0], answers[row]
        if lines or not is_right or number < 0 or first in (truth, hierarchy.names[number]):
            continue
        if int(hierarchy.levels[number]) == hierarchy.depth - 1:
            shown = titled(hierarchy.names[number], hierarchy)
            lines = [
                f'"{texts[row]}"',
                f"  -> {shown}, and stops there: it is not sure of more",
                f"     its best guess would have been {titled(first, hierarchy)};",
                f"     right is {titled(truth, hierarchy)}",
            ]
    return lines and [
        *lines,
        f"     told to be wrong at most {100 * RISK:.0f} % of the time, it is on "
        f"{100 * wrong / len(decided):.1f} % of new phrases:",
        "     the promise is about the average over draws of rows, and one draw varies around it",
    ]


def titled(name: str, hierarchy: Hierarchy) -> str:
    """Return a class by its bare name and its title."""
    number = hierarchy.index(name)
    title = hierarchy.titles[number]
    return f"{hierarchy.bare_names[number]} {shorten(title, LONGEST) if title else ''}".rstrip()


# ---------------------------------------- what is shown


def show(console: Console, found: Demo) -> None:
    """Print the table, the verdict and two answers."""
    best = np.max([one.accuracy for one in found.methods], axis=0).tolist()
    least = min(one.severity for one in found.methods)
    rows = []
    for one in found.methods:
        cells = [(f"{100 * v:.1f}", v == top) for v, top in zip(one.accuracy, best, strict=True)]
        cells.append((f"{one.severity:.2f}", one.severity == least))
        bold = [Text(text, style="bold green" if is_best else "") for text, is_best in cells]
        rows.append([one.name, *bold, f"{one.seconds:.1f}"])
    print_table(
        console,
        [
            *("right answers (%)", "chapter", "block", "category"),
            *("levels wrong\nper mistake", "seconds"),
        ],
        rows,
        f"{len(found.dataset.splits['test']):,} phrases of doctors, to be assigned to "
        f"{len(found.dataset.hierarchy.leaves):,} diagnoses",
    )
    lines = [*verdict(found).splitlines(), *ABOUT_HCL.splitlines(), "", *found.explained]
    print_plain(console, *lines, *([""] * bool(found.stopped)), *found.stopped)


def verdict(found: Demo) -> str:
    """Return who wins, and how sure that is."""
    gain, low, high = (100 * one for one in found.gain)
    first, second = found.methods[0].name, found.methods[1].name
    if low > 0:
        winner, loser, sign = second, first, 1
    elif high < 0:
        winner, loser, sign = first, second, -1
    else:
        return (
            f"Neither wins: {second} is right on {gain:+.1f} points more categories than {first} "
            f"(95 % interval {low:+.1f} to {high:+.1f})."
        )
    ends = sorted((sign * low, sign * high))
    return (
        f"Winner: {winner}. It finds the right category for {sign * gain:.1f} points more of the "
        f"phrases\nthan the {loser} (95 % interval {ends[0]:.1f} to {ends[1]:.1f})."
    )
