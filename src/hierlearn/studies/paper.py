"""The paper's tables: its losses on its two datasets with its network, the printed figures beside.

Goyal and Ghosh, "Hierarchical Class-Based Curriculum Loss", Tables 1 and 2. The protocol is the one
that reproduces the CrossEntropy rows: targets closed under ancestors, the most probable of all
classes, a hit being any class of the closure; one hidden layer of 800 units, dropout 0.25, Adam
with rate 1e-3, batches of 128, inputs standardized, 85 epochs (Diatoms) and 60 (IMCLEF, which is
ImCLEF07D). Table 1 prints an MRR of 85.19 for CrossEntropy on Diatoms, Table 2 81.00 for the same
row; the latter fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hierlearn.metrics.registry import find_metric
from hierlearn.studies.candidates import Candidate, parse_candidate
from hierlearn.studies.tables import is_bold, tex

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
    candidate = parse_candidate(text)
    printed = {"diatoms": diatoms, "imclef07d": imclef}
    return PaperRow(
        Candidate(candidate.key, candidate.loss, candidate.options, candidate.recipe, label),
        tables,
        {name: figures for name, figures in printed.items() if figures is not None},
    )


ROWS = (
    _row("CrossEntropy", "bce", (1, 2), (74.45, 81.00, 1.26), (90.45, 93.33, 0.35)),
    _row("FocalLoss", "focal", (2,), (74.36, 80.47, 1.27), (90.85, 93.60, 0.26)),
    _row("Hier-CE", "hxe", (2,), (75.12, 81.51, 1.24), (90.85, 93.63, 0.24)),
    _row("SoftLabels", "soft-labels", (2,), (72.36, 74.95, 1.38), (90.45, 92.07, 0.33)),
    _row("HCL-Hier", "hcl-hier", (1,), (75.12, 81.46, 1.23), (90.45, 93.33, 0.33)),
    _row("HCL-CL", "hcl-cl:floor=0", (1,), (74.93, 81.34, 1.24), (90.65, 93.34, 0.32)),
    _row("HCL", "hcl-paper", (1, 2), (75.21, 81.56, 1.22), (90.95, 93.49, 0.22)),
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


def as_markdown(summaries: Mapping[str, Mapping[str, Any]], table: int) -> str:
    """Return one of the paper's tables with our figures beside the printed ones.

    Args:
        summaries: the summary of the study of each dataset.
        table: 1 (ablation), 2 (results), or 0 for what the paper lacks.
    """
    heads, rule = ["loss"], ["---"]
    for name in summaries:
        for metric in ("Hit@1", "MRR", "HierDist"):
            heads += [f"{name} {metric}", "paper"] if table else [f"{name} {metric}"]
            rule += ["---:", "---:"] if table else ["---:"]
        heads.append(f"{name} HierDist (path)")
        rule.append("---:")
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(rule) + "|"]
    for row in ROWS:
        if table not in row.tables:
            continue
        cells = [row.candidate.label]
        for name, summary in summaries.items():
            cells += cells_of(row, name, summary, printed=bool(table))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def cells_of(row: PaperRow, name: str, summary: Mapping[str, Any], *, printed: bool) -> list[str]:
    """Return the cells of one row on one dataset."""
    if row.candidate.key not in summary["candidates"]:
        return ["" for _ in range(7 if printed else 4)]
    number = summary["candidates"].index(row.candidate.key)
    cells = []
    for place, metric in enumerate(COLUMNS):
        figure = summary["figures"][metric][number]
        text = printed_figure(metric, figure["mean"])
        if figure["deviation"] is not None:
            text += f" ± {printed_figure(metric, figure['deviation'])}"
        cells.append(text)
        if printed and place < 3:
            known = row.printed.get(name)
            cells.append(f"{known[place]:.2f}" if known else "")
    return cells


def printed_figure(metric: str, value: float) -> str:
    """Return a figure as the paper prints it, with two digits."""
    return find_metric(metric).format(value, digits=2)


def as_latex(summaries: Mapping[str, Mapping[str, Any]], table: int) -> str:
    """Return our figures of one of the paper's tables in its layout, with booktabs rules.

    Args:
        summaries: the summary of the study of each dataset.
        table: 1 (ablation), 2 (results), or 0 for what the paper lacks.
    """
    heads, rules, names = ["Methods"], [], [""]
    for place, name in enumerate(summaries):
        heads.append(rf"\multicolumn{{3}}{{c}}{{{TITLES[name]}}}")
        rules.append(rf"\cmidrule(r){{{3 * place + 2}-{3 * place + 4}}}")
        names += ["Hit@1", "MRR", "HierDist"]
    lines = [
        r"\begin{tabular}{l" + "lll" * len(summaries) + "}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        " ".join(rules),
        " & ".join(names) + r" \\",
        r"\midrule",
    ]
    for row in ROWS:
        if table not in row.tables:
            continue
        cells = [tex(row.candidate.label)]
        for summary in summaries.values():
            cells += latex_cells(row, summary)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex_cells(row: PaperRow, summary: Mapping[str, Any]) -> list[str]:
    """Return Hit@1, MRR and HierDist of a row; bold is better than the first beyond noise."""
    if row.candidate.key not in summary["candidates"]:
        return ["", "", ""]
    number = summary["candidates"].index(row.candidate.key)
    cells = []
    for metric in COLUMNS[:3]:
        figure = summary["figures"][metric][number]
        mean = printed_figure(metric, figure["mean"])
        mean = rf"\textbf{{{mean}}}" if is_bold(summary, metric, number) else mean
        if figure["deviation"] is not None:
            mean += rf" {{\scriptsize$\pm${printed_figure(metric, figure['deviation'])}}}"
        cells.append(mean)
    return cells
