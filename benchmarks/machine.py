"""What a benchmark ran on, and writing its figures as JSON."""

from __future__ import annotations

import json
import platform
import statistics
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Return the processor and the versions, without names of hosts or people."""
    import os

    import torch

    import hierlearn

    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = lines[0].split(":")[1].strip() if lines else ""
    facts = {
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        **versions("numpy", "scipy", "scikit-learn"),
        "hierlearn": hierlearn.__version__,
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
        facts["cuda"] = torch.version.cuda
        facts |= versions("triton")
    return facts


def versions(*names: str) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def seconds(run: Callable[[], Any], *, repeat: int = 5) -> dict[str, float]:
    """Return median, least and most seconds of ``run`` after one warm-up."""
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return {"median": statistics.median(times), "min": min(times), "max": max(times)}


def write(name: str, figures: Any, command: str) -> Path:
    """Write ``results/<name>.json`` and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {"command": command, "machine": machine(), "figures": figures}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path
