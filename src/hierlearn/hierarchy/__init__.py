"""Stage 1: the taxonomy. Build it, read it, draw it; closures, common ancestors, label spaces."""

from hierlearn.hierarchy.hierarchy import Hierarchy
from hierlearn.hierarchy.label_space import LabelSpace
from hierlearn.hierarchy.level_columns import join_levels

__all__ = ["Hierarchy", "LabelSpace", "join_levels"]
