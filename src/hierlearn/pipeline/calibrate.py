"""Calibrate: a trained model made as sure as it should be, by rows that it was not trained on.

Validation rows serve, where there are enough. Otherwise a tenth of the training rows, a fifth of
few, is left out of a second training, which predicts them. What they say of its probabilities is
taken over by the model of all rows, which differs by these rows only. Nothing is learned there but
the scaling of the probabilities, see decoding/scaling.py. A mean over 60 rows has a standard error
of 6 points: where a training takes a moment, fifths of few rows are left out in turn.

Rows of one group, or of one id, are left out together, and so are copies: equal inputs with equal
labels, unless equal inputs often have different labels, as rows of few categories do.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.tables.stream import RowGroups
from hierlearn.decoding.scaling import fit_scaling
from hierlearn.errors import plural
from hierlearn.hierarchy.labels import labels_of_rows
from hierlearn.networks.ensemble import heads_of
from hierlearn.networks.sparse_linear import SparseLinearHead
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.seen_rows import row_digests
from hierlearn.training.blending import assign_folds, first_class, group_numbers
from hierlearn.training.prepare import Prepared, PrepareOptions, prepare
from hierlearn.training.recipes import RECIPES

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.training.processes import Processes

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

FEWEST = 40  # training rows, below which nothing can be said
ENOUGH = 50  # validation rows to learn from
PART = 10  # one training row of so many is left out,
GOOD = 600  # or so many rows, where that is more,
LARGEST = 5  # but no more than one row of so many
MOST = 5000  # rows to learn from
ENTRIES = 1 << 25  # probabilities of these, at most
WORK = 10**10  # rows x epochs x weights that further trainings may take in all
COPIES = 0.95  # of the groups of equal inputs, from which on they are copies


def calibrate(
    pipeline: Pipeline,
    prepared: Prepared,
    dataset: Dataset,
    here: Processes,
    weights: Floats | None = None,
    reporting: Reporting | None = None,
) -> None:
    """Set how sure a pipeline is; nothing where there are too few rows, or it is not wanted.

    Args:
        pipeline: after its training, on all rows.
        prepared: what was trained.
        dataset: all rows.
        here: this process among all of them.
        weights: (N,) how much each row of the dataset counts.
        reporting: the callbacks.
    """
    reporting = reporting or Reporting(bar=False)
    if not prepared.plan.calibration or prepared.network_spec is None:
        return
    if len(prepared.label_space.terminals) < 2:
        return  # every answer is the same class
    held, source = prepared.held_out, "validation rows"
    most = min(MOST, max(ENTRIES // len(pipeline.label_space), LARGEST))
    if len(held) < ENOUGH and not prepared.decision.settings.patience:
        folds = left_out(prepared, pipeline, dataset)
        if not folds:
            return
        held, again = np.concatenate(folds), "a second training"
        if len(folds) > 1:
            again = f"{len(folds)} further trainings"
        source = f"rows left out of {again}"
        reporting.message(f"calibrating: {plural(len(held), 'row')} left out of {again}")
        models = [
            second_training(prepared, dataset, fold, here, weights, reporting) for fold in folds
        ]
    else:
        folds, models, weights = [held], [pipeline], None
    folds = [fold[: most // len(folds)] for fold in folds]
    held = np.concatenate(folds)
    if not len(held):
        return
    rows = dataset.take(held)
    policy = prepared.rows.labels.unlabeled_descendants
    labels = labels_of_rows(rows.labels, dataset.hierarchy, unlabeled_descendants=policy)
    p = torch.cat(
        [
            plain_probabilities(model, dataset.take(fold).inputs)
            for model, fold in zip(models, folds, strict=True)
        ]
    )
    mask = labels.mask() if policy == "ignore" else None
    counts = None if weights is None else weights[held]
    by_level = not pipeline.make_decoder().keeps_order
    pipeline.scaling = fit_scaling(
        p, labels.targets(), pipeline.label_space, mask, counts, by_level=by_level
    )
    pipeline.config["calibration"] = {
        **pipeline.scaling.to_dict(),
        "rows": len(held),
        "source": source,
    }


def plain_probabilities(pipeline: Pipeline, inputs: object) -> Tensor:
    """Return (N, C) probabilities before they are scaled."""
    return replace(pipeline, scaling=None).probabilities(inputs)


def left_out(prepared: Prepared, pipeline: Pipeline, dataset: Dataset) -> list[Ints]:
    """Return which training rows, by number in the dataset, each further training leaves out.

    None does where there are too few rows. Where a training takes a moment, there are more of them,
    until GOOD rows were left out.

    Args:
        prepared: what was trained.
        pipeline: the model, whose columns tell which rows are copies.
        dataset: all rows.
    """
    rows, trained = prepared.rows, prepared.rows.numbers
    inputs: Any = dataset.inputs
    counted = np.arange(len(rows))
    if rows.weights is not None:
        counted = np.flatnonzero(rows.weights.cpu().numpy() > 0)
    if len(counted) < FEWEST:
        return []
    if (together := dataset.held_together) is not None:
        groups = group_numbers([together[row] for row in trained[counted]], len(counted))
    elif isinstance(inputs, RowGroups):
        groups = np.arange(len(counted))
    else:
        digests = row_digests(pipeline, dataset.take(trained[counted]).inputs)
        groups = copies(digests, rows.label_sets.of_row[counted])
    count = int(groups.max()) + 1
    wanted = max(len(counted) / PART, min(GOOD, len(counted) / LARGEST))
    folds = min(round(len(counted) / wanted), count)
    if folds < 2:
        return []
    classes = first_class(rows.labels)[counted]
    settings = prepared.decision.settings
    fold = assign_folds(classes, groups, folds, settings.seed)[groups]
    trainings = min(folds, round(GOOD * folds / len(counted)))
    if settings.optimizer == "adamw":
        weights = sum(parameter.numel() for parameter in prepared.network.parameters())
        steps = len(counted) * settings.epochs * max(weights, 1)
        trainings = min(trainings, WORK // steps)
    return [trained[counted[fold == one]] for one in range(max(trainings, 1))]


def copies(digests: NDArray[np.uint64], label_sets: Ints) -> Ints:
    """Return the number of each row's group: equal rows are copies where their labels agree.

    Args:
        digests: (N,) of the inputs.
        label_sets: (N,) the number of the label set of each row.
    """
    _, groups, sizes = np.unique(digests, return_inverse=True, return_counts=True)
    several = sizes > 1
    if not several.any():
        return np.arange(len(digests))
    least, most = (np.full(len(sizes), at, dtype=np.int64) for at in (len(digests), -1))
    np.minimum.at(least, groups, label_sets)
    np.maximum.at(most, groups, label_sets)
    agree = (least == most)[several].mean()
    return groups.astype(np.int64) if agree >= COPIES else np.arange(len(digests))


def second_training(
    prepared: Prepared,
    dataset: Dataset,
    held: Ints,
    here: Processes,
    weights: Floats | None,
    reporting: Reporting,
) -> Pipeline:
    """Train once more, without the held-out rows, for the same classes; return that model."""
    from hierlearn.pipeline.run import run

    label_space, name = prepared.label_space, prepared.decision.name
    settings = prepared.decision.settings
    names = label_space.hierarchy.names
    head_options = dict(prepared.plan.head_options)
    for head in heads_of(prepared.network, SparseLinearHead)[:1]:  # how steep, is learned once
        head_options["slope"] = float(head.slope)
    plan = replace(
        prepared.plan,
        head_options=head_options,
        recipe=name if name in RECIPES else prepared.plan.recipe,
        decoder=prepared.decision.decoder,
        valid_fraction=0.0,
        # As often over every row as before: rules would make it longer for fewer rows.
        settings={
            **prepared.plan.settings,
            "epochs": settings.epochs,
            "optimizer": settings.optimizer,
        },
    )
    extras = PrepareOptions(
        weights=weights, terminals=[names[one] for one in label_space.terminals.tolist()]
    )
    rest = replace(dataset, splits={"train": np.setdiff1d(prepared.rows.numbers, held)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first training has said what there is to say
        again = prepare(rest, plan, here.device, extras)
        run(again, here, reporting=Reporting(bar=reporting.bar))
    return Pipeline.from_prepared(again)
