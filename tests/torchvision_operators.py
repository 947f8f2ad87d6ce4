"""torchvision beside a CPU build of torch, for the tests.

The CPU build that constraints.txt pins has no torchvision of its own, and the compiled operators of
the one from PyPI do not load beside it. What timm and the tests need of torchvision is plain
Python, so its operators are declared here, without an implementation.
"""

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

KEPT = []  # a library of operators lives as long as its object
NAMED = re.compile(r"""register_meta\("(\w+)"\)|"torchvision::(\w+)\"""")


@cache
def declare_operators():
    """Declare the operators that cannot be loaded; nothing where all is well."""
    import torch

    spec = importlib.util.find_spec("torchvision") if "torchvision" not in sys.modules else None
    if spec is None:
        return
    folder = Path(spec.submodule_search_locations[0])
    try:
        for path in folder.glob("_C*.so"):
            torch.ops.load_library(path)
        return
    except (OSError, RuntimeError):
        pass
    source = (folder / "_meta_registrations.py").read_text()
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in sorted({first or second for first, second in NAMED.findall(source)}):
        library.define(f"{name}(Tensor x) -> Tensor")
    KEPT.append(library)
