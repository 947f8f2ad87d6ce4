"""Model page: one HTML file on what a trained model does on labeled rows; see ``page`` for studies.

A part that does not apply is left out: with several labels per row there are no confusions, since
no decision stands against one label; without a memory there is no evidence.
"""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.dataset import row_names, shown_texts
from hierlearn.datasets.images import Images, open_image
from hierlearn.errors import DataError, HierlearnError, plural
from hierlearn.files.writing import atomic_write
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics.answers import wrong_levels
from hierlearn.metrics.measure import STOPPING, figures, shown
from hierlearn.networks.memories import remembered
from hierlearn.pipeline.answers import level_names
from hierlearn.pipeline.evaluate import predictions
from hierlearn.pipeline.explain import answering_memories, explain
from hierlearn.reports.decisions import (
    Decisions,
    Truth,
    class_counts,
    confusions,
    decide,
    icicle_figures,
    icicle_tree,
    neighbor,
    numbered,
    texts_of,
    worst_mistakes,
)
from hierlearn.reports.markup import (
    as_text,
    asset,
    embed,
    heights,
    network_text,
    page_script,
    pairs_table,
    safe,
    script_policy,
    table,
)
from hierlearn.reports.plots import (
    leave_curve,
    reliabilities,
    reliability_panels,
    risk_plot,
    risk_table,
    severity_bars,
    severity_legend,
    stop_curve,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.datasets import Dataset
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.metrics.answers import Answers
    from hierlearn.pipeline import Pipeline


BEYOND = ("au-prc",)  # what the page shows beside the figures of evaluate


@dataclass(frozen=True)
class Outcome:
    """The probabilities and answers of a model on N rows, with the truth.

    Attributes:
        dataset: the rows.
        truth: the labels, sparse.
        answers: what the model answers, beside the labels.
        decisions: the answer of every row, (1, N); where sets are answered, its best terminal
            class.
        several: whether a row has several labels, or sets are answered.
        answered_by: the name of the decoder.
        metrics: metrics by name; None where one is not defined.
        unlabeled: how many rows have no label.
    """

    dataset: Dataset
    truth: Truth
    answers: Answers
    decisions: Decisions
    several: bool
    answered_by: str
    metrics: dict[str, Any]
    unlabeled: int = 0

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def space(self) -> LabelSpace:
        """What can be predicted."""
        return self.answers.space

    @property
    def p(self) -> Tensor:
        """(N, C) node probabilities."""
        return self.answers.p

    @property
    def targets(self) -> Tensor:
        """(N, C) bool, closed."""
        return self.answers.targets


def outcome(pipeline: Pipeline, dataset: Dataset) -> Outcome:
    """Return what a pipeline does on labeled rows."""
    given = predictions(pipeline, dataset)
    answers, space = given, pipeline.label_space
    labels = Labels(dataset.labels, space.hierarchy)
    ends = np.diff(labels.terminal[0])
    if not ends.any():
        raise HierlearnError(
            f"none of the {len(dataset)} rows has a label, so there is nothing to report on"
        )
    truth = Truth(space.hierarchy, *labels.closed)
    rows = decide(given.p, space)
    if answers.single is not None:
        best = answers.single.clamp_min(0)[:, None]
        rows["probability"] = given.p.gather(1, best)[:, 0].numpy()
        rows["answer"] = answers.single.numpy()
        rows["wrong"] = answers.wrong_levels.any(dim=1).numpy()
    found = {name: values[None] for name, values in rows.items()}
    decisions = Decisions.read(truth, found, terminal=space.is_terminal)
    metrics = {**figures(given)}
    for name in BEYOND:
        try:
            metrics |= figures(given, [name])
        except HierlearnError:  # not defined for these rows
            metrics[name] = None
    return Outcome(
        dataset=dataset,
        truth=truth,
        answers=answers,
        decisions=decisions,
        several=bool((ends > 1).any()) or answers.single is None,
        answered_by=pipeline.decoder,
        metrics=metrics,
        unlabeled=int(np.count_nonzero(ends == 0)),
    )


SIDE = 56  # pixels, at most
BYTES = 4096  # of the data of one thumbnail, at most
MOST = 400  # thumbnails of a page
QUALITIES = (70, 40, 15)


class Thumbnails:
    """Thumbnails of images that are found by name.

    Args:
        sources: the inputs of datasets; those that are no images are left out.
    """

    def __init__(self, sources: Iterable[object]) -> None:
        self.made: dict[str, str] = {}
        self._places = {
            name: (source, row)
            for source in sources
            if isinstance(source, Images)
            for row, name in enumerate(source.names)
        }

    def find(self, name: str | None) -> str | None:
        """Return an image as data; None where there is none, or there are too many already."""
        if name is None or name not in self._places:
            return None
        if name not in self.made and len(self.made) < MOST:
            source, row = self._places[name]
            try:
                self.made[name] = thumbnail(source.read(row))
            except DataError:  # gone or broken by now; its name is shown anyway
                self.made[name] = ""
        return self.made.get(name) or None


def thumbnail(content: bytes | NDArray[np.uint8]) -> str:
    """Return the data of a small image: PNG where that is small enough, else JPEG; or nothing.

    Args:
        content: the bytes of a file, or pixels; see ``open_image``.
    """
    image = open_image(content)
    image.thumbnail((SIDE, SIDE))
    for kind, quality in (("png", 0), *(("jpeg", one) for one in QUALITIES)):
        file = io.BytesIO()
        image.save(file, kind, quality=quality)
        data = f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
        if len(data) <= BYTES:
            return data
    return ""


Z = 1.959964  # of a 95 % interval


def headline(pipeline: Pipeline, found: Outcome, split: str) -> str:
    """Return the line below the title: which rows, which classes, what the model is."""
    hierarchy, data = found.space.hierarchy, found.dataset.name
    which = "" if split == "all" else f", split {split}"
    parts = [
        plural(len(found), "row") + (f" of {data}{which}" if data else which),
        f"{plural(len(hierarchy), 'class', 'classes')} in {plural(hierarchy.depth, 'level')}",
    ]
    recipe = pipeline.config.get("recipe", {}).get("name")
    if recipe:
        parts.append(f"recipe {recipe}")
    if found.unlabeled:
        parts.append(f"{plural(found.unlabeled, 'row')} without a label")
    return " · ".join(safe(part) for part in parts)


def results(pipeline: Pipeline, found: Outcome) -> str:
    """Return the figures that the page begins with."""
    value, exact = found.metrics["exact"], ""
    if value is not None:
        low, high = wilson(value, int(found.answers.counted.sum()))
        what = "exact answers: the right set" if found.several else "exact answers"
        exact = (
            f'<div class="big"><b>{shown("exact", value)}</b><span>{what}</span>'
            f"<span>95 % interval {100 * low:.1f} to {100 * high:.1f}</span></div>"
        )
    facts = "".join(
        f"<div><dt>{safe(text)}</dt><dd>{shown(name, found.metrics[name])}</dd></div>"
        for name, text in FACTS.items()
        if found.metrics[name] is not None
        and not (name in STOPPING and found.metrics["complete"] == 1)
    )
    # How bad the mistakes are, as one bar.
    depth = found.space.hierarchy.depth
    levels = wrong_levels(found.answers)[found.answers.counted].numpy()
    counts = np.bincount(levels, minlength=depth + 1)
    bar = {
        "candidates": ["model"],
        "labels": ["rows, in %"],
        "severity": {"model": (counts / max(counts.sum(), 1)).tolist()},
    }
    return (
        f'<div class="hero">{exact}{level_table(pipeline, found)}<dl class="facts">{facts}</dl>'
        f"</div>{severity_bars(bar)}{severity_legend(depth)}"
    )


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a fraction of independent rows (Wilson, 1927)."""
    spread = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    middle, scale = share + Z**2 / (2 * count), 1 + Z**2 / count
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def level_table(pipeline: Pipeline, found: Outcome) -> str:
    """Return the accuracy of every level with a bar."""
    hierarchy = found.space.hierarchy
    names = level_names(pipeline.config, hierarchy.depth)
    counts = found.answers.labeled_levels.sum(dim=0).tolist()
    lines = []
    for name, value, columns, rows in zip(
        names, found.metrics["accuracy"], hierarchy.level_slices, counts, strict=True
    ):
        if value is None:
            continue
        size = columns.stop - columns.start
        lines.append(
            f'<tr><th scope="row">level {safe(name)}</th><td class="size">'
            f"{plural(size, 'class', 'classes')}</td><td>{plural(rows, 'row')}</td>"
            f'<td class="bar"><i style="width:{100 * value:.1f}%"></i></td>'
            f'<td class="number">{shown("accuracy", value)}</td></tr>'
        )
    return (
        '<table class="levels"><caption>Accuracy by level</caption>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


FACTS = {  # the figures beside exact answers and accuracy
    "severity": "Levels wrong per mistake",
    "f1": "Hierarchical F1",
    "calibration": "Calibration error of the answers",
    "answered": "Rows with an answer",
    "complete": "Rows with a complete answer",
    "au-prc": "Area under precision and recall",
}


def settings(pipeline: Pipeline) -> str:
    """Return what the model is, and on what and how it was trained."""
    config: Mapping[str, Any] = pipeline.config
    recipe, data = config.get("recipe", {}), config.get("data", {})
    spec = pipeline.network_spec
    loss = ", ".join(filter(None, [recipe.get("loss"), as_text(recipe.get("loss_options") or {})]))
    counts = [
        f"{value:,}" if isinstance(value, int) else None
        for value in (data.get("training_rows"), data.get("validation_rows"))
    ]
    pairs: dict[str, object] = {
        "recipe": recipe.get("name"),
        "chosen because": recipe.get("because"),
        "loss": loss,
        "network": None
        if spec is None
        else network_text({"name": spec.name, "options": spec.to_dict()["options"]}),
        "decoder": pipeline.decoder,
        "trained on": data.get("name"),
        "source": data.get("source"),
        "training rows": counts[0],
        "validation rows": counts[1],
        "changed since": as_text(config["history"]) if config.get("history") else None,
        "fingerprint of the hierarchy": pipeline.hierarchy.fingerprint[:16],
        "versions": as_text(config.get("versions", {})),
    }
    return pairs_table(pairs)


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
    leave, stop = leave_curve(found), stop_curve(found)
    note = f"The prediction is what the decoder {found.answered_by} answers."
    absent = int((found.targets.sum(dim=0) == 0).sum())
    if absent:
        has = "class has" if absent == 1 else "classes have"
        note += f" {absent:,} {has} no row here, and so no recall."
    warning = ""
    if trained_on or (trained_on is None and split == "train"):
        seen = (
            f"The model was trained on {trained_on:,} of these {plural(len(dataset), 'row')}"
            if trained_on
            else 'These rows are the split "train": the model was probably trained on them'
        )
        seen = safe(f"{seen}, so the figures on this page are too good for new rows.")
        warning = f'<p class="warning" role="note">{seen}</p>'
    mistakes, worst = "", data["candidates"][0]["worst"]
    if worst:
        nearest = " Of a row with several labels, the nearest is shown." if found.several else ""
        mistakes = Template(asset("mistakes.html")).substitute(
            heights=heights(max(height for *_, height, _, _ in worst)), nearest=nearest
        )
    return Template(asset("model.html")).substitute(
        title=safe(f"hierlearn model: {name}"),
        name=safe(name),
        headline=headline(pipeline, found, split),
        warning=warning,
        policy=script_policy(script),
        style=asset("style.css"),
        results=results(pipeline, found),
        classes_note=safe(note),
        levels="".join(
            f'<option value="{one}">level {one}</option>'
            for one in range(1, found.space.hierarchy.depth + 1)
        ),
        confusions=confusion_section(found),
        reliability=reliability_panels(reliabilities(found)),
        risk=f'<div class="beside"><figure>{risk_plot(leave, stop)}</figure>'
        f"{risk_table(leave, stop)}</div>",
        mistakes=mistakes,
        settings=settings(pipeline),
        data=embed(data),
        script=script,
    )


def interactive(
    pipeline: Pipeline, found: Outcome, split: str, thumbnails: Thumbnails
) -> dict[str, Any]:
    """Return what the script draws: the classes, the icicle and the mistakes."""
    counts = class_counts(found)
    worst = worst_mistakes(found.decisions)
    shown = [row for row, *_ in worst]
    one = icicle_figures(found.truth, found.decisions)
    if found.several:  # a class is right where it is in the answer
        pairs = zip(counts["right"], counts["rows"], strict=True)
        recalls = [round(1000 * right / max(rows, 1)) for right, rows in pairs]
        one = {"accuracy": [*recalls, one["accuracy"][-1]]}
    names = row_names(found.dataset) or numbered(len(found), split)
    evidence = evidence_of(pipeline, found, worst, thumbnails)
    texts = shown_texts(found.dataset.inputs)
    images = {str(row): thumbnails.find(texts[row]) for row in shown} if texts is not None else {}
    return {
        **icicle_tree(found.space.hierarchy, found.truth),
        "row": "row",
        "seeds": 1,
        "classes": counts,
        "candidates": [{**one, "worst": worst, **evidence}],
        "texts": texts_of(shown, texts),
        "images": {row: one for row, one in images.items() if one is not None},
        "rows": texts_of(shown, names),
    }


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
                neighbor(
                    f"id {one.id}",
                    one.text,
                    [hierarchy.index(label) for label in one.labels],
                    (truth, decided),
                    hierarchy,
                )
                | {"weight": round(1000 * one.weight)}
                | ({} if (image := thumbnails.find(one.text)) is None else {"image": image})
                for one in own
                if round(1000 * one.weight)
            ]
            for (_, truth, decided, *_), own in zip(worst, rows, strict=True)
        ]
    }


SHOWN = 12  # pairs before the fold


def confusion_section(found: Outcome) -> str:
    """Return the pairs of classes that are confused, the rarer ones folded.

    Nothing where rows have several labels.
    """
    pairs = [] if found.several else confusions(found)
    if not pairs:
        return ""
    hierarchy = found.space.hierarchy
    heads = ["true", "predicted", "rows", "of the true class", "meet at", "height"]
    rows = [
        [
            class_cell(hierarchy, one["true"]),
            class_cell(hierarchy, one["decided"]),
            f'<td class="number">{one["rows"]:,}</td>',
            f'<td class="number">{100 * one["rows"] / one["of"]:.0f} %</td>',
            class_cell(hierarchy, one["lca"]),
            f'<td class="number">{one["height"]} of {hierarchy.root_height}</td>',
        ]
        for one in pairs
    ]
    shown = table(heads, rows[:SHOWN], kind="confusions")
    if len(rows) > SHOWN:
        rest = table(heads, rows[SHOWN:], kind="confusions")
        shown += f"<details><summary>The next {len(rows) - SHOWN}</summary>{rest}</details>"
    return Template(asset("confusions.html")).substitute(pairs=shown, highest=hierarchy.root_height)


def class_cell(hierarchy: Hierarchy, number: int) -> str:
    """Return a class with its title; -1 is the root."""
    if number < 0:
        return '<span class="title">the root: nothing in common</span>'
    title = hierarchy.title(number)
    shown = "" if title is None else f' <span class="title">{safe(title)}</span>'
    name = safe(hierarchy.names[number])
    if hierarchy.named_by == "path":  # a long path breaks between classes, not inside a name
        name = f"{safe(hierarchy.sep)}<wbr>".join(
            map(safe, hierarchy.names[number].split(hierarchy.sep))
        )
    return f"{name}{shown}"
