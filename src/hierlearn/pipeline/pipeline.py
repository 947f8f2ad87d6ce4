"""Pipeline: preprocessing, network, link and decoder together, ready to predict, save and load.

A model is a folder:

    model.safetensors   the weights, and the arrays of the preprocessing
    hierarchy.json      the taxonomy
    config.json         what was trained and how; checksums of the other two
    README.md           a model card

Nothing is ever unpickled. Where several models were trained, their probabilities are averaged.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.decoding import make_decoder
from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.features.preprocessing import Preprocessor, from_state
from hierlearn.files import atomic_write
from hierlearn.files.tensors import CheckpointError, read_tensors, write_tensors
from hierlearn.hierarchy import Hierarchy, LabelSpace
from hierlearn.networks import NETWORKS
from hierlearn.pipeline.card import model_card
from hierlearn.training.recipes import build_link, link_name
from hierlearn.training.rows import as_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hierlearn.decoding import Decoder
    from hierlearn.links import Link

FORMAT = "hierlearn.model"
VERSION = 1
BATCH = 4096
FILES = ("model.safetensors", "hierarchy.json", "config.json", "README.md")
OURS = ("config.json", "checkpoints", "log.jsonl")  # by which a folder of a training is known


@dataclass
class Pipeline:
    """A trained model.

    Attributes:
        hierarchy: the taxonomy.
        network: gives (N, C) logits, or (M, N, C) for several stacked models.
        link: how to read the logits.
        preprocessor: what the inputs go through first; None for tensors as they are.
        decoder: how a decision is made, by name, with its options.
        terminals: the terminal classes of the training rows.
        config: everything else that was asked for and found, ready for JSON.
    """

    hierarchy: Hierarchy
    network: nn.Module
    link: Link
    preprocessor: Preprocessor[Any, Any] | None = None
    decoder: str = "leaf"
    decoder_options: dict[str, Any] = field(default_factory=dict)
    terminals: tuple[int, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)

    # ------------------------------------------------------------------ predicting

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.parameters()).device

    def make_decoder(self, name: str | Decoder | None = None, **options: Any) -> Decoder:
        """Return a decoder by name, by default the model's own; a decoder stays as it is."""
        if name is None:
            name, options = self.decoder, {**self.decoder_options, **options}
        return make_decoder(LabelSpace(self.hierarchy, self.terminals), name, **options)

    def probabilities(self, inputs: Any, *, batch: int = BATCH) -> Tensor:
        """Return (N, C) node probabilities of raw inputs, on the CPU."""
        parts = list(self.stream_probabilities(inputs, batch=batch))
        return torch.cat(parts) if parts else torch.zeros(0, len(self.hierarchy))

    @torch.no_grad()
    def stream_probabilities(
        self, inputs: Any, *, batch: int = BATCH, log: bool = False
    ) -> Iterator[Tensor]:
        """Give the probabilities of raw inputs a batch at a time; a row never sees another.

        Args:
            inputs: the rows.
            batch: how many at a time.
            log: give their logarithms, which tell small probabilities apart.
        """
        self.network.eval()
        count = inputs.shape[0] if hasattr(inputs, "shape") else len(inputs)
        for begin in range(0, count, batch):
            part = inputs[begin : begin + batch]
            logits = self.logits(part)
            yield (self.read_log(logits) if log else self.read(logits)).cpu()

    def logits(self, inputs: Any) -> Tensor:
        """Return the logits of a batch of raw inputs."""
        if self.preprocessor is not None:
            inputs = self.preprocessor.transform(inputs)
        rows = as_rows(inputs, self.device, next(self.network.parameters()).dtype)
        wanted = getattr(self.network, "inputs", rows.shape[1])
        if rows.shape[1] != wanted:
            raise DataError(f"inputs have {rows.shape[1]} features but the model reads {wanted}")
        found: Tensor = self.network(rows)
        return found

    def read(self, logits: Tensor) -> Tensor:
        """Return the probabilities of logits; those of several models averaged."""
        if logits.dim() == 2:
            return self.link.probabilities(logits)
        return torch.stack([self.link.probabilities(one) for one in logits]).mean(dim=0)

    def read_log(self, logits: Tensor) -> Tensor:
        """Return the logarithms of what ``read`` returns, without taking them of it."""
        if logits.dim() == 2:
            return self.link.forward(logits)[0]
        members = torch.stack([self.link.forward(one)[0] for one in logits])
        return members.logsumexp(dim=0) - math.log(len(members))

    # ------------------------------------------------------------------ a folder

    def save(self, folder: Path | str, *, force: bool = False) -> Path:
        """Write the model as a folder.

        Args:
            folder: where to; it must not exist, or be empty.
            force: replace a model that is there.
        """
        folder = Path(folder)
        check_free(folder, force, clear=False)
        name = next((key for key, kind in NETWORKS.items() if type(self.network) is kind), None)
        if name is None:
            raise HierlearnError(
                f"a {type(self.network).__name__} from elsewhere cannot be saved as a model "
                f"folder; save its state_dict yourself, or use a network of NETWORKS"
            )
        tensors = {f"network/{k}": v for k, v in self.network.state_dict().items()}
        settings = None
        if self.preprocessor is not None:
            settings, arrays = self.preprocessor.state()
            tensors |= {f"preprocessing/{k}": torch.from_numpy(v) for k, v in arrays.items()}
        check_plain({"decoder_options": self.decoder_options, **self.config})
        check_free(folder, force)  # an old model goes once this one is sure to be written
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / FILES[0], tensors, {"format": FORMAT})
        with atomic_write(folder / FILES[1]) as file:
            file.write(self.hierarchy.to_json() + "\n")
        config = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self.hierarchy.fingerprint,
            "network": {"name": name, "options": network_options(self.network)},
            "link": link_name(self.link),
            "decoder": {"name": self.decoder, "options": self.decoder_options},
            "terminals": list(self.terminals),
            "preprocessing": settings,
            "files": {one: digest(folder / one) for one in FILES[:2]},
            **self.config,
        }
        with atomic_write(folder / FILES[2]) as file:
            file.write(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
        with atomic_write(folder / FILES[3]) as file:
            file.write(model_card(self.hierarchy, config))
        return folder

    @classmethod
    def load(cls, folder: Path | str, *, device: torch.device | str = "cpu") -> Pipeline:
        """Read a model folder; missing, foreign, damaged or mixed-up files are named."""
        folder = Path(folder)
        config = read_config(folder)
        hierarchy = Hierarchy.read(folder / FILES[1])
        if hierarchy.fingerprint != config["fingerprint"]:
            raise CheckpointError(
                f"{folder / FILES[1]} is not the hierarchy of this model: fingerprint "
                f"{hierarchy.fingerprint[:12]}, the model has {config['fingerprint'][:12]}"
            )
        tensors, _ = read_tensors(folder / FILES[0])
        network = load_network(config["network"], tensors, folder)
        preprocessor = None
        if config["preprocessing"] is not None:
            arrays = {
                name.partition("/")[2]: value.numpy()
                for name, value in tensors.items()
                if name.startswith("preprocessing/")
            }
            preprocessor = from_state(config["preprocessing"], arrays)
        link = build_link(config["link"], hierarchy, config["terminals"])
        own = {
            *("format", "version", "fingerprint", "network", "link", "decoder", "terminals"),
            *("preprocessing", "files"),
        }
        return cls(
            hierarchy=hierarchy,
            network=network.to(device).eval(),
            link=link.to(device),
            preprocessor=preprocessor,
            decoder=config["decoder"]["name"],
            decoder_options=config["decoder"]["options"],
            terminals=tuple(config["terminals"]),
            config={key: value for key, value in config.items() if key not in own},
        )


def check_plain(values: Mapping[str, Any]) -> None:
    """Refuse what no JSON file can hold, such as a function among the options."""
    for name, value in values.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise HierlearnError(
                f"{name} cannot be written as JSON ({error}), so the model cannot be saved; use "
                f"plain values"
            ) from None


def check_free(folder: Path, force: bool, *, clear: bool = True) -> None:
    """Refuse a folder that holds anything, unless it is a model to be replaced.

    Args:
        folder: where a model should go.
        force: whether a model there may be replaced.
        clear: also remove that model; otherwise only look.
    """
    if folder.is_file():
        raise HierlearnError(f"{folder} is a file; name a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not force:
        raise HierlearnError(
            f"{folder} exists; pass --force to replace the model in it, or --resume to go on"
        )
    if not any((folder / name).exists() for name in OURS):
        raise HierlearnError(f"{folder} holds no model, so it is not replaced; name another")
    if not clear:
        return
    for name in (*FILES, "run.yaml", "log.jsonl"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a model folder whose files are all there and whole."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder with a model in it")
    for name in FILES[:3]:
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} has no {name}: it is no model, or an unfinished one")
    try:
        config: dict[str, Any] = json.loads((folder / FILES[2]).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise CheckpointError(f"{folder / FILES[2]} is damaged: it is no JSON") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise CheckpointError(f"{folder / FILES[2]} was not written by hierlearn")
    if config.get("version") != VERSION:
        raise CheckpointError(
            f"{folder / FILES[2]} is of version {config.get('version')}, this hierlearn reads "
            f"version {VERSION}; use the hierlearn that wrote it"
        )
    for name, expected in config["files"].items():
        if digest(folder / name) != expected:
            raise CheckpointError(
                f"{folder / name} is not the file that was saved: it is truncated or of another "
                f"model; copy the whole folder again"
            )
    return config


def load_network(spec: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path) -> nn.Module:
    """Make the network of a configuration and give it its weights."""
    if spec["name"] not in NETWORKS:
        raise CheckpointError(f"{folder}: {unknown_name('network', spec['name'], NETWORKS)}")
    network = NETWORKS[spec["name"]](**spec["options"])
    state = {
        name.partition("/")[2]: value
        for name, value in tensors.items()
        if name.startswith("network/")
    }
    network.load_state_dict(state)
    return network


def network_options(network: nn.Module) -> dict[str, Any]:
    """Return what a network of NETWORKS was made with."""
    options: dict[str, Any] = network.options  # type: ignore[assignment]
    return options


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
