"""Stage 6: a memory of encoded rows, in which a head looks its answers up."""

from hierlearn.memory.compare import Candidates, SetCandidates
from hierlearn.memory.head import NeighborHead
from hierlearn.memory.search import DISTANCES
from hierlearn.memory.store import LabelSets, Memory, Remembered

__all__ = [
    "DISTANCES",
    "Candidates",
    "LabelSets",
    "Memory",
    "NeighborHead",
    "Remembered",
    "SetCandidates",
]
