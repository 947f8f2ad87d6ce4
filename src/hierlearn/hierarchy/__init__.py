"""Stage 1: the taxonomy. Build it, read it, draw it; closures, common ancestors, label spaces."""

from hierlearn.hierarchy.hierarchy import Hierarchy
from hierlearn.hierarchy.labels import LabelSpace
from hierlearn.hierarchy.names import join_levels

__all__ = ["Hierarchy", "LabelSpace", "join_levels"]
