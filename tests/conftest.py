"""Settings of the whole suite: hypothesis is quick, and repeatable where CI runs it."""

import os
import signal

import setuptools  # noqa: F401  (torch's compiler needs it, and cannot import it after distutils)
from hypothesis import settings

# A shell ignores SIGINT for what it starts in the background, and processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "hierlearn", deadline=None, max_examples=60, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("hierlearn")
