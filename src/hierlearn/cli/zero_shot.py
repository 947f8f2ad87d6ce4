"""``hierlearn predict --zero-shot``: classes by their titles, with a sentence encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import dashed, flag, option
from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.pipeline import Pipeline

PANEL = "Zero-shot"  # a panel of --help
ZERO_SHOT_OPTIONS = [
    flag("zero_shot", "Predict by the titles of classes, without a model.", panel=PANEL),
    option("encoder", str, None, "Sentence encoder: hf:PATH,pooling=cls.", panel=PANEL),
    option("hierarchy", Path, None, "File of the taxonomy, with titles or names.", panel=PANEL),
    option(
        "template",
        str,
        None,
        "Sentence of a class: 'a photo of {title}'; {path} is its path of titles.",
        panel=PANEL,
    ),
    option(
        "temperature",
        float,
        None,
        "What similarities are divided by: less makes answers surer; 0.05 by default.",
        panel=PANEL,
    ),
    flag("inner_titles", "Titles of inner classes count, too.", panel=PANEL),
]
OF_TITLES = ("template", "temperature", "inner_titles")


def was_given(value: Any) -> bool:
    """Whether an option was given; 0 is a value."""
    return value is not None and value is not False


def check_zero_shot(options: Mapping[str, Any]) -> None:
    """Raise on options that only zero-shot takes, or that it lacks."""
    names = [one.name for one in ZERO_SHOT_OPTIONS[1:]]
    if not options["zero_shot"]:
        for name in names:
            if was_given(options[name]):
                raise HierlearnError(f"{dashed(name)} goes with --zero-shot; leave it out")
        return
    for name, what in (("encoder", "hf:PATH"), ("hierarchy", "FILE")):
        if options[name] is None:
            raise HierlearnError(f"--zero-shot needs {dashed(name)} {what}")
    if options["explain"] is not None:
        raise HierlearnError("--zero-shot remembers no rows to explain by; leave --explain out")


def rows_and_model(
    model: Path, data: str | None, options: Mapping[str, Any]
) -> tuple[Path | None, str]:
    """Return the model folder and the rows of the arguments; without a model, the first is rows."""
    if options["zero_shot"]:
        if data is not None:
            raise HierlearnError(
                f"--zero-shot needs no model, only rows; leave out {str(model)!r} or {data!r}"
            )
        return None, str(model)
    if data is None:
        raise HierlearnError(
            "there are no rows to predict on; write: predict MODEL DATA, or predict --zero-shot "
            "DATA"
        )
    return model, data


def zero_shot_model(options: Mapping[str, Any], device: Any) -> Pipeline:
    """Return the pipeline of the titles of a hierarchy."""
    from hierlearn.cli.sources import open_hierarchy
    from hierlearn.pipeline.zero_shot import zero_shot_pipeline

    given = {name: options[name] for name in OF_TITLES if was_given(options[name])}
    hierarchy = open_hierarchy(str(options["hierarchy"]), sep=options.get("sep"))
    return zero_shot_pipeline(hierarchy, options["encoder"], device=device, **given)
