"""Every command on files whose classes, columns, texts and names would act on a terminal.

A script: it writes the files into the working directory, runs the commands in one process, and
writes the exit code of each to codes.json.
"""

import csv
import json
import sys
import warnings
from pathlib import Path
from unittest import mock

ESCAPE = "\x1b[31mEVIL"
TITLE = "\x1b]owned\x07"
FORGED = "FORGED: all is well"
EVIL = f"{ESCAPE}[red]{TITLE}\x9b1m\u202e\n{FORGED}"  # a name from outside
LEAF = f"leaf{EVIL}"
FOLDER = f"m{ESCAPE}[red]\u202e"
COMMANDS = [
    ["data", "list"],
    ["data", "describe", "rows.csv", "--label", "class", "--text", f"words{EVIL}"],
    ["data", "fetch", f"name{EVIL}"],
    ["inspect", "tree.csv"],
    ["inspect", f"missing{EVIL}.csv"],
    ["bench", "--hierarchy", "tree.csv", "--batch-size", "2", "--rounds", "1", "--losses", "bce"],
    ["bench", "rows.csv", "--label", "class", "--text", f"words{EVIL}", "--losses", "bce"],
    ["bench", "--losses", f"loss{EVIL}"],
    [
        *["train", "rows.csv", "--label", "class", "--text", f"words{EVIL}", "--id-column", "key"],
        *["--out", FOLDER, "--name", f"name{EVIL}", "--license", f"mit{EVIL}", "--epochs", "1"],
        *["--head", "neighbors", "--loss", "bce", "--valid-fraction", "0.2"],
    ],
    ["train", "mixed.csv", "--label", "class", "--out", "mixed", "--epochs", "1"],
    ["train", "rows.csv", "--label", f"none{EVIL}", "--out", "x"],
    ["train", "bad.csv", "--label", "class", "--out", "x", "--features", f"n{EVIL}"],
    ["train", "rows.csv", "--config", "bad.yaml"],
    ["evaluate", FOLDER, "rows.csv", "--rows", "all"],
    ["evaluate", FOLDER, "rows.csv", "--rows", f"part{EVIL}"],
    ["evaluate", FOLDER, "rows.csv", "--metrics", f"hit{EVIL}"],
    ["predict", FOLDER, "rows.csv", "--out", f"a{FOLDER}.csv", "--keep", "all"],
    ["predict", FOLDER, "other.csv", "--out", "b.csv"],
    ["explain", FOLDER, "rows.csv", "--count", "2"],
    ["remember", FOLDER, "more.csv", "--label", "class", "--out", "bigger"],
    ["forget", FOLDER, "--id", f"k0{EVIL}", "--out", "smaller"],
    ["forget", FOLDER, "--id", f"none{EVIL}", "--out", "smallest"],
    ["remap", FOLDER, "--hierarchy", "new.csv", "--map", "map.csv", "--dry-run"],
    ["index", FOLDER, "--out", f"indexed{ESCAPE}"],
    ["export", "mixed", "--out", f"x{ESCAPE}/y{EVIL}.onnx"],
    ["report", FOLDER, "--data", "rows.csv", "--rows", "all"],
    ["report", f"nothing{EVIL}"],
    [
        *["prune", "new.csv", "--data", "rows.csv", "--label", "class", "--text", f"words{EVIL}"],
        *["--out", f"pruned{ESCAPE}.json"],
    ],
    ["prune", "new.csv", "--below", f"top{EVIL}", "--out", f"part{ESCAPE}.json"],
    ["prune", "new.csv", "--below", f"none{EVIL}", "--out", "x.json"],
    ["cafa", "evaluate", FOLDER, "rows.csv", "--rows", "all"],
    ["cafa", "threshold", FOLDER, "rows.csv", "--rows", "all", "--out", f"best{ESCAPE}"],
    ["cafa", "predict", FOLDER, "rows.csv", "--out", f"c{ESCAPE}.tsv", "--rows", "all"],
    [
        *["compare", "rows.csv", "--label", "class", "--text", f"words{EVIL}", "--methods", "bce"],
        *["--seeds", "2", "--epochs", "1", "--out", f"study{ESCAPE}"],
    ],
    ["compare", "rows.csv", "--methods", f"loss{EVIL}"],
    ["serve", FOLDER, "--host", f"host{EVIL}"],
    ["paper", "--data-dir", f"nowhere{EVIL}"],
    ["rank", f"study{ESCAPE}", f"other{EVIL}"],
    ["noise", "rows.csv", "--label", "class", "--methods", f"loss{EVIL}"],
    [f"command{EVIL}"],
    ["inspect", f"--option{EVIL}"],
    ["inspect", "--depth", f"two{EVIL}"],
    ["inspect", f"crash{EVIL}"],
]


def write_files():
    """Write the tables and taxonomies."""

    def table(name, *rows):
        with Path(name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)

    words = {f"top{EVIL}/{LEAF}": "apple pear", "top2/a": "stone rock", "top2/b": "river sea"}
    labels = list(words)
    rows = [
        [f"k{n}{EVIL if n == 0 else ''}", f"{words[labels[n % 3]]} n{n} {EVIL}", labels[n % 3]]
        for n in range(30)
    ]
    header = ["key", f"words{EVIL}", "class"]
    table("rows.csv", header, *rows)
    table("more.csv", header, ["new", "apple", f"top2/new{EVIL}"])
    table("other.csv", ["key", f"text{EVIL}"], ["1", "apple"])
    mixed = [[n % 3, f"kind{EVIL}" if n % 2 else "other", labels[n % 3]] for n in range(30)]
    table("mixed.csv", [f"n{EVIL}", f"k{EVIL}", "class"], *mixed)
    table("bad.csv", [f"n{EVIL}", "class"], ["1", "a"], [f"x{EVIL}", "b"])
    nodes = [["parent", "child"], [f"top{EVIL}", LEAF], ["top2", "a"], ["top2", "b"]]
    table("tree.csv", *nodes)
    table("new.csv", ["path"], [f"top{EVIL}/{LEAF}"], ["top2/a"], [f"top2/c{EVIL}"])
    table("map.csv", ["old", "new"], ["top2/b", f"top2/c{EVIL}"])
    Path("bad.yaml").write_text(json.dumps({f"key{EVIL}": 1}), encoding="utf-8")


def crash(*_, **__):
    """Warn, and fail as only a mistake of ours would."""
    warnings.warn(f"warned of {EVIL}", UserWarning, stacklevel=1)
    warnings.warn(f"again of {EVIL}", RuntimeWarning, stacklevel=1)
    raise RuntimeError(f"a fault of {EVIL}")


def main():
    """Run the commands."""
    from hierlearn import cli

    write_files()
    codes = []
    for words in COMMANDS:
        sys.argv = ["hierlearn", *words]
        print(f"\n>>> {words[0]!r}", flush=True)
        try:
            if words[1:] == [f"crash{EVIL}"]:
                with mock.patch("hierlearn.cli.rows.open_hierarchy", crash):
                    cli.main()
            cli.main()
        except SystemExit as error:
            codes.append(error.code or 0)
            Path("codes.json").write_text(json.dumps(codes), encoding="utf-8")


if __name__ == "__main__":
    main()
