"""``hierlearn report``: a study as one HTML page, and its plots as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import flag, option, takes

OPTIONS = [
    flag("png", "Also write the plots as PNG and SVG, beside it in figures/."),
    option("out", Path, None, "Page to write; report.html in the study if none.", "--out", "-o"),
]


@takes(*OPTIONS, shared.FORCE)
def report(
    study: Annotated[Path, typer.Argument(help="Folder of a study, from hierlearn compare.")],
    **options: Any,
) -> None:
    """Write the page of a study: one file, no network."""
    from rich.console import Console

    from hierlearn.cli.show import print_plain, working
    from hierlearn.files import check_new, check_writable
    from hierlearn.reports import report_pngs, write_report
    from hierlearn.reports.page import NAME, read

    out, force = options["out"], options["force"]
    if out is None:
        out = study / NAME  # a report of the same study, so it may be replaced
        check_writable(out)
    else:
        check_new(out, force)
    with working("reporting"):
        _, summary = read(study)
        written = [write_report(study, out, summary=summary)]
        if options["png"]:
            written += report_pngs(study, out.parent / "figures", summary=summary)
    print_plain(Console(), f"wrote {', '.join(map(str, written))}")
