"""``hierlearn compact``: the shards of a memory joined, without the rows that were forgotten."""

from __future__ import annotations

from typing import Any

from hierlearn.cli import shared
from hierlearn.cli.generate import takes
from hierlearn.cli.memories import WRITING


@takes(*WRITING, shared.TRUST, shared.DEVICE)
def compact(model: shared.ModelFolder, **options: Any) -> None:
    """Join the files of the memory of a model, and remove what was forgotten from them.

    Answers stay as they are. Remember does it for small files by itself, whenever there are 64.
    """
    from hierlearn.cli.memories import (
        change_in_place,
        check_destination,
        load_with_memory,
        write_changed,
    )
    from hierlearn.errors import plural
    from hierlearn.pipeline.explain import rows_of
    from hierlearn.terminal import Console, print_plain

    check_destination(model, options)
    if options["in_place"]:
        with change_in_place(model, options) as memory:
            before, gone = len(memory.manifest.shards), memory.manifest.forgotten_rows
            memory.compact()
            rows, after = len(memory), len(memory.manifest.shards)
        said = f"joined {plural(before, 'shard')} into {after:,}"
        lines = [f"{said}, which {'holds' if after == 1 else 'hold'} {plural(rows, 'row')}"]
        lines += [f"removed {plural(gone, 'forgotten row')}"] if gone else []
        folder = model
    else:
        loaded = load_with_memory(model, options)
        folder = write_changed(loaded, model, options)
        lines = [f"joined the shards of {plural(len(rows_of(loaded)), 'row')}"]
    for line in (*lines, f"wrote {folder}"):
        print_plain(Console(), line)
