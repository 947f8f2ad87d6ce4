"""Model page: one HTML file on what a trained model does on labeled rows; see ``page`` for studies.

A part that does not apply is left out: with several labels per row there are no confusions, since
no decision stands against one label; without a memory there is no evidence.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.dataset import row_names, shown_texts
from hierlearn.errors import plural
from hierlearn.files.writing import atomic_write
from hierlearn.networks.memories import remembered
from hierlearn.pipeline.explain import answering_memories, explain
from hierlearn.reports import classes, icicle, mistakes, model_sections, reliability, risk
from hierlearn.reports.assets import asset, page_script, script_policy
from hierlearn.reports.markup import embed, heights, safe
from hierlearn.reports.outcome import Outcome, outcome
from hierlearn.reports.thumbnails import Thumbnails

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.pipeline import Pipeline

EVIDENCE = 3  # remembered rows behind a mistake


def write_model_report(
    pipeline: Pipeline,
    dataset: Dataset,
    out: Path | str,
    *,
    split: str = "all",
    trained_on: int | None = None,
    every: Dataset | None = None,
) -> Path:
    """Write the page of a model.

    Args:
        pipeline: a trained pipeline.
        dataset: rows labeled by the pipeline's hierarchy, best those of no training.
        out: the file to write.
        split: which rows these are, for the page to say.
        trained_on: how many of them the model was trained on, which the page warns of; None where
            that is not known.
        every: all rows of the data, among which remembered images are found by name, so that the
            page can show them.

    Returns:
        The file.
    """
    text = model_page(pipeline, dataset, split, trained_on, every)
    with atomic_write(Path(out)) as file:
        file.write(text)
    return Path(out)


def model_page(
    pipeline: Pipeline,
    dataset: Dataset,
    split: str = "all",
    trained_on: int | None = None,
    every: Dataset | None = None,
) -> str:
    """Return the page's text; the arguments are those of ``write_model_report``."""
    found = outcome(pipeline, dataset)
    script = page_script("script.js", "classes.js")
    name = pipeline.config.get("name") or "A model"
    shown = Thumbnails([dataset.inputs, *([] if every is None else [every.inputs])])
    data = interactive(pipeline, found, split, shown)
    return Template(asset("model.html")).substitute(
        title=safe(f"hierlearn model: {name}"),
        name=safe(name),
        headline=model_sections.headline(pipeline, found, split),
        warning=model_sections.warning(training_note(len(dataset), split, trained_on)),
        policy=script_policy(script),
        style=asset("style.css"),
        results=model_sections.results(pipeline, found),
        classes_note=model_sections.classes_note(found),
        levels=model_sections.level_options(found),
        confusions=confusions(found),
        reliability=reliability.reliability_panels(reliability.reliabilities(found)),
        risk=model_sections.risk(risk.leave_curve(found), risk.stop_curve(found)),
        mistakes=mistakes_section(data, found),
        settings=model_sections.settings(pipeline),
        data=embed(data),
        script=script,
    )


def training_note(rows: int, split: str, trained_on: int | None) -> str | None:
    """Return a warning where rows are training rows, as far as that is known, else None."""
    if trained_on:
        return (
            f"The model was trained on {trained_on:,} of these {plural(rows, 'row')}, so the "
            f"figures on this page are too good for new rows."
        )
    if trained_on is None and split == "train":
        return (
            'These rows are the split "train": the model was probably trained on them, so the '
            "figures on this page are too good for new rows."
        )
    return None


def confusions(found: Outcome) -> str:
    """Return the section of the confusions; nothing where rows have several labels."""
    pairs = [] if found.several else classes.confusions(found)
    if not pairs:
        return ""
    hierarchy = found.space.hierarchy
    return Template(asset("confusions.html")).substitute(
        pairs=classes.confusion_tables(pairs, hierarchy), highest=hierarchy.root_height
    )


def mistakes_section(data: dict[str, Any], found: Outcome) -> str:
    """Return the section of the mistakes; nothing where there are none."""
    if not data["candidates"][0]["worst"]:
        return ""
    highest = max(height for *_, height, _, _ in data["candidates"][0]["worst"])
    nearest = " Of a row with several labels, the nearest is shown." if found.several else ""
    return Template(asset("mistakes.html")).substitute(heights=heights(highest), nearest=nearest)


def interactive(
    pipeline: Pipeline, found: Outcome, split: str, thumbnails: Thumbnails
) -> dict[str, Any]:
    """Return what the script draws: the classes, the icicle and the mistakes."""
    counts = classes.class_counts(found)
    worst = mistakes.worst(found.decisions)
    shown = [row for row, *_ in worst]
    one = icicle.of_candidate(found.truth, found.decisions)
    if found.several:  # a class is right where it is in the answer
        one = {"accuracy": recalls(counts, one["accuracy"][-1])}
    names = row_names(found.dataset) or mistakes.numbered(len(found), split)
    evidence = evidence_of(pipeline, found, worst, thumbnails)
    texts = shown_texts(found.dataset.inputs)
    images = {str(row): thumbnails.find(texts[row]) for row in shown} if texts is not None else {}
    return {
        **icicle.tree(found.space.hierarchy, found.truth),
        "row": "row",
        "seeds": 1,
        "classes": counts,
        "candidates": [{**one, "worst": worst, **evidence}],
        "texts": mistakes.texts_of(shown, texts),
        "images": {row: one for row, one in images.items() if one is not None},
        "rows": mistakes.texts_of(shown, names),
    }


def recalls(counts: dict[str, list[int]], root: int) -> list[int]:
    """Return the recall of every class in thousandths, and at the end what the root has."""
    pairs = zip(counts["right"], counts["rows"], strict=True)
    return [*(round(1000 * right / max(rows, 1)) for right, rows in pairs), root]


def evidence_of(
    pipeline: Pipeline, found: Outcome, worst: Sequence[Sequence[int]], thumbnails: Thumbnails
) -> dict[str, Any]:
    """Return the remembered rows behind each mistake; nothing where no memory answers."""
    answering = answering_memories(pipeline.network, pipeline.answer)
    if remembered(pipeline.network) is None or not answering or not worst:
        return {}
    hierarchy = found.space.hierarchy
    rows = explain(pipeline, found.dataset.take([row for row, *_ in worst]).inputs, EVIDENCE)
    return {
        "evidence": [
            [
                mistakes.neighbor(
                    f"id {one.id}",
                    one.text,
                    [hierarchy.index(label) for label in one.labels],
                    (truth, decided),
                    hierarchy,
                )
                | {"weight": round(1000 * one.weight)}
                | image_of(thumbnails.find(one.text))
                for one in own
                if round(1000 * one.weight)
            ]
            for (_, truth, decided, *_), own in zip(worst, rows, strict=True)
        ]
    }


def image_of(thumbnail: str | None) -> dict[str, str]:
    """Return the thumbnail of a remembered row, where it has one."""
    return {} if thumbnail is None else {"image": thumbnail}
