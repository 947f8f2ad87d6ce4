"""Random taxonomies for hypothesis: ragged trees, forests and DAGs, over names of all kinds.

A taxonomy is drawn as names and parent lists in a shuffled numbering, so that a parent may stand
after its child and nothing can lean on the order of the input.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
from hypothesis import strategies as st

from hierlearn.hierarchy import Hierarchy
from reference import hierarchy as reference


@dataclass(frozen=True)
class Taxonomy:
    """Nodes with bare names and the numbers of their parents."""

    names: tuple[str, ...]
    parents: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def is_tree(self) -> bool:
        return all(len(above) <= 1 for above in self.parents)

    @property
    def ids(self) -> list[str]:
        """The name that the hierarchy gives to each node: its path, in a DAG its bare name."""
        return reference.path_names(self.parents, self.names) if self.is_tree else list(self.names)

    @property
    def edges(self) -> list[tuple[str | None, str]]:
        """(parent, child) pairs over the ids; None above a top node."""
        ids = self.ids
        return [
            (above, ids[node])
            for node, parents in enumerate(self.parents)
            for above in ([ids[parent] for parent in parents] or [None])
        ]

    @property
    def graph(self) -> nx.DiGraph:
        """The nodes by number in networkx."""
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(self)))
        graph.add_edges_from((p, c) for c, above in enumerate(self.parents) for p in above)
        return graph

    def build(self) -> tuple[Hierarchy, list[int]]:
        """Return the hierarchy, and the class number of every node."""
        hierarchy = Hierarchy.from_edges(self.edges)
        return hierarchy, [hierarchy.index(name) for name in self.ids]

    def in_class_order(self) -> list[list[int]]:
        """Return the parent lists in the order of the classes, by the reference's own ordering."""
        order = reference.class_order(self.parents, self.names)
        place = {node: number for number, node in enumerate(order)}
        return [sorted(place[parent] for parent in self.parents[node]) for node in order]


# Few letters, so that bare names repeat in different branches; digits, blanks, accents, other
# scripts, a sign beyond the basic plane, quotes, and what XML and JSON must escape.
NAMES = st.text("ab019 .-_éß漢π𝛼'\"<&\\", min_size=1, max_size=3).filter(lambda name: name.strip())
SHAPES = ("ragged", "flat", "chain", "forest of chains", "deep")


@st.composite
def tree_parents(draw, max_size=14):
    """Parent lists of a tree or forest, each parent before its child."""
    size = draw(st.integers(1, max_size))
    shape = draw(st.sampled_from(SHAPES))
    parents = []
    for node in range(size):
        if shape == "flat" or node == 0:
            above = -1
        elif shape == "chain":
            above = node - 1
        elif shape == "forest of chains":
            above = draw(st.sampled_from([-1, node - 1]))
        elif shape == "deep":
            above = draw(st.integers(max(-1, node - 3), node - 1))
        else:
            above = draw(st.integers(-1, node - 1))
        parents.append(() if above < 0 else (above,))
    return parents


@st.composite
def dag_parents(draw, max_size=12):
    """Parent lists of a DAG, each parent before its child; at least one node has two parents."""
    size = draw(st.integers(3, max_size))
    twice = draw(st.integers(2, size - 1))
    parents = []
    for node in range(size):
        least = 2 if node == twice else 0
        pool = st.sets(st.integers(0, max(node - 1, 0)), min_size=least, max_size=min(node, 4))
        parents.append(tuple(sorted(draw(pool))))
    return parents


@st.composite
def shuffled(draw, names, parents):
    """Return the taxonomy in a random numbering."""
    order = draw(st.permutations(range(len(names))))
    place = {node: number for number, node in enumerate(order)}
    return Taxonomy(
        tuple(names[node] for node in order),
        tuple(tuple(place[parent] for parent in parents[node]) for node in order),
    )


@st.composite
def trees(draw, max_size=14, names=NAMES):
    """Trees and forests; siblings differ in name, others may share one."""
    parents = draw(tree_parents(max_size))
    used: dict[tuple[int, ...], set[str]] = {}
    chosen = []
    for above in parents:
        taken = used.setdefault(above, set())
        chosen.append(draw(names.filter(lambda name, taken=taken: name not in taken)))
        taken.add(chosen[-1])
    return draw(shuffled(chosen, parents))


@st.composite
def dags(draw, max_size=12, names=NAMES):
    """DAGs that are no trees; every node has a name of its own."""
    parents = draw(dag_parents(max_size))
    chosen = draw(st.lists(names, min_size=len(parents), max_size=len(parents), unique=True))
    return draw(shuffled(chosen, parents))


def taxonomies(max_size=12):
    """Trees, forests and DAGs."""
    return trees(max_size) | dags(max_size)


def label_rows(size, max_rows=6):
    """Rows of node numbers, some of them empty."""
    return st.lists(st.lists(st.integers(0, size - 1), max_size=4), max_size=max_rows)


@st.composite
def labeled(draw, max_size=12):
    """Return a taxonomy and rows of labels, as numbers of its nodes."""
    taxonomy = draw(taxonomies(max_size))
    return taxonomy, draw(label_rows(len(taxonomy)))
