"""``hierlearn report``: a study, or a model on labeled rows, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import dashed, flag, option, takes
from hierlearn.cli.outputs import output

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "report.html"
FIGURES = ("metrics", "severity", "levels", "curriculum")  # of --png
OPTIONS = [
    option("data", str, None, "Labeled rows to report a model on: a dataset, or a file."),
    option("rows", str, None, shared.ROWS),
    flag("png", "Also write the plots of a study as PNG and SVG, beside it in figures/."),
    output("out", "Page to write; report.html in the folder if none.", "--out", "-o"),
]
OF_MODELS = (
    "data",
    "rows",
    "missing",
    "trust",
    *(one.name for one in shared.SOURCE),
)  # not of studies


@takes(*OPTIONS, shared.MISSING, shared.FORCE, shared.TRUST, shared.DEVICE, *shared.SOURCE)
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a study, or of a trained model.")],
    **options: Any,
) -> None:
    """Write the page of a study, or of a model on labeled rows: one file, no network."""
    from hierlearn.cli.show import working
    from hierlearn.cli.sources import check_goes_with
    from hierlearn.files.outputs import check_output, check_writable
    from hierlearn.registry import find_entry_point
    from hierlearn.terminal import Console, print_plain

    of_model = is_model(folder, options)
    out = options["out"]
    if out is None:
        check_goes_with({"force": options["force"]}, "--out")
        out = folder / NAME  # a report of the same folder, so it may be replaced
        check_writable(out)
    else:
        given = [one for one in (options["data"], options["hierarchy"]) if one is not None]
        read = [one for one in folder.iterdir() if one.name != NAME]
        check_output(out, options["force"], inputs=[*given, *read])
        figures = FIGURES if options["png"] else ()
        for name in figures:
            for ending in ("png", "svg"):
                path = out.parent / "figures" / f"{name}.{ending}"
                check_output(path, options["force"], inputs=[*given, *read])
    with working("reporting"):
        write = report_model if of_model else find_entry_point("hierlearn.reports", "study")
        written = write(folder, out, options)
    print_plain(Console(), f"wrote {', '.join(map(str, written))}")


def is_model(folder: Path, options: Mapping[str, Any]) -> bool:
    """Whether a folder is a model rather than a study; raise on options of the other kind."""
    from hierlearn.errors import HierlearnError

    if (folder / "study.json").is_file():
        wrong = [name for name in OF_MODELS if options.get(name)]
        wrong += ["device"] if options["device"] != "auto" else []
        if wrong:
            raise HierlearnError(
                f"{folder} is a study, which holds its rows; leave {dashed(wrong[0])} out"
            )
        return False
    if not (folder / "config.json").is_file():
        raise HierlearnError(
            f"{folder} is neither a study nor a model; name a folder from hierlearn compare or "
            f"hierlearn train"
        )
    if options["data"] is None:
        raise HierlearnError(
            f"{folder} is a model; name labeled rows to report on with --data, such as --data "
            f"rows.csv"
        )
    if options["png"]:
        raise HierlearnError("--png writes the plots of a study; leave it out for a model")
    return True


def report_model(folder: Path, out: Path, options: Mapping[str, Any]) -> list[Path]:
    """Write the page of a model."""
    from hierlearn.cli.model_rows import label_notes, open_labeled, rows_to_evaluate, seen_rows
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.missing import checked_missing
    from hierlearn.reports import write_model_report
    from hierlearn.terminal import Console, print_plain
    from hierlearn.training.processes import find_device

    loaded = Pipeline.load(folder, device=find_device(options["device"]), trust=options["trust"])
    loaded.missing = checked_missing(options["missing"])
    dataset = open_labeled(loaded, options["data"], options)
    picked, which = rows_to_evaluate(loaded, dataset, options["rows"])
    for note in label_notes(loaded, picked):
        print_plain(Console(), note)
    overlap = seen_rows(loaded, picked)
    known = None if overlap is None or overlap.by_chance else overlap.known
    return [write_model_report(loaded, picked, out, split=which, trained_on=known, every=dataset)]
