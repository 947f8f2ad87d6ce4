"""The paper's tables: its losses on its two datasets with its network, the printed figures beside.

Goyal and Ghosh, "Hierarchical Class-Based Curriculum Loss", Tables 1 and 2. The protocol is the one
that reproduces the CrossEntropy rows: targets closed under ancestors, the most probable of all
classes, a hit being any class of the closure; one hidden layer of 800 units, dropout 0.25, Adam
with rate 1e-3, batches of 128, inputs standardized, 85 epochs (Diatoms) and 60 (IMCLEF, which is
ImCLEF07D). Table 1 prints an MRR of 85.19 for CrossEntropy on Diatoms, Table 2 81.00 for the same
row; the latter fits.

The row HCL is ``HCLLoss.paper``, the printed equations to the letter. Below it stands a reading of
Algorithm 1 that a training loop in torch suggests: class losses as means over the batch, errors
counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hierlearn.errors import plural
from hierlearn.lab.candidates import Candidate, parse_candidate
from hierlearn.lab.protocol import Protocol
from hierlearn.lab.summary import markdown_table
from hierlearn.metrics.measure import find_metric

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = ("hit@1", "mrr", "hier-dist", "hier-dist-path")
EXTRA = ("lca-height", "terminal-accuracy", "leaf-accuracy", "mean-level", "au-prc")
SETTINGS: dict[str, Any] = {
    "schedule": "constant",
    "learning_rate": 1e-3,
    "batch_size": 128,
    "prior_bias": False,
    "patience": None,
}
NETWORK = {"name": "mlp", "options": {"width": 800, "depth": 1, "dropout": 0.25}}
EPOCHS = {"diatoms": 85, "imclef07d": 60}
POINT = 0.01  # within which a printed Hit@1 or a tenth of a level is reached: about ten test rows
TIE = 0.2  # points of Hit@1 below which a printed difference is none
TITLES = {"diatoms": "Diatoms", "imclef07d": "IMCLEF"}  # as the paper calls them


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's tables.

    Attributes:
        candidate: what we train for it.
        tables: the tables it is in, 1 and 2; 0 for what the paper lacks.
        printed: by dataset, Hit@1 and MRR in percent and HierDist.
    """

    candidate: Candidate
    tables: tuple[int, ...]
    printed: Mapping[str, tuple[float, float, float]]


def _row(
    label: str,
    text: str,
    tables: tuple[int, ...],
    diatoms: tuple[float, float, float] | None = None,
    imclef: tuple[float, float, float] | None = None,
) -> PaperRow:
    printed = {"diatoms": diatoms, "imclef07d": imclef}
    known = {name: figures for name, figures in printed.items() if figures is not None}
    return PaperRow(replace(parse_candidate(text), label=label), tables, known)


ROWS = (
    _row("CrossEntropy", "bce", (1, 2), (74.45, 81.00, 1.26), (90.45, 93.33, 0.35)),
    _row("FocalLoss", "focal", (2,), (74.36, 80.47, 1.27), (90.85, 93.60, 0.26)),
    _row("Hier-CE", "hxe", (2,), (75.12, 81.51, 1.24), (90.85, 93.63, 0.24)),
    _row("SoftLabels", "soft-labels", (2,), (72.36, 74.95, 1.38), (90.45, 92.07, 0.33)),
    _row("HCL-Hier", "hcl-hier", (1,), (75.12, 81.46, 1.23), (90.45, 93.33, 0.33)),
    _row("HCL-CL", "hcl-cl", (1,), (74.93, 81.34, 1.24), (90.65, 93.34, 0.32)),
    _row("HCL", "hcl-paper", (1, 2), (75.21, 81.56, 1.22), (90.95, 93.49, 0.22)),
    _row(
        "HCL, class losses averaged",
        "hcl-paper:normalize=losses",
        (1, 2),
        (75.21, 81.56, 1.22),
        (90.95, 93.49, 0.22),
    ),
    _row("HCL, floor 0.1", "hcl-paper:floor=0.1", (0,)),
    _row("MCLoss", "mcloss", (0,)),
    _row("leaf cross entropy", "leaf-ce", (0,)),
    _row("recipe hcl", "hcl", (0,)),
    _row("recipe max", "max", (0,)),
    _row("recipe flat", "flat", (0,)),
)


# A recipe is a way to train as well: its bias at the priors, its rate falling to 0.
BY_CANDIDATE = {
    row.candidate.key: {"prior_bias": True, "schedule": "cosine"}
    for row in ROWS
    if row.candidate.recipe
}


def candidates() -> list[Candidate]:
    """Return the candidates of the study, the paper's first."""
    return [row.candidate for row in ROWS]


def protocol(name: str, **changes: Any) -> Protocol:
    """Return the protocol of the paper on one of its datasets.

    Args:
        name: a key of EPOCHS.
        changes: fields of Protocol; settings are added to the paper's.
    """
    settings = {**SETTINGS, "epochs": EPOCHS[name], **changes.pop("settings", {})}
    return Protocol(
        settings=settings,
        network=NETWORK,
        valid_fraction=0.0,
        by_candidate=BY_CANDIDATE,
        metrics=(*COLUMNS, *EXTRA),
        **changes,
    )


def as_markdown(summaries: Mapping[str, Mapping[str, Any]], table: int) -> str:
    """Return one of the paper's tables with our figures beside the printed ones.

    Args:
        summaries: the summary of the study of each dataset.
        table: 1 (ablation), 2 (results), or 0 for what the paper lacks.
    """
    heads = ["loss"]
    for name in summaries:
        for metric in ("Hit@1", "MRR", "HierDist"):
            heads += [f"{name} {metric}", "paper"] if table else [f"{name} {metric}"]
        heads.append(f"{name} HierDist (path)")
    rows = [
        [row.candidate.label]
        + [
            cell
            for name, summary in summaries.items()
            for cell in cells_of(row, name, summary, printed=bool(table))
        ]
        for row in ROWS
        if table in row.tables
    ]
    return "\n".join(markdown_table(heads, rows)) + "\n"


def cells_of(row: PaperRow, name: str, summary: Mapping[str, Any], *, printed: bool) -> list[str]:
    if row.candidate.key not in summary["candidates"]:
        return ["" for _ in range(7 if printed else 4)]
    number = summary["candidates"].index(row.candidate.key)
    cells = []
    for place, metric in enumerate(COLUMNS):
        figure = summary["figures"][metric][number]
        write = partial(find_metric(metric).format, digits=2)  # as the paper prints it
        text = write(figure["mean"])
        if figure["deviation"] is not None:
            text += f" ± {write(figure['deviation'])}"
        cells.append(text)
        if printed and place < 3:
            known = row.printed.get(name)
            cells.append(f"{known[place]:.2f}" if known else "")
    return cells


# ---------------------------------------- what holds


def verdict(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return in ten lines which printed rows hold, what holds before what does not.

    The first row holds where its Hit@1 is within a point of the printed one. Of the others the
    paper says that they gain on it, lose or stay the same: that holds where the difference in Hit@1
    is significant and of the printed sign, or not significant where less than a fifth of a point
    was printed; of one seed, which tells of no significance, it must be less than that itself.
    HierDist holds within a tenth.

    Args:
        summaries: the summary of the study of each dataset.
    """
    words = {
        row.candidate.label: {
            name: claim(row, name, summary) for name, summary in summaries.items()
        }
        for row in ROWS
        if row.tables != (0,)
    }
    first = ROWS[0]
    words[f"HierDist of {first.candidate.label}"] = {
        name: distance(first, name, summary) for name, summary in summaries.items()
    }
    found = []
    for label, by_set in words.items():
        known = {name: one for name, one in by_set.items() if one is not None}
        if not known:
            continue
        held = sum(holds for holds, *_ in known.values())
        state = "holds" if held == len(known) else "in part" if held else "does not"
        parts = [
            f"{TITLES[name]} {text}{' holds' * holds * (state == 'in part')}{more}"
            for name, (holds, text, more) in known.items()
        ]
        found.append((state, f"{state:<8}  {label}: {'; '.join(parts)}"))
    order = ("holds", "in part", "does not")
    lines = [line for state, line in sorted(found, key=lambda one: order.index(one[0]))]
    seeds = max(summary["seeds"] for summary in summaries.values())
    head = (
        f"Hit@1 of {plural(seeds, 'seed')} and its difference from {first.candidate.label}, * if "
        f"significant (what the paper prints):"
    )
    return "\n".join([head, *lines])


def claim(row: PaperRow, name: str, summary: Mapping[str, Any]) -> tuple[bool, str, str] | None:
    """Return whether what the paper prints of a row holds, both figures, and what it selects."""
    first = ROWS[0].printed[name][0]
    if row.candidate.key not in summary["candidates"] or name not in row.printed:
        return None
    number = summary["candidates"].index(row.candidate.key)
    figure, printed = summary["figures"]["hit@1"][number], row.printed[name][0]
    ours = 100 * figure["mean"]
    if row is ROWS[0]:
        return abs(ours - printed) <= 100 * POINT, f"{ours:.2f} ({printed:.2f})", ""
    gain, promised = 100 * figure["difference"], printed - first
    real = figure["significant"]
    if abs(promised) < TIE:
        holds = not real and (summary["seeds"] > 1 or abs(gain) < TIE)
    else:
        holds = real and gain * promised > 0
    kept = summary.get("selected", {}).get(row.candidate.key)
    share = "" if kept is None else f", {100 * kept:.1f} % of classes selected"
    star = "*" if real else ""
    return holds, f"{ours:.2f}, {gain:+.2f}{star} ({printed:.2f}, {promised:+.2f})", share


def distance(row: PaperRow, name: str, summary: Mapping[str, Any]) -> tuple[bool, str, str] | None:
    """Return whether the HierDist of a row is the printed one, and both."""
    if row.candidate.key not in summary["candidates"]:
        return None
    number = summary["candidates"].index(row.candidate.key)
    ours, printed = summary["figures"]["hier-dist"][number]["mean"], row.printed[name][2]
    return abs(ours - printed) <= 10 * POINT, f"{ours:.2f} ({printed:.2f})", ""
