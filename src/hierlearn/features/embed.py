"""Embed: the features of a frozen backbone, as numbers.

Nothing is trained. The weights are stored with the model, which needs the source no more. Features
are cached on disk, see ``feature_cache``.
"""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from hierlearn.backbones import find_backbone
from hierlearn.backbones.size import check_numbers, check_shapes
from hierlearn.datasets.dataset import count_rows
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.features.feature_cache import FeatureCache, is_on, row_key
from hierlearn.features.preprocessor import Preprocessor, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray
    from torch import nn
    from typing_extensions import Self

    from hierlearn.backbones import Encoder
    from hierlearn.datasets.dataset import Dataset, Kind

BATCH = 64  # rows that are encoded at once
BLOCK = 1 << 14  # rows that are prepared, sorted by length and stored at once


class EmbedPreprocessor(Preprocessor[Any, "NDArray[np.float32]"]):
    """Texts or images through a frozen backbone.

    Args:
        source: ``prefix:source`` of a backbone.
        cache: keep features on disk, so that no row is encoded twice; the environment variable
            HIERLEARN_NO_CACHE switches it off, too.
        options: of the backbone, such as ``pooling``, and of the step that prepares its inputs,
            such as ``max_tokens``.
    """

    name: ClassVar[str] = "embed"
    reads: ClassVar[Kind] = "texts"
    by_default: ClassVar[bool] = False

    def __init__(self, source: str, *, cache: bool = True, **options: Any) -> None:
        from hierlearn.features.registry import find_step

        if not isinstance(cache, bool):
            raise HierlearnError(f"cache must be True or False, not {cache!r}")
        self.source, self.cache = source, cache
        self.backbone, self.path = find_backbone(source)
        self.reads: Kind = self.backbone.reads  # type: ignore[misc]
        step = find_step(self.backbone.step)
        known = self.options_of(source)
        for option in options:
            if option not in known:
                raise HierlearnError(unknown_name(f"option of {source}", option, known))
        own = self.backbone.options()
        self.options_given = dict(options)
        self.encoder_options = {key: value for key, value in options.items() if key in own}
        rest = {key: value for key, value in options.items() if key not in own}
        self.step: Preprocessor[Any, Any] = step(source=source, **rest)  # type: ignore[call-arg]
        self.encoder: Encoder | None = None
        self._description: dict[str, Any] = {}
        self.device = torch.device("cpu")
        self._cached: FeatureCache | None = None

    @classmethod
    def options_of(cls, source: str) -> list[str]:
        """Return the options that a frozen backbone takes."""
        from hierlearn.features.registry import find_step

        family, _ = find_backbone(source)
        own = (*family.frozen_options(), *find_step(family.step).options(), "cache")
        return [one for one in own if one != "source"]

    @classmethod
    def accepts(cls, dataset: Dataset) -> bool:
        """Whether the inputs are texts or images."""
        return dataset.kind in ("texts", "images")

    @property
    def columns(self) -> int:
        """F, the width of the features."""
        return self._fitted().features

    def _fitted(self) -> Encoder:
        if self.encoder is None:
            raise self._not_fitted()
        return self.encoder

    def to(self, device: torch.device) -> Self:
        """Compute on a device."""
        self.device = device
        if self.encoder is not None:
            self.encoder.to(device)
        return self

    def fit(self, inputs: Any) -> Self:
        """Read the pretrained weights; nothing is learned from the rows but how to read them."""
        self.step.fit(inputs)
        self._description = self.backbone.describe(self.path)
        encoder = self._build()
        self.backbone.load(encoder, self.path)
        self.encoder = encoder.to(self.device).eval()
        self._cached = None
        return self

    def fit_parts(self, parts: Callable[[], Iterable[Any]]) -> Self:
        """Read the pretrained weights, with a part of the rows at most."""
        return self.fit(next(iter(parts()), ()))

    def transform(self, inputs: Any) -> NDArray[np.float32]:
        """Return (N, F) features; those of rows that were encoded before come from the cache."""
        found = np.zeros((count_rows(inputs), self.columns), dtype=np.float32)
        for begin in range(0, len(found), BLOCK):
            block = slice(begin, begin + BLOCK)
            found[block] = self._features(np.asarray(self.step.transform(inputs[block])))
        return found

    def _features(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Return the features of prepared rows, as far as possible from the cache."""
        if not self.cache or not is_on():
            return self.encode(rows)
        if self._cached is None:
            self._cached = FeatureCache(self.digest(), self.columns)
        keys = [row_key(row) for row in unpadded(rows)]
        values, found = self._cached.find(keys)
        left = np.flatnonzero(~found)
        if len(left):
            new = {keys[number]: number for number in left}  # equal rows are encoded once
            encoded = self.encode(rows[list(new.values())])
            place = {key: row for row, key in enumerate(new)}
            values[left] = encoded[[place[keys[number]] for number in left]]
            self._cached.add(list(new), encoded)
        return values

    @torch.no_grad()
    def encode(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Return (N, F) features of prepared rows, those of equal length together."""
        encoder = self._fitted()
        found = np.zeros((len(rows), encoder.features), dtype=np.float32)
        order = np.argsort([len(row) for row in unpadded(rows)], kind="stable")
        for begin in range(0, len(rows), BATCH):
            batch = order[begin : begin + BATCH]
            part = torch.as_tensor(rows[batch]).to(self.device)
            found[batch] = encoder(part).float().cpu().numpy()
        return found

    def digest(self) -> str:
        """Return a checksum of the weights and of what they compute."""
        what = [self.source.partition(":")[0], self._description, self.encoder_options]
        sums = hashlib.sha256(json.dumps(what, sort_keys=True).encode())
        for name, value in sorted(self._fitted().state_dict().items()):
            sums.update(f"\n{name} {tuple(value.shape)}\n".encode())
            sums.update(value.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return sums.hexdigest()[:32]

    def as_module(self) -> nn.Module | None:
        """Return the encoder, which reads token ids or images."""
        return deepcopy(self._fitted()).cpu().eval()

    def plain_state(self) -> dict[str, Any]:
        """Return how rows are prepared, without the weights."""
        return {"name": self.name, "source": self.source, "step": self.step.plain_state()}

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the description of the backbone, its weights, and the step before it."""
        encoder = self._fitted()
        own, arrays = self.step.state()
        weights = {f"weights/{k}": v.cpu().numpy() for k, v in encoder.state_dict().items()}
        settings = {
            "name": self.name,
            "source": self.source,
            "options": {**self.options_given, "cache": self.cache},
            "description": self._description,
            "step": own,
        }
        return settings, {**weights, **{f"step/{k}": v for k, v in arrays.items()}}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a backbone without its source."""
        from hierlearn.features.registry import from_state

        new = cls(stored(settings, "source"), **stored(settings, "options"))
        new._description = dict(stored(settings, "description"))
        new.step = from_state(stored(settings, "step"), part(arrays, "step/"))
        weights = {k: torch.from_numpy(v) for k, v in part(arrays, "weights/").items()}
        shapes = {name: tuple(value.shape) for name, value in weights.items()}
        check_numbers(new._description, shapes)
        known = new._description.get("vocab_size")
        if new.step.produces == "tokens" and known is not None and new.step.columns > known:
            raise HierlearnError(
                f"the tokenizer has {new.step.columns:,} tokens, but the backbone knows {known:,}"
            )
        check_shapes(new._build, shapes)
        encoder = new._build()
        encoder.load_state_dict(weights)
        new.encoder = encoder.eval()
        return new

    def _build(self) -> Encoder:
        return self.backbone.build(self._description, **self.encoder_options)


def unpadded(rows: NDArray[Any]) -> Iterable[NDArray[Any]]:
    """Yield rows, of token ids without the padding at their end."""
    if rows.dtype != np.int32 or rows.ndim != 2:
        yield from rows
        return
    for row, length in zip(rows, (rows >= 0).sum(axis=1), strict=True):
        yield row[:length]


def part(arrays: Mapping[str, NDArray[Any]], begin: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names have a prefix, without it."""
    return {k.removeprefix(begin): v for k, v in arrays.items() if k.startswith(begin)}
