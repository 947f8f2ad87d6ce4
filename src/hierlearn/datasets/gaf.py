"""GAF files, the terms of genes as the Gene Ontology publishes them.

A line annotates a gene with a term, with the evidence for it. What is left out is counted:

    NOT           the gene was found not to have the term
    evidence      codes that were not asked for; ND, "no data", unless it is asked for by name
    aspect        namespaces that were not asked for
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from hierlearn.errors import DataError, place, plural, unknown_name
from hierlearn.files import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


class GeneAnnotations(dict[str, tuple[str, ...]]):
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
        super().__init__({gene: tuple(dict.fromkeys(some)) for gene, some in terms.items()})
        self.path, self.lines, self.left_out = Path(path), lines, dict(left_out or {})

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
    letters = {name: letter for letter, name in ASPECTS.items()} | {one: one for one in ASPECTS}
    for name, given in (("evidence", evidence), ("aspects", aspects)):
        if isinstance(given, str) or given == []:
            such = "codes such as ['IDA', 'IMP']" if name == "evidence" else "such as ['P', 'F']"
            raise DataError(f"{name} is a list {'of ' * (name == 'evidence')}{such}, not {given!r}")
    for one in aspects or ():
        if one not in letters:
            raise DataError(unknown_name("aspect", one, letters))
    known = {**{one: (one,) for one in CODES}, "EXPERIMENTAL": EXPERIMENTAL}
    for one in evidence or ():
        if one.upper() not in known:
            raise DataError(unknown_name("evidence code", one, ("experimental", *CODES)))
    codes = {code for one in evidence or () for code in known[one.upper()]}
    codes = codes or {*CODES} - {NO_DATA}
    kept = {letters[one] for one in aspects or ASPECTS}
    if key not in get_args(Key):
        raise DataError(unknown_name("key", str(key), get_args(Key)))
    gene = ID if key == "id" else SYMBOL
    terms: dict[str, list[str]] = {}
    left_out: Counter[str] = Counter({"NOT": 0, "evidence": 0, "aspect": 0})
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.startswith("!"):
            check_version(path, number, line)
            continue
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) < FEWEST:
            raise DataError(
                f"{place(path, number)}: {plural(len(cells), 'column')}, but a GAF file has 17, "
                f"separated by tabs"
            )
        for what, column in (("gene", gene), ("term", TERM), ("evidence code", EVIDENCE)):
            if not cells[column]:
                raise DataError(f"{place(path, number)}: column {column + 1}, the {what}, is empty")
        if "NOT" in cells[QUALIFIER].upper().split("|"):
            left_out["NOT"] += 1
        elif cells[EVIDENCE].upper() not in codes:
            left_out["evidence"] += 1
        elif aspects and cells[ASPECT].upper() not in kept:
            left_out["aspect"] += 1
        else:
            terms.setdefault(cells[gene], []).append(cells[TERM])
    if not terms:
        gone = ", ".join(f"{count:,} by {name}" for name, count in left_out.items() if count)
        raise DataError(
            f"{path} has no annotation that is kept ({gone or 'it has none at all'}); "
            f"choose other evidence or aspects"
        )
    return GeneAnnotations(terms, path, lines=sum(map(len, terms.values())), left_out=left_out)


def check_version(path: Path, number: int, line: str) -> None:
    """Raise on the header of another format or version."""
    lower = line.lower().replace(" ", "")
    if lower.startswith(("!gpa-version:", "!gpad-version:", "!gpi-version:")):
        raise DataError(f"{place(path, number)}: this is a {lower[1:4].upper()} file, not GAF")
    version = lower.removeprefix(VERSION)
    if version != lower and not version.startswith(("1", "2")):
        raise DataError(
            f"{place(path, number)}: GAF version {version} is not known; 1.0 to 2.2 are"
        )
