"""Remember, forget, remap: a model that changes without training.

Only what the memory holds changes: rows are added with their labels, even those of new classes;
rows are removed; and the labels of all rows move to another taxonomy. Heads that are not a memory
have learned the old classes, so they are dropped where the classes change.

What a change of the memory does to the rest of a pipeline: classes, heads and configuration.

MemoryFolder: the memory of a model folder, changed without reading or rewriting it.

    with MemoryFolder.open("model") as memory:
        memory.remember(inputs, labels)

``remember`` writes one more shard, in as little time for a memory of a million rows as for one of a
thousand; ``forget`` writes the shards again that held the rows. When ``MOST`` small shards have
come together, ``remember`` joins them. A change is there as a whole or not at all, see ``folder``,
and another process that wants to change the same folder waits.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.dataset import count_rows, shown_texts
from hierlearn.errors import HierlearnError, LabelError, quoted
from hierlearn.features.images import as_images
from hierlearn.files.writing import locked
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.names import inherit_titles
from hierlearn.links import link_name, make_link
from hierlearn.memory import LabelSets, Remembered
from hierlearn.memory.taxonomy import Remap, grown, unplaced
from hierlearn.networks.blend import is_blend, memories_alone, memory_shares
from hierlearn.networks.ensemble import drop_heads, head_names
from hierlearn.networks.memories import embeddings_of, memory_heads, set_memory
from hierlearn.pipeline.explain import rows_of
from hierlearn.pipeline.folder import check_folder, digest, replaced_model
from hierlearn.pipeline.memory_files import (
    OWN,
    ROWS,
    Manifest,
    Shard,
    ShardEntry,
    id_digests,
    read_manifest,
    read_shards,
    rows_with_ids,
)
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.pipeline.seen_rows import ROWS_FILE, row_digests
from hierlearn.training.inference import BATCH, encode_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints


@dataclass(frozen=True)
class Growth:
    """What ``remember`` added.

    Attributes:
        rows: how many rows were added.
        classes: the names of the new classes.
        total: how many rows are remembered now.
        known: how many rows were remembered already, and were left out.
    """

    rows: int
    classes: tuple[str, ...]
    total: int
    known: int = 0


def remember(
    pipeline: Pipeline,
    inputs: Any,
    labels: Sequence[Sequence[str]],
    *,
    hierarchy: Hierarchy | None = None,
    ids: Sequence[str] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> Growth:
    """Add labeled rows to the memory of a pipeline, in place, and the classes that they bring.

    However few rows a new class has, they count as much as 1.5 classes of the usual size, see
    ``memory/store.py``.

    Args:
        pipeline: a pipeline with a memory.
        inputs: the raw rows.
        labels: the labels of each row, by path. A path that is new becomes a class below its
            parent, a label without one only where the hierarchy is flat.
        hierarchy: a hierarchy with the new classes, where their paths do not tell it; it must have
            all old classes as they are.
        ids: of the rows; by default numbers that no remembered row has or had. A row that is
            remembered already with this id and the same labels and embedding is left out, so that
            a call can be repeated.
        weights: (n,) how much each row counts; by default 1.
    """
    rows = rows_of(pipeline)
    old, before = pipeline.hierarchy, pipeline.hierarchy.fingerprint
    own: dict[str, Any] = {"hierarchy": hierarchy, "ids": ids, "weights": weights}
    known = Manifest(rows.labels.sets.unlabeled_descendants, rows.texts is not None)
    first = max(next_id(rows.ids), pipeline.config.get("next_id", 0))
    added = new_rows(pipeline, inputs, labels, known, first, **own)
    given = len(added)
    if ids is not None:
        held = Shard(embeddings_of(pipeline.network), rows)
        mine = {*added.rows.ids}
        again = np.flatnonzero([str(one) in mine for one in rows.ids])
        added = without_held(added, [held.take(again)])
        if not len(added):
            return Growth(0, (), len(rows), given)
    plan = Remap(old, added.rows.hierarchy, {})
    if plan.new != old or plan.new.titles != old.titles:
        rows = rows.with_labels(plan.labels(rows.labels))
    joined = Shard.join([Shard(embeddings_of(pipeline.network), rows), added])
    replace_memory(pipeline, dict(joined.embeddings), joined.rows, plan)
    if pipeline.seen is not None:
        pipeline.seen = pipeline.seen.with_rows(added.seen)
    keep_next_id(pipeline, joined.rows.ids)
    return note_growth(pipeline, old, before, len(added), len(joined), given)


def without_held(new: Shard, held: Iterable[Shard]) -> Shard:
    """Return the rows that are not held already: by id, labels and embedding.

    Ids alone do not tell: rows may share one, and those of training may be numbers that stand for
    nothing. Equal inputs have equal embeddings up to rounding.
    """
    found = np.zeros(len(new), dtype=bool)
    places: dict[str, list[int]] = {}
    for row, one in enumerate(new.rows.ids):
        places.setdefault(str(one), []).append(row)
    own = label_names(new.rows)
    for shard in held:
        names = label_names(shard.rows)
        for row, one in enumerate(shard.rows.ids):
            for place in places.get(str(one), ()):
                if not found[place] and names[row] == own[place]:
                    found[place] = all(
                        torch.allclose(
                            shard.embeddings[name][..., row, :].float(),
                            mine[..., place, :].float().to(shard.embeddings[name].device),
                            rtol=1e-2,
                            atol=1e-3 * float(mine[..., place, :].abs().max()),
                        )
                        for name, mine in new.embeddings.items()
                    )
    kept = np.flatnonzero(~found)
    return replace(new.take(kept), seen=new.seen[kept] if len(new.seen) else new.seen)


def label_names(rows: Remembered) -> list[tuple[str, ...]]:
    """Return the names of the most specific labels of each row."""
    offsets, numbers = rows.labels.sets.terminal
    names = rows.hierarchy.names
    sets = [
        tuple(sorted(names[number] for number in numbers[begin:end].tolist()))
        for begin, end in pairwise(offsets.tolist())
    ]
    return [sets[one] for one in rows.labels.of_row.tolist()]


def new_rows(
    pipeline: Pipeline,
    inputs: Any,
    labels: Sequence[Sequence[str]],
    known: Manifest,
    first: int,
    *,
    hierarchy: Hierarchy | None = None,
    ids: Sequence[str] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> Shard:
    """Return new rows as they are remembered, in the taxonomy that they need.

    Args:
        pipeline: whose memory they are for; it need not be filled.
        inputs: the raw rows.
        labels: as in ``remember``, like the others.
        known: the memory that they must fit.
        first: the first integer that no row has or had as id.
        hierarchy: that of the new classes.
        ids: of the rows.
        weights: (n,) how much each row counts.
    """
    labels = [[one] if isinstance(one, str) else list(one) for one in labels]
    total = count_rows(inputs)
    if total != len(labels):
        raise HierlearnError(f"inputs have {total} rows but labels have {len(labels)}")
    if not total:
        raise HierlearnError("there are no rows to remember; pass at least one")
    old = pipeline.hierarchy
    wanted = hierarchy or grown(old, (one for row in labels for one in row))
    wanted = inherit_titles(wanted, old)
    if wanted != old:
        check_superset(old, wanted)
        check_answers_from_memory(pipeline, "new classes")
    texts, step = None, pipeline.preprocessor
    if known.texts and step is not None and step.reads == "images":
        texts = as_images(inputs).names
    elif known.texts:
        read: Any = step.read if step is not None and step.reads == "table" else list  # type: ignore[attr-defined]
        texts = [str(text) for text in shown_texts(read(inputs)) or ()]
    found = LabelSets.from_labels(
        Labels(labels, wanted, unlabeled_descendants=known.unlabeled_descendants)
    )
    names = ids if ids is not None else range(first, first + total)
    counts = None if weights is None else np.asarray(weights, dtype=np.float64)
    later = np.ones(total, dtype=bool)
    rows = Remembered(found, [str(one) for one in names], counts, texts, later)
    starts = range(0, total, BATCH)
    batches = (pipeline.rows(inputs[begin : begin + BATCH]) for begin in starts)
    embeddings = encode_batches(pipeline.network, batches)
    return Shard(embeddings, rows, row_digests(pipeline, inputs))


def note_growth(
    pipeline: Pipeline, old: Hierarchy, before: str, rows: int, total: int, given: int
) -> Growth:
    """Note new rows in the configuration of a pipeline, and return what was added.

    Args:
        pipeline: in its new taxonomy.
        old: the taxonomy of before.
        before: its fingerprint.
        rows: how many rows are new.
        total: how many there are now.
        given: how many were given, remembered ones among them.
    """
    known = set(old.names)
    classes = tuple(name for name in pipeline.hierarchy.names if name not in known)
    record(pipeline, "remember", before, rows=rows, classes=len(classes))
    return Growth(rows, classes, total, given - rows)


def forget(pipeline: Pipeline, ids: Iterable[str]) -> int:
    """Remove the rows with some ids from the memory of a pipeline, in place; return how many.

    Nothing of a row is left in the memory then; what training learned from it stays in the weights.
    Classes stay, also those without any row.

    Args:
        pipeline: a pipeline with a memory.
        ids: of the rows; an id that no row has raises.
    """
    rows = rows_of(pipeline)
    wanted = {str(one) for one in ([ids] if isinstance(ids, str) else ids)}
    unknown = sorted(wanted.difference(map(str, rows.ids)))
    if unknown:
        raise unknown_ids(unknown, rows.ids)
    keep = np.flatnonzero([str(one) not in wanted for one in rows.ids])
    if not len(keep):
        raise nothing_left(len(rows))
    kept = Shard(embeddings_of(pipeline.network), rows).take(keep)
    keep_next_id(pipeline, rows.ids)
    set_memory(pipeline.network, dict(kept.embeddings), kept.rows)
    gone = len(rows) - len(keep)
    record(pipeline, "forget", pipeline.hierarchy.fingerprint, rows=gone)
    return gone


def remap(
    pipeline: Pipeline,
    hierarchy: Hierarchy,
    mapping: Mapping[str, str | Sequence[str] | None] | None = None,
    labels: Mapping[str, str | Sequence[str]] | None = None,
    *,
    dry_run: bool = False,
) -> dict[str, int]:
    """Move a pipeline to another taxonomy, in place; return how many classes and rows change.

    Where classes have no place in the new taxonomy it raises; a dry run counts them, as
    "without a place", and counts their rows as if the mapping removed them.

    Args:
        pipeline: a pipeline with a memory.
        hierarchy: the new taxonomy.
        mapping: old name -> new name, several of them where a class is split, None where it is
            removed. Classes that keep their name need not be named.
        labels: the new labels of single rows by id, for those of a class that is split; other
            rows of it go to the parent of its parts.
        dry_run: only count.
    """
    rows = rows_of(pipeline)
    asked = {k: as_list(v) for k, v in (mapping or {}).items()}
    lost = unplaced(pipeline.hierarchy, hierarchy, asked) if dry_run else []
    plan = Remap(pipeline.hierarchy, hierarchy, {**asked, **{name: [] for name in lost}})
    own: dict[int, Sequence[str]] = {}
    if labels:
        places: dict[str, list[int]] = {}
        for row, one in enumerate(rows.ids):
            places.setdefault(str(one), []).append(row)
        for one, ends in labels.items():
            if str(one) not in places:
                raise HierlearnError(f"the memory has no row with id {one!r}")
            try:
                found_names = [hierarchy.names[hierarchy.index(end)] for end in as_list(ends)]
            except LabelError as error:
                raise LabelError(
                    f"the new label of the row with id {one!r} is no class of the new hierarchy: "
                    f"{error.message}; correct the label, or add the class to the hierarchy"
                ) from None
            own |= dict.fromkeys(places[str(one)], found_names)
    moved = plan.labels(rows.labels, own)
    unlabeled = np.diff(moved.sets.terminal[0]) == 0
    found = {
        **plan.summary(rows.labels),
        "rows with labels of their own": len(own),
        "rows without a label": int(unlabeled[moved.of_row].sum()),
    }
    check_answers_from_memory(pipeline, "another taxonomy")
    if dry_run:
        if lost:
            found["removed"] -= len(lost)
            found = {"without a place": len(lost), **found}
        return found
    before = pipeline.hierarchy.fingerprint
    replace_memory(pipeline, embeddings_of(pipeline.network), rows.with_labels(moved), plan)
    record(pipeline, "remap", before, rows=found["rows whose label changes"])
    return found


def as_list(value: str | Sequence[str] | None) -> list[str]:
    """Return one name, several or none as a list."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def build_index(pipeline: Pipeline, recall: float = 0.99) -> float:
    """Build an approximate index of the memory, in place, and return the recall it measured.

    It is saved with the model, and used where faiss is installed. A memory that changes drops it.

    Args:
        pipeline: a pipeline with a memory.
        recall: the fraction of the nearest rows that a search must find.
    """
    rows_of(pipeline)
    return min(
        head.build_index(recall)
        for heads in memory_heads(pipeline.network).values()
        for head in heads
    )


# ---------------------------------------- changes


def check_superset(old: Hierarchy, new: Hierarchy) -> None:
    """Raise on a hierarchy in which an old class is missing or has other parents."""
    known = set(new.names)
    for number, name in enumerate(old.names):
        if name not in known:
            raise HierlearnError(
                f"the new hierarchy lacks {name!r}; use remap to rename or remove classes"
            )
        above = {old.names[one] for one in old.parents(number)}
        if above != {new.names[one] for one in new.parents(new.index(name))}:
            raise HierlearnError(
                f"{name!r} has other parents in the new hierarchy; use remap to move classes"
            )


def check_answers_from_memory(pipeline: Pipeline, what: str) -> None:
    """Raise where a head that has learned the old classes answers."""
    if is_blend(pipeline.network) and memory_shares(pipeline.network):
        return  # which goes on by its memories alone
    names, heads = head_names(pipeline.network), memory_heads(pipeline.network)
    if len(names) > 1 and pipeline.answer not in heads:
        memory = next(iter(heads))
        raise HierlearnError(
            f"this model answers by {pipeline.answer} of {quoted(names)}, and heads that are no "
            f"memory cannot take {what}; train with --answer {memory} (answer={memory!r} in "
            f"Python), so that the memory answers alone"
        )


def next_id(ids: Sequence[str]) -> int:
    """Return the integer after the largest id that is one."""
    return max((int(one) for one in ids if str(one).isdecimal()), default=len(ids) - 1) + 1


def keep_next_id(pipeline: Pipeline, ids: Sequence[str]) -> None:
    """Note which integer comes after some ids, so that none of them is used again."""
    pipeline.config["next_id"] = max(next_id(ids), pipeline.config.get("next_id", 0))


def replace_memory(
    pipeline: Pipeline, embeddings: dict[str, Tensor], rows: Remembered, plan: Remap
) -> None:
    """Set what a pipeline remembers, and its label space.

    Args:
        pipeline: changed in place.
        embeddings: of all rows by head.
        rows: in the new hierarchy.
        plan: where the old classes went; a terminal class stays one under its new name.
    """
    names = drop_other_heads(pipeline, rows.hierarchy)
    if names is not None:
        embeddings = {names[name]: found for name, found in embeddings.items() if name in names}
    set_memory(pipeline.network, embeddings, rows)
    set_label_space(pipeline, rows.labels.sets, plan)


def drop_other_heads(pipeline: Pipeline, new: Hierarchy) -> dict[str, str] | None:
    """Drop the heads that have learned the old classes, where the classes change.

    Args:
        pipeline: changed in place.
        new: the new taxonomy.

    Returns:
        The new names of the heads of a blend, whose parts are numbered again; None otherwise.
    """
    old, spec = pipeline.label_space, pipeline.network_spec
    if old.hierarchy == new:
        return None
    if is_blend(pipeline.network):
        pipeline.network, names = memories_alone(pipeline.network, old)
        if spec is not None:
            pipeline.network_spec = replace(spec, parts=pipeline.network.specs)
        return names
    heads = memory_heads(pipeline.network)
    others = [name for name in head_names(pipeline.network) if name not in heads]
    drop_heads(pipeline.network, others)
    if spec is not None:
        kept = {name: one for name, one in spec.heads.items() if name not in others}
        pipeline.network_spec = replace(spec, heads=kept)
    return None


def set_label_space(pipeline: Pipeline, labels: Labels, plan: Remap) -> None:
    """Set what a pipeline can predict.

    Args:
        pipeline: changed in place.
        labels: in the new taxonomy; those of rows whose classes were terminal before may be left
            out.
        plan: where the old classes went; a terminal class stays one under its new name.
    """
    also = plan.single_destinations(pipeline.label_space.terminals)
    pipeline.label_space = LabelSpace.from_labels(labels, also)
    for several in memory_heads(pipeline.network).values():
        for head in several:
            head.move_to(pipeline.label_space, plan.destinations)
    device = pipeline.device
    if is_blend(pipeline.network):  # its links are of the old classes
        pipeline.network = pipeline.network.moved_to(pipeline.label_space).to(device)
    pipeline.link = make_link(pipeline.label_space, link_name(pipeline.link)).to(device)


def record(pipeline: Pipeline, change: str, before: str, **counts: int) -> None:
    """Note a change in the configuration, for the model card.

    Changes of one kind that follow each other are one entry. Metrics become those of before.
    Thresholds that were calibrated for other rows are dropped; they stay where the answers only
    have other names.
    """
    config = pipeline.config
    entry = {"change": change, "fingerprint_before": before, **counts}
    *earlier, last = config.get("history") or [{}]
    alike = ("change", "fingerprint_before", "classes")  # a thousand of them are one entry
    if (
        change != "remap"
        and not counts.get("classes")
        and all(last.get(key) == entry.get(key) for key in alike)
    ):
        total = last["rows"] + counts["rows"]
        entry = {**entry, "rows": total, "times": last.get("times", 1) + 1}
    elif last:
        earlier.append(last)
    config["history"] = [*earlier, entry]
    if config.get("metrics"):
        config["metrics_before"], config["metrics"] = config["metrics"], {}
    if change != "remap" and "estimator" in config:
        own = config["estimator"]
        config["estimator"] = {key: own[key] for key in own if key != "thresholds"}


def unknown_ids(unknown: Sequence[str], ids: Sequence[Any]) -> HierlearnError:
    """Return the error of ids that no row has.

    Args:
        unknown: the ids.
        ids: of the rows, or of the first of them.
    """
    return HierlearnError(
        f"the memory has no row with id {quoted(unknown, most=5)}; it has "
        f"{quoted([str(one) for one in ids], most=3)}"
    )


def nothing_left(rows: int) -> HierlearnError:
    """Return the error of a memory that would lose all its rows."""
    return HierlearnError(
        f"these are all {rows:,} rows of the memory; a model that remembers nothing cannot answer"
    )


# ---------------------------------------- memory folder

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
                raise HierlearnError(
                    f"{folder} has no memory: its answers come from weights, not from rows; train "
                    f"it again with what is new, or train a model that remembers rows and classes "
                    f"without training, with recipe 'neighbors', or head 'neighbors'"
                )
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
        added = new_rows(pipeline, inputs, labels, self.manifest, self._next_id(), **given)
        total = len(added)
        if ids is not None:
            added = without_held(added, self._with_ids(added))
            if not len(added):
                return Growth(0, (), self.manifest.total, total)
        new = added.rows.hierarchy
        if new != old and is_blend(pipeline.network):  # of which only the memories stay
            growth = remember(self.read(), inputs, labels, **given)
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
            start = first_small_shard(manifest)
            if small := manifest.shards[start:]:
                joined = Shard.join(list(self._shards(small)))
                del manifest.shards[start:]
                manifest.add(hidden, joined)
            manifest.add(hidden, added)
            self._keep_next_id(manifest)
            growth = note_growth(pipeline, old, before, len(added), manifest.total, total)
            self._write(hidden, manifest, weights=new != old or new.titles != old.titles)
        return growth

    def _with_ids(self, added: Shard) -> Iterator[Shard]:
        """Yield the remembered rows with the ids of others, shard by shard."""
        found, _ = self.find(list(dict.fromkeys(map(str, added.rows.ids))))
        some = [one for one in self.manifest.shards if one.file in found]
        for one, shard in zip(some, self._shards(some), strict=True):
            yield shard.take(found[one.file])

    def _shards(self, entries: Sequence[ShardEntry]) -> Iterator[Shard]:
        return read_shards(self.folder, self.manifest, self.pipeline.hierarchy, entries)

    def forget(self, ids: Iterable[str]) -> int:
        """Forget the rows with some ids, and return how many; no file holds them any more."""
        wanted = sorted({str(one) for one in ([ids] if isinstance(ids, str) else ids)})
        rows, have = self.find(wanted)
        missing = [one for one, has in zip(wanted, have, strict=True) if not has]
        if missing:
            first = next(self._shards(self.manifest.shards[:1]))
            raise unknown_ids(missing, first.rows.ids)
        gone = sum(map(len, rows.values()))
        if gone == len(self):
            raise nothing_left(gone)
        manifest = replace(self.manifest, shards=[])
        with replaced_model(self.folder) as hidden:
            self._keep_next_id(manifest)
            for entry in self.manifest.shards:
                if entry.file not in rows:
                    manifest.shards.append(entry)
                elif len(rows[entry.file]) < entry.rows:
                    shard = next(self._shards([entry]))
                    manifest.add(
                        hidden, shard.take(np.delete(np.arange(entry.rows), rows[entry.file]))
                    )
            record(self.pipeline, "forget", self.pipeline.hierarchy.fingerprint, rows=gone)
            self._write(hidden, manifest)
        return gone

    # ------------------------------------------------------------------ what is there

    def read(self) -> Pipeline:
        self.pipeline.fill(self.folder, self.files)
        return self.pipeline

    def find(self, ids: Sequence[str]) -> tuple[dict[str, Ints], NDArray[np.bool_]]:
        """Return the rows that have some ids, by file, and which of the ids occur.

        Shards are searched by the digests of the ids, 64 bits each, and are not read.
        """
        digests = id_digests(ids)
        have = np.zeros(len(ids), dtype=bool)
        found = {}
        for entry in self.manifest.shards:
            rows, which = rows_with_ids(self.folder / entry.file, digests)
            have[which] = True
            if len(rows):
                found[entry.file] = rows
        return found, have

    # ------------------------------------------------------------------ writing

    def _next_id(self) -> int:
        return max(self.manifest.next_id, int(self.pipeline.config.get("next_id", 0)))

    def _keep_next_id(self, manifest: Manifest) -> None:
        self.pipeline.config["next_id"] = max(self._next_id(), manifest.next_id)

    def _write(self, hidden: Path, manifest: Manifest, *, weights: bool = False) -> None:
        """Write what describes the model: the list of shards, the configuration, the card.

        Args:
            hidden: where to.
            manifest: the new list of shards.
            weights: whether classes or heads have changed.
        """
        manifest.write(hidden)
        if weights:
            self.pipeline.write_weights(hidden)
        gone = {name for name in self.files if OWN.fullmatch(name) and name not in manifest.names}
        names = [path.name for path in hidden.iterdir()]
        self.files = {
            **{name: known for name, known in self.files.items() if name not in gone},
            **{name: digest(hidden / name) for name in sorted(names)},
        }
        self.pipeline.describe(hidden, self.files)
        self.manifest = manifest


def first_small_shard(manifest: Manifest) -> int:
    """Return the shard from which on they are to be joined; none while few of them are small."""
    rows = [one.rows for one in manifest.shards]
    large = [number for number, count in enumerate(rows) if count >= ROWS]
    start = large[-1] + 1 if large else 0
    if len(rows) - start < MOST:
        return len(rows)
    after = np.cumsum(rows[::-1])[::-1] - rows
    return next(n for n in range(start, len(rows)) if rows[n] <= after[n] or n + 1 == len(rows))
