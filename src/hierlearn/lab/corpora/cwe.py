"""CWE 4.14: texts about weaknesses of software and hardware, under the DAG of research concepts.

A class is a weakness, for example ``CWE-79`` (cross-site scripting), below its parents in view
1000; 132 weaknesses have two parents and 8 have three. The texts come out of the wheel of cwe2
3.0.0, which is read, not installed: the name, the description, the extended description and the
alternate terms of each weakness, and its observed examples, one sentence each about a CVE; 4,674
texts in all (3,272 train, 701 validate, 701 test) of 938 weaknesses in 6 levels.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.registry import DatasetEntry
from hierlearn.errors import DataError
from hierlearn.hierarchy import Hierarchy
from hierlearn.lab.corpora.download import Archive, have_archives, obtain, read_member
from hierlearn.lab.corpora.grouping import linked_groups, normalized, split_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from xml.etree.ElementTree import Element

    Progress = Callable[[int, int | None], None]

ARCHIVE = Archive(
    name="cwe2-3.0.0-py3-none-any.whl",
    size=8_968_739,
    sha256="abef03eb853f5c1851df6af5167bd9fe73a53dddb119fdbc5c3afc7d50b9f55b",
    fetched_by="pip",
    source="cwe2==3.0.0",
)
LICENSE = "CWE terms"
ATTRIBUTION = (
    "Common Weakness Enumeration 4.14, copyright The MITRE Corporation, free to use for research, "
    "development and commercial purposes under its terms of use, as shipped by cwe2 (MIT)."
)
MEMBER = "cwe2/database_v49/cwec_v4.14.xml"
NAMESPACE = "{http://cwe.mitre.org/cwe-7}"
VIEW = "1000"  # research concepts: every weakness is in it
FRACTION = 0.15  # of the rows that validate, and that test: most texts must train
# A text that names its weakness by number would give the answer away.
NUMBERS = re.compile(r"\s*[(\[]?\bCWE-\d+\b[)\]]?")


class Text(NamedTuple):
    """One text: its id, the weakness, and the CVE of an observed example, else empty."""

    id: str
    text: str
    weakness: str
    cve: str


def load_cwe(
    seed: int = 0,
    *,
    data_dir: Path | str | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Load the texts of CWE, each labeled with its weakness.

    What describes a weakness trains. Observed examples are drawn for "valid" and "test", all
    examples of a CVE together with all examples of the same words; every weakness with examples
    keeps its description in training. An example that stands under several weaknesses in the same
    words is one row with several labels. Numbers of weaknesses are removed from the texts.

    Args:
        seed: decides which examples validate and test.
        data_dir: a folder with the wheel, searched first.
        download: whether the wheel may be downloaded with pip.
        progress: called with the bytes received and their total.

    Returns:
        The texts weakness by weakness; deprecated weaknesses are left out.

    Raises:
        DataError: if the wheel is absent or another one.
        DownloadError: if the download fails.
    """
    path = obtain(ARCHIVE, data_dir=data_dir, download=download, progress=progress)
    weaknesses = _read_weaknesses(path)
    texts: list[Text] = []
    labels: list[list[str]] = []
    cves: list[set[str]] = []
    row_of: dict[str, int] = {}
    for text in _texts(weaknesses):
        row = row_of.setdefault(normalized(text.text), len(texts))
        if row == len(texts):
            texts.append(text)
            labels.append([])
            cves.append(set())
        if text.weakness not in labels[row]:
            labels[row].append(text.weakness)
        # A row without a CVE describes a weakness, and so must train.
        cves[row].add(text.cve)
    groups = linked_groups(own - {""} or {row} for row, own in enumerate(cves))
    training = {group for group, own in zip(groups, cves, strict=True) if "" in own}
    hierarchy = Hierarchy.from_parents(
        {_name(weakness): _parents(weakness) for weakness in weaknesses}, named_by="id"
    )
    return Dataset(
        inputs=[text.text for text in texts],
        labels=labels,
        hierarchy=hierarchy.with_titles(read_titles(weaknesses)),
        splits=split_groups(
            groups,
            [text.cve for text in texts],
            labels,
            seed=seed,
            fraction=FRACTION,
            training=training,
        ),
        name="cwe",
        source=f"CWE 4.14 as shipped by {ARCHIVE.source}, SHA-256 verified.",
        ids=[text.id for text in texts],
    )


def read_titles(weaknesses: Iterable[Element]) -> dict[str, str]:
    """Return the title of each class: the name of the weakness."""
    return {_name(weakness): weakness.get("Name", "") for weakness in weaknesses}


def _read_weaknesses(path: Path) -> list[Element]:
    """Return the weaknesses in the order of their numbers, without the deprecated ones."""
    try:
        root = ElementTree.fromstring(read_member(path, MEMBER))
    except ElementTree.ParseError as error:
        raise DataError(f"{path}: {MEMBER} is not XML: {error}; fetch the file again") from None
    found = root.iterfind(f"{NAMESPACE}Weaknesses/{NAMESPACE}Weakness")
    kept = [weakness for weakness in found if weakness.get("Status") != "Deprecated"]
    return sorted(kept, key=lambda weakness: int(weakness.get("ID", "")))


def _name(weakness: Element) -> str:
    return f"CWE-{weakness.get('ID')}"


def _parents(weakness: Element) -> list[str]:
    related = weakness.iterfind(f"{NAMESPACE}Related_Weaknesses/{NAMESPACE}Related_Weakness")
    return [
        f"CWE-{other.get('CWE_ID')}"
        for other in related
        if other.get("Nature") == "ChildOf" and other.get("View_ID") == VIEW
    ]


def _texts(weaknesses: Iterable[Element]) -> Iterator[Text]:
    """Yield the texts of each weakness: those that describe it, then its observed examples."""
    for weakness in weaknesses:
        name = _name(weakness)
        found = {
            "name": weakness.get("Name", ""),
            "description": _text_of(weakness, "Description"),
            "extended": _text_of(weakness, "Extended_Description"),
        }
        terms = weakness.iterfind(f"{NAMESPACE}Alternate_Terms/{NAMESPACE}Alternate_Term")
        found |= {f"term{n}": _text_of(term, "Term") for n, term in enumerate(terms)}
        for part, text in found.items():
            if cleaned := _cleaned(text):
                yield Text(f"{name}:{part}", cleaned, name, "")
        examples = weakness.iterfind(f"{NAMESPACE}Observed_Examples/{NAMESPACE}Observed_Example")
        for number, example in enumerate(examples):
            if cleaned := _cleaned(_text_of(example, "Description")):
                cve = _text_of(example, "Reference").strip() or f"{name}:example{number}"
                yield Text(f"{name}:{cve}:{number}", cleaned, name, cve)


def _text_of(element: Element, tag: str) -> str:
    """Return all text below the child ``tag``, empty where there is none."""
    child = element.find(f"{NAMESPACE}{tag}")
    return "" if child is None else " ".join(child.itertext())


def _cleaned(text: str) -> str:
    return " ".join(NUMBERS.sub("", text).split())


ENTRY = DatasetEntry(
    "cwe",
    "weaknesses of software: texts of CWE, by weakness (a DAG)",
    "archive",
    load_cwe,
    LICENSE,
    ATTRIBUTION,
    files=(ARCHIVE,),
    locate=partial(have_archives, (ARCHIVE,)),
)
