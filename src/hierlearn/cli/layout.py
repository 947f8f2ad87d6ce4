"""What ``hierlearn predict`` writes of each row: its options, and notes on the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import dashed, flag, option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.answer_columns import Layout
    from hierlearn.pipeline.answer_file import AnswerFile

WRITTEN = "What is written"  # a panel of --help
LAYOUT_OPTIONS = [
    option("keep", str, None, "Columns of the input to copy: id,name; or all.", panel=WRITTEN),
    flag("by_level", "Add the class, title and probability of every level.", panel=WRITTEN),
    option(
        "top",
        int,
        None,
        "Add this many of the most probable terminal classes.",
        panel=WRITTEN,
        min=1,
    ),
    flag("scores", "Add the probability of every class.", panel=WRITTEN),
    option(
        "layout",
        str,
        None,
        "Of --top and --scores: wide, one row per input row; or long, one row per class.",
        metavar="[wide|long]",
        panel=WRITTEN,
    ),
    flag(
        "escape_formulas",
        "Put ' before texts of a CSV file that a spreadsheet would run as a formula.",
        panel=WRITTEN,
    ),
]
NOT_LONG = ("decoder", "decoder_option", "threshold", "risk", "by_level", "explain")


def choose_layout(model: Pipeline, options: Mapping[str, Any]) -> Layout:
    """Return what is written beside the answers; raise on options that do not go together."""
    from hierlearn.errors import HierlearnError, unknown_name
    from hierlearn.pipeline.answer_columns import Layout
    from hierlearn.pipeline.input_columns import level_column_names

    wanted = options["layout"] or "wide"
    if wanted not in ("wide", "long"):
        raise HierlearnError(unknown_name("layout", wanted, ["wide", "long"]))
    if wanted == "long":
        given = [name for name in NOT_LONG if options.get(name) not in (None, False, [])]
        if given:
            raise HierlearnError(
                f"--layout long writes the scores of classes and no answers; leave "
                f"{dashed(given[0])} out"
            )
    layout = Layout(
        levels=level_column_names(model) if options["by_level"] else (),
        top=options["top"] or 0,
        scores=options["scores"],
        long=wanted == "long",
    )
    layout.check(model)
    return layout


def renamed(keep: Sequence[str], names: Sequence[str]) -> str:
    """Say which kept columns are written under another name."""
    from hierlearn.pipeline.answer_file import kept_names

    other = [(old, new) for new, old in kept_names(keep, names).items() if old != new]
    if not other:
        return ""
    return "kept under another name, as the answers have it: " + ", ".join(
        f"{old} as {new}" for old, new in other
    )


def formula_note(file: AnswerFile, options: Mapping[str, Any]) -> str:
    """Say how many cells a spreadsheet would run."""
    from hierlearn.errors import plural

    if not file.formulas:
        return ""
    cells = f"{plural(file.formulas, 'text')} that a spreadsheet would run as a formula"
    if options["escape_formulas"]:
        return f"escaped {cells}"
    return f"{cells}; escape with --escape-formulas before you open the file in one"
