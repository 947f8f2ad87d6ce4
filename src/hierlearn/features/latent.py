"""Latent: texts as a few hundred numbers, so that similar texts lie near each other.

    z = x V,    then each row scaled to length sqrt(k)

where x are the weighted n-grams of a text and V the k leading right singular vectors of those of
the training texts (latent semantic analysis; Deerwester et al., 1990). A memory compares these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hierlearn.errors import DataError
from hierlearn.features.preprocessor import Preprocessor, integer_option, stored
from hierlearn.features.texts import TextPreprocessor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind

LARGEST = 4096  # numbers per text
AT_ONCE = 1 << 14  # texts
LEAST = 1e-6  # length of a row that has one


class LatentPreprocessor(Preprocessor["Iterable[str]", "NDArray[np.float32]"]):
    """Turn texts into (N, size) numbers; a text without a known n-gram becomes zeros.

    Args:
        size: numbers per text; fewer where there are fewer texts or n-grams.
        ngrams: the longest run of words that counts.
        char_ngrams: the longest run of characters within a word that counts, from 3 on; 0 for none.
        min_df: the number of training texts that a word must occur in.
        char_min_df: the same of a run of characters.
    """

    name: ClassVar[str] = "latent"
    reads: ClassVar[Kind] = "texts"
    by_default: ClassVar[bool] = False
    produces: ClassVar[Literal["numbers", "sparse"]] = "numbers"

    def __init__(
        self,
        size: int = 300,
        *,
        ngrams: int = 2,
        char_ngrams: int = 5,
        min_df: int = 1,
        char_min_df: int = 2,
    ) -> None:
        self.size = integer_option("size", size, 1, LARGEST)
        self.texts = TextPreprocessor(
            ngrams=ngrams, char_ngrams=char_ngrams, min_df=min_df, char_min_df=char_min_df
        )
        self._directions: NDArray[np.float16] | None = None  # (n-grams, k)

    @property
    def columns(self) -> int:
        """How many numbers a text has."""
        if self._directions is None:
            raise self._not_fitted()
        return int(self._directions.shape[1])

    def fit(self, inputs: Iterable[str]) -> Self:
        """Learn the n-grams of the training texts and their leading directions."""
        from sklearn.utils.extmath import randomized_svd

        texts = list(inputs)
        x = self.texts.fit(texts).transform(texts)
        size = min(self.size, *x.shape)
        _, _, directions = randomized_svd(x, size, n_iter=3, random_state=0)
        # In half precision from the start, so that a stored one transforms alike.
        self._directions = np.ascontiguousarray(directions.T).astype(np.float16)
        return self

    def transform(self, inputs: Iterable[str]) -> NDArray[np.float32]:
        """Return the texts as (N, columns) numbers."""
        if self._directions is None:
            raise self._not_fitted()
        texts, directions = list(inputs), self._directions.astype(np.float32)
        found = np.zeros((len(texts), self.columns), dtype=np.float32)
        for begin in range(0, len(texts), AT_ONCE):
            rows = slice(begin, begin + AT_ONCE)
            found[rows] = self.texts.transform(texts[rows]) @ directions
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        scale = np.where(lengths > LEAST, np.sqrt(np.float32(self.columns)), np.float32(0))
        return np.asarray(found * (scale / np.maximum(lengths, LEAST)), dtype=np.float32)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings of the n-grams, and their directions beside their arrays."""
        if self._directions is None:
            raise self._not_fitted()
        settings, arrays = self.texts.state()
        own = {"name": self.name, "size": self.size, "texts": settings}
        held = {f"texts/{key}": value for key, value in arrays.items()}
        return own, {"directions": self._directions.copy(), **held}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted preprocessor."""
        begin = "texts/"
        held = {k.removeprefix(begin): v for k, v in arrays.items() if k.startswith(begin)}
        new = cls(stored(settings, "size"))
        new.texts = TextPreprocessor.from_state(stored(settings, "texts"), held)
        directions = stored(arrays, "directions")
        if directions.ndim != 2 or len(directions) != new.texts.columns:
            raise DataError(
                f"the stored preprocessor is damaged: directions {directions.shape} must have "
                f"{new.texts.columns:,} rows, one per n-gram"
            )
        new._directions = directions.astype(np.float16)
        return new
