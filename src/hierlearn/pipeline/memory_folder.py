"""MemoryFolder: the memory of a model folder, changed without reading or rewriting it.

    with MemoryFolder.open("model") as memory:
        memory.remember(inputs, labels)

``remember`` writes one more shard, and ``forget`` a list of the rows that do not count any more;
either takes as long in a memory of a million rows as in one of a thousand. When ``MOST`` small
shards have come together, ``remember`` joins them; ``compact`` joins what it can and removes what
was forgotten. A change is there as a whole or not at all, see ``folder``, and another process
that wants to change the same folder waits.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierlearnError
from hierlearn.files.locks import locked
from hierlearn.memory.taxonomy import Remap
from hierlearn.networks.blend import is_blend
from hierlearn.networks.memories import memory_heads
from hierlearn.pipeline import remember as in_memory
from hierlearn.pipeline.changes import (
    drop_other_heads,
    nothing_left,
    record,
    set_label_space,
    unknown_ids,
)
from hierlearn.pipeline.config_file import check_folder, digest
from hierlearn.pipeline.folder import replaced_model
from hierlearn.pipeline.memory_files import (
    OWN,
    ROWS,
    Manifest,
    read_forgotten,
    read_manifest,
    read_shards,
    write_manifest,
)
from hierlearn.pipeline.memory_shards import Places, Shard, id_digests, rows_with_ids
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.pipeline.remember import Growth, Known, new_rows, note_growth
from hierlearn.pipeline.seen_rows import ROWS_FILE

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints

MOST = 64  # small shards, until remember joins them


@dataclass
class MemoryFolder:
    """A model folder whose memory is changed in place.

    Attributes:
        folder: of the model.
        pipeline: the model, its memory left empty.
        manifest: the list of the shards.
        files: the digests of the files of the model by name.
    """

    folder: Path
    pipeline: Pipeline
    manifest: Manifest
    files: dict[str, str]

    @classmethod
    @contextmanager
    def open(
        cls, folder: Path | str, *, device: torch.device | str = "cpu", trust: bool = False
    ) -> Iterator[MemoryFolder]:
        """Open a model folder for changes; other processes that open it wait until the block ends.

        Args:
            folder: of a model with a memory.
            device: where to compute.
            trust: as in ``Pipeline.load``.
        """
        folder = Path(folder)
        check_folder(folder)
        with locked(folder):
            pipeline, files = Pipeline.open(folder, device=device, trust=trust, skip_memory=True)
            if not memory_heads(pipeline.network):
                raise no_memory(folder)
            yield cls(folder, pipeline, read_manifest(folder, files), files)

    def __len__(self) -> int:
        return self.manifest.total

    # ------------------------------------------------------------------ changes

    def remember(
        self,
        inputs: Any,
        labels: Sequence[Sequence[str]],
        *,
        hierarchy: Hierarchy | None = None,
        ids: Sequence[str] | None = None,
        weights: NDArray[np.float64] | None = None,
    ) -> Growth:
        """Add labeled rows, and the classes that they bring; the arguments of ``remember``."""
        pipeline = self.pipeline
        given: dict[str, Any] = {"hierarchy": hierarchy, "ids": ids, "weights": weights}
        old, before = pipeline.hierarchy, pipeline.hierarchy.fingerprint
        known = Known(self.manifest.unlabeled_descendants, self.manifest.texts, self._next_id())
        added = new_rows(pipeline, inputs, labels, known, **given)
        total = len(added)
        if ids is not None:
            added = in_memory.without_held(added, self._with_ids(added))
            if not len(added):
                return Growth(0, (), self.manifest.total, total)
        new = added.rows.hierarchy
        if new != old and is_blend(pipeline.network):  # of which only the memories stay
            growth = in_memory.remember(self.read(), inputs, labels, **given)
            with replaced_model(self.folder) as hidden:
                pipeline.write(hidden)
            return growth
        plan = Remap(old, new, {})
        drop_other_heads(pipeline, new)
        set_label_space(pipeline, added.rows.labels.sets, plan)
        manifest = self.manifest.copy()
        with replaced_model(self.folder) as hidden:
            if ROWS_FILE not in self.files:
                added = Shard(added.embeddings, added.rows)
            small = small_shards(manifest)
            if small:
                self._join(hidden, manifest, [small], read_forgotten(self.folder, manifest))
            manifest.add(hidden, added)
            self._keep_next_id(manifest)
            growth = note_growth(pipeline, old, before, len(added), manifest.total)
            self._write(hidden, manifest, weights=new != old or new.titles != old.titles)
        return replace(growth, known=total - len(added))

    def _with_ids(self, added: Shard) -> Iterator[Shard]:
        """Yield the remembered rows with the ids of others, shard by shard."""
        places = Places.of(self.pipeline.hierarchy)
        found, _ = self.find(list(dict.fromkeys(map(str, added.rows.ids))))
        for number, one in enumerate(self.manifest.shards):
            if one.file in found:
                some = replace(self.manifest, shards=self.manifest.shards[number : number + 1])
                (shard,) = read_shards(self.folder, some, places, {})
                yield shard.take(found[one.file])

    def forget(self, ids: Iterable[str], *, erase: bool = False) -> int:
        """Forget the rows with some ids, and return how many.

        They answer no more, and are named no more. Their embeddings, labels, ids and texts stay in
        the files until ``compact``, unless they are erased at once.

        Args:
            ids: of the rows; an id that no row has raises.
            erase: write the shards that hold these rows again, without them.
        """
        wanted = sorted({str(one) for one in ([ids] if isinstance(ids, str) else ids)})
        rows, have = self.find(wanted)
        missing = [one for one, has in zip(wanted, have, strict=True) if not has]
        if missing:
            raise unknown_ids(missing, self.first_ids())
        gone = sum(map(len, rows.values()))
        if gone == len(self):
            raise nothing_left(gone)
        manifest = self.manifest.copy()
        known = read_forgotten(self.folder, manifest)
        for name, found in rows.items():
            known[name] = np.concatenate([known.get(name, found[:0]), found])
        with replaced_model(self.folder) as hidden:
            self._keep_next_id(manifest)
            if erase:
                shards = enumerate(manifest.shards)
                groups = [range(n, n + 1) for n, one in shards if one.file in known]
                self._join(hidden, manifest, groups, known)
            else:
                manifest.forget(hidden, known)
            before = self.pipeline.hierarchy.fingerprint
            record(self.pipeline, "forget", before, rows=gone)
            self._write(hidden, manifest)
        return gone

    def compact(self) -> None:
        """Join the shards into as few as possible, without the rows that were forgotten."""
        manifest = self.manifest.copy()
        with replaced_model(self.folder) as hidden:
            self._keep_next_id(manifest)
            forgotten = read_forgotten(self.folder, manifest)
            self._join(hidden, manifest, groups_of(manifest, forgotten), forgotten)
            self._write(hidden, manifest, keep_index=True)

    # ------------------------------------------------------------------ what is there

    def read(self) -> Pipeline:
        """Fill the memory of the pipeline, and return it."""
        self.pipeline.fill(self.folder, self.files)
        return self.pipeline

    def find(self, ids: Sequence[str]) -> tuple[dict[str, Ints], NDArray[np.bool_]]:
        """Return the rows that have some ids, by file, and which of the ids occur.

        Shards are searched by the digests of the ids, 64 bits each, and are not read.
        """
        digests = id_digests(ids)
        forgotten = read_forgotten(self.folder, self.manifest)
        have = np.zeros(len(ids), dtype=bool)
        found = {}
        for entry in self.manifest.shards:
            rows, which = rows_with_ids(self.folder / entry.file, digests)
            if entry.file in forgotten:
                left = ~np.isin(rows, forgotten[entry.file])
                rows, which = rows[left], which[left]
            have[which] = True
            if len(rows):
                found[entry.file] = rows
        return found, have

    def first_ids(self) -> list[str]:
        """Return the ids of the first shard that has rows."""
        places = Places.of(self.pipeline.hierarchy)
        forgotten = read_forgotten(self.folder, self.manifest)
        for number in range(len(self.manifest.shards)):
            one = replace(self.manifest, shards=self.manifest.shards[number : number + 1])
            (shard,) = read_shards(self.folder, one, places, forgotten)
            if len(shard):
                return [str(one) for one in shard.rows.ids]
        return []

    # ------------------------------------------------------------------ writing

    def _next_id(self) -> int:
        return max(self.manifest.next_id, int(self.pipeline.config.get("next_id", 0)))

    def _keep_next_id(self, manifest: Manifest) -> None:
        self.pipeline.config["next_id"] = max(self._next_id(), manifest.next_id)

    def _join(
        self,
        hidden: Path,
        manifest: Manifest,
        groups: Iterable[range],
        forgotten: Mapping[str, Ints],
    ) -> None:
        """Write each group of consecutive shards as one, without the rows that were forgotten.

        Args:
            hidden: where to.
            manifest: changed in place.
            groups: places in the list of shards, ascending.
            forgotten: the rows to leave out, by file.
        """
        places = Places.of(self.pipeline.hierarchy)
        before, last = manifest.shards, 0
        manifest.shards = []
        for group in groups:
            manifest.shards += before[last : group.start]
            some = replace(manifest, shards=before[group.start : group.stop])
            joined = Shard.join(list(read_shards(self.folder, some, places, forgotten)))
            if len(joined):
                manifest.add(hidden, joined)
            last = group.stop
        manifest.shards += before[last:]
        left = {one.file: forgotten[one.file] for one in manifest.shards if one.file in forgotten}
        manifest.forgotten, manifest.forgotten_rows = None, 0
        if left:
            manifest.forget(hidden, left)

    def _write(
        self,
        hidden: Path,
        manifest: Manifest,
        *,
        weights: bool = False,
        keep_index: bool = False,
    ) -> None:
        """Write what describes the model: the list of shards, the configuration, the card.

        Args:
            hidden: where to.
            manifest: the new list of shards.
            weights: whether classes or heads have changed.
            keep_index: whether the rows are the same as before.
        """
        write_manifest(hidden, manifest)
        if weights:
            self.pipeline.write_weights(hidden)
        gone = {name for name in self.files if OWN.fullmatch(name) and name not in manifest.names}
        if keep_index:
            gone = {name for name in gone if not name.startswith("index-")}
        names = [path.name for path in hidden.iterdir()]
        self.files = {
            **{name: known for name, known in self.files.items() if name not in gone},
            **{name: digest(hidden / name) for name in sorted(names)},
        }
        self.pipeline.describe(hidden, self.files)
        self.manifest = manifest


def no_memory(folder: Path) -> HierlearnError:
    """Return the error of a model without a memory."""
    return HierlearnError(
        f"{folder} has no memory: its answers come from weights, not from rows; train it again "
        f"with what is new, or train a model that remembers rows and classes without training, "
        f"with recipe 'neighbors', or head 'neighbors'"
    )


def small_shards(manifest: Manifest) -> range:
    """Return the last shards that are to be joined; none while fewer than ``MOST`` are small.

    The first of them has no more rows than those that follow, so a row is written again about as
    often as the number of rows since the last large shard has doubled.
    """
    rows = [one.rows for one in manifest.shards]
    large = [number for number, count in enumerate(rows) if count >= ROWS]
    start = large[-1] + 1 if large else 0
    if len(rows) - start < MOST:
        return range(0)
    after = np.cumsum(rows[::-1])[::-1] - rows
    some = (number for number in range(start, len(rows)) if rows[number] <= after[number])
    return range(next(some, start), len(rows))


def groups_of(manifest: Manifest, forgotten: Container[str]) -> list[range]:
    """Return which consecutive shards to join, up to ``ROWS`` rows; whole large ones stay."""
    groups, begin = [], 0
    shards = manifest.shards
    for number in range(1, len(shards) + 1):
        some = shards[begin : number + 1]
        if number == len(shards) or sum(one.rows for one in some) > ROWS:
            groups.append(range(begin, number))
            begin = number
    return [one for one in groups if len(one) > 1 or shards[one.start].file in forgotten]
