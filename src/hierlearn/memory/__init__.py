"""Stage 6: a memory of encoded rows, in which a head looks its answers up."""

from hierlearn.memory.candidates import Candidates, SetCandidates
from hierlearn.memory.distance import DISTANCES
from hierlearn.memory.head import NeighborHead
from hierlearn.memory.label_sets import LabelSets
from hierlearn.memory.sharded import Part, ShardedSearch, nearest_in_shards
from hierlearn.memory.store import Memory, Remembered

__all__ = [
    "DISTANCES",
    "Candidates",
    "LabelSets",
    "Memory",
    "NeighborHead",
    "Part",
    "Remembered",
    "SetCandidates",
    "ShardedSearch",
    "nearest_in_shards",
]
