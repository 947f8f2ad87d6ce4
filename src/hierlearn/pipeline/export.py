"""Export: a model as one ONNX graph, from inputs to probabilities.

    inputs (N, D) float32  ->  probabilities (N, C) float32,    N free

Numbers go in raw, NaN where one is missing: imputing and standardizing are part of the graph. The
graph of a text model takes the weighted words of the preprocessing, dense; preprocessing.json,
written beside it, has the vocabulary and the weights. That of a text encoder, frozen or trained,
takes token ids, (N, T) int64, -1 where a text has ended; tokenizer.json makes them.

Before it is written, the graph is compared with the model on random rows. The two add up the same
products in another order, which moves a logit L of D inputs by about L sqrt(D) 6e-8 in single
precision, and a probability p by that times p (1 - p). So every probability must lie within

    1e-5 + 1e-3 min(p, 1 - p)

of the model's, which is a logit of 100 from 25,000 inputs, and every decision must be the model's.
"""

from __future__ import annotations

import json
import logging
import warnings
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.features.combined import ChainPreprocessor
from hierlearn.features.embed import EmbedPreprocessor, TokenPreprocessor
from hierlearn.features.images import ImagePreprocessor
from hierlearn.files.writing import atomic_write
from hierlearn.hierarchy.propagate import routes_on
from hierlearn.links import link_name, make_link
from hierlearn.networks.memories import memory_heads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hierlearn.features import Preprocessor
    from hierlearn.pipeline.pipeline import Pipeline

S = TypeVar("S")
OPSET = 20
ABSOLUTE, RELATIVE = 1e-5, 1e-3  # the largest difference between graph and model, see above
NEARBY = 16  # draws of probabilities that are as close
WORDS = 30  # of a random row of weighted words
LARGEST = 2**31 - 1  # bytes of an ONNX file
BESIDE = ("hierarchy.json", "preprocessing.json")
TOKENIZER = "tokenizer.json"  # beside a graph that reads token ids
CHECKED = (1, 64)  # rows of the batches by which a graph is checked
ROWS = 13  # of the traced example: not the width of a layer


class Graph(nn.Module):
    """The exported module: preprocessing of numbers, network, link, mean over the members."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        alone = replace(pipeline, network=deepcopy(pipeline.network).cpu())
        for heads in memory_heads(alone.network).values():
            for head in heads:
                head.memory.is_traced = True
        self.network = alone.network
        self.link = make_link(pipeline.label_space, link_name(pipeline.link))
        alone = replace(alone, link=self.link)
        self.read, self.scaled = alone.read, alone.scaled
        self.dtype = pipeline.dtype
        self.preprocessing = preprocessing_of(pipeline)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (N, C) probabilities."""
        x = inputs if self.preprocessing is None else self.preprocessing(inputs)
        if x.is_floating_point():
            x = x.to(self.dtype)
        output = self.scaled(self.read(self.network(x)))
        return output.probabilities.float()


def preprocessing_of(pipeline: Pipeline) -> nn.Module | None:
    """Return the preprocessing as a module; None if it is not part of the graph."""
    return None if pipeline.preprocessor is None else pipeline.preprocessor.as_module()


def export(pipeline: Pipeline, path: Path | str) -> tuple[Path, ...]:
    """Write a model as ONNX, with hierarchy.json and preprocessing.json beside it.

    Args:
        pipeline: a trained pipeline; it is not modified.
        path: the file to write; an existing one is replaced.

    Returns:
        The files that were written.

    Raises:
        HierlearnError: if onnx is not installed, or the graph differs from the model.
    """
    path = Path(path)
    graph = Graph(pipeline).eval()
    tokens = find_reader(pipeline.preprocessor, TokenPreprocessor)
    images = find_reader(pipeline.preprocessor, ImagePreprocessor)
    if images is not None:
        example = random_images(images.shape, ROWS)
        batches = [random_images(images.shape, count) for count in CHECKED]
    elif tokens is not None:
        example, batches = tokens.examples(ROWS), [tokens.examples(count) for count in CHECKED]
    else:
        width, step = columns_of(pipeline), pipeline.preprocessor
        # Weights of words are mostly 0.
        words = step is None or (step.produces == "sparse" and step.as_module() is None)
        example, batches = torch.zeros(ROWS, width), numbers(graph, width, words)
    data = to_onnx(graph, example, path)
    check_equal(pipeline, graph, data, batches)
    with atomic_write(path, "wb") as file:
        file.write(data)
    hierarchy, preprocessing = (path.parent / name for name in BESIDE)
    with atomic_write(hierarchy) as file:
        file.write(pipeline.hierarchy.to_json() + "\n")
    with atomic_write(preprocessing) as file:
        file.write(json.dumps(describe(pipeline), indent=2, ensure_ascii=False) + "\n")
    if tokens is None:
        return path, hierarchy, preprocessing
    tokenizer = path.parent / TOKENIZER
    with atomic_write(tokenizer) as file:
        file.write(tokens.to_json() + "\n")
    return path, hierarchy, preprocessing, tokenizer


def find_reader(step: Preprocessor[Any, Any] | None, kind: type[S]) -> S | None:
    """Return the step of a kind by which a graph gets its inputs: token ids, or images."""
    if isinstance(step, ChainPreprocessor):
        return find_reader(step.first, kind) if step.as_module() is not None else None
    found = step.step if isinstance(step, EmbedPreprocessor) else step
    return found if isinstance(found, kind) else None


def random_images(shape: tuple[int, ...], count: int) -> Tensor:
    """Return (count, C, S, S) random bytes."""
    drawn = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, *shape), generator=drawn, dtype=torch.uint8)


def numbers(graph: Graph, width: int, sparse: bool) -> list[Tensor]:
    """Return batches of random rows that spread like the training rows, as far as is known.

    Args:
        graph: what will read them.
        width: of a row.
        sparse: whether a row has a few words, whose squared weights sum to 1.
    """
    draw, found = np.random.default_rng(0), []
    examples: Any = getattr(graph.preprocessing, "examples", None)
    for count in CHECKED:
        x = torch.from_numpy(draw.standard_normal((count, width)).astype(np.float32))
        if sparse:
            kept = torch.from_numpy(draw.random((count, width)) < WORDS / width)
            x = torch.nn.functional.normalize(x.abs() * kept, dim=1)
        found.append(x if examples is None else examples(x))
    return found


def columns_of(pipeline: Pipeline) -> int:
    """Return D, how many numbers the graph reads."""
    if pipeline.preprocessor is not None:
        inside = preprocessing_of(pipeline) is not None
        raw = pipeline.preprocessor.input_columns if inside else None
        return pipeline.preprocessor.columns if raw is None else raw
    if pipeline.network_spec is None:
        raise HierlearnError(
            "the number of inputs of a module that was passed in is not known; name its factory"
        )
    return pipeline.network_spec.inputs.width


def describe(pipeline: Pipeline) -> dict[str, Any]:
    """Return the preprocessing as plain values, and the inputs and outputs of the graph."""
    state = {} if pipeline.preprocessor is None else pipeline.preprocessor.plain_state()
    inside = preprocessing_of(pipeline) is not None
    inputs = "raw numbers, NaN where one is missing" if inside else "preprocessed rows"
    if find_reader(pipeline.preprocessor, TokenPreprocessor) is not None:
        inputs = f"token ids by {TOKENIZER}, -1 where a text has ended"
    images = find_reader(pipeline.preprocessor, ImagePreprocessor)
    if images is not None:
        inputs = f"images as bytes, (N, {', '.join(map(str, images.shape))})"
    return {
        "inputs": inputs,
        "in_graph": inside,
        "feature_names": list(pipeline.config.get("feature_names", ())),
        "outputs": "probabilities, one column per class in the order of hierarchy.json",
        "link": link_name(pipeline.link),
        "terminals": pipeline.label_space.terminals.tolist(),
        "decoder": {"name": pipeline.decoder, "options": pipeline.decoder_options},
        "fingerprint": pipeline.hierarchy.fingerprint,
        **state,
    }


def to_onnx(graph: Graph, example: Tensor, path: Path) -> bytes:
    """Return the graph as ONNX bytes; the number of rows is free, and that of token ids."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise HierlearnError(
            "exporting needs onnx and onnxscript; install them with: pip install onnx onnxscript"
        ) from None
    size = sum(value.nbytes for value in graph.state_dict().values())
    if size > LARGEST:
        raise HierlearnError(f"{path}: the weights are {size:,} bytes, ONNX holds {LARGEST:,}")
    free: Any = {0: torch.export.Dim("rows")}
    if example.dtype == torch.int64:
        free[1] = torch.export.Dim("tokens", min=2)
    with torch.no_grad(), quiet():
        # Caches the index tensors of the hierarchy, so that they are constants; kernels, which the
        # exported graph does without, need none of them.
        graph(example)
        routes_on(graph.link.hierarchy, example.device)
        program: Any = torch.onnx.export(
            graph,
            (example,),
            dynamo=True,
            input_names=["inputs"],
            output_names=["probabilities"],
            dynamic_shapes={"inputs": free},
            opset_version=OPSET,
            verbose=False,
            # The optimizer replaces a sum into every column of a level by a copy.
            optimize=False,
        )
    proto = program.model_proto
    proto.graph.ClearField("value_info")
    for part in (proto, proto.graph, *proto.graph.node, *proto.graph.initializer):
        part.ClearField("metadata_props")  # source locations
        part.ClearField("doc_string")
    data: bytes = proto.SerializeToString()
    return data


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's warnings on deprecations and optional packages."""
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
def check_equal(pipeline: Pipeline, graph: Graph, data: bytes, batches: list[Tensor]) -> None:
    """Compare the graph with the model on random rows; skipped without onnxruntime."""
    try:
        import onnxruntime
    except ImportError:
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    decide = pipeline.make_decoder()
    for x in batches:
        expected = graph(x)
        given = torch.from_numpy(session.run(["probabilities"], {"inputs": x.numpy()})[0])
        check_close(given, expected)
        answers, wanted = decide(given), decide(expected)
        wrong = (answers != wanted).reshape(len(x), -1).any(dim=1)
        # Where probabilities that are as close decide otherwise, too, either may be answered.
        draw, allowed = torch.Generator().manual_seed(0), allowed_difference(expected)
        for _ in range(NEARBY if wrong.any() else 0):
            drawn = 2 * torch.rand(expected.shape, generator=draw) - 1
            near = decide((expected + drawn * allowed).clamp(0, 1))
            wrong &= (near == wanted).reshape(len(x), -1).all(dim=1)
        if wrong.any():
            raise HierlearnError(
                f"the exported graph answers {int(wrong.sum())} of {len(x)} random rows otherwise "
                f"than the model, although its probabilities are close; nothing was written"
            )


def allowed_difference(expected: Tensor) -> Tensor:
    """Return by how much single precision lets probabilities differ."""
    return ABSOLUTE + RELATIVE * torch.minimum(expected, 1 - expected).clamp_min(0)


def check_close(given: Tensor, expected: Tensor) -> None:
    """Raise on probabilities of the graph that are not those of the model."""
    apart = (given - expected).abs()
    wrong = ~(apart <= allowed_difference(expected))
    if not wrong.any():
        return
    row, column = divmod(int(apart.nan_to_num(nan=2.0).argmax()), expected.shape[1])
    raise HierlearnError(
        f"the exported graph differs from the model: {int(wrong.sum()):,} of {wrong.numel():,} "
        f"probabilities are further apart than {ABSOLUTE:g} + {RELATIVE:g} min(p, 1 - p), up to "
        f"{float(given[row, column]):.6g} instead of {float(expected[row, column]):.6g}; nothing "
        f"was written"
    )
