"""Every kind of case: what hypothesis draws, and what is done with it."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from fuzz.commands import COMMANDS, lines, prepare_command
from fuzz.engine import judge
from fuzz.folders import FOLDERS, damages
from fuzz.formats import FORMATS

QUIET = {"deadline": None, "derandomize": False, "suppress_health_check": list(HealthCheck)}
PHASES = (Phase.reuse, Phase.generate, Phase.shrink)  # explaining traces every line


@dataclass(frozen=True)
class Case:
    """A kind of case: ``prepare(drawn, folder, examples)`` returns the work and its bytes."""

    strategy: Any
    prepare: Callable


CASES = {
    **{name: Case(one.strategy, one.prepare) for name, one in FORMATS.items()},
    **{name: Case(damages, prepare) for name, prepare in FOLDERS.items()},
    **{" ".join(words): Case(lines(words), prepare_command) for words in COMMANDS},
}
COMMAND_LINES = [" ".join(words) for words in COMMANDS]


def explore(name, folder, examples, on_outcome, first=0, **options):
    """Let hypothesis draw cases of one kind, the same ones for the same seed.

    Args:
        name: of CASES.
        folder: where files are written.
        examples: the trained folders.
        on_outcome: called with what was drawn and the outcome; what it raises is shrunk.
        first: the seed.
        options: settings of hypothesis, such as ``max_examples``.
    """
    case = CASES[name]

    def check(drawn):
        on_outcome(drawn, judge(*case.prepare(drawn, folder, examples)))

    test = seed(zlib.crc32(f"{name} {first}".encode()))(given(drawn=case.strategy)(check))
    settings(**QUIET, **{"database": None, "phases": PHASES, **options})(test)()


def database(name):
    """Return where long runs keep the cases of one kind that failed."""
    return DirectoryBasedExampleDatabase(f".hypothesis/fuzz/{name}")
