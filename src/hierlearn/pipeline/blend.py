"""Blend: several recipes trained, and blended by how well they predict rows left out of training.

Effort "best" takes minutes; a race is the same in seconds, with few recipes, and is what a training
does with no option set. Its weights make the labels of the left-out rows most probable, once each
model has been made as sure as it should be.

1. Every ingredient is trained on each fold's remaining rows and predicts the rows of the fold; of
   5,000 rows or more one fold is enough.
2. Greedy forward selection on these predictions gives the weights of all answers.
3. What has a weight is trained again on all rows, over several seeds.
4. The blended predictions of the left-out rows say how sure the blend should be.

Test rows are never looked at; rows of the split "valid" are training rows of effort "best". Results
of step 1 and 3 are stored as they come, so that an interrupted run resumes with the next training.
Where workers are at hand (``hierlearn.service.engine.use_executor``), they train all of step 1 of
effort "best" at once, and all of step 3.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from contextlib import closing, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from safetensors.torch import load, save

from hierlearn.decoding.scaling import fit_scaling, scale_rows, temper_answers
from hierlearn.errors import HierlearnError, plural, printable
from hierlearn.features.combined import side_by_side
from hierlearn.files.reading import read_json
from hierlearn.files.writing import atomic_write
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.kernels.cpu import in_order, one_core_each
from hierlearn.links import link_name, make_link
from hierlearn.metrics import calibration_error
from hierlearn.metrics.measure import measure
from hierlearn.networks import read_output
from hierlearn.networks.blend import BLEND, Blend
from hierlearn.networks.build import NetworkSpec, PartSpec
from hierlearn.networks.ensemble import drop_heads, head_names
from hierlearn.networks.inputs import InputSpec
from hierlearn.networks.network import AVERAGE
from hierlearn.pipeline.folder import WORK, remove_folder
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.pipeline.run import Job, Reporting, TrainingStart, check_identity, describe_run, run
from hierlearn.training.blending import (
    ENOUGH_LEFT_OUT,
    FOLD_SEEDS,
    MORE_LEFT_OUT,
    QUICK,
    Clock,
    Ingredient,
    OutOfTime,
    Selection,
    answers_of,
    check_free_choice,
    decide_race,
    first_class,
    held_out,
    ingredients,
    is_larger_better,
    race,
    race_folds,
    scorer,
    seeds_of,
    seen_elsewhere,
    select,
)
from hierlearn.training.checkpoint import BlendResults
from hierlearn.training.inference import batches_of, memorize, run_network
from hierlearn.training.prepare import (
    Prepared,
    PrepareOptions,
    fitted_embedder,
    gather_facts,
    make_rows,
    prepare,
    resolve_backbone,
    split_rows,
)
from hierlearn.training.processes import Processes, find_device
from hierlearn.training.progress import Overall, Progress, progress_bar
from hierlearn.training.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.training.prepare import Prepared
    from hierlearn.training.settings import Plan

    Step = Callable[[int, int], None]

SHARE = 0.6  # of a time limit, for the trainings on folds
UNIT = 1000  # of the bar: a training on a fold
BALANCED = "balanced"  # the decoder of a race on a tree, unless it is for something else
SLASH = "/"  # between an ingredient and its answer
LEFT_OUT = "left out"  # the metrics of the rows that were left out of training
BATCH = 2048  # rows that are predicted at once


@dataclass
class BlendTraining(Job):
    """One run: from a dataset to a blend."""

    def __post_init__(self) -> None:
        self.plan = resolve_backbone(self.plan)
        self.races = self.plan.effort != "best"
        if not self.races:
            check_free_choice(self.plan)
        self.workers = None if self.races else WORKERS.get()
        for what, given in (("time_limit", self.plan.time_limit), ("an executor", self.workers)):
            if given is not None and self.here.world > 1:
                raise HierlearnError(f"{what} needs a single process; leave it out under torchrun")
        if self.races:
            self.rows, self.held_out = split_rows(self.dataset, self.plan)
        else:
            train, valid = split_rows(self.dataset, replace(self.plan, valid_fraction=0.0))
            self.rows = np.sort(np.concatenate([train, valid]))
            self.held_out = np.zeros(0, dtype=np.int64)
        taken = self.dataset.take(self.rows)
        policy = self.plan.unlabeled_descendants
        self.labels = Labels(taken.labels, taken.hierarchy, unlabeled_descendants=policy)
        self.settings = Settings.from_dict(self.plan.settings)
        self.encoder = fitted_embedder(taken, self.plan, self.here.device)  # shared by all parts
        size = self.settings.batch_size
        self.facts = replace(gather_facts(taken, self.labels, self.plan), batch_size=size)
        if self.encoder is not None:
            self.facts = replace(self.facts, kind="numbers")
        self.found = race(self.facts) if self.races else ingredients(self.facts)
        deal = held_out
        if self.races:
            enough = ENOUGH_LEFT_OUT if self.facts.kind == "numbers" else MORE_LEFT_OUT
            deal = partial(race_folds, enough=enough)
        seed, together = self.settings.seed, taken.held_together
        self.held = deal(self.labels, together, seed=seed) if self.found else []
        # In the order of the predictions.
        self.kept = np.concatenate([*self.held, np.zeros(0, dtype=np.int64)])
        self.sharpness: dict[str, float] = {}
        self.columns: str | None = None  # what was said of them
        self.fold_seeds = 1 if self.races else FOLD_SEEDS
        self.seeds = self.settings.ensemble_size if self.races else seeds_of(self.plan)
        self.label_space = LabelSpace.from_labels(self.labels)
        self.clock = Clock(self.plan.time_limit)
        self.seconds: dict[str, float] = {}  # of all folds, by ingredient
        names = self.dataset.hierarchy.names
        terminals = [names[number] for number in self.label_space.terminals.tolist()]
        reuse: dict[Any, Any] | None = {} if self.races else None
        self.shared = BlendRows(
            self.dataset, self.rows, terminals, self.weights, self.encoder, reuse
        )
        self.results: BlendResults | None = None if self.workers is None else BlendResults()
        self.too_long: set[str] = set()  # what workers had no time for
        self.overall = Overall(Progress())
        self.foreign: list[str] = []

    def identity(self) -> dict[str, Any]:
        """Return what must be equal where this training is resumed."""
        plan = self.plan.to_dict()
        plan["settings"] = {k: v for k, v in plan["settings"].items() if k != "device"}
        del plan["time_limit"]
        sums = hashlib.sha256(self.dataset.digest().encode())
        if self.weights is not None:
            sums.update(self.weights.tobytes())
        return {
            "fingerprint": self.dataset.hierarchy.fingerprint,
            "data": sums.hexdigest(),
            "plan": json.loads(json.dumps(plan)),
        }

    # ------------------------------------------------------------------ the run

    def run(self, out: Path | None = None, *, resume: bool = False) -> Pipeline:
        """Train, choose, train again, and return the blend.

        Args:
            out: the folder of the model, where results are kept until the end; None keeps none.
            resume: use the results that are there.
        """
        found = self.found
        text = (
            f"effort best: {plural(len(found), 'recipe')} on {plural(len(self.held), 'fold')}, "
            f"weights chosen on {plural(len(self.kept), 'row')} left out of training, then "
            f"{plural(self.seeds, 'network')} each on all {len(self.rows):,} rows, on "
            f"{self.here.device}"
        )
        if self.races:
            text = (
                f"racing {plural(len(found), 'model')} on {len(self.kept):,} of {len(self.rows):,} "
                "rows, left out of their training: "
                + ", ".join(f"{name} ({one.words})" for name, one in found.items())
            )
        self._say(text)
        if out is not None and self.here.world == 1:  # several processes begin again
            self.results = begin_results(out / WORK, self.identity(), resume=resume)
        if self.here.writes and self.reporting.on_prepared is not None:
            self.reporting.on_prepared(TrainingStart(self.label_space, self.settings, text))
        per_part = len(self.held) * UNIT + self.seeds * UNIT // FOLD_SEEDS
        what = "race" if self.races else "effort best"
        shown = self.reporting.bar and self.here.writes
        with progress_bar(what, len(found) * per_part, show=shown) as progress:
            self.overall = Overall(progress)
            return self._run(found)

    def _run(self, found: dict[str, Ingredient]) -> Pipeline:
        """Train ingredients, choose, train again."""
        predictions: dict[str, Tensor] = {}
        if self.workers is not None:
            self._say(f"all recipes and folds, {self.workers.workers} at a time")
            self._at_once(self._fold_jobs(found, self.workers.workers))
        if self.races:
            predictions = self._race(found)
        for number, (name, ingredient) in enumerate(found.items(), 1):
            if not self.races:
                self._say(f"recipe {number} of {len(found)}: {name}")
                predictions |= self._out_of_fold(name, ingredient)
        partial = self.labels.unlabeled_descendants == "ignore"
        targets = self.labels.targets(self.kept)
        mask = self.labels.mask(self.kept) if partial else None
        if self.races and self.plan.optimize != "au-prc":
            with one_core_each:
                chosen = self._decide_race(predictions)
        else:
            chosen = self._select(predictions, targets, mask)
        by_name: dict[str, dict[str, float]] = {}
        for key, weight in chosen.weights.items():
            name, _, answer = key.partition(SLASH)
            by_name.setdefault(name, {})[answer] = weight
        parts = self._refit(found, by_name)
        pipeline = assemble(parts, by_name, self.sharpness)
        if self.races and self.plan.optimize == "balance" and self.facts.is_tree:
            pipeline.decoder = BALANCED
        with one_core_each:  # many small operations, in which threads would wait for each other
            self._calibrate(pipeline, predictions, by_name, targets, mask)
        self._describe(pipeline, parts, chosen)
        return pipeline

    def _say(self, text: str) -> None:
        left = "" if self.clock.limit is None else f" ({max(self.clock.left, 0):,.0f} s left)"
        if self.here.writes:
            self.reporting.message(f"{text}{left}")

    # ------------------------------------------------------------------ folds

    def _race(self, found: dict[str, Ingredient]) -> dict[str, Tensor]:
        """Return the predictions of the left-out rows by answer, of models that train together."""
        folds: list[list[dict[str, Tensor]]] = []
        for number, held in enumerate(self.held):
            self._prepare_first(found, np.delete(np.arange(len(self.rows)), held))
            fold = partial(self._fold, number=number)
            folds.append(self._together(fold, found.items()))
            self.overall.end(len(found) * UNIT)
        return {
            f"{name}{SLASH}{answer}": torch.cat([fold[place][answer] for fold in folds])
            for place, name in enumerate(found)
            for answer in folds[0][place]
        }

    def _together(self, function: Callable[..., Any], jobs: Iterable[Any]) -> list[Any]:
        """Return what a function makes of each job; on a CPU jobs have a core each.

        Models that take seconds gain little from several threads, which spin for each other where
        another process is busy; and results do not depend on how many there are.
        """
        workers = torch.get_num_threads() if self.here.device.type == "cpu" else 0
        calls = [partial(copy_context().run, function, *one) for one in jobs]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say has been said
            return list(in_order(lambda call: call(), calls, workers))

    def _prepare_first(self, found: dict[str, Ingredient], rows: NDArray[np.int64]) -> None:
        """Prepare rows before models share them, and say what there is to say of them, once."""
        plan = next(iter(found.values())).plan(self.plan, 1, table=self.facts.is_table)
        with warnings.catch_warnings():
            if self.columns is not None:
                warnings.simplefilter("ignore")
            preprocessor = self.shared.prepare(plan, rows, self.here.device).preprocessor
        if self.columns is None:
            self.columns = "" if preprocessor is None else preprocessor.summary()
            if self.columns:
                self._say(f"columns: {printable(self.columns)}")

    def _out_of_fold(self, name: str, ingredient: Ingredient) -> dict[str, Tensor]:
        """Return the predictions of the left-out rows by answer; empty where time is too short."""
        parts: list[dict[str, Tensor]] = []
        begun = time.monotonic()
        for number in range(len(self.held)):
            try:
                parts.append(self._fold(name, ingredient, number))
            except OutOfTime:
                self._say(f"{name}: left out, it would take too long")
                self.overall.end((len(self.held) - number) * UNIT)
                return {}
            self.overall.end(UNIT)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun
        return {
            f"{name}{SLASH}{answer}": torch.cat([part[answer] for part in parts])
            for answer in parts[0]
        }

    def _fold(self, name: str, ingredient: Ingredient, number: int) -> dict[str, Tensor]:
        """Return the predictions of the rows of a fold by answer, in half precision."""
        before = None if self.results is None else self.results.get(f"{name}-{number}")
        if before is not None:
            return before
        if name in self.too_long:
            raise OutOfTime
        left = np.delete(np.arange(len(self.rows)), self.held[number])
        plan = ingredient.plan(self.plan, self.fold_seeds, table=self.facts.is_table)
        prepared = self._train(plan, left, self.time_for_folds / max(len(self.held) - number, 1))
        rows = self.dataset.take(self.rows[self.held[number]])
        found = predict_answers(prepared, rows, answers_of(prepared))
        if self.results is not None:
            self.results.put(f"{name}-{number}", found, "fold")
        return found

    def _fold_jobs(self, found: dict[str, Ingredient], at_once: int) -> Iterator[tuple[Any, ...]]:
        """Yield a job per recipe and fold, with the seconds it may take and when it must end."""
        for name, ingredient in found.items():
            plan = ingredient.plan(self.plan, FOLD_SEEDS, table=self.facts.is_table)
            for number, held in enumerate(self.held):
                if name not in self.too_long:
                    left, share = self.time_for_folds, min(1, at_once / (len(self.held) - number))
                    yield f"{name}-{number}", name, plan, held, (left * share, time.time() + left)

    def _at_once(self, jobs: Iterable[tuple[Any, ...]]) -> None:
        """Run jobs that are missing on the workers that were lent, and keep what they give."""
        workers, results, asked = self.workers, self.results, []
        assert workers is not None and results is not None  # noqa: PT018

        def calls() -> Iterator[Call]:
            for job in jobs:
                if job[0] not in results:
                    asked.append(job)
                    yield Call(train_job, self.shared, job[2:])

        with closing(workers.run(calls())) as ends:
            for end in ends:
                (key, name, _, held, _), result = asked[end.number], end.result()
                if result is None:
                    self.too_long.add(name)
                    continue
                results.put(key, load(result[0]), "fold" if len(held) else "part")
                self.seconds[name] = self.seconds.get(name, 0.0) + result[1]

    @property
    def time_for_folds(self) -> float:
        """The seconds that are left for trainings on folds."""
        limit = self.clock.limit
        return float("inf") if limit is None else self.clock.left - (1 - SHARE) * limit

    def _train(self, plan: Plan, rows: NDArray[np.int64], budget: float) -> Prepared:
        """Train on some of the rows; raise OutOfTime where that takes longer than the budget."""
        prepared = self.shared.prepare(plan, rows, self.here.device)
        watch = self.clock.watch(budget)
        units = prepared.decision.settings.ensemble_size * UNIT // FOLD_SEEDS

        def on_step(step: int, steps: int) -> None:
            self.overall.within(units, step, steps)
            watch(step, steps)

        reporting = Reporting(bar=False, on_step=on_step)
        run(prepared, self.here, reporting=reporting)
        return prepared

    # ------------------------------------------------------------------ weights

    def _select(
        self, predictions: dict[str, Tensor], targets: Tensor, mask: Tensor | None
    ) -> Selection:
        """Return the weights of the answers."""
        first = next(iter(self.found))
        if not predictions:  # not even one recipe fits the time: what quick would train
            return Selection({f"{first}{SLASH}main": 1.0}, None, {})
        device = self.here.device
        metric = self.settings.metric
        known = None if mask is None else mask.to(device)
        score = scorer(metric, targets.to(device), self.label_space, known)
        on_device = {name: p.to(device).float() for name, p in predictions.items()}
        found = select(on_device, score, larger=is_larger_better(metric))
        shown = ", ".join(
            f"{name} {weight:.2f}"
            for name, weight in sorted(found.weights.items(), key=lambda one: -one[1])
        )
        pick = max if is_larger_better(metric) else min
        best = pick(found.single.values())
        self._say(
            f"left-out rows: {metric} {found.value:.4f}, the best single answer {best:.4f}; "
            f"weights: {shown}"
        )
        return found

    def _decide_race(self, predictions: dict[str, Tensor]) -> Selection:
        """Return the weights of a race, and replace the predictions by sharpened ones."""
        classes, memory = first_class(self.labels), f"{QUICK}{SLASH}main"
        chosen, sharpened = decide_race(
            predictions,
            classes[self.kept],
            self.label_space,
            memory,
            seen_elsewhere(classes, self.held),
        )
        names = {key: key.partition(SLASH)[0] for key in predictions}
        for key, (power, p) in sharpened.items():
            self.sharpness[names[key]], predictions[key] = power, p
        alone = ", ".join(f"{names[key]} {one:.1%}" for key, one in chosen.single.items())
        kept = sorted((-weight, names[key]) for key, weight in chosen.weights.items())
        shown = " + ".join(f"{-weight:.2f} {name}" for weight, name in kept)
        self._say(f"right on the rows left out: {alone}; kept {shown}")
        return chosen

    # ------------------------------------------------------------------ all rows

    def _refit(
        self, found: dict[str, Ingredient], by_name: dict[str, dict[str, float]]
    ) -> list[tuple[str, Prepared]]:
        """Train what has a weight on all rows, the weightiest first, as far as time allows."""
        order = sorted(by_name, key=lambda name: -sum(by_name[name].values()))
        seeds = self.seeds if self.races else self._seeds_in_time(order)
        units = seeds * UNIT // FOLD_SEEDS
        self.overall.left(len(order) * units)
        plans = {
            name: found[name].plan(self.plan, seeds, table=self.facts.is_table) for name in order
        }
        self.too_long.clear()
        if self.workers is not None:
            self._say(
                f"all rows, {plural(len(order), 'part')} at once, {plural(seeds, 'network')} each"
            )
            every, left = np.zeros(0, dtype=np.int64), self.clock.left
            self._at_once(  # the weightiest is trained however long it takes
                (
                    self.part_key(name, plan),
                    name,
                    plan,
                    every,
                    (left, time.time() + left) if number else (math.inf, math.inf),
                )
                for number, (name, plan) in enumerate(plans.items())
            )
        parts: list[tuple[str, Prepared]] = []
        if self.races:
            self._prepare_first(found, np.arange(len(self.rows)))
            train = partial(self._train_part, budget=math.inf)
            trained = self._together(train, plans.items())
            return list(zip(order, trained, strict=True))
        for number, name in enumerate(order, 1):
            self._say(
                f"all rows, part {number} of {len(order)}: {name}, {plural(seeds, 'network')}"
            )
            budget = self.clock.left if parts else float("inf")
            try:
                parts.append((name, self._train_part(name, plans[name], budget)))
            except OutOfTime:
                self._say(f"{name}: left out, the time is over")
            self.overall.end(units)
        return parts

    def part_key(self, name: str, plan: Plan) -> str:
        """Return the name of the result of a part."""
        return f"{name}-all-{plan.settings['ensemble_size']}"

    def _train_part(self, name: str, plan: Plan, budget: float) -> Prepared:
        """Train a part on all rows, or restore the one that was trained before."""
        key, every = self.part_key(name, plan), np.arange(len(self.rows))
        state = None if self.results is None else self.results.get(key)
        if state is None:
            if name in self.too_long:
                raise OutOfTime
            prepared = self._train(plan, every, budget)
            if self.results is not None:
                self.results.put(key, dict(prepared.network.state_dict()), "part")
            return prepared
        prepared = self.shared.prepare(plan, every, self.here.device)
        prepared.network.load_state_dict(state)
        prepared.network.to(self.here.device)
        memorize(prepared.network, prepared.rows)
        return prepared

    def _seeds_in_time(self, order: Sequence[str]) -> int:
        """Return how many networks of each part can be trained in the time that is left."""
        seeds = seeds_of(self.plan)
        if self.clock.limit is None or not all(name in self.seconds for name in order):
            return seeds if self.clock.limit is None else 1
        share = len(self.rows) / (len(self.rows) - len(self.held[0]))
        per_seed = sum(self.seconds[name] for name in order) * share / len(self.held) / FOLD_SEEDS
        if self.workers is not None:
            per_seed /= min(self.workers.workers, len(order))
        return int(max(1, min(seeds, self.clock.left // max(per_seed, 1e-9))))

    # ------------------------------------------------------------------ the pipeline

    def _calibrate(
        self,
        pipeline: Pipeline,
        predictions: dict[str, Tensor],
        by_name: dict[str, dict[str, float]],
        targets: Tensor,
        mask: Tensor | None,
    ) -> None:
        """Set the scaling of a blend by its predictions of the left-out rows."""
        if not predictions or not self.plan.calibration:
            return
        present = {part.name for part in pipeline.network_spec.parts}  # type: ignore[union-attr]
        weights = {
            f"{name}{SLASH}{answer}": weight
            for name in by_name
            if name in present
            for answer, weight in by_name[name].items()
        }
        total = sum(weights.values())
        p = torch.zeros(targets.shape)
        for key, weight in weights.items():
            p.add_(predictions[key].float(), alpha=weight / total)
        decoder = pipeline.make_decoder()
        scaling = fit_scaling(
            p, targets, pipeline.label_space, mask, by_level=not decoder.keeps_order
        )
        if self.races and scaling.kind != "log-odds" and decoder.answers == "class":
            scaling, scaled = temper_answers(scaling, p, targets, pipeline.label_space, decoder)
        else:
            scaled = scale_rows(scaling, p, pipeline.label_space)
        known: float | Tensor = 1.0 if mask is None else mask
        before, after = (
            float(calibration_error(one * known, targets, pipeline.label_space, pooled=True))
            for one in (p, scaled)
        )
        pipeline.scaling = scaling if self.races or after < before else None
        sure = scaled if pipeline.scaling is not None else p
        figures = measure(sure, targets, pipeline.label_space, mask=mask, decoder=decoder)
        pipeline.config["metrics"] = {LEFT_OUT: figures}
        pipeline.config["calibration"] = {
            **scaling.to_dict(),
            "used": pipeline.scaling is not None,
            "rows": len(targets),
            "error_before": before,
            "error_after": after,
        }

    def _describe(
        self, pipeline: Pipeline, parts: Sequence[tuple[str, Prepared]], chosen: Selection
    ) -> None:
        """Set the configuration of the blend."""
        prepared = parts[0][1]
        kept = pipeline.config
        pipeline.config = {**describe_run(prepared, self.dataset, None), **kept}
        pipeline.config["plan"] = self.plan.to_dict()
        pipeline.config["recipe"] |= {
            "name": BLEND,
            "because": (
                f"{'a race' if self.races else 'effort best'}: weights by "
                f"{'likelihood' if self.races else self.settings.metric} on "
                f"{len(self.kept):,} rows left out of training"
            ),
            "parts": {part.name: dict(part.answers) for part in pipeline.network_spec.parts},  # type: ignore[union-attr]
        }
        pipeline.config["training"] = {
            "seconds": round(time.monotonic() - self.clock.begun, 1),
            "left_out": {
                "metric": "exact" if self.races else self.settings.metric,
                "blend": chosen.value,
                **chosen.single,
            },
        }


def assemble(
    parts: Sequence[tuple[str, Prepared]],
    answers: Mapping[str, Mapping[str, float]],
    sharpness: Mapping[str, float] | None = None,
) -> Pipeline:
    """Return a blend as one pipeline; parts with the same preprocessing share columns.

    Args:
        parts: trained networks by name, of the same label space.
        answers: the weights of the answers of each.
        sharpness: of each, if not 1.
    """
    steps: list[Any] = []
    keys: list[str] = []
    begin: dict[str, int] = {}
    for name, prepared in parts:
        if prepared.preprocessor is None:  # sparse rows, used as they are
            begin[name] = 0
            continue
        key = json.dumps(prepared.preprocessor.state()[0], sort_keys=True)
        if key not in keys:
            keys.append(key)
            steps.append(prepared.preprocessor)
        begin[name] = sum(step.columns for step in steps[: keys.index(key)])
    specs, networks = [], []
    for name, prepared in parts:
        spec, names = prepared.network_spec, head_names(prepared.network)
        assert spec is not None  # an ingredient names its network
        if AVERAGE not in answers[name] and len(names) > 1:
            # no answer needs the others
            drop_heads(prepared.network, [one for one in names if one not in answers[name]])
            kept = {one: head for one, head in spec.heads.items() if one in answers[name]}
            spec = replace(spec, heads=kept)
        specs.append(
            PartSpec(
                name,
                spec,
                link_name(prepared.link),
                dict(answers[name]),
                begin[name],
                (sharpness or {}).get(name, 1.0),
            )
        )
        networks.append(prepared.network)
    first = parts[0][1]
    preprocessor = side_by_side(steps) if steps else None
    inputs = specs[0].network.inputs
    if preprocessor is not None:
        inputs = InputSpec(preprocessor.produces, preprocessor.shape)
    device, label_space = first.rows.device, first.label_space
    return Pipeline(
        label_space=label_space,
        network=Blend(label_space, specs, networks).to(device),
        link=make_link(label_space, link_name(first.link)).to(device),
        preprocessor=preprocessor,
        decoder=first.decision.decoder,
        decoder_options=dict(first.plan.decoder_options),
        network_spec=NetworkSpec(BLEND, inputs, parts=tuple(specs)),
    )


def predict_answers(
    prepared: Prepared, dataset: Dataset, answers: Sequence[str]
) -> dict[str, Tensor]:
    """Return (N, C) probabilities of rows by answer, in half precision, on the CPU.

    Args:
        prepared: a trained network.
        dataset: the rows.
        answers: names of heads, or "average".
    """
    labels = Labels(dataset.labels, dataset.hierarchy)
    rows = make_rows(dataset.inputs, prepared.preprocessor, labels, prepared.rows.device)

    def compute(x: Any) -> list[Tensor]:
        found, link, overrides = prepared.network(x), prepared.link, prepared.overrides_link
        outputs = (
            read_output(found, link, overrides_link=overrides, answer=name) for name in answers
        )
        return [output.mean().probabilities.half().cpu() for output in outputs]

    parts = zip(*run_network(prepared.network, compute, batches_of(rows, BATCH)), strict=True)
    return {name: torch.cat(some) for name, some in zip(answers, parts, strict=True)}


# ---------------------------------------- a training on a worker


@dataclass(frozen=True)
class BlendRows:
    """What all trainings of a blend share.

    Attributes:
        dataset: all rows.
        rows: the numbers of the training rows.
        terminals: the terminal classes of all training rows, by name.
        weights: (N,) how much each row of the dataset counts.
        encoder: a fitted encoder that all parts share.
        reuse: see PrepareOptions.
    """

    dataset: Dataset
    rows: NDArray[np.int64]
    terminals: list[str]
    weights: NDArray[np.float64] | None = None
    encoder: Any = None
    reuse: dict[Any, Any] | None = None

    def prepare(self, plan: Plan, rows: NDArray[np.int64], device: torch.device) -> Prepared:
        """Prepare a training on some of the rows, for the classes of all of them."""
        dataset = replace(self.dataset, splits={"train": self.rows[rows]})
        extras = PrepareOptions(
            weights=self.weights,
            terminals=self.terminals,
            encoder=self.encoder,
            reuse=self.reuse,
        )
        return prepare(dataset, plan, device, extras)


def train_job(
    shared: BlendRows,
    plan: Plan,
    held: NDArray[np.int64],
    limits: tuple[float, float],
    *,
    on_step: Step | None = None,
) -> tuple[bytes, float] | None:
    """Train on a worker; return tensors as the bytes of a safetensors file, and the seconds.

    Args:
        shared: the rows.
        plan: how to train.
        held: the rows to leave out, among the training rows, whose predictions are returned; where
            there are none the weights are.
        limits: the seconds that the training may take, and the time of day when it must have
            ended; None is returned where it would take longer.
        on_step: called with the step and the number of steps.
    """
    begun = time.monotonic()
    device = find_device(plan.settings.get("device", "auto"))
    prepared = shared.prepare(plan, np.delete(np.arange(len(shared.rows)), held), device)
    watch = Clock(None).watch(min(limits[0], limits[1] - time.time()))

    def step(number: int, of: int) -> None:
        watch(number, of)
        if on_step is not None:
            on_step(number, of)

    try:
        run(prepared, Processes(0, 1, device), reporting=Reporting(bar=False, on_step=step))
    except OutOfTime:
        return None
    if len(held):
        rows = shared.dataset.take(shared.rows[held])
        found = predict_answers(prepared, rows, answers_of(prepared))
    else:
        state = prepared.network.state_dict()
        found = {name: value.contiguous() for name, value in state.items()}
    return save(found), time.monotonic() - begun


@dataclass(frozen=True)
class Call:
    """A job for a worker: ``function(data, *args, on_step=...)``.

    Attributes:
        function: of a module that workers can import.
        data: what many jobs share; sent to each worker once.
        args: what is its own.
    """

    function: Callable[..., Any]
    data: Any
    args: tuple[Any, ...] = ()


class Workers(Protocol):
    """What runs jobs: an Engine of ``hierlearn.service``."""

    @property
    def workers(self) -> int:
        """How many jobs run at a time."""

    def run(self, jobs: Iterable[Any], on_step: Any = None) -> Generator[Any, None, None]:
        """Run jobs, and yield how each ended: its number, and ``result()``."""


WORKERS: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextmanager
def use_workers(workers: Workers) -> Iterator[None]:
    """Let trainings in this block use workers."""
    token = WORKERS.set(workers)
    try:
        yield
    finally:
        WORKERS.reset(token)


# ---------------------------------------- results


def begin_results(work: Path, identity: dict[str, Any], *, resume: bool) -> BlendResults:
    """Prepare the folder of results, and return it.

    Args:
        work: the folder.
        identity: what must be equal in the run that left results there.
        resume: keep these results; raise where they are of another run.
    """
    path = work / "run.json"
    if resume and path.is_file():
        check_identity(path, read_json(path), identity)
        return BlendResults(work)
    remove_folder(work)
    with atomic_write(path) as file:
        file.write(json.dumps(identity))
    return BlendResults(work)
