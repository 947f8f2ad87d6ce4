"""The options that several commands share: one name, one type, one sentence each."""

from __future__ import annotations

from inspect import Parameter
from pathlib import Path
from typing import Annotated

import typer

from hierlearn.cli.generate import PAIRS, described, option, options
from hierlearn.training.settings import Plan

ROWS = "Split, all, or valid (held out in training); by default test, else valid, else all."
DATA = (
    "Name of a dataset; a table: CSV, TSV, tab-separated .txt, JSON lines (all also .gz), Parquet, "
    "Arrow, ARFF, rows.xlsx::SHEET, rows.db::TABLE, or - for standard input; a folder, pattern or "
    "address (s3://...) of Parquet files; or a folder or .tar of images."
)
OWN_DATA, HOW = "Your own data", "How to train"  # panels of --help

ModelFolder = Annotated[Path, typer.Argument(help="Folder of a trained model.")]

DATA_DIR = option(
    "data_dir", Path, "Folder of benchmark files; also the variable HIERLEARN_DATA.", panel=OWN_DATA
)
COLUMNS = options(
    OWN_DATA,
    label=(str, "Column of labels."),
    levels=(str, "Columns of labels, one column per level: a,b,c."),
    features=(str, "Input columns: a,b,c; all others if none."),
    embeddings=(
        str,
        "Vectors of the rows, the only input: a .npy or .safetensors file, or a column of lists.",
    ),
    text=(str, "Column of texts, the only input unless --features."),
    image=(str, "Column of images: paths beside the file, or bytes in Parquet; the only input."),
    ignore=(list[str], "Column that is no input. Repeatable.", {"metavar": "COLUMN"}),
    column_kind=(PAIRS, "Kind of a column: zip=category; number, category, text, boolean or date."),
    split=(str, "Column that names splits."),
    id_column=(str, "Column that names each row, for a memory."),
    group=(
        str,
        "Column of what rows belong to, such as a patient or a recording; rows of one group are "
        "held out together.",
    ),
    hierarchy=(Path, "File of the taxonomy; inferred from the labels if none."),
    label_sep=(
        str,
        "Separator of several labels in a cell, ; by default; none: one label per cell.",
    ),
    sep=(str, "Separator of the names of a path, / by default."),
    delimiter=(str, "What separates the cells of a CSV file; found by default: , ; tab or |."),
    unknown=(
        str,
        "Labels that the taxonomy lacks: skip them, or count them for the nearest class above. By "
        "default an error in training, nearest where a model is evaluated.",
        {"metavar": "[error|skip|nearest]"},
    ),
    annotations=(Path, "GAF file with the terms of each row, joined by --id-column."),
    evidence=(
        str,
        "Evidence codes of --annotations to keep: experimental, or IDA,IMP; all but ND if none.",
    ),
    aspect=(str, "Aspects of --annotations to keep: P,F,C."),
    annotation_key=(
        str,
        "What --annotations are joined by: the id of a gene, or its symbol.",
        {"metavar": "[id|symbol]"},
    ),
)
SOURCE = [
    *options(OWN_DATA, dataset_option=(PAIRS, "Option of a named dataset, such as size=small.")),
    *COLUMNS,
    *options(OWN_DATA, skip_broken=(bool, "Leave out images that cannot be read.")),
    DATA_DIR,
]
COLUMN_NAMES = tuple(one.name for one in COLUMNS)
MISSING = option(
    "missing",
    str,
    "Rows that lack a value where no training row does: impute it with a warning, the default, or "
    "error.",
    metavar="[impute|error]",
)
DECIDING = [
    *(
        one
        for one in described(Plan, "", decoder="that of the model")
        if one.name in ("decoder", "decoder_option")
    ),
    *options(threshold=(float, "Threshold of the decoder, such as stop.")),
]
DEVICE = option("device", str, "Device of torch: auto, cpu, cuda.", default="auto")
FORCE = option("force", bool, "Replace existing files.")
TRUST = option("trust", bool, "Run a network factory outside of hierlearn that the model names.")
LOADING = [MISSING, FORCE, TRUST, DEVICE]  # of commands that read a model


def where(jobs: str, panel: str | None = None) -> list[Parameter]:
    """Return the options on where trainings run; ``jobs`` says how many run at a time."""
    return options(
        panel,
        jobs=(int, jobs, {"min": 1}),
        engine=(
            str,
            "Where trainings run: processes of this machine, or workers of Dask or Ray.",
            {"metavar": "[processes|dask|ray]"},
        ),
        address=(str, "Scheduler of a Dask or Ray cluster; if none, --engine starts workers here."),
    )


WHERE = where("Losses to train at a time; one per core, or one on a GPU.")
