"""Stage 1: the taxonomy. Build it, read it, draw it; closures, common ancestors, propagation."""

from hierlearn.hierarchy.hierarchy import Hierarchy

__all__ = ["Hierarchy"]
