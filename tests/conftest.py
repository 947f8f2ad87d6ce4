"""Settings of the whole suite: hypothesis is quick, and repeatable where CI runs it."""

import os
import signal

import setuptools  # noqa: F401  (torch's compiler needs it, and cannot import it after distutils)
from hypothesis import settings

import kernels.kernel_imports  # noqa: F401  (before anything else imports Triton)
from hierlearn.backbones.compiled import declare_operators

declare_operators()  # before anything imports torchvision, which may be of another build

# torch.compile builds in this process: a pool of its own would import torch again, per worker.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# A shell ignores SIGINT for what it starts in the background, and processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "hierlearn", deadline=None, max_examples=60, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("hierlearn")
