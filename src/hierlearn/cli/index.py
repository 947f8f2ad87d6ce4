"""``hierlearn index``: an approximate index of the memory of a model, for millions of rows."""

from __future__ import annotations

from typing import Any

from hierlearn.cli import shared
from hierlearn.cli.generate import option, takes
from hierlearn.cli.memories import WRITING

OPTIONS = [option("recall", float, 0.99, "Fraction of the nearest rows that a search must find.")]


@takes(*OPTIONS, *WRITING, shared.TRUST, shared.DEVICE)
def index(model: shared.ModelFolder, **options: Any) -> None:
    """Build an approximate index of the memory of a model; answers come faster.

    It needs faiss. Remembering or forgetting rows drops the index.
    """
    from hierlearn.cli.memories import (
        check_destination,
        load_with_memory,
        locked_in_place,
        write_changed,
    )
    from hierlearn.cli.show import working
    from hierlearn.errors import plural
    from hierlearn.pipeline.explain import rows_of
    from hierlearn.pipeline.remember import build_index
    from hierlearn.terminal import Console, print_plain

    check_destination(model, options)
    with locked_in_place(model, options):
        loaded = load_with_memory(model, options)
        with working("building the index"):
            measured = build_index(loaded, options["recall"])
        folder = write_changed(loaded, model, options)
    console = Console()
    asked = "" if measured >= options["recall"] else f", not the {options['recall']:.4g} asked for"
    print_plain(
        console,
        f"indexed {plural(len(rows_of(loaded)), 'row')}; a search finds {measured:.4f} of the "
        f"nearest ones, measured on the rows themselves{asked}",
    )
    print_plain(console, f"wrote {folder}")
