"""Command lines: options drawn from their declarations, values from a pool of nasty ones."""

import contextlib
import io
import os
import shutil
import sys
from pathlib import Path

from hypothesis import strategies as st

import hierlearn.cli as cli
from fuzz.folders import rows
from fuzz.formats import ARFF, GAF, NESTED, OBO, TABLE, cached, packed_examples, wide_table
from hierlearn.cli import main
from hierlearn.errors import HierlearnError

PACKED = cached(packed_examples)
WORDS = [
    *("", " ", "0", "1", "-1", "2", "0.5", "1e-300", "1e300", "nan", "inf", "none", "None", "true"),
    *(
        "9" * 400,
        "a" * 5000,
        "é",
        "\x1b[31mred",
        "[bold]x[/bold]",
        "../x",
        "a,b",
        ",",
        "a=b",
        "=",
        "a=",
    ),
    *(
        "[1,2",
        "{}",
        "hcl",
        "bce",
        "hxe:alpha=2",
        "hxe:alpha=x",
        "mlp",
        "linear",
        "class",
        "a",
        "note",
    ),
    *("csv", "parquet", "test", "valid", "cpu", "mps", "xpu", "meta", "cuda:99", "leaf", "cost=3"),
    *(
        "stop",
        "l1,l2",
        "id",
        "part",
        ";",
        "tab",
        "\udcff",
        "%s",
        "$(x)",
        "hf:missing",
        "a=hf:missing,pooling=x",
        "timm:none",
        "cnn",
        "embeddings",
        "tuning=full",
        "--help",
        "-",
        "--",
        "999999999999",
    ),
]
PATHS = [
    *(
        "empty.csv",
        "rows.csv",
        "rows.csv",
        "rows.csv",
        "new.csv",
        "h.json",
        "x.obo",
        "x.arff",
        "x.gaf",
        "x.onnx",
    ),
    *("model", "model", "model", "study", "folder", "missing", "missing/x.csv", "out", "out.csv"),
    *("/dev/null", "/dev/zero", "fifo", "link", "synthetic", "a" * 300, "", "nul", "x.unknown"),
    *("b" * 5000 + ".parquet", "c/" * 3000 + "d.tar", "packed.parquet", "wide.csv"),
]
BASES = {  # command lines that succeed, to which options are added
    ("train",): "fit.csv --label class --out new --epochs 1",
    ("predict",): "model fit.csv --out answers.csv",
    ("evaluate",): "model fit.csv --label class",
    ("compare",): "fit.csv --label class --test-fraction 0.3 --out cmp --epochs 1 --seeds 1 "
    "--methods bce,hxe --jobs 1",
    ("inspect",): "h.json",
    ("explain",): "neighbors fit.csv",
    ("index",): "neighbors --out indexed",
    ("report",): "study",
    ("data", "describe"): "fit.csv --label class",
    ("bench",): "fit.csv --label class --rounds 1 --timed-epochs 1",
    ("cafa", "evaluate"): "neighbors fit.csv --label class",
    ("cafa", "predict"): "neighbors fit.csv --id-column class --out scores.tsv",
    ("cafa", "threshold"): "model fit.csv --label class --out kept",
    ("forget",): "neighbors --id 3 --out less",
    ("noise",): "fit.csv --label class --kinds labels",
    ("prune",): "h.json --data rows.csv --label class --out part.json",
    ("rank",): "study study",
    ("remap",): "neighbors --hierarchy h.json --dry-run",
    ("remember",): "neighbors fit.csv --label class --out more",
}
NEEDED = {  # so that what trains ends within seconds
    "train": ["--epochs", "1"],
    "compare": ["--epochs", "1", "--seeds", "1", "--methods", "bce,hxe", "--jobs", "1"],
    "noise": ["--epochs", "1", "--draws", "1", "--rates", "0,0.2", "--methods", "bce"],
    "bench": ["--batch-size", "8", "--epochs", "1", "--losses", "bce"],
    "serve": ["--host", "192.0.2.1"],  # for documentation: nobody can listen there
}
INTEGERS = ["1", "0", "2", "3", "-5", "1000000000", "99999999999999999999"]
FLOATS = ["0.5", "0.1", "0", "1", "-1", "1e-300", "1e300", "nan", "inf"]
FILES = ("data", "model", "out", "hierarchy", "rows", "study", "studies")
LONG = (
    *("epochs", "seeds", "draws", "ensemble_size", "rates", "folds", "repeat", "rows", "effort"),
    *("rounds", "timed_epochs"),
)
# Of commands and options.
SKIPPED = ("demo", "paper", "jobs", "data_dir", "debug", "help", "suite", "host")


def commands(group=None, words=()):
    """Yield the words and the declaration of every command."""
    group = group or cli.commands()
    for name, one in sorted(group.commands.items()):
        if name in SKIPPED or name in ("get", "fetch"):
            continue
        if hasattr(one, "commands"):
            yield from commands(one, (*words, name))
        else:
            yield (*words, name), one


COMMANDS = dict(commands())


def make_folder(folder, examples, line):
    """Fill a folder with the files that command lines name, and the folders that this one names."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "folder").mkdir()
    (folder / "folder" / "a.txt").write_text("keep me\n")
    (folder / "rows.csv").write_text(
        TABLE + "".join(TABLE.split("\n", 1)[1].replace("\n1,", f"\n{n},") for n in range(5))
    )
    (folder / "new.csv").write_text("a,b\n1,2\n3,4\n")
    (folder / "empty.csv").write_text("")
    (folder / "h.json").write_bytes(NESTED)
    (folder / "x.obo").write_text(OBO)
    (folder / "x.arff").write_text(ARFF)
    (folder / "x.gaf").write_text(GAF)
    (folder / "x.unknown").write_text("?")
    if "packed.parquet" in line:
        (folder / "packed.parquet").write_bytes(PACKED()[0])
    if "wide.csv" in line:
        (folder / "wide.csv").write_bytes(wide_table())
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to("missing")
    if "model" in line:
        shutil.copytree(examples.model("mlp"), folder / "model")
    if "neighbors" in line:
        shutil.copytree(examples.model("neighbors"), folder / "neighbors")
    if "study" in line:
        shutil.copytree(examples.study(), folder / "study")
    data = rows()
    header = [*data.feature_names, "class"]
    cells = [
        [*map(str, one), ";".join(few)] for one, few in zip(data.inputs, data.labels, strict=True)
    ]
    (folder / "fit.csv").write_text("\n".join(map(",".join, [header, *cells])) + "\n")


def values_of(parameter):
    """Return the values to draw for a parameter, more often than not of its type."""
    kind = str(getattr(parameter, "type", None) or parameter.type_descriptor).lower()
    named = parameter.name or ""
    any_word = st.sampled_from([*WORDS, *PATHS])
    if "path" in kind or named in FILES:
        return st.sampled_from(PATHS) | st.sampled_from(PATHS) | any_word
    if named in LONG:
        return st.sampled_from(["1", "2", "0", "-1", "x", "", "1.5", "nan"])
    if "int" in kind:
        return st.sampled_from(INTEGERS) | st.sampled_from(INTEGERS) | any_word
    if "float" in kind:
        return st.sampled_from(FLOATS) | st.sampled_from(FLOATS) | any_word
    return any_word


@st.composite
def lines(draw, words):
    """Draw the words of a command line of one command."""
    command = COMMANDS[words]
    line = list(words)
    # The first line takes the first choices: for noise, which draws figures, one that ends at once.
    ways = [False, True, True] if words[0] == "noise" else [True, True, False]
    based = words in BASES and draw(st.sampled_from(ways))
    if based:
        line += BASES[words].split()
    options = []
    for parameter in command.params:
        if parameter.param_type_name != "argument":
            options += [parameter] if parameter.name not in SKIPPED else []
        elif not based:
            line += [draw(values_of(parameter)) for _ in range(2 if parameter.nargs == -1 else 1)]
    if options:
        few = st.lists(
            st.sampled_from(options),
            max_size=3,
            unique_by=lambda one: one.name,
        )
        for parameter in draw(few):
            line.append(draw(st.sampled_from(parameter.opts)))
            if not getattr(parameter, "is_flag", False):
                line.append(draw(values_of(parameter)))
    for flag, value in zip(*[iter(NEEDED.get(words[0], []))] * 2, strict=True):
        if flag not in line:
            line += [flag, value]
    if words[0] in ("train", "compare", "noise") and "--label" not in line:
        line += ["--label", "class"]
    extra = draw(st.none() | st.none() | st.none() | st.sampled_from(WORDS))
    if extra is not None:
        line.insert(draw(st.integers(1, len(line))), extra)
    return [word.replace("\0", "") for word in line]


class BadEndError(AssertionError):
    """A command line that ended in a way that no user should see."""


def run_line(line, folder):
    """Run a command line in a folder.

    Raise HierlearnError where it is refused, BadEndError on a traceback or a long message.
    """
    out, err = io.StringIO(), io.StringIO()
    before, argv = Path.cwd(), sys.argv
    os.chdir(folder)
    sys.argv = ["hierlearn", *line]
    code = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        os.chdir(before)
        sys.argv = argv
    said = err.getvalue()
    if code not in (0, 1, 2):
        raise BadEndError(f"exit code {code!r}")
    if "Traceback" in said:
        raise BadEndError("a traceback")
    last = said.strip().split("\n")[-1]
    if code and (len(last) > 720 or not last.startswith("hierlearn: ")):
        raise BadEndError(f"{len(last)} characters: {last[:80]!r}")
    if not (Path(folder) / "folder" / "a.txt").is_file():
        raise BadEndError("a file of the user is gone")
    if code:
        raise HierlearnError(last.removeprefix("hierlearn: ").partition("; see hierlearn")[0])


def prepare_command(line, folder, examples):
    """Return what runs a command line among files."""
    where = Path(folder) / "here"
    make_folder(where, examples, line)
    return lambda: run_line(line, where), 1 << 20
