"""Saving: figures of matplotlib as PNG and SVG files whose bytes depend on the figures alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hierlearn.errors import HierlearnError
from hierlearn.files.writing import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

DPI = 200


def need_matplotlib() -> None:
    """Raise where matplotlib is missing, and say what to install."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise HierlearnError(
            "matplotlib is not installed; install it with: pip install matplotlib"
        ) from None
    del mpl


def save_figures(figures: Mapping[str, Figure], out: Path | str) -> list[Path]:
    """Write every figure as ``<name>.png`` and ``<name>.svg`` into a folder."""
    import matplotlib as mpl

    written = []
    # No date, and ids that do not depend on chance.
    with mpl.rc_context({"svg.hashsalt": "hierlearn"}):
        for name, figure in figures.items():
            for ending in ("png", "svg"):
                path = Path(out) / f"{name}.{ending}"
                with atomic_write(path, "wb") as file:
                    unstamped = {"Date": None} if ending == "svg" else {"Software": None}
                    figure.savefig(file, format=ending, dpi=DPI, metadata=unstamped)
                written.append(path)
    return written
