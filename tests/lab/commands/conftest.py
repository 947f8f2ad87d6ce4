"""Commands are called as those of the core are."""

from cli.conftest import call, memories, rows, trained, with_memory  # noqa: F401
