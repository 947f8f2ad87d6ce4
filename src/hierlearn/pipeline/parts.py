"""Parts: what a blend is put together from, trained networks and their answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.features.combined import side_by_side
from hierlearn.hierarchy.labels import Labels
from hierlearn.links import HeadOutput, link_name, make_link
from hierlearn.networks import read_output
from hierlearn.networks.blend import BLEND, Blend, PartSpec
from hierlearn.networks.build import NetworkSpec
from hierlearn.networks.ensemble import drop_heads, head_names
from hierlearn.networks.inputs import InputSpec
from hierlearn.networks.network import AVERAGE
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.training.prepare import make_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.decoding.scaling import Scaling
    from hierlearn.hierarchy import LabelSpace
    from hierlearn.training.prepare import Prepared

BATCH = 2048


def assemble(
    parts: Sequence[tuple[str, Prepared]], answers: Mapping[str, Mapping[str, float]]
) -> Pipeline:
    """Return a blend as one pipeline; parts with the same preprocessing share columns.

    Args:
        parts: trained networks by name, of the same label space.
        answers: the weights of the answers of each.
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
        spec = keep_heads(prepared, answers[name])
        specs.append(PartSpec(name, spec, link_name(prepared.link), answers[name], begin[name]))
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
        decoder=first.decoder,
        decoder_options=dict(first.plan.decoder_options),
        network_spec=NetworkSpec(BLEND, inputs, parts=tuple(specs)),
    )


def keep_heads(prepared: Prepared, answers: Mapping[str, float]) -> NetworkSpec:
    """Drop the heads of a trained network that no answer needs; return how to build the rest."""
    spec = prepared.network_spec
    assert spec is not None  # an ingredient names its network
    names = head_names(prepared.network)
    if AVERAGE in answers or len(names) < 2:
        return spec
    drop_heads(prepared.network, [name for name in names if name not in answers])
    return replace(spec, heads={k: head for k, head in spec.heads.items() if k in answers})


@torch.no_grad()
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
    prepared.network.eval()
    parts: dict[str, list[Tensor]] = {name: [] for name in answers}
    for begin in range(0, len(rows), BATCH):
        index = torch.arange(begin, min(begin + BATCH, len(rows)), device=rows.device)
        found = prepared.network(rows.take(index))
        for name in answers:
            output = read_output(found, prepared.link, rereads=prepared.rereads, answer=name)
            parts[name].append(output.mean().probabilities.half().cpu())
    return {name: torch.cat(some) for name, some in parts.items()}


def scale_rows(p: Tensor, scaling: Scaling, label_space: LabelSpace) -> Tensor:
    """Return scaled probabilities of many rows."""
    found = []
    for part in torch.split(p, BATCH):
        q = part.double()
        output = HeadOutput(q.log(), torch.log1p(-q.clamp_max(1 - 1e-12)))
        found.append(scaling(output, label_space).probabilities.to(p))
    return torch.cat(found)
