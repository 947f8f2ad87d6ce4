"""Stage 1: the taxonomy. Build it, read it, draw it; closures, common ancestors, label spaces."""

from hierlearn.hierarchy.hierarchy import Hierarchy
from hierlearn.hierarchy.label_space import LabelSpace

__all__ = ["Hierarchy", "LabelSpace"]
