"""Settings of the whole suite: hypothesis is quick, and repeatable where CI runs it."""

import os

from hypothesis import settings

settings.register_profile(
    "hierlearn", deadline=None, max_examples=60, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("hierlearn")
