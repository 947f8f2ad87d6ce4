"""Settings of the whole suite: hypothesis is quick, and repeatable where CI runs it."""

import contextlib
import os
import warnings

from hypothesis import settings

# torch.compile builds in this process: a pool of its own would import torch again, per worker.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# torch.compile imports setuptools, which fails where distutils was imported before it.
with contextlib.suppress(ImportError), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import setuptools  # noqa: F401

settings.register_profile(
    "hierlearn", deadline=None, max_examples=60, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("hierlearn")
