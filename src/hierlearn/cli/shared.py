"""The options that several commands share: one name, one type, one sentence each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hierlearn.cli.generate import flag, option, pairs

ROWS = "Split, all, or valid (held out in training); by default test, else valid, else all."
DATA = (
    "Name of a dataset; a table: CSV, TSV, tab-separated .txt, JSON lines (all also .gz), Parquet, "
    "Arrow, ARFF, rows.xlsx::SHEET, rows.db::TABLE, or - for standard input; a folder, pattern or "
    "address (s3://...) of Parquet files; or a folder or .tar of images."
)
OWN_DATA, HOW = "Your own data", "How to train"  # panels of --help

ModelFolder = Annotated[Path, typer.Argument(help="Folder of a trained model.")]

DATA_DIR = option(
    "data_dir",
    Path,
    None,
    "Folder of benchmark files; also the variable HIERLEARN_DATA.",
    panel=OWN_DATA,
)
COLUMNS = [
    option("label", str, None, "Column of labels.", panel=OWN_DATA),
    option("levels", str, None, "Columns of labels, one column per level: a,b,c.", panel=OWN_DATA),
    option("features", str, None, "Input columns: a,b,c; all others if none.", panel=OWN_DATA),
    option(
        "embeddings",
        str,
        None,
        "Vectors of the rows, the only input: a .npy or .safetensors file, or a column of lists.",
        panel=OWN_DATA,
    ),
    option("text", str, None, "Column of texts, the only input unless --features.", panel=OWN_DATA),
    option(
        "image",
        str,
        None,
        "Column of images: paths beside the file, or bytes in Parquet; the only input.",
        panel=OWN_DATA,
    ),
    option(
        "ignore",
        list[str],
        None,
        "Column that is no input. Repeatable.",
        metavar="COLUMN",
        panel=OWN_DATA,
    ),
    pairs(
        "column_kind",
        "Kind of a column: zip=category; number, category, text, boolean or date.",
        panel=OWN_DATA,
    ),
    option("split", str, None, "Column that names splits.", panel=OWN_DATA),
    option("id_column", str, None, "Column that names each row, for a memory.", panel=OWN_DATA),
    option(
        "hierarchy",
        Path,
        None,
        "File of the taxonomy; inferred from the labels if none.",
        panel=OWN_DATA,
    ),
    option(
        "label_sep",
        str,
        None,
        "Separator of several labels in a cell, ; by default; none: one label per cell.",
        panel=OWN_DATA,
    ),
    option("sep", str, None, "Separator of the names of a path, / by default.", panel=OWN_DATA),
    option(
        "delimiter",
        str,
        None,
        "What separates the cells of a CSV file; found by default: , ; tab or |.",
        panel=OWN_DATA,
    ),
    option(
        "unknown",
        str,
        None,
        "Labels that the taxonomy lacks: skip them, or count them for the nearest class above. "
        "By default an error in training, nearest where a model is evaluated.",
        metavar="[error|skip|nearest]",
        panel=OWN_DATA,
    ),
    option(
        "annotations",
        Path,
        None,
        "GAF file with the terms of each row, joined by --id-column.",
        panel=OWN_DATA,
    ),
    option(
        "evidence",
        str,
        None,
        "Evidence codes of --annotations to keep: experimental, or IDA,IMP; all but ND if none.",
        panel=OWN_DATA,
    ),
    option("aspect", str, None, "Aspects of --annotations to keep: P,F,C.", panel=OWN_DATA),
    option(
        "annotation_key",
        str,
        None,
        "What --annotations are joined by: the id of a gene, or its symbol.",
        metavar="[id|symbol]",
        panel=OWN_DATA,
    ),
]
SOURCE = [
    pairs("dataset_option", "Option of a named dataset, such as size=small.", panel=OWN_DATA),
    *COLUMNS,
    flag("skip_broken", "Leave out images that cannot be read.", panel=OWN_DATA),
    DATA_DIR,
]
COLUMN_NAMES = tuple(one.name for one in COLUMNS)
MISSING = option(
    "missing",
    str,
    None,
    "Rows that lack a value where no training row does: impute it with a warning, the default, or "
    "error.",
    metavar="[impute|error]",
)
DEVICE = option("device", str, "auto", "Device of torch: auto, cpu, cuda.")
FORCE = flag("force", "Replace existing files.")
TRUST = flag("trust", "Run a network factory outside of hierlearn that the model names.")
