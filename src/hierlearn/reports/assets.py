"""Assets: the files of this package that pages are made of, and the policy that guards them."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files


def asset(name: str, package: str = "hierlearn.reports") -> str:
    """Return a file of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def page_script(*names: str) -> str:
    """Return script files as one script, in whose scope they all are."""
    return '"use strict";\n(() => {\n' + "\n".join(asset(name) for name in names) + "})();\n"


def script_policy(script: str) -> str:
    """Return the source of a content security policy that runs this script and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
