"""Study: the folder of a comparison, written as it goes and read by tables and reports.

    study.json           what is compared, on what, how; the first loss is the one compared with
    runs.jsonl           a line a run: loss, seed, metrics, what was chosen
    rows/<loss>          decisions on the test rows, (seeds, rows), as safetensors
    logs/<loss>.jsonl    the epochs of its training
    selected/<loss>      which classes its curriculum selected, (epochs, classes), in per cent
    hierarchy.json, truth.safetensors, texts.json   what the decisions are judged by

A run stands in runs.jsonl only when it is complete, so that an interrupted study goes on with the
first run that is missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.errors import HierlearnError
from hierlearn.files import atomic_write
from hierlearn.files.json_lines import json_line, read_log
from hierlearn.files.tensors import read_tensors, write_tensors
from hierlearn.hierarchy import Hierarchy
from hierlearn.studies.candidates import Candidate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy.labels import Labels

FORMAT = "hierlearn.study"


class StudyError(HierlearnError):
    """A study folder that cannot be read, or is another study."""


@dataclass(frozen=True)
class Study:
    """A study folder.

    Attributes:
        folder: where it is.
        facts: what study.json says.
    """

    folder: Path
    facts: dict[str, Any]

    @classmethod
    def open(cls, folder: Path | str) -> Study:
        """Read a study folder."""
        folder = Path(folder)
        path = folder / "study.json"
        if not path.is_file():
            raise StudyError(f"{folder} holds no study: there is no study.json in it")
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError:
            raise StudyError(f"{path} is damaged: it is no JSON") from None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise StudyError(f"{path} was not written by hierlearn")
        return cls(folder, facts)

    @classmethod
    def begin(cls, folder: Path | str, facts: Mapping[str, Any], *, force: bool = False) -> Study:
        """Begin a study in a folder, or go on with the same one.

        Args:
            folder: where; empty, absent, or holding the same study.
            facts: what is compared and how; all but ``about`` must agree to go on.
            force: begin anew where another study is.
        """
        folder = Path(folder)
        wanted = json.loads(json.dumps({"format": FORMAT, "version": 1, **facts}))
        if (folder / "study.json").is_file():
            before = cls.open(folder)
            differing = [
                name
                for name in sorted({*wanted, *before.facts})
                if name != "about" and wanted.get(name) != before.facts.get(name)
            ]
            if not differing:
                return before
            if not force:
                raise StudyError(
                    f"{folder} holds another study (its {', '.join(differing)} differ); name "
                    f"another folder, or pass --force to begin anew"
                )
            (folder / "runs.jsonl").unlink(missing_ok=True)
        elif folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
            raise StudyError(f"{folder} exists and holds no study; name another folder")
        with atomic_write(folder / "study.json") as file:
            file.write(json.dumps(wanted, indent=2, ensure_ascii=False) + "\n")
        return cls(folder, wanted)

    # ------------------------------------------------------------------ what it holds

    @property
    def entries(self) -> list[Candidate]:
        """What is compared, in order."""
        return [Candidate(**one) for one in self.facts["entries"]]

    @property
    def seeds(self) -> list[int]:
        """The seeds of every entry."""
        return list(self.facts["seeds"])

    @property
    def hierarchy(self) -> Hierarchy:
        """The taxonomy."""
        return Hierarchy.read(self.folder / "hierarchy.json")

    def runs(self) -> list[dict[str, Any]]:
        """Return the complete runs."""
        path = self.folder / "runs.jsonl"
        found = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                break  # cut off while it was written
        return found

    def is_done(self, entry: Candidate) -> bool:
        """Whether every seed of an entry is there."""
        done = {run["seed"] for run in self.runs() if run["entry"] == entry.key}
        return done.issuperset(self.seeds)

    def values(
        self, entry: Candidate, metric: str, runs: Sequence[Mapping[str, Any]] | None = None
    ) -> list[float]:
        """Return a metric of an entry, seed after seed; NaN where it is not defined.

        Args:
            entry: one that is complete.
            metric: one that was measured.
            runs: what ``runs`` returned, so that many figures read the file once.
        """
        known = self.runs() if runs is None else runs
        by_seed = {run["seed"]: run for run in known if run["entry"] == entry.key}
        found = [by_seed[seed]["test"][metric] for seed in self.seeds]
        return [float("nan") if value is None else value for value in found]

    def rows(self, entry: Candidate) -> dict[str, NDArray[Any]]:
        """Return the decisions of an entry on the test rows, each (seeds, N)."""
        tensors, _ = read_tensors(self.folder / "rows" / f"{entry.file_name}.safetensors")
        return {name: value.numpy() for name, value in tensors.items()}

    def log(self, entry: Candidate) -> list[dict[str, Any]]:
        """Return the epochs of an entry's training."""
        return read_log(self.folder / "logs" / f"{entry.file_name}.jsonl")

    def selected(self, entry: Candidate) -> NDArray[np.uint8] | None:
        """Return (epochs, C) in how many per cent of the batches a class was selected."""
        path = self.folder / "selected" / f"{entry.file_name}.safetensors"
        if not path.is_file():
            return None
        tensors, _ = read_tensors(path)
        found: NDArray[np.uint8] = tensors["selected"].numpy()
        return found

    def truth(self) -> tuple[Tensor, Tensor]:
        """Return the test targets as CSR: offsets (N + 1,), class numbers."""
        tensors, _ = read_tensors(self.folder / "truth.safetensors")
        return tensors["offsets"], tensors["classes"]

    def targets(self) -> Tensor:
        """Return the (N, C) bool test targets."""
        offsets, classes = self.truth()
        rows = torch.repeat_interleave(torch.arange(len(offsets) - 1), offsets.diff())
        targets = torch.zeros(len(offsets) - 1, len(self.hierarchy), dtype=torch.bool)
        targets[rows, classes] = True
        return targets

    def texts(self) -> list[str] | None:
        """Return what the test rows say, where they are texts."""
        path = self.folder / "texts.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    # ------------------------------------------------------------------ writing

    def set_data(self, hierarchy: Hierarchy, labels: Labels, texts: Sequence[str] | None) -> None:
        """Keep what the decisions are judged by."""
        with atomic_write(self.folder / "hierarchy.json") as file:
            file.write(hierarchy.to_json() + "\n")
        offsets, numbers = labels.closed
        parts = {"offsets": torch.from_numpy(offsets), "classes": torch.from_numpy(numbers)}
        write_tensors(self.folder / "truth.safetensors", parts, {"format": FORMAT})
        if texts is not None:
            with atomic_write(self.folder / "texts.json") as file:
                file.write(json.dumps(list(texts), ensure_ascii=False))

    def add(
        self,
        entry: Candidate,
        runs: Sequence[Mapping[str, Any]],
        rows: Mapping[str, NDArray[np.int32]],
        log: Sequence[Mapping[str, Any]],
        selected: NDArray[np.uint8] | None = None,
    ) -> None:
        """Add the runs of an entry, all its seeds at once."""
        name = entry.file_name
        tensors = {key: torch.from_numpy(value) for key, value in rows.items()}
        write_tensors(self.folder / "rows" / f"{name}.safetensors", tensors, {"format": FORMAT})
        if selected is not None:
            path = self.folder / "selected" / f"{name}.safetensors"
            write_tensors(path, {"selected": torch.from_numpy(selected)}, {"format": FORMAT})
        with atomic_write(self.folder / "logs" / f"{name}.jsonl") as file:
            file.writelines(json_line(record) for record in log)
        kept = [run for run in self.runs() if run["entry"] != entry.key]
        with atomic_write(self.folder / "runs.jsonl") as file:
            file.writelines(json.dumps(run) + "\n" for run in [*kept, *runs])

    def discard(self) -> None:
        """Remove what ``begin`` and ``set_data`` wrote, and the folder if nothing else is in it."""
        for name in ("study.json", "hierarchy.json", "truth.safetensors", "texts.json"):
            (self.folder / name).unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
