"""Tokens: texts as rows of token ids, for the text encoders of backbones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from hierlearn.backbones import find_backbone
from hierlearn.backbones.hf import (
    PADDING,
    find_transformers,
    first_line,
    locate,
    longest_input,
    reading,
)
from hierlearn.errors import DataError, HierlearnError
from hierlearn.features.preprocessor import Preprocessor, integer_option, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind
    from hierlearn.features.preprocessor import Produced

TOKENS = 128  # per text, by default
CHARACTERS = 32  # per token: what is behind them is not even looked at
LONGEST = 11  # tokens of the examples by which an exported graph is checked
UNBOUNDED = 1 << 20  # tokenizers without a longest text name a larger number


class TokenPreprocessor(Preprocessor["Sequence[str]", "NDArray[np.int32]"]):
    """Texts as (N, T) token ids, -1 where a text has ended.

    Args:
        source: ``hf:PATH_OR_NAME``, whose tokenizer is used.
        max_tokens: longer texts are cut, and those of more than 32 characters per token are cut
            before they are split; by default 128, or as many as the network reads.
    """

    name: ClassVar[str] = "tokens"
    reads: ClassVar[Kind] = "texts"
    by_default: ClassVar[bool] = False
    produces: ClassVar[Produced] = "tokens"

    def __init__(self, source: str, *, max_tokens: int | None = None) -> None:
        self.source = source
        self.max_tokens: int | None = None
        if max_tokens is not None:
            self.max_tokens = integer_option("max_tokens", max_tokens, 1, 1 << 16)
        self._tokenizer: Any = None
        self._columns = 0

    @property
    def columns(self) -> int:
        """V, the size of the vocabulary."""
        if self._tokenizer is None:
            raise self._not_fitted()
        return self._columns

    def fit(self, inputs: Sequence[str]) -> Self:
        """Read the tokenizer; it learns nothing from the rows."""
        del inputs
        family, source = find_backbone(self.source)
        description = family.describe(source)
        path, how = locate(source)
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
        limits = [longest_input(description), tokenizer.model_max_length]
        most = min([one for one in limits if one is not None and one < UNBOUNDED], default=None)
        if most is not None and self.max_tokens is not None and self.max_tokens > most:
            raise HierlearnError(
                f"max_tokens is {self.max_tokens}, but {source} reads at most {most} tokens"
            )
        if self.max_tokens is None:
            self.max_tokens = min(TOKENS, most or TOKENS)
        self._set(backend)
        if self._columns > description["vocab_size"]:
            raise HierlearnError(
                f"the tokenizer of {source} has {self._columns:,} tokens, but the network knows "
                f"{description['vocab_size']:,}; use the tokenizer that it was trained with"
            )
        return self

    def fit_parts(self, parts: Callable[[], Iterable[Any]]) -> Self:
        """Read the tokenizer; it needs no rows."""
        del parts
        return self.fit(())

    def _set(self, tokenizer: Any) -> None:
        special = tokenizer.num_special_tokens_to_add(False)
        assert self.max_tokens is not None
        if self.max_tokens <= special:
            raise HierlearnError(
                f"max_tokens is {self.max_tokens}, but every text has {special} special tokens; "
                f"it must be larger"
            )
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.max_tokens)
        self._tokenizer = tokenizer
        self._columns = max(tokenizer.get_vocab().values(), default=0) + 1

    def transform(self, inputs: Sequence[str]) -> NDArray[np.int32]:
        """Return the token ids of texts."""
        if self._tokenizer is None or self.max_tokens is None:
            raise self._not_fitted()
        texts = [readable(text[: CHARACTERS * self.max_tokens]) for text in inputs]
        found = [one.ids for one in self._tokenizer.encode_batch(texts)]
        longest = max(map(len, found), default=0)
        rows = np.full((len(found), max(longest, 1)), PADDING, dtype=np.int32)
        for row, ids in zip(rows, found, strict=True):
            row[: len(ids)] = ids
        return rows

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings, and the tokenizer as bytes."""
        if self._tokenizer is None:
            raise self._not_fitted()
        settings = {"name": self.name, "source": self.source, "max_tokens": self.max_tokens}
        text = self.to_json().encode()
        return settings, {"tokenizer": np.frombuffer(text, dtype=np.uint8).copy()}

    def plain_state(self) -> dict[str, Any]:
        """Return the settings."""
        return self.state()[0]  # the tokenizer is a file of its own, see ``to_json``

    def to_json(self) -> str:
        """Return the tokenizer as the content of a tokenizer.json."""
        if self._tokenizer is None:
            raise self._not_fitted()
        return str(self._tokenizer.to_str())

    def examples(self, count: int) -> Tensor:
        """Return (N, T) int64 random token ids, the rows of different lengths."""
        draw = torch.Generator().manual_seed(count)
        assert self.max_tokens is not None
        longest = min(self.max_tokens, LONGEST)
        ids = torch.randint(0, self.columns, (count, longest), generator=draw)
        ends = torch.randint(1, longest + 1, (count, 1), generator=draw)
        ends[0] = longest
        return torch.where(torch.arange(longest) < ends, ids, PADDING)

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a tokenizer."""
        find_transformers()  # which brings the package of tokenizers
        from tokenizers import Tokenizer

        new = cls(stored(settings, "source"), max_tokens=int(stored(settings, "max_tokens")))
        try:
            tokenizer = Tokenizer.from_str(stored(arrays, "tokenizer").tobytes().decode())
        except DataError:
            raise
        except Exception as error:  # the package raises Exception itself
            raise DataError(
                f"the stored preprocessor is damaged: it has no tokenizer ({first_line(error)})"
            ) from None
        new._set(tokenizer)
        return new


def readable(text: str) -> str:
    """Return a text that can be written as UTF-8: halves of surrogate pairs become ``?``."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
