"""HF: text encoders of transformers, from a folder or by name.

    features = pooled last hidden states: the mean over the tokens, the first, or the last token

Of a network with encoder and decoder, such as T5, the encoder is used. A text without any token
has features of 0. ``normalize`` scales the features of a text to length 1.

A source is a folder, or a name to download, which is checked with one request. Code that comes
with a model is never run, and only safetensors are read, never pickles. Whatever goes wrong is one
sentence.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch.nn import functional

from hierlearn.backbones.backbone import Backbone, Encoder
from hierlearn.backbones.torchvision import broken_torchvision
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.files.reading import is_file, is_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

Pooling = Literal["mean", "cls", "last"]
PADDING = -1  # in rows of token ids
UNBOUNDED = 1 << 20  # tokenizers without a longest text name a larger number
TIMEOUT = 5  # seconds until a server that does not answer counts as unreachable
ALL_LAYERS = "all-linear"  # what LoRA adapts by default
BASE = ".base_layer"  # in the name of a frozen weight that has an adapter
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
        normalize: whether features have length 1.
    """

    def __init__(
        self,
        model: Any,
        pooling: Pooling = "mean",
        longest: int | None = None,
        *,
        normalize: bool = False,
    ) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise HierlearnError(unknown_name("pooling", str(pooling), get_args(Pooling)))
        self.model = model
        self.pooling = pooling
        self.longest = longest
        self.normalize = normalize
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
            pooled = kept.sum(dim=1) / count.clamp_min(1).to(states.dtype)[:, None]
        elif self.pooling == "cls":
            pooled = states[:, 0].masked_fill((count == 0)[:, None], 0.0)
        else:
            last = (count - 1).clamp_min(0)[:, None, None].expand(-1, 1, states.shape[-1])
            pooled = states.gather(1, last)[:, 0].masked_fill((count == 0)[:, None], 0.0)
        return functional.normalize(pooled, dim=1) if self.normalize else pooled


class HFBackbone(Backbone):
    """Text encoders of transformers.

    Attributes:
        unit_length: whether features are normalized where no weight is trained.
    """

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
    unit_length: ClassVar[bool] = False

    def locate(self, source: str) -> tuple[str, dict[str, Any]]:
        """Return where to read a source from, and how, as ``from_pretrained`` takes it."""
        return locate(source)

    def settings_for(self, tuning: str) -> Mapping[str, Any]:
        """Return how to train all weights, or adapters, which take larger steps."""
        return {**self.settings, "learning_rate": 5e-4} if tuning == "lora" else self.settings

    def describe(self, source: str) -> dict[str, Any]:
        """Return the configuration of a model."""
        path, how = self.locate(source)
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
        normalize: bool | None = None,
        tuning: str = "frozen",
        lora_rank: int = 8,
        lora_alpha: float | None = None,
        lora_dropout: float = 0.0,
        lora_targets: str = ALL_LAYERS,
    ) -> TextEncoder:
        """Return the encoder of a configuration, with random weights.

        Args:
            description: what ``describe`` returned.
            pooling: how the hidden states of the tokens become one row of features.
            normalize: whether features have length 1; None leaves it to the family.
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
        if normalize is None:
            normalize = self.unit_length and tuning == "frozen"
        return TextEncoder(adapted, pooling, longest_input(values), normalize=normalize)

    def load(self, encoder: Encoder, source: str) -> None:
        """Read the pretrained weights."""
        assert isinstance(encoder, TextEncoder)
        path, how = self.locate(source)
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

    def tokenizer(self, source: str) -> tuple[Any, int | None]:
        """Return the tokenizer of a source, and how many tokens it allows a text."""
        path, how = self.locate(source)
        with reading(source, "tokenizer"):
            tokenizer = find_transformers().AutoTokenizer.from_pretrained(path, **how)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise HierlearnError(
                f"{source} has a slow tokenizer only, which cannot be stored with a model; save it "
                f"as tokenizer.json"
            )
        if {*backend.get_vocab()} <= {*tokenizer.all_special_tokens}:
            raise HierlearnError(
                f"{source} has no tokenizer; save one beside the model with save_pretrained"
            )
        most = tokenizer.model_max_length
        return backend, most if most < UNBOUNDED else None


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


# Keys of a configuration that say nothing about the network, or would load something else.
DROPPED = (
    *("transformers_version", "architectures", "dtype", "torch_dtype", "problem_type"),
    *("id2label", "label2id", "task_specific_params", "auto_map", "quantization_config"),
    *("attn_implementation", "experts_implementation", "custom_pipelines", "name_or_path"),
    *("return_dict", "output_hidden_states", "output_attentions", "use_cache"),
)


def find_transformers() -> Any:
    """Import transformers, or say how to install it."""
    broken_torchvision()
    try:
        import transformers
    except ImportError as error:
        raise HierlearnError(
            f"text encoders need transformers ({error}); install it with: pip install transformers"
        ) from None
    return transformers


def find_tokenizers() -> Any:
    """Import tokenizers, or say how to install it."""
    try:
        import tokenizers
    except ImportError as error:
        raise HierlearnError(
            f"text encoders need tokenizers ({error}); install it with: pip install tokenizers"
        ) from None
    return tokenizers


def locate(source: str) -> tuple[str, dict[str, Any]]:
    """Return where to read a source from, and how, as ``from_pretrained`` takes it.

    Args:
        source: a folder, or a name to download.
    """
    safe: dict[str, Any] = {"trust_remote_code": False}
    path = Path(source).expanduser()
    if is_folder(path):
        if not (path / "config.json").is_file():
            raise HierlearnError(
                f"{source} has no config.json; a model is a folder that save_pretrained has written"
            )
        return str(path), {**safe, "local_files_only": True}
    if is_file(path):
        raise HierlearnError(f"{source} is a file; name the folder of a model of transformers")
    if source[0] in "/.~" or source.count("/") > 1 or "\\" in source:
        raise HierlearnError(
            f"{source}: no such folder; name the folder of a model that save_pretrained has written"
        )
    return source, {**safe, "local_files_only": not can_download(source)}


def can_download(name: str) -> bool:
    """Whether a model can be downloaded; False where it is in the cache of transformers only."""
    try:
        import huggingface_hub as hub  # far quicker than transformers, which brings it
        from huggingface_hub import errors
    except ImportError:
        find_transformers()
        raise

    cached = isinstance(hub.try_to_load_from_cache(name, "config.json"), str)
    if hub.constants.HF_HUB_OFFLINE:
        if cached:
            return False
        raise HierlearnError(
            f"{name} is no folder, and HF_HUB_OFFLINE does not allow downloading it"
        )
    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(name, "config.json"), timeout=TIMEOUT)
    except (errors.RepositoryNotFoundError, errors.EntryNotFoundError, errors.HFValidationError):
        raise HierlearnError(
            f"{name} is neither a folder nor a model that can be downloaded; check the name"
        ) from None
    except Exception as error:  # of the connection, which can fail in many ways
        if cached:
            return False
        raise HierlearnError(
            f"{name} is no folder and cannot be downloaded ({first_line(error)}); name the folder "
            f"of a model"
        ) from None
    return True


@contextmanager
def reading(source: str, what: str) -> Iterator[None]:
    """Turn whatever transformers raises into one sentence, and keep it quiet.

    Args:
        source: what is read.
        what: the part of it, such as "tokenizer".
    """
    try:
        with quiet():
            yield
    except HierlearnError:
        raise
    except Exception as error:
        text = str(error)
        if "trust_remote_code" in text or "custom code" in text:
            raise HierlearnError(
                f"{source} needs code of its own, which is never run; use a model whose code is "
                f"part of transformers"
            ) from None
        if "model.safetensors" in text:
            raise HierlearnError(
                f"{source} has no weights as safetensors, and others are not read; save it again "
                f"with save_pretrained"
            ) from None
        raise HierlearnError(
            f"the {what} of {source} cannot be read ({first_line(error)}); name another model, or "
            f"save it again with save_pretrained"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing; progress bars stay where there is a terminal."""
    logging = find_transformers().utils.logging
    import huggingface_hub.utils as hub

    utils: Any = hub
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hidden = not sys.stderr.isatty()
    downloads = hidden and not utils.are_progress_bars_disabled()
    logging.set_verbosity_error()
    if hidden:
        logging.disable_progress_bar()
    if downloads:
        utils.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
        if hidden and bars:
            logging.enable_progress_bar()
        if downloads:
            utils.enable_progress_bars()


def first_line(error: BaseException) -> str:
    """Return the beginning of a message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:160]


def plain(values: Any) -> Any:
    """Return a configuration without what is not about the network; see ``DROPPED``."""
    if isinstance(values, dict):
        return {
            str(key): plain(value)
            for key, value in values.items()
            if key not in DROPPED and not str(key).startswith("_")
        }
    return [plain(one) for one in values] if isinstance(values, (list, tuple)) else values


# ---------------------------------------- LoRA


@dataclass(frozen=True)
class Lora:
    """LoRA: small trained matrices beside the frozen ones of a network, through peft.

        W x  becomes  W x + (alpha / r) B A x,    A (r, in), B (out, r), B = 0 before training

    Hu et al. (2022), "LoRA: Low-Rank Adaptation of Large Language Models", eq. (3).

    Attributes:
        rank: r.
        alpha: the scale of what is added is alpha / r; by default 2 r.
        dropout: of the inputs of A.
        targets: the names of the layers, comma-separated; by default all linear ones.
    """

    rank: int = 8
    alpha: float | None = None
    dropout: float = 0.0
    targets: str = ALL_LAYERS

    def __post_init__(self) -> None:
        if not is_number(self.rank) or int(self.rank) != self.rank or not 1 <= self.rank <= 4096:
            raise HierlearnError(f"lora_rank must be an integer from 1 to 4096, not {self.rank!r}")
        if self.alpha is not None and (not is_number(self.alpha) or not 0 < self.alpha < 1e6):
            raise HierlearnError(f"lora_alpha must be above 0, not {self.alpha!r}")
        if not is_number(self.dropout) or not 0 <= self.dropout < 1:
            raise HierlearnError(f"lora_dropout must be in [0, 1), not {self.dropout!r}")
        if not isinstance(self.targets, str) or not self.targets.strip(", "):
            raise HierlearnError(
                f"lora_targets must be names of layers such as query,value, or {ALL_LAYERS}, not "
                f"{self.targets!r}"
            )

    def apply(self, model: Any) -> Any:
        """Add adapters to a network, which is changed; the rest of it is frozen."""
        try:
            import peft
        except ImportError as error:
            raise HierlearnError(
                f"tuning 'lora' needs peft ({error}); install it with: pip install peft"
            ) from None
        names = [name.strip() for name in self.targets.split(",") if name.strip()]
        config = peft.LoraConfig(
            r=int(self.rank),
            lora_alpha=2 * int(self.rank) if self.alpha is None else self.alpha,  # type: ignore[arg-type]
            lora_dropout=self.dropout,
            target_modules=ALL_LAYERS if names == [ALL_LAYERS] else names,
        )
        try:
            with quiet():
                adapted = peft.inject_adapter_in_model(config, model)
        except ValueError as error:
            raise HierlearnError(
                f"lora_targets {self.targets!r} do not fit this network ({first_line(error)}); use "
                f"{ALL_LAYERS}"
            ) from None
        for name, value in adapted.named_parameters():
            value.requires_grad_("lora_" in name)
        return adapted


def is_number(value: Any) -> bool:
    """Whether a value is a number, and no boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
