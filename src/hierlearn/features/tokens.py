"""Tokens: texts as rows of token ids, for the text encoders of backbones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hierlearn.backbones import find_backbone
from hierlearn.backbones.hf import PADDING, find_transformers
from hierlearn.features.preprocessor import Preprocessor, integer_option, stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind
    from hierlearn.features.preprocessor import Produced


class TokenPreprocessor(Preprocessor["Sequence[str]", "NDArray[np.int32]"]):
    """Texts as (N, T) token ids, -1 where a text has ended.

    Args:
        source: ``hf:PATH_OR_NAME``, whose tokenizer is used.
        max_tokens: longer texts are cut.
    """

    name: ClassVar[str] = "tokens"
    reads: ClassVar[Kind] = "texts"
    by_default: ClassVar[bool] = False
    produces: ClassVar[Produced] = "tokens"

    def __init__(self, source: str, *, max_tokens: int = 128) -> None:
        self.source = source
        self.max_tokens = integer_option("max_tokens", max_tokens, 1, 1 << 16)
        self._tokenizer: Any = None

    @property
    def columns(self) -> int:
        """V, the size of the vocabulary."""
        if self._tokenizer is None:
            raise self._not_fitted()
        return int(self._tokenizer.get_vocab_size())

    def fit(self, inputs: Sequence[str]) -> Self:
        """Read the tokenizer; it learns nothing from the rows."""
        del inputs
        _, path = find_backbone(self.source)
        self._set(find_transformers().AutoTokenizer.from_pretrained(path).backend_tokenizer)
        return self

    def _set(self, tokenizer: Any) -> None:
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.max_tokens)
        self._tokenizer = tokenizer

    def transform(self, inputs: Sequence[str]) -> NDArray[np.int32]:
        """Return the token ids of texts."""
        if self._tokenizer is None:
            raise self._not_fitted()
        found = [one.ids for one in self._tokenizer.encode_batch(list(inputs))]
        rows = np.full((len(found), max(map(len, found), default=1)), PADDING, dtype=np.int32)
        for row, ids in zip(rows, found, strict=True):
            row[: len(ids)] = ids
        return rows

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings, and the tokenizer as bytes."""
        if self._tokenizer is None:
            raise self._not_fitted()
        settings = {"name": self.name, "source": self.source, "max_tokens": self.max_tokens}
        text = self._tokenizer.to_str().encode()
        return settings, {"tokenizer": np.frombuffer(text, dtype=np.uint8).copy()}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a tokenizer."""
        from tokenizers import Tokenizer

        new = cls(stored(settings, "source"), max_tokens=stored(settings, "max_tokens"))
        new._set(Tokenizer.from_str(stored(arrays, "tokenizer").tobytes().decode()))
        return new
