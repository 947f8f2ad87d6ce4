"""Embed: the features of a frozen backbone, as numbers.

Nothing is trained. The weights are stored with the model, which needs the source no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from hierlearn.backbones import find_backbone
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.features.preprocessor import Preprocessor, stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.backbones import Encoder
    from hierlearn.datasets.dataset import Dataset, Kind

BATCH = 64


class EmbedPreprocessor(Preprocessor[Any, "NDArray[np.float32]"]):
    """Texts or images through a frozen backbone.

    Args:
        source: ``prefix:source`` of a backbone.
        options: of the backbone, such as ``pooling``, and of the step that prepares its inputs,
            such as ``max_tokens``.
    """

    name: ClassVar[str] = "embed"
    reads: ClassVar[Kind] = "texts"
    by_default: ClassVar[bool] = False

    def __init__(self, source: str, **options: Any) -> None:
        from hierlearn.features.registry import find_step

        self.source = source
        self.backbone, self.path = find_backbone(source)
        self.reads: Kind = self.backbone.reads  # type: ignore[misc]
        step = find_step(self.backbone.step)
        known = [one for one in (*self.backbone.options(), *step.options()) if one != "source"]
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
        encoder = self.backbone.build(self._description, **self.encoder_options)
        self.backbone.load(encoder, self.path)
        self.encoder = encoder.to(self.device).eval()
        return self

    @torch.no_grad()
    def transform(self, inputs: Any) -> NDArray[np.float32]:
        """Return (N, F) features."""
        encoder = self._fitted()
        rows = torch.as_tensor(self.step.transform(inputs))
        parts = [
            encoder(rows[begin : begin + BATCH].to(self.device)).float().cpu()
            for begin in range(0, len(rows), BATCH)
        ]
        found: NDArray[np.float32] = (
            torch.cat(parts).numpy() if parts else np.zeros((0, encoder.features), np.float32)
        )
        return found

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the description of the backbone, its weights, and the step before it."""
        encoder = self._fitted()
        own, arrays = self.step.state()
        weights = {f"weights/{k}": v.cpu().numpy() for k, v in encoder.state_dict().items()}
        settings = {
            "name": self.name,
            "source": self.source,
            "options": self.options_given,
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
        encoder = new.backbone.build(new._description, **new.encoder_options)
        weights = {k: torch.from_numpy(v) for k, v in part(arrays, "weights/").items()}
        encoder.load_state_dict(weights)
        new.encoder = encoder.eval()
        return new


def part(arrays: Mapping[str, NDArray[Any]], begin: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names have a prefix, without it."""
    return {k.removeprefix(begin): v for k, v in arrays.items() if k.startswith(begin)}
