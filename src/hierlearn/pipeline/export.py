"""Export: a model as one ONNX graph, from inputs to probabilities.

    inputs (N, D) float32  ->  probabilities (N, C) float32,    N free

Numbers go in raw, NaN where one is missing: filling in and standardizing are part of the graph. Of
a model of texts the graph takes the weighted words that the preprocessing gives, dense; beside the
graph stands all that makes them. The graph is compared with the model on rows drawn at random
before it is written.
"""

from __future__ import annotations

import json
import logging
import warnings
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.files import atomic_write
from hierlearn.training.recipes import build_link, link_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hierlearn.pipeline.pipeline import Pipeline

OPSET = 20
WITHIN = 1e-5  # how far the graph may be from the model
LARGEST = 2**31 - 1  # bytes of a file in ONNX's format
BESIDE = ("hierarchy.json", "preprocessing.json")
ROWS = 13  # of the example that is traced: a number that is no width of a layer


class Graph(nn.Module):
    """What is exported: preprocessing of numbers, network, link, mean over the models."""

    def __init__(self, model: Pipeline) -> None:
        super().__init__()
        self.network = deepcopy(model.network).cpu()
        self.link = build_link(link_name(model.link), model.hierarchy, model.terminals)
        self.dtype = next(model.network.parameters()).dtype
        self.preprocessing = preprocessing_of(model)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (N, C) probabilities."""
        x = inputs if self.preprocessing is None else self.preprocessing(inputs)
        logits = self.network(x.to(self.dtype))
        if logits.dim() == 2:
            return self.link.probabilities(logits).float()
        members = [self.link.probabilities(one) for one in logits.unbind(0)]
        return torch.stack(members).mean(dim=0).float()


def preprocessing_of(model: Pipeline) -> nn.Module | None:
    """Return the preprocessing as a module, None where rows are preprocessed outside the graph."""
    return None if model.preprocessor is None else model.preprocessor.as_module()


def export(model: Pipeline, path: Path | str) -> tuple[Path, ...]:
    """Write a model as ONNX, with hierarchy.json and preprocessing.json beside it.

    Args:
        model: the model; it is left as it is.
        path: the file to write, which is replaced.

    Returns:
        What was written.

    Raises:
        HierlearnError: where onnx is not installed, or the graph is not the model.
    """
    path = Path(path)
    graph = Graph(model).eval()
    width = columns_of(model)
    data = to_onnx(graph, width, path)
    check_equal(graph, data, width)
    with atomic_write(path, "wb") as file:
        file.write(data)
    hierarchy, preprocessing = (path.parent / name for name in BESIDE)
    with atomic_write(hierarchy) as file:
        file.write(model.hierarchy.to_json() + "\n")
    with atomic_write(preprocessing) as file:
        file.write(json.dumps(describe(model), indent=2, ensure_ascii=False) + "\n")
    return path, hierarchy, preprocessing


def columns_of(model: Pipeline) -> int:
    """Return D, how many numbers the graph reads."""
    if model.preprocessor is not None:
        return model.preprocessor.columns
    return int(model.network.inputs)  # type: ignore[arg-type]


def describe(model: Pipeline) -> dict[str, Any]:
    """Return the preprocessing as plain values, and what the graph takes and gives."""
    settings, arrays = ({}, {}) if model.preprocessor is None else model.preprocessor.state()
    inside = preprocessing_of(model) is not None
    return {
        "inputs": "raw numbers, NaN where one is missing" if inside else "preprocessed rows",
        "in_graph": inside,
        "feature_names": list(model.config.get("feature_names", ())),
        "outputs": "probabilities, a column a class in the order of hierarchy.json",
        "link": link_name(model.link),
        "terminals": list(model.terminals),
        "decoder": {"name": model.decoder, "options": model.decoder_options},
        "fingerprint": model.hierarchy.fingerprint,
        **settings,
        **{name: array.tolist() for name, array in arrays.items()},
    }


def to_onnx(graph: Graph, width: int, path: Path) -> bytes:
    """Return the graph in ONNX's format."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise HierlearnError(
            "exporting needs onnx and onnxscript; install them with: pip install 'hierlearn[onnx]'"
        ) from None
    size = sum(value.nbytes for value in graph.state_dict().values())
    if size > LARGEST:
        raise HierlearnError(f"{path}: the weights are {size:,} bytes, ONNX holds {LARGEST:,}")
    example = torch.zeros(ROWS, width)
    with torch.no_grad(), quiet():
        graph(example)  # index tensors of the hierarchy are made before tracing, as constants
        program: Any = torch.onnx.export(
            graph,
            (example,),
            dynamo=True,
            input_names=["inputs"],
            output_names=["probabilities"],
            dynamic_shapes={"inputs": {0: torch.export.Dim("rows")}},
            opset_version=OPSET,
            verbose=False,
            # The optimizer takes a sum into every column of a level for a plain copy.
            optimize=False,
        )
    proto = program.model_proto
    proto.graph.ClearField("value_info")
    for part in (proto, proto.graph, *proto.graph.node, *proto.graph.initializer):
        part.ClearField("metadata_props")  # where each step stands in the source files
        part.ClearField("doc_string")
    data: bytes = proto.SerializeToString()
    return data


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the exporter's notes on its own future, and on what is not installed, to itself."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


@torch.no_grad()
def check_equal(graph: Graph, data: bytes, width: int) -> None:
    """Compare the graph with the model on random rows; skipped without onnxruntime."""
    try:
        import onnxruntime
    except ImportError:
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(0)
    for rows in (1, 64):
        x = draw.standard_normal((rows, width)).astype(np.float32)
        inverse: Any = getattr(graph.preprocessing, "inverse", None)
        if inverse is not None:
            x = inverse(torch.from_numpy(x)).numpy()
        given = session.run(["probabilities"], {"inputs": x})[0]
        apart = float(np.abs(given - graph(torch.from_numpy(x)).numpy()).max())
        if not apart <= WITHIN:
            raise HierlearnError(
                f"the exported graph differs from the model by {apart:.2g}, more than {WITHIN}; "
                f"nothing was written"
            )
