"""torchvision beside a torch that it was not built for.

Then ``import torchvision`` fails, and with it transformers and torchmetrics, which need it for
images only. It counts as not installed, with a warning; timm, which cannot do without, says so.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from functools import cache


@cache
def broken_torchvision() -> str:
    """Return why torchvision does not load, and hide it; empty where it loads or is absent."""
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return ""
    try:
        import torchvision  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        from importlib.metadata import version

        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        sys.modules["torchvision"] = None  # type: ignore[assignment]
        reason = " ".join(str(error).split())[:160]
        found = (
            f"torchvision {version('torchvision')} does not load beside torch {version('torch')} "
            f"({reason}); install the two from the same place"
        )
        warnings.warn(f"{found}. It is ignored.", stacklevel=2)
        return found
    return ""
