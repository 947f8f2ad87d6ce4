"""Prepare: from a dataset and a plan to tensors, losses and a network that are ready to train."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.row_groups import RowGroups
from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.features.preprocessing import NumericPreprocessor, TextPreprocessor
from hierlearn.hierarchy.labels import Labels
from hierlearn.networks import NETWORKS
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.training.plan import Decision, Plan, decide
from hierlearn.training.recipes import build_link, build_loss, link_name
from hierlearn.training.rows import Rows
from hierlearn.training.seeding import generator
from hierlearn.training.settings import Settings
from hierlearn.training.stream import ParquetRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.features.preprocessing import Preprocessor
    from hierlearn.hierarchy.nodes import Label
    from hierlearn.losses import Loss
    from hierlearn.networks.network import Network

NOT_ASKED = ("inputs", "outputs", "members")  # what the data and the seeds decide of a network


@dataclass(frozen=True)
class Prepared:
    """A plan made definite by the data: rows, losses, network and model."""

    plan: Plan
    decision: Decision
    rows: Rows
    valid: Rows | None
    losses: list[Loss]
    model: Pipeline


def prepare(
    dataset: Dataset,
    plan: Plan,
    device: torch.device,
    weights: NDArray[np.float64] | None = None,
    network: nn.Module | None = None,
    ends: Iterable[Label] = (),
) -> Prepared:
    """Fit the preprocessing, choose what the plan leaves open, and make network and losses.

    Args:
        dataset: the rows.
        plan: what to train and how.
        device: where.
        weights: (N,) how much each row of the dataset counts.
        network: instead of one of NETWORKS.
        ends: classes that may be terminal although no training row ends there.
    """
    rows, valid_rows = split_rows(dataset, plan)
    hierarchy = dataset.hierarchy
    train_set = dataset.take(rows)
    labels = Labels(train_set.labels, hierarchy, unlabeled_descendants=plan.unlabeled_descendants)
    preprocessor: Any = make_preprocessor(dataset, plan)
    inputs: Any = train_set.inputs
    if isinstance(inputs, RowGroups):
        preprocessor.fit_parts(inputs.parts)
    elif preprocessor is not None:
        preprocessor.fit(inputs)
    columns = inputs.shape[1] if preprocessor is None else preprocessor.columns
    decision = decide(plan, labels)
    recipe, settings = decision.recipe, decision.settings
    settings.check_validation(len(valid_rows) > 0)
    terminals = terminal_classes(labels, ends)
    losses = [
        build_loss(recipe.loss, hierarchy, terminals, **dict(recipe.loss_options))
        for _ in range(settings.ensemble_size)
    ]
    own = losses[0].link
    link_kind = recipe.link or ("from-loss" if own.coherent else "max")
    link_kind = link_name(own) if link_kind == "from-loss" else link_kind
    link = build_link(link_kind, hierarchy, terminals)
    sparse = dataset.is_text or dataset.is_sparse
    network_name = plan.network or ("token-bag" if sparse else "mlp")
    row_weights = None if weights is None else weights_of(rows, weights, len(dataset))
    if network is None:
        network = make_network(
            network_name,
            columns,
            labels,
            losses[0],
            settings,
            plan.network_options,
            row_weights,
        )
    ready = make_rows(inputs, preprocessor, labels, device, row_weights)
    valid = None
    if len(valid_rows):
        held = dataset.take(valid_rows)
        valid = make_rows(held.inputs, preprocessor, Labels(held.labels, hierarchy), device)
    model = Pipeline(
        hierarchy=hierarchy,
        network=network,
        link=link.to(device),
        preprocessor=preprocessor,
        decoder=recipe.decoder or choose_decoder(labels),
        decoder_options=dict(plan.decoder_options),
        terminals=tuple(terminals),
    )
    model.make_decoder()  # a decoder that does not fit the hierarchy says so before the work
    return Prepared(plan, decision, ready, valid, losses, model)


def make_rows(
    inputs: Any,
    preprocessor: Any,
    labels: Labels,
    device: torch.device,
    weights: NDArray[np.float64] | None = None,
) -> Rows:
    """Preprocess rows and make tensors of them, at once or as they are needed."""
    if isinstance(inputs, RowGroups):
        return ParquetRows(inputs, preprocessor, labels, device, weights)
    ready = inputs if preprocessor is None else preprocessor.transform(inputs)
    return Rows(ready, labels, device, weights)


def make_preprocessor(dataset: Dataset, plan: Plan) -> Preprocessor[Any, Any] | None:
    """Return what the inputs go through; None for sparse rows, which go as they are."""
    if dataset.is_sparse:
        return None
    if dataset.is_text:
        return TextPreprocessor()
    return NumericPreprocessor(standardize=plan.standardize)


def terminal_classes(labels: Labels, ends: Iterable[Label] = ()) -> list[int]:
    """Return the classes that a row may end at.

    Where what lies below a label is unknown, a row ends at a leaf that nobody named.
    """
    if labels.unlabeled_descendants == "ignore":
        return [int(leaf) for leaf in labels.hierarchy.leaves]
    named = [labels.hierarchy.index(label) for label in ends]
    return [int(number) for number in np.union1d(labels.terminal_classes, named)]


def choose_decoder(labels: Labels) -> str:
    """Return the name of the decoder that fits the labels of the training rows."""
    ends = np.diff(labels.terminal[0])
    if np.any(ends > 1):
        return "coherent"
    # A row without a label says that no class applies, which only a decoder that stops can answer.
    return "stop" if labels.unlabeled_descendants == "negative" and np.any(ends == 0) else "leaf"


def weights_of(
    rows: NDArray[np.int64], weights: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """Return the weights of some of all rows; refuse what cannot weigh a row."""
    found = np.asarray(weights, dtype=np.float64)
    if found.shape != (count,):
        raise DataError(f"weights {found.shape} must be ({count},), one a row")
    wrong = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(wrong):
        raise DataError(
            f"the weight of row {wrong[0]} is {found[wrong[0]]}; weights are finite, at least 0"
        )
    if not found[rows].any():
        raise DataError("every training row has weight 0")
    return found[rows]


def split_rows(dataset: Dataset, plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the training rows and the validation rows."""
    splits = dataset.splits
    held = [splits[name] for name in ("valid", "test") if name in splits]
    if "train" in splits:
        rows = splits["train"]
    else:
        rows = np.setdiff1d(np.arange(len(dataset)), np.concatenate(held) if held else [])
    if "valid" in splits:
        return rows, splits["valid"]
    count = round(plan.valid_fraction * len(rows))
    if plan.valid_fraction and not 0 < count < len(rows):
        raise HierlearnError(
            f"a share of {plan.valid_fraction} of {len(rows)} rows is {count} rows"
        )
    seed = Settings.from_dict(plan.settings).seed
    shuffled = rows[torch.randperm(len(rows), generator=generator(seed, "valid")).numpy()]
    return np.sort(shuffled[count:]), np.sort(shuffled[:count])


def make_network(
    name: str,
    inputs: int,
    labels: Labels,
    loss: Loss,
    settings: Settings,
    options: Mapping[str, Any],
    weights: NDArray[np.float64] | None = None,
) -> Network:
    """Make a network of NETWORKS, weights drawn by seed, the bias at the priors if asked for."""
    members = settings.ensemble_size if settings.ensemble_size > 1 else None
    taken = [one for one in signature(NETWORKS[name]).parameters if one not in NOT_ASKED]
    for option in options:
        if option not in taken:
            raise HierlearnError(unknown_name(f"option of network {name}", option, taken))
    try:
        with torch.random.fork_rng(devices=[]):  # its weights are drawn by seed below
            network = NETWORKS[name](inputs, len(labels.hierarchy), members=members, **options)
    except TypeError:
        asked = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise HierlearnError(f"network {name} cannot be made with {asked}") from None
    network.draw_weights(
        [generator(settings.seed + number, "weights") for number in range(settings.ensemble_size)]
    )
    if settings.prior_bias:
        share = np.ones(len(labels)) if weights is None else weights / weights.mean()
        counts, ends = (
            class_counts(csr, share, labels) for csr in (labels.closed, labels.terminal)
        )
        network.set_bias(loss.link.prior_logits(counts, ends, len(labels)))
    return network


def class_counts(
    csr: tuple[NDArray[np.int64], NDArray[np.int64]], share: NDArray[np.float64], labels: Labels
) -> Tensor:
    """Return (C,) float64 the rows of each class, a row counting as its share says."""
    offsets, numbers = csr
    counts = np.bincount(numbers, np.repeat(share, np.diff(offsets)), len(labels.hierarchy))
    return torch.from_numpy(counts).double()


def summary(prepared: Prepared) -> str:
    """Say in a sentence what will be trained."""
    decision, model, loss = prepared.decision, prepared.model, prepared.losses[0]
    settings = decision.settings
    size = settings.ensemble_size
    return (
        f"recipe {decision.name} ({decision.why}): {type(loss).__name__} on the "
        f"{link_name(loss.link)} link, read by the {link_name(model.link)} link, decoder "
        f"{model.decoder}; {len(prepared.rows):,} training rows, "
        f"{len(prepared.valid or ()):,} for validation, {settings.epochs} epochs, "
        f"{size} network{'s' * (size > 1)} on {prepared.rows.device}"
    )
