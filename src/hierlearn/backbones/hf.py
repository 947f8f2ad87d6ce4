"""HF: text encoders of transformers, from a folder or by name.

    features = pooled last hidden states: the mean over the tokens, or the first token

Code that comes with a model is never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hierlearn.backbones.backbone import Backbone, Encoder
from hierlearn.backbones.compiled import declare_operators
from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

Pooling = Literal["mean", "cls"]
PADDING = -1  # in rows of token ids


class TextEncoder(Encoder):
    """A transformer and its pooling.

    Args:
        model: returns ``last_hidden_state`` (N, T, F).
        pooling: "mean" over the tokens, or "cls", the first token.
    """

    def __init__(self, model: Any, pooling: Pooling = "mean") -> None:
        super().__init__()
        if pooling not in ("mean", "cls"):
            raise HierlearnError(f"pooling must be 'mean' or 'cls', not {pooling!r}")
        self.model = model
        self.pooling = pooling
        self.features = int(model.config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, F) features of (N, T) token ids, -1 where a text has ended."""
        known = x >= 0
        longest = max(int(known.sum(dim=1).max()), 1)  # padding of all rows costs nothing
        x, known = x[:, :longest], known[:, :longest]
        found = self.model(input_ids=x.clamp_min(0).long(), attention_mask=known.long())
        states: Tensor = found.last_hidden_state
        if self.pooling == "cls":
            return states[:, 0]
        weight = known.to(states.dtype)[..., None]
        return (states * weight).sum(dim=1) / weight.sum(dim=1).clamp_min(1)


class HFBackbone(Backbone):
    """Text encoders of transformers."""

    reads: ClassVar[Literal["texts", "images"]] = "texts"
    step: ClassVar[str] = "tokens"
    such: ClassVar[str] = "sentence-transformers/all-MiniLM-L6-v2, or the folder of a model"
    settings: ClassVar[Mapping[str, Any]] = {
        "epochs": 4,
        "batch_size": 32,
        "learning_rate": 5e-5,
        "warmup": 0.1,
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
    }

    def describe(self, source: str) -> dict[str, Any]:
        """Return the configuration of a model."""
        found: dict[str, Any] = find_transformers().AutoConfig.from_pretrained(source).to_dict()
        return found

    def build(  # type: ignore[override]  # its options by name
        self, description: Mapping[str, Any], *, pooling: Pooling = "mean"
    ) -> TextEncoder:
        """Return the encoder of a configuration, with random weights."""
        transformers, values = find_transformers(), dict(description)
        config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
        return TextEncoder(transformers.AutoModel.from_config(config), pooling)

    def load(self, encoder: Encoder, source: str) -> None:
        """Read the pretrained weights."""
        assert isinstance(encoder, TextEncoder)
        found = find_transformers().AutoModel.from_pretrained(source)
        encoder.model.load_state_dict(found.state_dict())


def find_transformers() -> Any:
    """Import transformers, or say how to install it."""
    declare_operators()
    try:
        import transformers
    except ImportError as error:
        raise HierlearnError(
            f"text encoders need transformers ({error}); install it with: pip install transformers"
        ) from None
    return transformers
