"""What a text backbone reads, and the features of a frozen backbone.

``TokenPreprocessor`` turns texts into token ids. ``EmbedPreprocessor`` turns texts or images into
the features of a frozen backbone: nothing is trained. The weights are stored with the model, which
needs the source no more, and features are cached on disk, see ``FeatureCache``.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from hierlearn.backbones import find_backbone
from hierlearn.backbones.backbone import check_numbers, check_shapes
from hierlearn.backbones.hf import PADDING, find_tokenizers, first_line, longest_input
from hierlearn.datasets.dataset import count_rows
from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.features.preprocessor import Preprocessor, integer_option, nest, nested, stored
from hierlearn.files.locations import cache_dir
from hierlearn.files.writing import remove
from hierlearn.kernels.cpu import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn
    from typing_extensions import Self

    from hierlearn.backbones import Encoder
    from hierlearn.datasets.dataset import Dataset, Kind
    from hierlearn.features.preprocessor import Produced

    Floats = NDArray[np.float32]

BATCH = 64  # rows that are encoded at once
FEW = 16  # the same on a CPU, in whose cache they fit
BLOCK = 1 << 14  # rows that are prepared, sorted by length and stored at once
OFF = "HIERLEARN_NO_CACHE"  # environment variable: nothing is cached where it is set
MOST = 4 << 30  # bytes of all features in the cache
FEWEST = 16  # rows that are worth a file
CHECK = 8  # bytes of a checksum
TOKENS = 128  # per text, by default
CHARACTERS = 32  # per token: what is behind them is not even looked at
LONGEST = 11  # tokens of the examples by which an exported graph is checked


class TokenPreprocessor(Preprocessor["Sequence[str]", "NDArray[np.int32]"]):
    """Texts as (N, T) token ids, -1 where a text has ended.

    Args:
        source: ``hf:PATH_OR_NAME`` or another backbone of texts, whose tokenizer is used.
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
        self._learned(self._tokenizer)
        return self._columns

    def fit(self, inputs: Sequence[str]) -> Self:
        """Read the tokenizer; it learns nothing from the rows."""
        del inputs
        family, source = find_backbone(self.source)
        description = family.describe(source)
        backend, most = family.tokenizer(source)  # type: ignore[attr-defined]
        limits = [longest_input(description), most]
        most = min([one for one in limits if one is not None], default=None)
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
        tokenizer = self._learned(self._tokenizer)
        texts = [text[: CHARACTERS * self._learned(self.max_tokens)] for text in inputs]
        # Halves of surrogate pairs, which cannot be written as UTF-8, become a question mark.
        texts = [text.encode(errors="replace").decode() for text in texts]
        found = [one.ids for one in tokenizer.encode_batch(texts)]
        longest = max(map(len, found), default=0)
        rows = np.full((len(found), max(longest, 1)), PADDING, dtype=np.int32)
        for row, ids in zip(rows, found, strict=True):
            row[: len(ids)] = ids
        return rows

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings, and the tokenizer as bytes."""
        settings = {"name": self.name, "source": self.source, "max_tokens": self.max_tokens}
        text = self.to_json().encode()
        return settings, {"tokenizer": np.frombuffer(text, dtype=np.uint8).copy()}

    def plain_state(self) -> dict[str, Any]:
        """Return the settings."""
        return self.state()[0]  # the tokenizer is a file of its own, see ``to_json``

    def to_json(self) -> str:
        """Return the tokenizer as the content of a tokenizer.json."""
        return str(self._learned(self._tokenizer).to_str())

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
        made = find_tokenizers().Tokenizer
        new = cls(stored(settings, "source"), max_tokens=int(stored(settings, "max_tokens")))
        try:
            tokenizer = made.from_str(stored(arrays, "tokenizer").tobytes().decode())
        except DataError:
            raise
        except Exception as error:  # the package raises Exception itself
            raise DataError(
                f"the stored preprocessor is damaged: it has no tokenizer ({first_line(error)})"
            ) from None
        new._set(tokenizer)
        return new


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
        return self._learned(self.encoder).features

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
        if not self.cache or os.environ.get(OFF):
            return self.encode(rows)
        if self._cached is None:
            self._cached = FeatureCache(self.digest(), self.columns)
        keys = [
            hashlib.sha256(f"{row.dtype.str} {row.shape} ".encode() + row.tobytes()).digest()
            for row in unpadded(rows)
        ]
        values, found = self._cached.find(keys)
        left = np.flatnonzero(~found)
        if len(left):
            new = {keys[number]: number for number in left}  # equal rows are encoded once
            encoded = self.encode(rows[list(new.values())])
            place = {key: row for row, key in enumerate(new)}
            values[left] = encoded[[place[keys[number]] for number in left]]
            self._cached.add(list(new), encoded)
        return values

    def encode(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Return (N, F) features of prepared rows, those of equal length together.

        On a CPU batches are small, and each has a thread and a core of its own: dividing the work
        of one batch takes longer, many times so where other processes want the cores.
        """
        encoder = self._learned(self.encoder)
        found = np.zeros((len(rows), encoder.features), dtype=np.float32)
        order = np.argsort([len(row) for row in unpadded(rows)], kind="stable")
        size = FEW if self.device.type == "cpu" else BATCH
        batches = [order[begin : begin + size] for begin in range(0, len(rows), size)]

        @torch.no_grad()
        def features(batch: NDArray[Any]) -> NDArray[np.float32]:
            part = torch.as_tensor(rows[batch]).to(self.device)
            return encoder(part).float().cpu().numpy()  # type: ignore[no-any-return]

        several = self.device.type == "cpu" and len(batches) > 1
        workers = torch.get_num_threads() if several else 0
        for batch, values in zip(batches, in_order(features, batches, workers), strict=True):
            found[batch] = values
        return found

    def digest(self) -> str:
        """Return a checksum of the weights and of what they compute."""
        what = [self.source.partition(":")[0], self._description, self.encoder_options]
        sums = hashlib.sha256(json.dumps(what, sort_keys=True).encode())
        for name, value in sorted(self._learned(self.encoder).state_dict().items()):
            sums.update(f"\n{name} {tuple(value.shape)}\n".encode())
            sums.update(value.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return sums.hexdigest()[:32]

    def as_module(self) -> nn.Module | None:
        """Return the encoder, which reads token ids or images."""
        return deepcopy(self._learned(self.encoder)).cpu().eval()

    def plain_state(self) -> dict[str, Any]:
        """Return how rows are prepared, without the weights."""
        return {"name": self.name, "source": self.source, "step": self.step.plain_state()}

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the description of the backbone, its weights, and the step before it."""
        encoder = self._learned(self.encoder)
        own, arrays = self.step.state()
        weights = {name: value.cpu().numpy() for name, value in encoder.state_dict().items()}
        settings = {
            "name": self.name,
            "source": self.source,
            "options": {**self.options_given, "cache": self.cache},
            "description": self._description,
            "step": own,
        }
        return settings, {**nest("weights", weights), **nest("step", arrays)}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a backbone without its source."""
        from hierlearn.features.registry import from_state

        new = cls(stored(settings, "source"), **stored(settings, "options"))
        new._description = dict(stored(settings, "description"))
        new.step = from_state(stored(settings, "step"), nested("step", arrays))
        weights = {k: torch.from_numpy(v) for k, v in nested("weights", arrays).items()}
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


# ----------------------------------------------------------------------
# FeatureCache: the features of a frozen backbone on disk, so that no row is encoded twice.
#
# CACHE/features/BACKBONE.sqlite has one row per prepared row: its SHA-256, its features, and a
# checksum of these. BACKBONE is a digest of the weights and of what they compute; a row is what the
# encoder reads, its token ids or its pixels. Rows are hashed, never stored. A file that cannot be
# read or written is passed over: a cache can only make things faster. Above 4 GB the files not used
# for longest are removed.


class FeatureCache:
    """The features of one backbone.

    Args:
        digest: of the backbone.
        width: F, of the features.
    """

    def __init__(self, digest: str, width: int) -> None:
        self.path = cache_dir() / "features" / f"{digest}.sqlite"
        self.width = width

    def find(self, keys: Sequence[bytes]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return (N, F) features and which of them were found; the others are 0."""
        values = np.zeros((len(keys), self.width), dtype=np.float32)
        found = np.zeros(len(keys), dtype=bool)
        if self.path.exists():
            with self._opened() as database:
                os.utime(self.path)  # it was used now
                for number, key in enumerate(keys):
                    asked = database.execute("SELECT value FROM rows WHERE key = ?", (key,))
                    (held,) = asked.fetchone() or (b"",)
                    data = held[CHECK:]
                    if len(data) == 4 * self.width and checksum(data) == held[:CHECK]:
                        values[number], found[number] = np.frombuffer(data, np.float32), True
        return values, found

    def add(self, keys: Sequence[bytes], values: Floats) -> None:
        """Store the features of different rows; a few rows are not worth a file."""
        if len(keys) < FEWEST:
            return
        held = map(bytes, values)
        rows = ((key, checksum(data) + data) for key, data in zip(keys, held, strict=True))
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._opened() as database:
                database.execute("CREATE TABLE IF NOT EXISTS rows (key PRIMARY KEY, value)")
                database.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", rows)
            trim(self.path.parent, MOST)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file; errors end the block, and what is no database is removed."""
        try:
            with closing(sqlite3.connect(self.path)) as database, database:
                yield database
        except sqlite3.OperationalError:  # it is locked, cannot be written, or has no rows yet
            pass
        except (sqlite3.DatabaseError, OSError):
            with suppress(OSError):
                remove(self.path)


def checksum(data: bytes) -> bytes:
    """Return some bytes by which a change is noticed."""
    return hashlib.blake2b(data, digest_size=CHECK).digest()


def trim(folder: Path, most: int) -> None:
    """Remove the files that were not used for longest until at most some bytes are left."""
    files = sorted((path.stat().st_mtime, path) for path in folder.glob("*.sqlite"))
    left = sum(path.stat().st_size for _, path in files)
    for _, path in files:
        if left > most:
            left -= path.stat().st_size
            remove(path)
