"""Settings of the whole suite: hypothesis is quick, and repeatable where CI runs it."""

import os

from hypothesis import settings

# torch.compile builds in this process: a pool of its own would import torch again, per worker.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

settings.register_profile(
    "hierlearn", deadline=None, max_examples=60, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("hierlearn")
