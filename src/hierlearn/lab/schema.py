"""The schema of a study's files: what study.json and the lines of runs.jsonl hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from hierlearn.files.structured import Extra, Range


@dataclass
class CandidateJson:
    """A candidate in study.json."""

    key: Annotated[str, Range(1, 200)]
    loss: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    label: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass
class TaxonomyJson(Extra):
    """What study.json says of the hierarchy."""

    classes: int
    leaves: int
    levels: int
    kind: str


@dataclass
class DatasetJson(Extra):
    """What study.json says of the rows."""

    name: str | None
    hierarchy: TaxonomyJson
    rows: int
    splits: dict[str, int]


@dataclass
class StudyJson(Extra):
    """study.json."""

    format: Literal["hierlearn.study"]
    version: int
    candidates: Annotated[list[CandidateJson], Range(1, 10_000)]
    uses_hierarchy: dict[str, bool]
    seeds: Annotated[list[int], Range(1, 100_000)]
    metrics: list[str]
    settings: dict[str, Any]
    dataset: DatasetJson
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class RunJson(Extra):
    """A line of runs.jsonl."""

    candidate: str
    seed: int
    test: dict[str, float | list[float | None] | None]
    seconds: float
    best_epoch: int | None
    still_improving: bool
    settings: dict[str, Any]
    loss_options: dict[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    parameters: int | None = None
    stored: int | None = None
    cpu_seconds: float | None = None
