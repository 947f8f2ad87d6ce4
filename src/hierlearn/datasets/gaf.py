"""GAF files, the terms of genes as the Gene Ontology publishes them.

A line annotates a gene with a term, with the evidence for it. What is left out is counted:

    NOT           the gene was found not to have the term
    evidence      codes that were not asked for; ND, "no data", unless it is asked for by name
    aspect        namespaces that were not asked for
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from hierlearn.errors import DataError, place, plural, unknown_name
from hierlearn.files import read_text

Key = Literal["id", "symbol"]
NO_DATA = "ND"
EXPERIMENTAL = (
    *("EXP", "IDA", "IPI", "IMP", "IGI", "IEP"),
    *("HTP", "HDA", "HMP", "HGI", "HEP"),  # from high-throughput experiments
)
OTHERS = (
    *("IBA", "IBD", "IKR", "IRD", "ISS", "ISO", "ISA", "ISM", "IGC", "RCA"),
    *("TAS", "NAS", "IC", NO_DATA, "IEA"),
)
CODES = (*EXPERIMENTAL, *OTHERS)
ASPECTS = {
    "P": "biological_process",
    "F": "molecular_function",
    "C": "cellular_component",
}
ID, SYMBOL, QUALIFIER, TERM, EVIDENCE, ASPECT = 1, 2, 3, 4, 6, 8  # columns, counted from 0
FEWEST = 15  # columns; 2.x has two more
VERSION = "!gaf-version:"


class GeneAnnotations(Mapping[str, tuple[str, ...]]):
    """The terms of each gene, without repeats, in the order of the file.

    Attributes:
        path: the file.
        left_out: how many lines were left out, by reason: "NOT", "evidence", "aspect".
        lines: how many lines were kept.
    """

    def __init__(
        self,
        terms: Mapping[str, Sequence[str]],
        path: Path | str = "annotations",
        *,
        lines: int = 0,
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        self._terms = {gene: tuple(dict.fromkeys(some)) for gene, some in terms.items()}
        self.path = Path(path)
        self.lines = lines
        self.left_out = dict(left_out or {})

    def __getitem__(self, gene: str) -> tuple[str, ...]:
        return self._terms[gene]

    def __iter__(self) -> Iterator[str]:
        return iter(self._terms)

    def __len__(self) -> int:
        return len(self._terms)

    def summary(self) -> str:
        """Return in one line what was read and what was left out."""
        words = {"NOT": "say NOT", "evidence": "have other evidence", "aspect": "other aspects"}
        gone = [f"{count:,} {words[name]}" for name, count in self.left_out.items() if count]
        more = f"; left out: {', '.join(gone)}" if gone else ""
        return (
            f"{self.path}: {plural(self.lines, 'annotation')} of {plural(len(self), 'gene')}{more}"
        )


def read_gaf(
    path: Path | str,
    *,
    evidence: Sequence[str] | None = None,
    aspects: Sequence[str] | None = None,
    key: Key = "id",
) -> GeneAnnotations:
    """Read a GAF file, 1.0 to 2.2, which may be compressed by gzip.

    Args:
        path: the file.
        evidence: the evidence codes to keep, such as IDA; "experimental" stands for all codes of
            experiments. By default every code but ND.
        aspects: the aspects to keep: P, F and C, or biological_process, ...
        key: what names a gene: its "id" (column 2) or its "symbol" (column 3).

    Raises:
        DataError: naming the file and the line of what is wrong.
    """
    path = Path(path)
    codes, kept = checked_codes(evidence), checked_aspects(aspects)
    if key not in get_args(Key):
        raise DataError(unknown_name("key", str(key), get_args(Key)))
    terms: dict[str, list[str]] = {}
    left_out: Counter[str] = Counter({"NOT": 0, "evidence": 0, "aspect": 0})
    lines = 0
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.startswith("!"):
            check_version(path, number, line)
            continue
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        check_cells(path, number, cells, key)
        if "NOT" in cells[QUALIFIER].upper().split("|"):
            left_out["NOT"] += 1
        elif cells[EVIDENCE].upper() not in codes:
            left_out["evidence"] += 1
        elif kept is not None and cells[ASPECT].upper() not in kept:
            left_out["aspect"] += 1
        else:
            lines += 1
            terms.setdefault(cells[ID if key == "id" else SYMBOL], []).append(cells[TERM])
    if not terms:
        gone = ", ".join(f"{count:,} by {name}" for name, count in left_out.items() if count)
        raise DataError(
            f"{path} has no annotation that is kept ({gone or 'it has none at all'}); "
            f"choose other evidence or aspects"
        )
    return GeneAnnotations(terms, path, lines=lines, left_out=left_out)


def check_version(path: Path, number: int, line: str) -> None:
    """Raise on the header of another format or version."""
    lower = line.lower().replace(" ", "")
    if lower.startswith(("!gpa-version:", "!gpad-version:", "!gpi-version:")):
        raise DataError(f"{place(path, number)}: this is a {lower[1:4].upper()} file, not GAF")
    if lower.startswith(VERSION) and not lower[len(VERSION) :].startswith(("1", "2")):
        raise DataError(
            f"{place(path, number)}: GAF version {lower[len(VERSION) :]} is not known; "
            f"1.0 to 2.2 are"
        )


def check_cells(path: Path, number: int, cells: Sequence[str], key: Key) -> None:
    """Raise on a line that is no annotation."""
    if len(cells) < FEWEST:
        raise DataError(
            f"{place(path, number)}: {plural(len(cells), 'column')}, but a GAF file has 17, "
            f"separated by tabs"
        )
    names = {"gene": ID if key == "id" else SYMBOL, "term": TERM, "evidence code": EVIDENCE}
    for what, column in names.items():
        if not cells[column]:
            raise DataError(f"{place(path, number)}: column {column + 1}, the {what}, is empty")


def checked_codes(evidence: Sequence[str] | None) -> set[str]:
    if evidence is None:
        return set(CODES) - {NO_DATA}
    if isinstance(evidence, str) or not evidence:
        raise DataError(f"evidence is a list of codes such as ['IDA', 'IMP'], not {evidence!r}")
    found: set[str] = set()
    for one in evidence:
        if one.lower() == "experimental":
            found.update(EXPERIMENTAL)
        elif one.upper() in CODES:
            found.add(one.upper())
        else:
            raise DataError(unknown_name("evidence code", one, ("experimental", *CODES)))
    return found


def checked_aspects(aspects: Sequence[str] | None) -> set[str] | None:
    """Return the letters of the aspects to keep; None for all."""
    if aspects is None:
        return None
    if isinstance(aspects, str) or not aspects:
        raise DataError(f"aspects is a list such as ['P', 'F'], not {aspects!r}")
    letters = {name: letter for letter, name in ASPECTS.items()} | {one: one for one in ASPECTS}
    for one in aspects:
        if one not in letters:
            raise DataError(unknown_name("aspect", one, letters))
    return {letters[one] for one in aspects}
