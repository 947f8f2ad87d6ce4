"""Files of the size of the Gene Ontology, made from a seed: an ontology, annotations, features.

43,558 terms in three namespaces, a DAG of 15 levels with about 85,000 is_a edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

TERMS = {"biological_process": 28_000, "molecular_function": 11_500, "cellular_component": 4_058}
ASPECTS = {"biological_process": "P", "molecular_function": "F", "cellular_component": "C"}
LEVELS = 15
EDGES = 85_000
COLUMNS = 100


@dataclass
class Ontology:
    """The terms of an ontology.

    Attributes:
        ids: of each term.
        namespaces: of each term.
        levels: (C,) of each term, 1 for the three roots.
        parents: of each term.
    """

    ids: list[str]
    namespaces: list[str]
    levels: NDArray[np.int64]
    parents: list[list[int]]


def make_ontology(seed: int = 0, scale: float = 1.0) -> Ontology:
    """Make an ontology; ``scale`` times the size of the Gene Ontology."""
    rng = np.random.default_rng(seed)
    sizes = {name: max(LEVELS, int(size * scale)) for name, size in TERMS.items()}
    total = sum(sizes.values())
    numbers = rng.permutation(total)
    further = EDGES / sum(TERMS.values()) - 1  # parents of a term beside its first
    ids, namespaces, levels, parents = [], [], [], []
    for name, size in sizes.items():
        first = len(ids)
        own = np.sort(np.clip(rng.normal(6, 2.3, size).round(), 2, LEVELS)).astype(int)
        own[0] = 1
        own[1:LEVELS] = np.arange(2, LEVELS + 1)  # every level occurs
        own = np.sort(own)
        starts = np.searchsorted(own, np.arange(1, LEVELS + 2))
        for place, level in enumerate(own):
            ids.append(f"GO:{numbers[first + place] + 1:07d}")
            namespaces.append(name)
            levels.append(level)
            if level == 1:
                parents.append([])
                continue
            low, high = starts[level - 2], starts[level - 1]
            above = {first + int(low + (high - low) * rng.random() ** 2)}  # some have many children
            for _ in range(rng.poisson(further)):
                above.add(first + int(high * rng.random() ** 0.7))
            parents.append(sorted(above))
    return Ontology(ids, namespaces, np.array(levels), parents)


def write_obo(ontology: Ontology, path: Path) -> None:
    """Write an OBO file."""
    lines = ["format-version: 1.2", "ontology: made", ""]
    for place, one in enumerate(ontology.ids):
        lines += ["[Term]", f"id: {one}", f"name: term {place}"]
        lines += [f"namespace: {ontology.namespaces[place]}"]
        lines += [
            f"is_a: {ontology.ids[above]} ! term {above}" for above in ontology.parents[place]
        ]
        lines.append("")
    path.write_text("\n".join(lines))


def closures(ontology: Ontology) -> list[list[int]]:
    """Return every term with its ancestors."""
    found: list[set[int]] = []
    for place, above in enumerate(ontology.parents):
        found.append({place}.union(*(found[one] for one in above)))
    return [sorted(one) for one in found]


def write_rows(ontology: Ontology, folder: Path, rows: int, seed: int = 0) -> float:
    """Write features (genes.csv) and annotations (genes.gaf); return the mean closed size.

    A gene has one to three terms, few of them much more often than the others. Its features are
    the sum of a random direction per term, with noise.
    """
    rng = np.random.default_rng(seed)
    closed = closures(ontology)
    middle = np.flatnonzero((ontology.levels >= 3) & (ontology.levels <= 7))
    weights = 1 / (1 + rng.permutation(len(middle))) ** 0.8
    weights /= weights.sum()
    directions = rng.standard_normal((len(ontology.ids), COLUMNS)).astype(np.float32)
    sizes = []
    names = ",".join(f"x{number}" for number in range(COLUMNS))
    with (folder / "genes.csv").open("w") as table, (folder / "genes.gaf").open("w") as gaf:
        table.write(f"gene,part,{names}\n")
        gaf.write("!gaf-version: 2.2\n")
        for row in range(rows):
            terms = rng.choice(middle, size=rng.integers(1, 4), replace=False, p=weights)
            both = sorted(set().union(*(closed[term] for term in terms)))
            sizes.append(len(both))
            x = directions[both].sum(0) / 3 + rng.standard_normal(COLUMNS)
            part = "train" if row < 0.8 * rows else "valid" if row < 0.9 * rows else "test"
            table.write(f"G{row:05d},{part},{','.join(f'{value:.4f}' for value in x)}\n")
            for term in terms:
                aspect = ASPECTS[ontology.namespaces[term]]
                cells = ["DB", f"G{row:05d}", f"g{row}", "involved_in", ontology.ids[term], "REF:1"]
                cells += ["IDA", "", aspect, "", "", "protein", "taxon:1", "20260101", "DB", "", ""]
                gaf.write("\t".join(cells) + "\n")
    return float(np.mean(sizes))
