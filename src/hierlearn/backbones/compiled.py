"""torchvision beside a torch of another build.

The compiled operators of torchvision load only beside the torch that they were built for: those of
a CUDA build do not beside a CPU build of torch. ``import torchvision`` then fails, and with it timm
and transformers, although what they need of it is plain Python. So operators that cannot be loaded
are declared here, without an implementation, before anything imports torchvision.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

KEPT: list[Any] = []  # a library of operators lives as long as its object
NAMED = re.compile(r"""register_meta\("(\w+)"\)|"torchvision::(\w+)\"""")


@cache
def declare_operators() -> None:
    """Declare the operators of torchvision that cannot be loaded; nothing where all is well."""
    import torch

    ops, make = torch.ops, torch.library.Library
    spec = importlib.util.find_spec("torchvision") if "torchvision" not in sys.modules else None
    if spec is None or not spec.submodule_search_locations:
        return
    folder = Path(spec.submodule_search_locations[0])
    compiled = [path for path in folder.glob("_C*") if path.suffix in (".so", ".pyd", ".dylib")]
    source = folder / "_meta_registrations.py"
    try:
        for path in compiled:
            ops.load_library(path)  # type: ignore[no-untyped-call]
        return
    except (OSError, RuntimeError):
        pass
    if not source.is_file():
        return
    names = {first or second for first, second in NAMED.findall(source.read_text())}
    library: Any = make("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in sorted(names):
        library.define(f"{name}(Tensor x) -> Tensor")
    KEPT.append(library)
