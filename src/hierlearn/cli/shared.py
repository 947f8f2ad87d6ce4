"""The options that several commands share: one name, one type, one sentence each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

DATA = "A dataset's name, or an ARFF, CSV, TSV or Parquet file."
OWN = "Your own data"  # the panels of --help

Set = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set", help="An option of a named dataset: --set size=small.", rich_help_panel=OWN
    ),
]
Label = Annotated[Optional[str], typer.Option(help="The column of labels.", rich_help_panel=OWN)]
Levels = Annotated[
    Optional[str],
    typer.Option(help="The columns of labels, a column a level: a,b,c.", rich_help_panel=OWN),
]
Features = Annotated[
    Optional[str], typer.Option(help="The feature columns: a,b,c.", rich_help_panel=OWN)
]
Text = Annotated[Optional[str], typer.Option(help="The column of texts.", rich_help_panel=OWN)]
Split = Annotated[
    Optional[str], typer.Option(help="The column that names splits.", rich_help_panel=OWN)
]
HierarchyFile = Annotated[
    Optional[Path],
    typer.Option(help="The taxonomy's file; else inferred from labels.", rich_help_panel=OWN),
]
LabelSep = Annotated[
    Optional[str],
    typer.Option(help="What joins several labels in a cell; by default ;.", rich_help_panel=OWN),
]
Sep = Annotated[
    Optional[str],
    typer.Option(help="What joins the names of a path; by default /.", rich_help_panel=OWN),
]
DataDir = Annotated[
    Optional[Path],
    typer.Option(
        help="Folder of benchmark files; also the variable HIERLEARN_DATA.", rich_help_panel=OWN
    ),
]
ModelFolder = Annotated[Path, typer.Argument(help="The folder of a trained model.")]
Device = Annotated[
    str, typer.Option(help="Where to compute: cpu, cuda, or auto for what is there.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there already.")]

HOW = "How to train"  # the panel of a study's training


def how(help: str) -> Any:
    """Return an option of how a study trains."""
    return typer.Option(help=help, rich_help_panel=HOW)


ValidFraction = Annotated[float, how("Training rows to stop early on.")]
TestFraction = Annotated[float, how("Rows to judge on, where no split is.")]
Epochs = Annotated[Optional[int], how("At most; 100.")]
Patience = Annotated[Optional[int], how("Epochs without a better metric; 10. 0: never stop early.")]
Metric = Annotated[Optional[str], how("To stop early by; au-prc.")]
BatchSize = Annotated[Optional[int], how("Rows a step.")]
LearningRate = Annotated[Optional[float], how("Of AdamW.")]
Schedule = Annotated[Optional[str], how("cosine, linear or constant.")]
NetworkName = Annotated[Optional[str], how("mlp, token-bag or linear.")]
NetworkOption = Annotated[Optional[list[str]], how("An option of the network: width=800.")]
StudyDevice = Annotated[Optional[str], how("cpu, cuda or auto.")]
Jobs = Annotated[
    Optional[int],
    typer.Option(
        min=1,
        help="Losses to train at a time; one a core, or one on a graphics processor.",
        rich_help_panel=HOW,
    ),
]
