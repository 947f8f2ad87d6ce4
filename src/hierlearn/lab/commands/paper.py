"""``hierlearn paper``: the tables of the paper, and what of them holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hierlearn.cli import shared
from hierlearn.cli.generate import FOLDER, described, given, given_fields, options, takes
from hierlearn.errors import plural
from hierlearn.lab.commands.compare import run
from hierlearn.lab.protocol import Protocol
from hierlearn.service.command import check_where

OPTIONS = [
    *options(
        out=(FOLDER, "Folder of the study.", {"default": Path("paper")}),
        force=(bool, "Replace another study in --out."),
    ),
    *(one for one in described(Protocol, shared.HOW) if one.name in ("seeds", "seed")),
    *options(
        shared.HOW,
        epochs=(
            int,
            "Passes over the training rows; if none, 85 on Diatoms and 60 on ImCLEF07D.",
            {"min": 1},
        ),
    ),
    shared.DEVICE,
    shared.DATA_DIR,
]


@takes(*OPTIONS, *shared.WHERE)
def paper(**options: Any) -> None:
    """Train the rows of the paper's tables on Diatoms and ImCLEF07D; say what holds.

    Interrupt it at any time: the same command continues with what is missing.

    Examples:
        paper --data-dir DATA
        paper --data-dir DATA --seeds 3 --device cpu --out mine
    """
    from hierlearn.cli.sources import open_named
    from hierlearn.lab import paper
    from hierlearn.lab.compare import write_study
    from hierlearn.lab.study import check_collection
    from hierlearn.lab.summary import write_texts
    from hierlearn.terminal import Console, print_plain

    check_where(options)
    console, out = Console(), options["out"]
    check_collection(out)
    settings = given(options, ("epochs", "device"))
    asked = given_fields(Protocol, given(options))
    protocols = {name: paper.protocol(name, settings=settings, **asked) for name in paper.EPOCHS}
    summaries = {}
    for name, protocol in protocols.items():
        dataset = open_named(name, data_dir=options["data_dir"])
        seeds = plural(protocol.seeds, "seed")
        print_plain(console, f"{name}: {plural(len(paper.ROWS), 'row')}, {seeds} each")
        own = {**options, "tune": "none", "out": out / name}
        study = run(dataset, paper.candidates(), protocol, own)
        summaries[name], _ = write_study(study)
    titles = {1: "Table 1, the ablation", 2: "Table 2, the results", 0: "What the paper lacks"}
    tables = "\n".join(
        f"## {title}\n\n{paper.as_markdown(summaries, number)}" for number, title in titles.items()
    )
    typeset = "\n".join(
        f"% {title}\n{paper.as_latex(summaries, number)}" for number, title in titles.items()
    )
    said = paper.verdict(summaries)
    texts = {"paper.md": f"## What holds\n\n{said}\n\n{tables}", "paper.tex": typeset}
    write_texts(out, texts)
    print_plain(console, *tables.splitlines(), "", *said.splitlines())
    print_plain(console, f"wrote paper.md, paper.tex and one study per dataset to {out}")
