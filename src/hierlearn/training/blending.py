"""Blending: what effort "best" blends, which rows it leaves out, and with which weights.

Ingredients are recipes with changes. A training with several heads gives several answers, each of
which may get a weight of its own; what is of no use gets none, so a blend can only be offered more.

Folds leave rows out of a training. Rows with one path are dealt out class by class, so that every
fold has its share of each class; rows with the same id stay together, since a row must not be
predicted from its own copies.

Weights come from greedy forward selection on these predictions: beginning with nothing, the answer
is added whose average with those already chosen is best, again and again, with replacement (Caruana
et al., 2004); an answer chosen k times of n has weight k / n.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.decoding.probabilities import terminal_log_distribution
from hierlearn.errors import HierlearnError
from hierlearn.features.table import DENSE
from hierlearn.metrics import find_metric
from hierlearn.metrics.measure import compute
from hierlearn.networks.blend import spread_logs
from hierlearn.networks.ensemble import head_names
from hierlearn.networks.network import AVERAGE, MAIN
from hierlearn.training.choose import KERNEL_ROWS
from hierlearn.training.recipes import FEWEST_EPOCHS, QUICK_BATCH, neighbors
from hierlearn.training.seeding import generator
from hierlearn.training.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.training.choose import Facts
    from hierlearn.training.prepare import Prepared
    from hierlearn.training.settings import Plan

    Ints = NDArray[np.int64]
    from torch import Tensor

    from hierlearn.hierarchy import LabelSpace

FOLD_SEEDS = 2  # networks per fold
SEEDS = 8  # networks of a part in the end, unless ensemble_size says otherwise
TREES = "trees"
QUICK = "quick"
SQUARED = {"distance": "squared", "scale": 16.0}
NOISY = {"dropout": 0.7, "input_noise": 0.3}
WIDE = {"width": 2000, "dropout": 0.5, "input_dropout": 0.1}
CHOSEN_BY_BLEND = (  # fields of a plan that a blend decides for itself
    *("recipe", "loss", "loss_options", "network", "network_options", "head", "head_options"),
    *("joint", "answer", "link", "preprocessing"),
)


@dataclass(frozen=True)
class Ingredient:
    """A recipe that a blend may use.

    Attributes:
        recipe: a name of RECIPES.
        changes: fields of a plan that differ from the recipe.
        settings: settings that differ from the recipe's.
        one_solution: whether one network is enough: every seed gives the same, or it is an
            ensemble already.
        words: what it is, for the reader of a race.
    """

    recipe: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    one_solution: bool = False
    words: str = ""

    def plan(self, plan: Plan, ensemble_size: int, *, table: bool = False) -> Plan:
        """Return how to train it under the plan of the blend.

        Args:
            plan: what was asked for; its settings win.
            ensemble_size: how many networks.
            table: whether inputs are a mixed table, where a step for numbers is one of several.
        """
        changes = dict(self.changes)
        if "preprocessing_options" in changes:
            own = changes["preprocessing_options"]
            changes["preprocessing_options"] = {**plan.preprocessing_options, **own}
        if table and "preprocessing" in changes:
            numbers = changes.pop("preprocessing")
            changes["preprocessing_options"] = {**plan.preprocessing_options, "numbers": numbers}
        size = 1 if self.one_solution else ensemble_size
        settings = {**self.settings, **plan.settings, "ensemble_size": size}
        settings.pop("patience", None)  # the held-out rows are for the weights
        if self.recipe == TREES:  # no other can grow them
            settings.pop("optimizer", None)
        return replace(
            plan,
            effort="quick",
            time_limit=None,
            recipe=self.recipe,
            **changes,
            valid_fraction=0.0,
            settings=settings,
        )


SPARSE = {
    "linear": Ingredient("linear", one_solution=True),
    "neighbors": Ingredient("neighbors"),
}


FEWEST_TO_RACE = 200  # rows, below which the rule decides
MOST_TO_RACE = 200_000  # rows, above which it does
MOST_FOREST = 150  # classes that trees of a random forest tell apart
MOST_CLASSES = 3000  # of all others
SLOPE = 6.0  # from scores of linear models to logits
SMOOTH = 2.0  # the penalty of a linear model of noisy labels
MOST_FLAT = 50_000_000  # rows x classes of linear models that tell each class from all others
ENOUGH_LEFT_OUT = 300  # rows by which a race of numbers is decided, if there are as many;
MORE_LEFT_OUT = 1000  # of texts, whose models take a moment
MOST_LEFT_OUT = 3000
HURRIED_STEPS = 120  # of a memory in a race, but for MANY_ROWS,
MANY_ROWS, MORE_STEPS = 8000, 240
HURRIED_RATE = 1e-2  # and the learning rate
FEW_TREES, FEWEST_TREES = 100, 25  # of each kind, of few rows and of many
TREES_BY_ROWS = 1_000_000  # trees x rows
LEAST_SHARE = 0.08  # of a blend that is worth a training
MEMORY_SHARE = 0.05  # of the memory, so that answers have evidence and new rows can be remembered
NO_MATTER = (  # settings under which a race is still free to choose
    *("seed", "device", "metric", "checkpoint_every", "keep_checkpoints", "cuda_graphs"),
    *("prior_bias", "head_init", "precision"),
)


def race(facts: Facts) -> dict[str, Ingredient]:
    """Return what a quick training tries before it decides; empty where the rule decides alone.

    Args:
        facts: about the training rows.
    """
    fits = FEWEST_TO_RACE <= facts.rows <= MOST_TO_RACE and facts.classes <= MOST_CLASSES
    if not fits or not facts.one_path or facts.partial or facts.streamed or facts.logits:
        return {}
    if facts.kind in ("texts", "sparse"):
        if not facts.is_tree or facts.rows * facts.classes > MOST_FLAT:
            return {}
        # One slope in all trainings: how sure each model is, the rows that are left out decide.
        flat = {"head_options": {"strategy": "flat", "slope": SLOPE}}
        found = {
            "linear": Ingredient(
                "linear", {"head_options": {"slope": SLOPE}}, words="an SVM for every branch"
            ),
            "linear-flat": Ingredient("linear", flat, words="an SVM for every class"),
            "linear-smooth": Ingredient(
                "linear", flat, {"l2_penalty": SMOOTH}, words="the same for noisy labels"
            ),
        }
        if facts.columns.keys() - {"text"}:
            width = DENSE // (facts.columns.get("category", 0) + 1)
            dense = {"texts": False, "max_categories": min(100, width)}
            found |= forests(facts, {"preprocessing_options": dense})
        return found
    if facts.kind != "numbers":
        return {}
    batches = max(round(facts.rows / QUICK_BATCH), 1)
    steps = HURRIED_STEPS if facts.rows < MANY_ROWS else MORE_STEPS
    hurried = {
        "epochs": max(round(steps / batches), FEWEST_EPOCHS),
        "batch_size": -(-facts.rows // batches),
        "learning_rate": HURRIED_RATE,
    }
    found = (
        {}
        if facts.is_wide
        else {QUICK: Ingredient("quick", settings=hurried, words="a memory of similar rows")}
    )
    if facts.rows <= KERNEL_ROWS:
        found["kernel"] = Ingredient("kernel", words="a kernel machine")
    return found | forests(facts)


def forests(facts: Facts, changes: Mapping[str, Any] | None = None) -> dict[str, Ingredient]:
    """Return the trees of a race: extremely randomized ones, and a random forest of few classes.

    Args:
        facts: about the training rows.
        changes: what else differs from the recipe.
    """
    count = min(FEW_TREES, max(FEWEST_TREES, TREES_BY_ROWS // facts.rows))
    every = {"trees": count, "min_samples_leaf": 1}

    def trees(words: str, **options: Any) -> Ingredient:
        changed = {**(changes or {}), "network_options": {**every, **options}}
        return Ingredient("trees", changed, words=words)

    found = {"trees": trees("extremely random trees", projections=16)}
    if facts.classes <= MOST_FOREST:
        found["forest"] = trees("a random forest", kind="forest", max_features="sqrt")
    return found


def is_free_to_race(plan: Plan) -> bool:
    """Whether nothing was asked for that a race decides for itself."""
    empty = type(plan)()
    asked = [name for name in CHOSEN_BY_BLEND if getattr(plan, name) != getattr(empty, name)]
    asked += [name for name in plan.settings if name not in NO_MATTER]
    return not asked and plan.base is None and plan.decoder is None


def race_folds(
    labels: Labels,
    ids: Sequence[str] | None = None,
    *,
    seed: int = 0,
    enough: int = ENOUGH_LEFT_OUT,
) -> list[Ints]:
    """Return the rows that each training of a race leaves out: a fifth, and of few rows more.

    Args:
        labels: of all rows.
        ids: of the rows; None where all differ.
        seed: of the order in which rows are dealt out.
        enough: rows that are left out in all, if there are as many.
    """
    rows = len(labels)
    groups = group_numbers(ids, rows)
    folds = min(max(FOLDS, -(-rows // MOST_LEFT_OUT)), int(groups.max()) + 1)
    if folds < 2:
        return []
    fold = assign_folds(first_class(labels), groups, folds, seed)[groups]
    trainings = min(max(1, round(enough * folds / rows)), folds)
    return [np.flatnonzero(fold == number) for number in range(trainings)]


def check_free_choice(plan: Plan) -> None:
    """Raise where a plan decides what a blend decides for itself."""
    empty = type(plan)()
    for name in CHOSEN_BY_BLEND:
        if getattr(plan, name) != getattr(empty, name):
            raise HierlearnError(
                f"effort 'best' chooses among recipes itself, so {name} cannot be set to "
                f"{getattr(plan, name)!r}; leave it out, or use effort 'quick'"
            )


def ingredients(facts: Facts) -> dict[str, Ingredient]:
    """Return what a blend may be made of, the cheapest and best first.

    Args:
        facts: about the training rows.
    """
    if facts.kind == "numbers":
        return numbers_one_path(facts) if facts.one_path else numbers_several(facts)
    if facts.kind == "images":
        return images(facts)
    return SPARSE


def numbers_one_path(facts: Facts) -> dict[str, Ingredient]:
    """Numbers, one path per row: memories whose encoder other heads train too."""
    epochs = int(neighbors(facts)["settings"]["epochs"])
    found = {
        "quick": Ingredient("quick"),
        "neighbors": Ingredient("neighbors"),
        "neighbors-ple": Ingredient("neighbors", {"preprocessing": "piecewise-linear"}),
        "max": Ingredient("max", {"network_options": WIDE}, {"epochs": scale_epochs(epochs, 0.5)}),
    }
    if facts.rows >= FEW_ROWS:  # one fold then does, and leaves time for more
        found |= {
            "neighbors-squared": Ingredient("neighbors", {"head_options": SQUARED}),
            "neighbors-deep": Ingredient("neighbors", {"network_options": {"depth": 2}}),
        }
    return found | forest(facts)


def images(facts: Facts) -> dict[str, Ingredient]:
    """Images: a memory, and logits on the same CNN."""
    other = "hcl" if facts.one_path else "max"
    changed = {"network_options": {"augment": "light"}}
    return {"neighbors": Ingredient("neighbors"), other: Ingredient(other, changed)}


def numbers_several(facts: Facts) -> dict[str, Ingredient]:
    """Numbers, several labels per row, or none: short trainings, since such labels are noisy."""
    epochs = int(neighbors(facts)["settings"]["epochs"])
    mlp = {"network_options": {"dropout": 0.7}}
    ple = {"preprocessing": "piecewise-linear"}
    joint = {"joint": {"bce": 1.0, "mcloss": 1.0}}
    longer = {"epochs": scale_epochs(epochs, 1.5)}
    return {
        "neighbors": Ingredient("neighbors"),
        "neighbors-near": Ingredient("neighbors", {"head_options": {"scale": 4.0}}),
        "neighbors-raw": Ingredient("neighbors", {"preprocessing": "numeric"}),
        "neighbors-joint": Ingredient("neighbors", joint),
        "neighbors-long": Ingredient("neighbors", settings={"epochs": 2 * epochs}),
        "neighbors-noisy": Ingredient("neighbors", {"network_options": NOISY}, longer),
        "max": Ingredient("max", mlp, {"epochs": 3 * epochs}),
        "max-ple": Ingredient("max", {**mlp, **ple}, {"epochs": 2 * epochs}),
        "linear-ple": Ingredient("max", {"network": "linear", **ple}, {"epochs": 3 * epochs}),
        **forest(facts),
        "hmcn-f": Ingredient("hmcn-f"),
    }


def forest(facts: Facts) -> dict[str, Ingredient]:
    """Trees, which are cheap and err elsewhere; none of rows that stay in their file."""
    return {} if facts.streamed else {TREES: Ingredient(TREES, one_solution=True)}


def scale_epochs(epochs: int, share: float) -> int:
    """Return a share of some epochs, at least one."""
    return max(1, round(share * epochs))


def answers_of(prepared: Prepared) -> list[str]:
    """Return the answers that a trained recipe can give.

    The heads of joint losses answer alone or together; those that a network brings itself, as
    HMCN's, only together, since it is built with all of them again.
    """
    joint = prepared.decision.recipe.joint
    if joint:
        return [MAIN, *joint, AVERAGE]
    return [AVERAGE] if len(head_names(prepared.network)) > 1 else [MAIN]


def seeds_of(plan: Plan) -> int:
    """Return how many networks each part of a blend has in the end."""
    given = plan.settings.get("ensemble_size")
    return SEEDS if given is None else Settings.from_dict({"ensemble_size": given}).ensemble_size


WARM_UP = 10  # steps before a training is judged by its speed


class OutOfTime(Exception):  # noqa: N818  a signal, caught below
    """A training would take more time than is left."""


@dataclass
class Clock:
    """The time that is left.

    Attributes:
        limit: seconds in all; None for no limit.
        begun: when it started.
    """

    limit: float | None
    begun: float = field(default_factory=lambda: time.monotonic())

    @property
    def left(self) -> float:
        """The seconds until the limit."""
        if self.limit is None:
            return float("inf")
        return self.limit - (time.monotonic() - self.begun)

    def watch(self, budget: float, times: float = 1.0) -> Callable[[int, int], None]:
        """Return a callback for every step that stops a training which takes too long.

        Args:
            budget: the seconds that it may take.
            times: how many such trainings must fit.
        """
        begun = time.monotonic()

        def on_step(step: int, steps: int) -> None:
            taken = time.monotonic() - begun
            if step >= min(WARM_UP, steps) and taken / step * steps * times > budget:
                raise OutOfTime

        return on_step


FOLDS = 5
FEW_ROWS = 5000  # below, every row is predicted once; from there on, those of one fold are
MOST_ENTRIES = 50_000_000  # probabilities that are held out, of one answer


def held_out(
    labels: Labels, ids: Sequence[str] | None = None, *, seed: int = 0, folds: int = FOLDS
) -> list[Ints]:
    """Return the rows that each training leaves out: five folds of few rows, one fold of many.

    Args:
        labels: of all rows.
        ids: of the rows; None where all differ.
        seed: of the order in which rows are dealt out.
        folds: how many.
    """
    rows = len(labels)
    groups = group_numbers(ids, rows)
    count = int(groups.max()) + 1 if rows else 0
    if count < 2:
        raise HierlearnError(
            f"out-of-fold predictions need rows of at least 2 different ids, not {count}"
        )
    folds = min(folds, count)
    fold_of_group = assign_folds(first_class(labels), groups, folds, seed)
    fold = fold_of_group[groups]
    found = [np.flatnonzero(fold == number) for number in range(folds)]
    most = max(MOST_ENTRIES // len(labels.hierarchy), 1)
    if rows < FEW_ROWS and rows <= most:
        return found
    return [found[0][:most]]


def group_numbers(ids: Sequence[str] | None, rows: int) -> Ints:
    """Return the number of each row's group, from 0."""
    if ids is None:
        return np.arange(rows)
    _, found = np.unique(np.asarray(ids).astype(str), return_inverse=True)
    return found.astype(np.int64)


def first_class(labels: Labels) -> Ints:
    """Return the most specific class of each row with one path; -1 for every other row."""
    offsets, classes = labels.terminal
    found = np.full(len(labels), -1, dtype=np.int64)
    single = np.diff(offsets) == 1
    found[single] = classes[offsets[:-1][single]]
    return found


def assign_folds(classes: Ints, groups: Ints, folds: int, seed: int) -> Ints:
    """Return the fold of each group: shuffled, ordered by the class of its first row, dealt out."""
    import torch

    count = int(groups.max()) + 1
    _, first = np.unique(groups, return_index=True)
    shuffled = torch.randperm(count, generator=generator(seed, "folds")).numpy()
    ordered = shuffled[np.argsort(classes[first][shuffled], kind="stable")]
    found = np.empty(count, dtype=np.int64)
    found[ordered] = np.arange(count) % folds
    return found


ROUNDS = 100  # of EM
POWERS = (0.2, 8.0)
STEPS_OF_POWER = 20
PICKS = 16
CODES = 1 << 15  # half-precision numbers from 0 up


@dataclass(frozen=True)
class Selection:
    """The result.

    Attributes:
        weights: of the answers that were chosen; they sum to 1.
        value: of the metric, for their average; None where nothing was compared.
        single: of the metric, for every answer alone.
    """

    weights: dict[str, float]
    value: float | None
    single: dict[str, float]


def select(
    predictions: Mapping[str, Tensor],
    score: Callable[[Tensor], float],
    *,
    picks: int = PICKS,
    larger: bool = True,
) -> Selection:
    """Choose the weights under which an average of predictions is best.

    Args:
        predictions: (N, C) held-out probabilities of every answer.
        score: of an average, such as ``scorer`` returns.
        picks: how many answers to choose, with replacement; the best number of them is kept.
        larger: whether a larger score is better.
    """
    sign = 1.0 if larger else -1.0
    single = {name: score(p) for name, p in predictions.items()}
    counts = dict.fromkeys(predictions, 0)
    total: Tensor | None = None
    best: tuple[float, dict[str, int]] | None = None
    for pick in range(1, picks + 1):
        if total is None:
            values = dict(single)
        else:
            values = {name: score((total + p) / pick) for name, p in predictions.items()}
        chosen = max(values, key=lambda name: sign * values[name])
        counts[chosen] += 1
        total = predictions[chosen].clone() if total is None else total.add_(predictions[chosen])
        if best is None or sign * values[chosen] > sign * best[0]:
            best = values[chosen], dict(counts)
    assert best is not None
    value, kept = best
    picked = sum(kept.values())
    return Selection({k: n / picked for k, n in kept.items() if n}, value, single)


def decide_race(
    predictions: Mapping[str, Tensor],
    right: Ints,
    label_space: LabelSpace,
    memory: str,
    counts: NDArray[np.bool_] | None = None,
) -> tuple[Selection, dict[str, tuple[float, Tensor]]]:
    """Return the weights of the models of a race, and the power and predictions of each.

    Args:
        predictions: (N, C) held-out probabilities of every model.
        right: (N,) the most specific class of each row.
        label_space: what can be predicted.
        memory: the model that keeps a share of MEMORY_SHARE, if it is one of them.
        counts: (N,) the rows that decide; None for all.
    """
    place = torch.from_numpy(np.searchsorted(label_space.terminals, right))
    if counts is None or not counts.any():
        counts = np.ones(len(right), dtype=bool)
    some = torch.from_numpy(counts.nonzero()[0])
    masses: dict[str, Tensor] = {}
    sharpened: dict[str, tuple[float, Tensor]] = {}
    for key, p in predictions.items():
        logs = spread_logs(terminal_log_distribution(p.double().log(), label_space).exp())
        power = best_power(logs[some], place[some])
        masses[key] = (power * logs).softmax(dim=1)
        ends = torch.zeros(p.shape, dtype=torch.double)
        ends = ends.index_copy(1, label_space.terminal_ids(), masses[key])
        sharpened[key] = power, label_space.hierarchy.sum_up(ends).clamp_max(1).float()

    def share_right(q: Tensor) -> float:
        return float((q.argmax(dim=1) == place).double().mean())

    mine = place[some, None]
    found = mixture_weights([q[some].gather(1, mine)[:, 0].numpy() for q in masses.values()])
    kept: dict[str, float] = {}
    for key, weight in zip(masses, found.tolist(), strict=True):
        if key == memory:
            kept[key] = max(weight, MEMORY_SHARE)
        elif weight >= LEAST_SHARE:
            kept[key] = weight
    kept = {key: weight / sum(kept.values()) for key, weight in kept.items()}
    value = share_right(torch.stack([kept[key] * masses[key] for key in kept]).sum(dim=0))
    single = {key: share_right(q) for key, q in masses.items()}
    return Selection(kept, value, single), sharpened


def seen_elsewhere(classes: Ints, folds: Sequence[Ints]) -> NDArray[np.bool_]:
    """Return which left-out rows, fold after fold, have a class that a training row has, too.

    Args:
        classes: (N,) of all rows.
        folds: the numbers of the rows that each training leaves out.
    """
    total = np.bincount(classes)
    parts = [classes[fold] for fold in folds]
    found = [total[part] > np.bincount(part, minlength=len(total))[part] for part in parts]
    return np.concatenate(found)


def mixture_weights(right: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the weights under which a mixture makes what is right most probable, by EM.

    Args:
        right: (N,) per model, the probability of what is right in every row.
    """
    p = np.stack(right, axis=1).clip(1e-9)
    weights = np.full(p.shape[1], 1 / p.shape[1])
    for _ in range(ROUNDS):
        shares = weights * p
        shares /= shares.sum(axis=1, keepdims=True)
        # As if each model alone had been right in one row more.
        weights = (shares.sum(axis=0) + 1) / (len(p) + p.shape[1])
    return weights


def best_power(logs: Tensor, right: Tensor) -> float:
    """Return the power of probabilities under which what is right is most probable.

    Args:
        logs: (N, K) their logarithms.
        right: (N,) the number of what is right.
    """

    def surprise(power: Tensor) -> Tensor:
        return -(power * logs).log_softmax(dim=1).gather(1, right[:, None]).mean()

    low, high = (torch.tensor(value, dtype=torch.float64).log() for value in POWERS)
    for _ in range(STEPS_OF_POWER):  # ternary search: the surprise is convex in the power
        third = (high - low) / 3
        if surprise((low + third).exp()) < surprise((high - third).exp()):
            high = high - third
        else:
            low = low + third
    return float(((low + high) / 2).exp())


def scorer(
    metric: str, targets: Tensor, label_space: LabelSpace, mask: Tensor | None = None
) -> Callable[[Tensor], float]:
    """Return what scores (N, C) probabilities by a metric.

    AU(PRC) pools all entries; it is computed from probabilities in half precision, which sorts
    millions of them by counting.

    Args:
        metric: a name of METRICS, one number.
        targets: (N, C) closed multi-hot.
        label_space: what can be predicted.
        mask: (N, C) which targets are known; None for all.
    """
    if metric == "au-prc":
        return lambda p: counted_average_precision(p, targets, mask)

    def score(p: Tensor) -> float:
        return float(compute(metric, p, targets, label_space, mask))

    return score


def counted_average_precision(p: Tensor, targets: Tensor, mask: Tensor | None = None) -> float:
    """Return the average precision of all entries, with p rounded to half precision.

    Args:
        p: (N, C) probabilities.
        targets: (N, C) what is true.
        mask: (N, C) which entries count; None for all.
    """
    codes = p.half().view(torch.int16).reshape(-1).long()  # grows with p, which is at least 0
    truth = targets.reshape(-1)
    if mask is not None:
        codes, truth = codes[mask.reshape(-1)], truth[mask.reshape(-1)]
    every = torch.bincount(codes, minlength=CODES).flip(0).double()
    true = torch.bincount(codes[truth], minlength=CODES).flip(0).double()
    found = true.cumsum(0)
    precision = found / every.cumsum(0).clamp_min(1)
    return float((precision * true).sum() / found[-1].clamp_min(1))


def is_larger_better(metric: str) -> bool:
    """Whether a metric is better where it is larger."""
    return find_metric(metric).direction == "up"
