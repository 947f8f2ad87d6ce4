"""Settings of the whole suite, and its two rings.

``make test`` runs every test function that is not slow, with at most CASES of its cases, spread
over all of them; ``make test-all`` (``pytest --all``) runs everything. A case that is named on the
command line (``file.py::test[case]``) always runs. Hypothesis draws fewer examples in the first
ring, and the same ones where CI runs it.
"""

import os
import signal
import sys
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest
import setuptools  # noqa: F401  (torch's compiler needs it, and cannot import it after distutils)
from hypothesis import settings

import kernels.kernel_imports  # noqa: F401  (before anything else imports Triton)
from hierlearn.registry import installed
from torchvision_operators import declare_operators

declare_operators()  # before anything imports torchvision, which may be of another build

# torch.compile builds in this process: a pool of its own would import torch again, per worker.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# A shell ignores SIGINT for what it starts in the background, and processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

CASES = 2  # of a parametrized test in the first ring
for name, examples in {"first": 10, "all": 60}.items():
    settings.register_profile(
        name, deadline=None, max_examples=examples, derandomize=bool(os.environ.get("CI"))
    )


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run every case, and slow tests")


def pytest_configure(config):
    check_installed()
    settings.load_profile("all" if config.getoption("--all") else "first")


def check_installed():
    """Refuse to run where entry points of pyproject.toml are not installed."""
    if sys.version_info < (3, 11):  # no tomllib
        return
    import tomllib

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for group, points in project["entry-points"].items():
        for name in points:
            if name not in installed(group):
                raise pytest.UsageError(
                    f"{name} of {group} is not installed: run python -m pip install --no-deps -e ."
                )


def pytest_collection_modifyitems(config, items):
    """Leave out slow tests, and most cases of a large product, in the first ring."""
    if config.getoption("--all") or any("::" in argument for argument in config.args):
        return
    cases = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    left_out = [item for item in items if item.get_closest_marker("slow")]
    for test, found in cases.items():
        if len(found) > CASES:
            first = crc32(test.encode()) % len(found)  # so that tests take different cases
            kept = {(first + len(found) * k // CASES) % len(found) for k in range(CASES)}
            left_out += [item for number, item in enumerate(found) if number not in kept]
    dropped = set(left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in dropped]
