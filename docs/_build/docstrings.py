"""An extension of griffe: docstrings that are completed when a class is made, such as Settings'."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import griffe


class Completed(griffe.Extension):
    """Read the docstrings of classes from the classes themselves where they differ."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace the docstring of a class by that of the living one."""
        if cls.docstring is None or not cls.module.path.startswith(PACKAGES):
            return
        living = getattr(import_module(cls.module.path), cls.name, None)
        if living is not None and living.__doc__:
            cls.docstring.value = inspect.cleandoc(living.__doc__)


PACKAGES = ("hierlearn.estimator", "hierlearn.training", "hierlearn.lab.protocol")
