"""Backbones of a plan: frozen ones encode the rows before training, others are the network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hierlearn.backbones import find_backbone, names_backbone
from hierlearn.errors import HierlearnError
from hierlearn.features.chain import ChainPreprocessor
from hierlearn.features.embed import EmbedPreprocessor
from hierlearn.features.registry import find_step

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.features.preprocessor import Preprocessor
    from hierlearn.training.plan import Plan

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
    step = [one for one in find_step(family.step).options() if one != "source"]
    if tuning == FROZEN:
        own = {k: options.pop(k) for k in [*options] if k in (*family.options(), *step)}
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
    family.check_tuning(tuning)
    description = family.describe(source)
    options |= {TUNING: tuning} if TUNING in family.options() else {}
    return replace(
        plan,
        network_options={"description": description, **options},
        preprocessing=family.step,
        preprocessing_options={"source": name, **first},
        settings={**family.settings_for(tuning), **plan.settings},
    )


def fitted_embedder(dataset: Dataset, plan: Plan, device: torch.device) -> EmbedPreprocessor | None:
    """Return the frozen encoder of a plan; None where it has none.

    Args:
        dataset: the training rows.
        plan: what was asked for.
        device: where to compute.
    """
    if not plan.encoder:
        return None
    step = EmbedPreprocessor(**plan.encoder[ALL]).to(device)
    if dataset.kind != step.reads:
        raise HierlearnError(
            f"{step.source} reads {step.reads}, but the inputs are {dataset.kind}; name a column "
            f"of {step.reads}"
        )
    return step.fit(dataset.inputs)


def embedded(dataset: Dataset, embedder: Preprocessor[Any, Any] | None) -> Dataset:
    """Return a dataset of the numbers that an encoder gives; without one, the dataset as it is."""
    if embedder is None:
        return dataset
    return replace(dataset, inputs=embedder.transform(dataset.inputs), feature_names=())


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
