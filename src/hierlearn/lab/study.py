"""Study: the folder of a comparison, written as it goes and read by tables and reports.

    study.json                what is compared, on what and how; the first is the reference
    runs.jsonl                one line per run: candidate, seed, metrics, what was chosen
    rows/<candidate>          decisions and metrics of the test rows, (seeds, rows), as safetensors
    logs/<candidate>.jsonl    the epochs of its training
    selected/<candidate>      which classes its curriculum selected, (epochs, classes), in percent
    trials/                   the values of the trials of tune, see tune.py
    hierarchy.json, truth.safetensors, texts.json, names.json
                              the test rows: taxonomy, labels, texts, what each is called

A run is in runs.jsonl only when it is complete: an interrupted study continues with the next one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.errors import DataError, HierlearnError, arg, shown
from hierlearn.files.reading import LARGE, guarded, is_file, read_json
from hierlearn.files.structured import check, json_line, read_log, read_records
from hierlearn.files.tensors import read_tensors, write_tensors
from hierlearn.files.writing import atomic_write, flush, is_empty, remove
from hierlearn.hierarchy import Hierarchy
from hierlearn.lab.candidates import Candidate
from hierlearn.reports.decisions import Truth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.lab.runner import Result


FORMAT, VERSION = "hierlearn.study", 2
TRIALS = "trials"  # the folder of the trials of tune


class StudyError(HierlearnError):
    """A study folder that cannot be read, or is another study."""


@dataclass(frozen=True)
class Study:
    """A study folder.

    Attributes:
        folder: where it is.
        config: the content of study.json.
    """

    folder: Path
    config: dict[str, Any]

    @classmethod
    def open(cls, folder: Path | str) -> Study:
        """Read a study folder."""
        path = Path(folder) / "study.json"
        if not is_file(path):
            raise StudyError(f"{folder} holds no study: there is no study.json in it")
        study = cls(Path(folder), read_config(path))
        check_version(path, study.config)
        with guarded(path, "is damaged", StudyError):
            for one in study.candidates:
                study.config["uses_hierarchy"][one.key]
            if not all(type(one) is int for one in study.seeds):
                raise ValueError("its seeds are not integers")
            for name in ("metrics", "settings"):
                study.config[name]
            study.config["dataset"]["hierarchy"]["classes"]
        return study

    @classmethod
    def begin(cls, folder: Path | str, config: Mapping[str, Any], *, force: bool = False) -> Study:
        """Begin a study in a folder, or resume the same one; one without any run is replaced.

        Args:
            folder: where; empty, absent, or holding the same study.
            config: what is compared and how; all but ``metadata`` must agree to resume. Only
                candidates may be added, and the finished ones are kept.
            force: replace another study.
        """
        folder, path = Path(folder), Path(folder) / "study.json"
        wanted = json.loads(json.dumps({"format": FORMAT, "version": VERSION, **config}))
        if path.is_file() and (folder / "runs.jsonl").is_file():
            before = read_config(path)
            differing = [
                name
                for name in sorted({*wanted, *before})
                if name != "metadata" and wanted.get(name) != before.get(name)
            ]
            if not differing:
                return cls(folder, before)
            held, now = before.get("candidates"), wanted["candidates"]
            grown = isinstance(held, list) and held[:1] == now[:1] and all(x in now for x in held)
            if grown and set(differing) <= {"candidates", "uses_hierarchy"}:
                check_version(path, before)
                with atomic_write(path) as file:
                    file.write(as_text({**wanted, "metadata": before.get("metadata", {})}))
                return cls(folder, wanted)
            if not force:
                check_version(path, before)
                raise StudyError(
                    f"{folder} holds another study (its {', '.join(differing)} differ); name "
                    f"another folder, or pass {arg('force', True)} to replace it"
                )
        check_folder(folder)
        with atomic_write(path) as file:
            file.write(as_text(wanted))
            flush(file)  # on a full disk, the runs of the old study are still there
            remove(folder / "runs.jsonl")
        return cls(folder, wanted)

    # ------------------------------------------------------------------ what it holds

    @property
    def candidates(self) -> list[Candidate]:
        """What is compared, in order."""
        return [Candidate(**one) for one in self.config["candidates"]]

    @property
    def finished(self) -> list[Candidate]:
        """The candidates that are complete, in order."""
        return [one for one in self.candidates if self.is_done(one)]

    @property
    def seeds(self) -> list[int]:
        """The seeds of every candidate."""
        return list(self.config["seeds"])

    @property
    def hierarchy(self) -> Hierarchy:
        """The taxonomy."""
        return Hierarchy.read(self.folder / "hierarchy.json")

    def runs(self) -> list[dict[str, Any]]:
        """Return the complete runs."""
        path = self.folder / "runs.jsonl"
        if not path.exists():
            return []
        found = read_runs(path, path.stat().st_mtime_ns, path.stat().st_size)
        with guarded(path, "is damaged", StudyError):
            for run in found:
                float(run["seconds"]) + run["seed"]
                absent = [name for name in self.config["metrics"] if name not in run["test"]]
                if absent:
                    raise StudyError(f"{path}: a run of {run['candidate']} lacks {absent[0]}")
        return found

    def is_done(self, candidate: Candidate) -> bool:
        """Return whether every seed of a candidate is there."""
        return {run["seed"] for run in self.runs_of(candidate)}.issuperset(self.seeds)

    def runs_of(self, candidate: Candidate) -> list[dict[str, Any]]:
        """Return the runs of a candidate."""
        return [run for run in self.runs() if run["candidate"] == candidate.key]

    def values(self, candidate: Candidate, metric: str) -> list[float]:
        """Return a metric of a candidate, one value per seed; NaN where it is not defined.

        Args:
            candidate: one that is complete.
            metric: one that was measured.
        """
        by_seed = {run["seed"]: run for run in self.runs_of(candidate)}
        with guarded(self.folder / "runs.jsonl", f"lacks a figure of {candidate.key}", StudyError):
            found = [by_seed[seed]["test"][metric] for seed in self.seeds]
        return [float("nan") if value is None else value for value in found]

    def rows(self, candidate: Candidate) -> dict[str, NDArray[Any]]:
        """Return what is stored of the test rows, each (seeds, N).

        ``argmax`` is the most probable class, ``terminal`` the best terminal class and
        ``probability`` its probability; ``answer`` is what the candidate answers, -1 for no class,
        where that is one class per row. The per-row metrics of the table go by their names.
        """
        path = self.folder / "rows" / f"{candidate.file_name}.safetensors"
        shape, classes = (len(self.seeds), len(self.truth())), len(self.hierarchy)
        with guarded(path, "is damaged", StudyError):
            found = {name: value.numpy() for name, value in read_tensors(path)[0].items()}
            for name, value in found.items():
                if value.shape != shape:
                    raise ValueError(f"{name} {value.shape} must be {shape}, seeds and test rows")
            answer = found.get("answer", found["terminal"]).clip(0)
            for numbers in (found["argmax"], found["terminal"], answer):
                check_classes(numbers, classes)
            if not np.isfinite(found["probability"]).all():
                raise ValueError("its probabilities are not finite")
        return found

    def log(self, candidate: Candidate) -> list[dict[str, Any]]:
        """Return the epochs of a candidate's training."""
        path = self.folder / "logs" / f"{candidate.file_name}.jsonl"
        return read_log(path) if path.exists() else []

    def selected(self, candidate: Candidate) -> NDArray[np.uint8] | None:
        """Return (epochs, C) in what percentage of the batches a class was selected."""
        path = self.folder / "selected" / f"{candidate.file_name}.safetensors"
        if not path.is_file():
            return None
        with guarded(path, "is damaged", StudyError):
            found: NDArray[np.uint8] = read_tensors(path)[0]["selected"].numpy()
            if found.ndim != 2 or found.shape[1] != len(self.hierarchy):
                raise ValueError(f"selected must be (epochs, {len(self.hierarchy)})")
        return found

    def truth(self) -> Truth:
        """Return the labels of the test rows."""
        path, hierarchy = self.folder / "truth.safetensors", self.hierarchy
        with guarded(path, "is damaged", StudyError):
            tensors, _ = read_tensors(path)
            offsets, classes = (tensors[name].numpy() for name in ("offsets", "classes"))
            if offsets[0] != 0 or offsets[-1] != len(classes) or (offsets[1:] < offsets[:-1]).any():
                raise ValueError("its offsets do not fit its classes")
            check_classes(classes, len(hierarchy))
        return Truth(hierarchy, offsets, classes)

    def texts(self) -> list[str] | None:
        """Return the texts of the test rows, where they are texts."""
        return self._strings("texts.json")

    def names(self) -> list[str] | None:
        """Return what each test row is called, by id or line, where it has one."""
        return self._strings("names.json")

    def _strings(self, name: str) -> list[str] | None:
        path = self.folder / name
        if not path.exists():
            return None
        found: list[str] = read_json(path, LARGE, StudyError)
        check(path, found, list[str], StudyError)
        if len(found) != len(self.truth()):
            raise StudyError(
                f"{path} has {len(found):,} entries, but there are {len(self.truth()):,} test rows"
            )
        return found

    # ------------------------------------------------------------------ writing

    def set_data(
        self,
        hierarchy: Hierarchy,
        labels: Labels,
        texts: Sequence[str] | None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Store the labels of the test rows, their taxonomy, their texts and names."""
        with atomic_write(self.folder / "hierarchy.json") as file:
            file.write(hierarchy.to_json() + "\n")
        offsets, numbers = labels.closed
        parts = {"offsets": torch.from_numpy(offsets), "classes": torch.from_numpy(numbers)}
        write_tensors(self.folder / "truth.safetensors", parts, {"format": FORMAT})
        for name, held in (("texts.json", texts), ("names.json", names)):
            if held is not None:
                with atomic_write(self.folder / name) as file:
                    file.write(json.dumps(list(held), ensure_ascii=False))
            else:
                remove(self.folder / name)  # of a study that was replaced

    def add(self, candidate: Candidate, result: Result) -> None:
        """Add the runs of a candidate, all its seeds at once."""
        name = candidate.file_name
        tensors = {key: torch.from_numpy(value) for key, value in result.rows.items()}
        write_tensors(self.folder / "rows" / f"{name}.safetensors", tensors, {"format": FORMAT})
        if result.selected is not None:
            path = self.folder / "selected" / f"{name}.safetensors"
            write_tensors(path, {"selected": torch.from_numpy(result.selected)}, {"format": FORMAT})
        with atomic_write(self.folder / "logs" / f"{name}.jsonl") as file:
            file.writelines(json_line(record) for record in result.log)
        kept = [run for run in self.runs() if run["candidate"] != candidate.key]
        with atomic_write(self.folder / "runs.jsonl") as file:
            file.writelines(json.dumps(run) + "\n" for run in [*kept, *result.runs])


@lru_cache(maxsize=4)
def read_runs(path: Path, changed: int, size: int) -> list[dict[str, Any]]:
    """Return the runs of a file, read once as long as it does not change."""
    del changed, size
    return read_records(path, dict[str, Any], StudyError)


def as_text(config: Mapping[str, Any]) -> str:
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def check_folder(folder: Path) -> None:
    """Raise on a folder that holds other things than a study."""
    if (folder / "study.json").is_file() or is_empty(folder):
        return
    trials = folder / TRIALS  # those of a study that is yet to begin
    found = list(trials.iterdir()) if trials.is_dir() else [folder]
    found += [one for one in folder.iterdir() if one != trials and not one.name.startswith(".")]
    if any(one.parent != trials or one.suffix != ".json" for one in found):
        raise StudyError(f"{folder} exists and holds no study; name another folder")


def check_collection(folder: Path) -> None:
    """Raise on a folder that holds other things than studies, each in a folder of its own."""
    if not is_empty(folder) and not holds_studies(folder):
        raise StudyError(f"{folder} exists and holds no studies; name another folder")


def holds_studies(folder: Path) -> bool:
    """Whether there are studies in a folder, or nothing but where they were about to begin."""
    found = list(folder.iterdir())
    begun = all(one.is_dir() and is_empty(one) for one in found)
    return begun or any((one / "study.json").is_file() for one in found)


def read_config(path: Path) -> dict[str, Any]:
    """Return the content of a study.json of any version."""
    try:
        config: dict[str, Any] = read_json(path)
    except DataError as error:
        raise StudyError(f"{path} is damaged: it is not JSON ({error.message})") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise StudyError(f"{path} was not written by hierlearn")
    return config


def check_classes(numbers: NDArray[Any], count: int) -> None:
    """Raise on numbers that are not those of ``count`` classes."""
    whole = numbers.dtype.kind in "iu"
    if not whole or (numbers.size and not 0 <= numbers.min() <= numbers.max() < count):
        raise ValueError(f"its classes are not numbers in 0..{count - 1}")


def check_version(path: Path, config: Mapping[str, Any]) -> None:
    """Raise for a study of another version of the format."""
    if config.get("version") != VERSION:
        raise StudyError(
            f"{path} has version {shown(config.get('version'))} of the study format, and this "
            f"hierlearn reads version {VERSION}; run the study again in another folder, or pass "
            f"{arg('force', True)} to replace it"
        )
