"""HF: text encoders of transformers, from a folder or by name.

    features = pooled last hidden states: the mean over the tokens, the first, or the last token

Of a network with encoder and decoder, such as T5, the encoder is used. A text without any token
has features of 0.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch

from hierlearn.backbones.backbone import Backbone, Encoder
from hierlearn.backbones.lora import ALL, BASE, Lora
from hierlearn.backbones.sources import find_transformers, first_line, locate, plain, quiet, reading
from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

Pooling = Literal["mean", "cls", "last"]
PADDING = -1  # in rows of token ids
# Families whose positions begin after that of padding.
SHIFTED = (
    *("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "esm"),
    *("data2vec-text", "ibert", "luke", "xmod", "roberta-prelayernorm", "markuplm"),
)


class TextEncoder(Encoder):
    """A transformer and its pooling.

    Args:
        model: returns ``last_hidden_state`` (N, T, F).
        pooling: "mean" over the tokens, "cls", the first, or "last", the last token.
        longest: the tokens of a text that it reads; None for all.
    """

    def __init__(self, model: Any, pooling: Pooling = "mean", longest: int | None = None) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise HierlearnError(unknown_name("pooling", str(pooling), get_args(Pooling)))
        self.model = model
        self.pooling = pooling
        self.longest = longest
        self.features = int(model.config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, F) features of (N, T) token ids, -1 where a text has ended."""
        if not torch.compiler.is_exporting() and not len(x):
            # Transformers refuse a batch without rows, as one of several processes may have.
            return self(x.new_zeros(1, 1))[:0]  # type: ignore[no-any-return]
        known = x >= 0
        if not torch.compiler.is_exporting():
            longest = max(int(known.sum(dim=1).max()), 1)
            longest = min(longest, self.longest or longest)
            x, known = x[:, :longest], known[:, :longest]  # padding of all rows costs nothing
        count = known.sum(dim=1)
        # A row without tokens attends to one, so that it has no NaN; its features are 0 in the end.
        attended = torch.cat([torch.ones_like(known[:, :1]), known[:, 1:]], dim=1)
        found = self.model(input_ids=x.clamp_min(0).long(), attention_mask=attended.long())
        states: Tensor = found.last_hidden_state
        if self.pooling == "mean":
            kept = states.masked_fill(~known[..., None], 0.0)
            return kept.sum(dim=1) / count.clamp_min(1).to(states.dtype)[:, None]
        if self.pooling == "cls":
            chosen = states[:, 0]
        else:
            last = (count - 1).clamp_min(0)[:, None, None].expand(-1, 1, states.shape[-1])
            chosen = states.gather(1, last)[:, 0]
        return chosen.masked_fill((count == 0)[:, None], 0.0)


class HFBackbone(Backbone):
    """Text encoders of transformers."""

    reads: ClassVar[Literal["texts", "images"]] = "texts"
    step: ClassVar[str] = "tokens"
    such: ClassVar[str] = "sentence-transformers/all-MiniLM-L6-v2, or the folder of a model"
    tunings: ClassVar[tuple[str, ...]] = ("full", "lora")
    training_options: ClassVar[Mapping[str, str]] = {
        "tuning": "",
        **dict.fromkeys(("lora_rank", "lora_alpha", "lora_dropout", "lora_targets"), "lora"),
    }
    settings: ClassVar[Mapping[str, Any]] = {
        "epochs": 4,
        "batch_size": 32,
        "learning_rate": 5e-5,
        "warmup": 0.1,
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
    }

    def settings_for(self, tuning: str) -> Mapping[str, Any]:
        """Return how to train all weights, or adapters, which take larger steps."""
        return {**self.settings, "learning_rate": 5e-4} if tuning == "lora" else self.settings

    def describe(self, source: str) -> dict[str, Any]:
        """Return the configuration of a model."""
        path, how = locate(source)
        with reading(source, "configuration"):
            config = find_transformers().AutoConfig.from_pretrained(path, **how)
        if getattr(config, "quantization_config", None):
            raise HierlearnError(f"{source} is quantized; use the model that it was made from")
        sizes = [getattr(config, name, None) for name in ("vocab_size", "hidden_size")]
        if not all(isinstance(size, int) for size in sizes):
            raise HierlearnError(
                f"{source} is a {config.model_type or 'model'} and no text encoder: it has no "
                f"vocabulary, or no hidden states"
            )
        found: dict[str, Any] = plain(config.to_dict())
        return found

    def build(  # type: ignore[override]  # its options by name
        self,
        description: Mapping[str, Any],
        *,
        pooling: Pooling = "mean",
        tuning: str = "full",
        lora_rank: int = 8,
        lora_alpha: float | None = None,
        lora_dropout: float = 0.0,
        lora_targets: str = ALL,
    ) -> TextEncoder:
        """Return the encoder of a configuration, with random weights.

        Args:
            description: what ``describe`` returned.
            pooling: how the hidden states of the tokens become one row of features.
            tuning: "lora" adds adapters and freezes the rest.
            lora_rank: the rank of the adapters.
            lora_alpha: their scale times the rank; by default twice the rank.
            lora_dropout: of their inputs.
            lora_targets: the layers that get one, comma-separated; by default all linear ones.
        """
        lora = Lora(lora_rank, lora_alpha, lora_dropout, lora_targets)
        values = plain(dict(description))
        if pooling == "cls" and is_decoder(values.get("model_type")):
            raise HierlearnError(
                f"the first token of a {values['model_type']} has seen no other; use pooling "
                f"'last' or 'mean'"
            )
        try:
            with quiet():
                model = make_model(values)
        except HierlearnError:
            raise
        except Exception as error:  # a description may hold anything
            raise HierlearnError(
                f"the text encoder cannot be built ({first_line(error)})"
            ) from error
        adapted = lora.apply(model) if tuning == "lora" else model
        return TextEncoder(adapted, pooling, longest_input(values))

    def load(self, encoder: Encoder, source: str) -> None:
        """Read the pretrained weights."""
        assert isinstance(encoder, TextEncoder)
        path, how = locate(source)
        auto = find_transformers().AutoModel
        with reading(source, "model"):
            found, report = auto.from_pretrained(
                path,
                **how,
                **options_of(encoder.model.config),
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
        part = encoder_of(found)
        own = {id(value) for value in part.parameters()}
        used = {name for name, value in found.named_parameters() if id(value) in own}
        missing = sorted(used & {*report["missing_keys"], *names_of(report["mismatched_keys"])})
        if missing:
            raise HierlearnError(
                f"{source} lacks weights of its own configuration, such as {missing[0]}; it would "
                f"be a network with random weights: save it again with save_pretrained"
            )
        weights, adapted = part.state_dict(), encoder.model.state_dict()
        names = {name: name.replace(BASE, "") for name in adapted}
        state = {name: weights.get(base, adapted[name]) for name, base in names.items()}
        encoder.model.load_state_dict(state)


def make_model(values: Mapping[str, Any]) -> Any:
    """Return the network of a configuration with random weights; of two halves, the encoder."""
    transformers, rest = find_transformers(), dict(values)
    config = transformers.AutoConfig.for_model(rest.pop("model_type"), **rest)
    config.use_cache = False  # of a decoder that writes texts
    auto = transformers.AutoModel
    return encoder_of(auto.from_config(config, dtype=torch.float32, **options_of(config)))


def encoder_of(model: Any) -> Any:
    """Return the encoder of a network with encoder and decoder; others as they are."""
    return model.get_encoder() if model.config.is_encoder_decoder else model


def options_of(config: Any) -> dict[str, bool]:
    """Return how to make a network without its pooler, whose weights would not be trained."""
    made = find_transformers().AutoModel._model_mapping.get(type(config), None)
    has_pooler = isinstance(made, type) and "add_pooling_layer" in signature(made).parameters
    return {"add_pooling_layer": False} if has_pooler else {}


def names_of(keys: Any) -> list[str]:
    """Return the names among keys that come with shapes."""
    return [key if isinstance(key, str) else key[0] for key in keys]


def is_decoder(model_type: Any) -> bool:
    """Whether each token of a network sees only those before it."""
    find_transformers()
    from transformers.models.auto import modeling_auto as known

    causal = known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return model_type in causal and model_type not in known.MODEL_FOR_MASKED_LM_MAPPING_NAMES


def longest_input(description: Mapping[str, Any]) -> int | None:
    """Return how many tokens a network reads at most; None for any number."""
    most = description.get("max_position_embeddings", description.get("n_positions"))
    if not isinstance(most, int) or most < 1 or description.get("model_type") == "t5":
        return None
    if description.get("model_type") in SHIFTED:
        most -= int(description.get("pad_token_id") or 0) + 1
    return most
