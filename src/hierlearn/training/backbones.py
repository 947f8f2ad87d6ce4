"""Backbones of a plan: frozen ones encode the rows before training, others are the network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.backbones import find_backbone, names_backbone, parse_encoder
from hierlearn.errors import HierlearnError, arg, unknown_name
from hierlearn.features.combined import ChainPreprocessor, EncodedTablePreprocessor
from hierlearn.features.embed import EmbedPreprocessor
from hierlearn.features.registry import find_step
from hierlearn.networks import NETWORKS
from hierlearn.networks.build import option_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.features.preprocessor import Preprocessor
    from hierlearn.training.settings import Plan

ALL = ""  # the inputs of a dataset without columns
TUNING = "tuning"  # an option of a backbone: frozen, or which of its weights are trained
FROZEN = "frozen"


def resolve(plan: Plan) -> Plan:
    """Return a plan whose backbone is either a frozen encoder or the network.

    Args:
        plan: with ``network="prefix:source"``; others are returned as they are.
    """
    name = plan.network
    if name is None or not names_backbone(name):
        return plan
    family, source = find_backbone(name)
    options = dict(plan.network_options)
    tuning = options.pop(TUNING, FROZEN)
    if tuning != FROZEN:
        family.check_tuning(tuning)
    step = [one for one in find_step(family.step).options() if one != "source"]
    check_options(name, options, tuning)
    if tuning == FROZEN:
        own = {k: options.pop(k) for k in [*options] if k in EmbedPreprocessor.options_of(name)}
        return replace(
            plan,
            network=None,
            network_options=options,
            encoder={**plan.encoder, ALL: {"source": name, **own}},
        )
    if plan.preprocessing is not None:
        raise HierlearnError(
            f"{name} reads {family.reads} by itself; leave out preprocessing {plan.preprocessing!r}"
        )
    first = {k: options.pop(k) for k in [*options] if k in step}
    description = family.describe(source)
    options |= {TUNING: tuning} if TUNING in family.options() else {}
    return replace(
        plan,
        network_options={"description": description, **options},
        preprocessing=family.step,
        preprocessing_options={"source": name, **first},
        settings={**family.settings_for(tuning), **plan.settings},
    )


def check_options(name: str, options: Mapping[str, Any], tuning: str) -> None:
    """Raise on an option that a backbone does not have, or not where it is tuned like this.

    Args:
        name: ``prefix:source``.
        options: without the tuning; those of a frozen backbone may be of the network after it.
        tuning: "frozen", or one of the backbone's.
    """
    family, _ = find_backbone(name)
    step = [one for one in find_step(family.step).options() if one != "source"]
    known = {*family.options(), *step, TUNING}
    if tuning == FROZEN:
        known |= {"cache"}
    after = {
        option for network in NETWORKS for option in option_names(network) or () if tuning == FROZEN
    }
    for option in options:
        wanted = family.training_options.get(option, "") or tuning
        if wanted != tuning:
            raise HierlearnError(
                f"{option} is for tuning {wanted!r}, not {tuning!r}; leave it out, or set "
                f"{arg('tuning=')}"
                f"{wanted}"
            )
        if option not in known | after:
            raise HierlearnError(unknown_name(f"option of {name}", option, known))


def fitted_embedder(
    dataset: Dataset, plan: Plan, device: torch.device
) -> Preprocessor[Any, Any] | None:
    """Return the frozen encoder of a plan, or the encoders of its columns; None without any.

    Args:
        dataset: the training rows.
        plan: what was asked for.
        device: where to compute.
    """
    if not plan.encoder:
        return None
    encoders = {column: parse_encoder(own) for column, own in plan.encoder.items()}
    if [*encoders] == [*dataset.feature_names]:  # the only column
        encoders = {ALL: encoders[dataset.feature_names[0]]}
    if ALL not in encoders:
        if dataset.kind != "table":
            raise HierlearnError(
                f"{arg('encoder')} names the column {next(iter(encoders))!r}, but the inputs are "
                f"{dataset.kind} without columns; use {arg('network=')} for the only input"
            )
        table = {"standardize": plan.standardize}
        return EncodedTablePreprocessor(encoders, table).to(device).fit(dataset.inputs)
    if len(encoders) > 1:
        raise HierlearnError(
            f"network={encoders[ALL]['source']!r} encodes the only input; name the column of every "
            f"encoder with {arg('encoder=')} instead"
        )
    step = EmbedPreprocessor(**encoders[ALL]).to(device)
    if dataset.kind != step.reads:
        raise HierlearnError(
            f"{step.source} reads {step.reads}, but the inputs are {dataset.kind}; name a column "
            f"of {step.reads}"
        )
    return step.fit_parts(dataset.input_parts)


def embedded(dataset: Dataset, embedder: Preprocessor[Any, Any] | None) -> Dataset:
    """Return a dataset of the numbers that an encoder gives; without one, the dataset as it is."""
    if embedder is None:
        return dataset
    found = [embedder.transform(part) for part in dataset.input_parts()]
    return replace(dataset, inputs=np.concatenate(found), feature_names=())


def chained(
    first: Preprocessor[Any, Any] | None, second: Preprocessor[Any, Any] | None
) -> Preprocessor[Any, Any] | None:
    """Return one step after another, where there are two."""
    if first is None or second is None:
        return second if first is None else first
    return ChainPreprocessor(first, second)


def load_weights(network: nn.Module, plan: Plan) -> None:
    """Read pretrained weights into a network that was built for them; into others nothing."""
    if plan.network is None or not names_backbone(plan.network):
        return
    family, source = find_backbone(plan.network)
    for one in network.modules():
        if hasattr(one, "encoder") and hasattr(one, "heads"):
            family.load(one.encoder, source)  # type: ignore[arg-type]
