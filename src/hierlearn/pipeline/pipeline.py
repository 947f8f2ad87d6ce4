"""Pipeline: preprocessing, network, link and decoder together, ready to predict, save and load.

A pipeline is saved as a folder:

    model.safetensors   the weights, and the arrays of the preprocessing
    hierarchy.json      the taxonomy
    config.json         what was trained and how; checksums of the other files
    memory-*.safetensors, memory.json   the encoded training rows, of a network with a memory
    rows.safetensors    digests of the training rows, and of those held out
    README.md           a model card

Nothing is ever unpickled. A network factory outside of hierlearn is called only with consent
(``trust=True``). The probabilities of the members of an ensemble are averaged.

The model card: what a model is, what it was trained on, and its metrics, on one page.
"""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.datasets.dataset import count_rows
from hierlearn.datasets.tables.kinds import as_float32
from hierlearn.decoding import make_decoder
from hierlearn.decoding.scaling import Scaling
from hierlearn.errors import DataError, HierlearnError, plural, printable
from hierlearn.features import Preprocessor, from_state
from hierlearn.features.numbers import NumericPreprocessor, PiecewiseLinearPreprocessor
from hierlearn.features.table import TablePreprocessor
from hierlearn.files.reading import guarded
from hierlearn.files.tensors import CheckpointError, read_tensors, write_tensors
from hierlearn.files.writing import atomic_write
from hierlearn.hierarchy import Hierarchy, LabelSpace
from hierlearn.links import LINKS, link_name, make_link
from hierlearn.metrics.measure import figure_lines
from hierlearn.networks import read_output
from hierlearn.networks.build import NetworkSpec, build_network
from hierlearn.networks.memories import memory_heads, remembered
from hierlearn.networks.network import AVERAGE
from hierlearn.pipeline.answers import level_names
from hierlearn.pipeline.folder import (
    FILES,
    FORMAT,
    VERSION,
    check_free,
    check_network,
    check_plain,
    digest,
    read_config,
    read_model,
    replaced_model,
    write_config,
)
from hierlearn.pipeline.memory_files import COPY, read_memory, write_memory
from hierlearn.pipeline.missing import note_missing
from hierlearn.pipeline.seen_rows import ROWS_FILE, SeenRows
from hierlearn.registry import is_spelled, refuse_imports, untrusted
from hierlearn.training.inference import filled_tile, run_network
from hierlearn.training.processes import find_device
from hierlearn.training.rows import as_rows

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from hierlearn.decoding import Decoder
    from hierlearn.links import HeadOutput, Link
    from hierlearn.networks import SparseRows
    from hierlearn.pipeline.missing import Missing
    from hierlearn.training.prepare import Prepared

BATCH = 4096
ENTRIES = 1 << 24  # node probabilities of a batch, at most
CPU = 128  # rows of a tile: a single row is filled up to it, and answers in 17 ms instead of 51
GPU = 4096
LIGHT = (NumericPreprocessor, PiecewiseLinearPreprocessor, TablePreprocessor)  # may run in threads
OWN_KEYS = (  # of config.json, beside the description of the training
    *("format", "version", "fingerprint", "network", "link", "decoder", "terminals"),
    *("preprocessing", "answer", "scaling", "files"),
)


@dataclass
class Pipeline:
    """A trained network with its preprocessing, link and decoder.

    Attributes:
        label_space: what can be predicted.
        network: gives a HeadOutput, several by name, or (N, C) logits; with a leading axis for the
            members of an ensemble.
        link: how logits are read.
        preprocessor: applied to the inputs first; None for inputs used as is.
        decoder: how a decision is made, by name.
        decoder_options: the options of the decoder.
        network_spec: how to build the network again; None for a module that was passed in.
        config: the plan, the data and the metrics, ready for JSON.
        answer: which of several heads answers; "average" is the mean of their probabilities.
        scaling: how sure the probabilities are made; None leaves them as they are.
        seen: which rows it was trained on; None where that is not known.
        missing: what becomes of rows that lack a value where no training row does: "impute" them
            with a warning, or "error" to raise.
    """

    label_space: LabelSpace
    network: nn.Module
    link: Link
    preprocessor: Preprocessor[Any, Any] | None = None
    decoder: str = "leaf"
    decoder_options: dict[str, Any] = field(default_factory=dict)
    network_spec: NetworkSpec | None = None
    config: dict[str, Any] = field(default_factory=dict)
    answer: str = AVERAGE
    scaling: Scaling | None = None
    seen: SeenRows | None = None
    missing: Missing = "impute"

    @classmethod
    def from_prepared(cls, prepared: Prepared) -> Pipeline:
        """Return the pipeline of a prepared network, trained or not."""
        return cls(
            label_space=prepared.label_space,
            network=prepared.network,
            link=prepared.link,
            preprocessor=prepared.preprocessor,
            decoder=prepared.decision.decoder,
            decoder_options=dict(prepared.plan.decoder_options),
            network_spec=prepared.network_spec,
            answer=prepared.answer,
        )

    # ------------------------------------------------------------------ predicting

    @property
    def hierarchy(self) -> Hierarchy:
        """The taxonomy."""
        return self.label_space.hierarchy

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        held = chain(self.network.parameters(), self.network.buffers())
        return next((one.device for one in held), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the weights."""
        kinds = (one.dtype for one in self.network.parameters() if one.is_floating_point())
        return next(kinds, torch.float32)

    def make_decoder(self, name: str | Decoder | None = None, **options: Any) -> Decoder:
        """Return a decoder by name, by default the pipeline's own; a decoder stays as it is."""
        if name is None:
            name, options = self.decoder, {**self.decoder_options, **options}
        return make_decoder(self.label_space, name, **options)

    def predict(self, inputs: Any, decoder: str | Decoder | None = None, **options: Any) -> Any:
        """Return the decision of every row as names: a path, or a list of paths for a set.

        Args:
            inputs: the raw rows.
            decoder: a name of DECODERS or a Decoder, instead of the pipeline's own.
            options: what a decoder given by name takes.
        """
        chosen = self.make_decoder(decoder, **options)
        decided = chosen(self.probabilities(inputs))
        if chosen.answers == "class":
            names = (*self.hierarchy.names, "")  # the root has no name
            return [names[number] for number in decided.tolist()]
        return self.hierarchy.decode(decided)

    def probabilities(self, inputs: Any) -> Tensor:
        """Return (N, C) node probabilities of raw inputs, on the CPU; see ``missing``."""
        note_missing(self, inputs)
        parts = list(self.stream_probabilities(inputs))
        return torch.cat(parts) if parts else torch.zeros(0, len(self.hierarchy))

    def stream_probabilities(
        self, inputs: Any, *, batch: int = BATCH, log: bool = False, tiled: bool = True
    ) -> Iterator[Tensor]:
        """Return an iterator over probabilities in batches; rows do not affect each other.

        Commands, servers, engines and the estimator all predict by it. Missing values are imputed
        without a word.

        Args:
            inputs: the rows.
            batch: rows per batch, fewer where there are many classes.
            log: yield their logarithms, in which small probabilities differ.
            tiled: compute tiles of one size, so that a row gives the same bits in any batch; few
                rows take less time without them, and differ by rounding.
        """
        self.network.eval()
        batch, size = self.batch_size(batch), self.tile_size if tiled else None
        threads = torch.get_num_threads()
        if size is None or self.device.type != "cpu" or threads < 2:
            threads = 0

        def compute(rows: Tensor | SparseRows) -> Tensor:
            output = self.scaled(self.read(self.network(rows)))
            return (output.log_p if log else output.probabilities).cpu()

        for first in range(0, count_rows(inputs), batch):
            with torch.no_grad():
                rows = self.rows(inputs[first : first + batch])
            count = len(rows)
            tiles = (
                filled_tile(rows, begin, size or count) for begin in range(0, count, size or count)
            )
            yield torch.cat([*run_network(self.network, compute, tiles, threads=threads)])[:count]

    @property
    def tile_size(self) -> int | None:
        """How many rows are computed at once; None where they are not computed in tiles.

        Backbones, convolutions and networks of others are not: filling up would cost too much
        there, and texts are padded to the longest of a batch anyway.
        """
        if self.network_spec is None or not is_builtin(self.network_spec):
            return None
        return self.batch_size(CPU if self.device.type == "cpu" else GPU)

    @property
    def worker_count(self) -> int:
        """How many threads may predict at once; 0 for none beside the main one.

        Several only where all code is built in and light: a backbone divides its own work, and a
        network or a step of others may not expect threads.
        """
        light = self.preprocessor is None or type(self.preprocessor) in LIGHT
        if self.device.type != "cpu" or not light or self.tile_size is None:
            return 0
        return torch.get_num_threads()

    def batch_size(self, most: int = BATCH) -> int:
        """Return how many rows are predicted at once: a power of 2 where classes are many."""
        allowed = max(1, ENTRIES // len(self.label_space))
        return most if most <= allowed else 1 << (allowed.bit_length() - 1)

    def output(self, inputs: Any) -> HeadOutput:
        """Return the output of a batch of raw inputs, with the members of an ensemble apart."""
        return self.read(self.network(self.rows(inputs)))

    def scaled(self, output: HeadOutput) -> HeadOutput:
        """Return the average of the members, as sure as it should be."""
        if output.members is not None:
            output = output.mean()
        return output if self.scaling is None else self.scaling(output, self.label_space)

    def rows(self, inputs: Any) -> Tensor | SparseRows:
        """Return a batch of raw inputs as the network reads them."""
        inputs = as_float32(inputs)
        if self.preprocessor is not None:
            inputs = self.preprocessor.transform(inputs)
        rows = as_rows(inputs, self.device, self.dtype)
        if self.network_spec is not None:  # texts are of any length
            spec, found = self.network_spec.inputs, rows.shape[1:]
            wanted = spec.shape or (spec.width,)
            if spec.kind == "images" and found != wanted:
                raise DataError(f"images are {tuple(found)} but the network reads {wanted}")
            if spec.kind in ("numbers", "sparse") and found[0] != spec.width:
                raise DataError(
                    f"inputs have {found[0]} features but the network reads {spec.width}"
                )
        return rows.to(self.device)

    def read(self, found: Any) -> HeadOutput:
        """Return the output of the network as one HeadOutput."""
        spec = self.network_spec
        overrides_link = spec is not None and spec.takes_link
        return read_output(found, self.link, overrides_link=overrides_link, answer=self.answer)

    # ------------------------------------------------------------------ saving and loading

    def save(self, folder: Path | str, *, force: bool = False) -> Path:
        """Write the pipeline as a folder.

        Args:
            folder: where to; it must not exist, or be empty.
            force: replace a model that is there.
        """
        folder = Path(folder)
        check_free(folder, force)
        self.check_savable()
        with replaced_model(folder, keep_log=False) as hidden:
            self.write(hidden)
        return folder

    def check_savable(self) -> None:
        """Raise on a pipeline that cannot be saved."""
        if self.network_spec is None:
            raise HierlearnError(
                f"a {type(self.network).__name__} that was passed in as a module cannot be saved "
                f"as a model folder; name its factory, network='package.module:name', or save "
                f"its state_dict yourself"
            )
        if memory_heads(self.network) and remembered(self.network) is None:
            raise HierlearnError(
                "the memory of this model is empty, so it cannot be saved; train it first"
            )
        network = self.network_spec.to_dict()
        check_plain({"decoder_options": self.decoder_options, "network": network, **self.config})

    def write(self, folder: Path) -> None:
        """Write the files of the pipeline into an empty folder."""
        self.check_savable()
        self.write_weights(folder)
        names = [*FILES[:2], *write_memory(folder, self.network)]
        if self.seen is not None:
            self.seen.save(folder / ROWS_FILE)
            names.append(ROWS_FILE)
        self.describe(folder, {one: digest(folder / one) for one in names})

    def write_weights(self, folder: Path) -> None:
        """Write weights, preprocessing and taxonomy."""
        tensors = {f"network/{k}": v for k, v in self.network.state_dict().items()}
        if self.preprocessor is not None:
            _, arrays = self.preprocessor.state()
            tensors |= {f"preprocessing/{k}": torch.from_numpy(v) for k, v in arrays.items()}
        write_tensors(folder / FILES[0], tensors, {"format": FORMAT})
        with atomic_write(folder / FILES[1]) as file:
            file.write(self.hierarchy.to_json() + "\n")

    def describe(self, folder: Path, files: Mapping[str, str]) -> None:
        """Write the configuration, with the digests of the other files, and the model card."""
        assert self.network_spec is not None
        config = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self.hierarchy.fingerprint,
            "network": self.network_spec.to_dict(),
            "link": link_name(self.link),
            "decoder": {"name": self.decoder, "options": self.decoder_options},
            "terminals": self.label_space.terminals.tolist(),
            "preprocessing": None if self.preprocessor is None else self.preprocessor.state()[0],
            "answer": self.answer,
            "scaling": None if self.scaling is None else self.scaling.to_dict(),
            "files": dict(files),
            **self.config,
        }
        write_config(folder / FILES[2], config)
        with atomic_write(folder / FILES[3]) as file:
            file.write(model_card(self.hierarchy, config))

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        device: torch.device | str = "cpu",
        trust: bool = False,
    ) -> Pipeline:
        """Read a model folder; missing, damaged or mixed-up files raise and are named.

        Args:
            folder: the folder.
            device: where to compute.
            trust: whether a network factory outside of hierlearn that the folder names may be
                imported and called.
            part: the rows of its memory that this process holds, where several share them.
        """

        def read() -> Pipeline:
            pipeline, files = cls.open(folder, device=device, trust=trust)
            pipeline.fill(Path(folder), files)
            return pipeline

        return read_model(Path(folder), read)

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        device: torch.device | str = "cpu",
        trust: bool = False,
        skip_memory: bool = False,
    ) -> tuple[Pipeline, dict[str, str]]:
        """Read a model folder except its memory; return the digests of its files by name, too.

        Args:
            folder: the folder.
            device: where to compute.
            trust: as in ``load``.
            skip_memory: do not check the files that grow with the memory.
        """
        folder, device = Path(folder), find_device(str(device))
        config = read_config(folder, skip_memory=skip_memory)
        hierarchy = Hierarchy.read(folder / FILES[1])
        if hierarchy.fingerprint != config["fingerprint"]:
            raise CheckpointError(
                f"{folder / FILES[1]} is not the hierarchy of this model: fingerprint "
                f"{hierarchy.fingerprint[:12]}, the model has {config['fingerprint'][:12]}"
            )
        with (
            guarded(folder / FILES[2], "does not describe this model", CheckpointError, COPY),
            nullcontext() if trust else refuse_imports(folder),
        ):
            if any(one >= len(hierarchy) for one in config["terminals"]):
                raise CheckpointError(f"{folder / FILES[2]}: terminals must be class numbers")
            label_space = LabelSpace(hierarchy, config["terminals"])
            tensors, _ = read_tensors(folder / FILES[0])
            spec = NetworkSpec.from_dict(config["network"])
            if not trust:
                check_trusted(folder, spec, config)
            weights = named(tensors, "network/")
            check_network(folder, spec, label_space, weights)
            network = build_network(spec, label_space)
            network.load_state_dict(weights)
            preprocessor = None
            if config["preprocessing"] is not None:
                arrays = {k: v.numpy() for k, v in named(tensors, "preprocessing/").items()}
                preprocessor = from_state(config["preprocessing"], arrays).to(torch.device(device))
            pipeline = cls(
                label_space=label_space,
                network=network.to(device).eval(),
                link=make_link(label_space, config["link"]).to(device),
                preprocessor=preprocessor,
                decoder=config["decoder"]["name"],
                decoder_options=config["decoder"]["options"],
                network_spec=spec,
                answer=config.get("answer", AVERAGE),
                scaling=Scaling.from_dict(config.get("scaling")),
                config={key: value for key, value in config.items() if key not in OWN_KEYS},
            )
        return pipeline, config["files"]

    def fill(self, folder: Path, names: Container[str]) -> None:
        """Read what else the files of the model hold: its memory, and which rows it has seen."""
        later = read_memory(folder, self.network, self.hierarchy, names)
        self.network.to(self.device)
        if ROWS_FILE in names:
            self.seen = SeenRows.load(folder / ROWS_FILE, later)


def is_builtin(spec: NetworkSpec) -> bool:
    """Whether a network, with all of its parts, is one of NETWORKS and reads no images."""
    if spec.parts:
        return all(is_builtin(part.network) for part in spec.parts)
    return not spec.foreign and spec.inputs.kind in ("numbers", "sparse")


def check_trusted(folder: Path, spec: NetworkSpec, config: Mapping[str, Any]) -> None:
    """Raise where a model folder names code outside of hierlearn, before any of it is imported.

    Args:
        folder: the folder.
        spec: of its network.
        config: what else it says; the loss trains on, where ``partial_fit`` is called.
    """
    recipe = config.get("recipe") or {}
    named = {
        "network": spec.foreign,
        "link": [LINKS.split(config["link"])[0]],
        "decoder": [config["decoder"]["name"], *config["decoder"]["options"].values()],
        "loss": [recipe.get("loss"), *strings_in(recipe.get("loss_options"))],
        "head": [*recipe.get("joint", ())],
    }
    for kind, names in named.items():
        for name in names:
            if is_spelled(name):
                raise CheckpointError(untrusted(folder, kind, name).message)


def strings_in(value: Any) -> list[str]:
    """Return all strings in plain values, keys included."""
    if isinstance(value, str):
        return [value]
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return [one for part in parts for one in strings_in(part)] if isinstance(parts, list) else []


def load(
    folder: Path | str, *, device: torch.device | str = "cpu", trust: bool = False
) -> Pipeline:
    """Read a model folder; see ``Pipeline.load``."""
    return Pipeline.load(folder, device=device, trust=trust)


def named(tensors: Mapping[str, Tensor], begin: str) -> dict[str, Tensor]:
    """Return the tensors whose names have a prefix, without it."""
    return {k.removeprefix(begin): v for k, v in tensors.items() if k.startswith(begin)}


def versions() -> dict[str, str]:
    """Return the versions that a training depends on."""
    import platform

    from hierlearn import __version__

    return {
        "hierlearn": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


# ---------------------------------------- card

PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")
YAML_CONSTANTS = ("true", "false", "yes", "no", "on", "off", "y", "n", "null")


def model_card(hierarchy: Hierarchy, config: Mapping[str, Any]) -> str:
    """Return the card as Markdown, from the configuration."""
    data: Mapping[str, Any] = config.get("data", {})
    recipe: Mapping[str, Any] = config.get("recipe", {})
    lines = [
        "---",
        f"license: {yaml_text(config.get('license') or 'unknown')}",
        "library_name: hierlearn",
        "---",
        "",
        f"# {plain(config.get('name') or 'A hierlearn model')}",
        "",
        f"Assigns rows to {plural(len(hierarchy), 'class', 'classes')} in "
        f"{plural(hierarchy.depth, 'level')} ({'a tree' if hierarchy.is_tree else 'a DAG'}, "
        f"{plural(len(hierarchy.leaves), 'leaf', 'leaves')}).",
        "",
        "```python",
        "from hierlearn import HierarchicalClassifier",
        "",
        'HierarchicalClassifier.load("this folder").predict(rows)',
        "```",
        "",
        "## Trained on",
        "",
        *(f"- {plain(key).replace('_', ' ')}: {show(value)}" for key, value in data.items()),
        "",
        "## How",
        "",
        *(f"- {plain(key).replace('_', ' ')}: {show(value)}" for key, value in recipe.items()),
        f"- link {config['link']}, decoder {config['decoder']['name']}",
        f"- network {config['network']['name']} with {show(config['network']['options'])}",
    ]
    if config.get("history"):
        lines += ["", "## Changed since", ""]
        lines += [f"- {show(change)}" for change in config["history"]]
    for key, when in (("metrics", ""), ("metrics_before", ", measured before the changes")):
        for split, figures in config.get(key, {}).items():
            lines += [
                "",
                f"## On the {plain(split)} rows{when}",
                "",
                "| metric | value |",
                "|---|---|",
            ]
            levels = level_names(config, hierarchy.depth)
            lines += [
                f"| {plain(name)} | {plain(texts[0])} |"
                for name, _, texts in figure_lines([figures], levels)
            ]
    versions = ", ".join(f"{k} {v}" for k, v in config.get("versions", {}).items())
    lines += ["", f"Hierarchy {hierarchy.fingerprint[:16]}. {versions}".rstrip(), ""]
    return "\n".join(lines)


def show(value: Any) -> str:
    """Return a value as text."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{plain(key)} {show(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(show, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else plain(value)


def plain(value: object) -> str:
    """Return text from outside in one line, as Markdown that is no HTML."""
    return printable(value).replace("<", "&lt;")


def yaml_text(value: object) -> str:
    """Return text from outside as one YAML value, in quotes unless it is a simple word."""
    text = str(value)
    if PLAIN_WORD.fullmatch(text) and text.lower() not in YAML_CONSTANTS:
        return text
    return printable(json.dumps(text, ensure_ascii=False))  # which is YAML as well
