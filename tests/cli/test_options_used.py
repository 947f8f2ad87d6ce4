"""No option is ignored: given alone, each changes what a command does, or is refused.

The options come from the declarations of the commands. A string that means nothing ("zzz"), or a
number that is no default, must make a difference somewhere: in what is printed, in a file, in what
is passed to the training, or as a refusal.
"""

import hashlib
import shlex
import shutil
import sys

import pytest

import hierlearn.cli as cli
from hierlearn.cli.shared import COLUMN_NAMES
from hierlearn.cli.train import option_kinds
from hierlearn.errors import HierlearnError
from hierlearn.training import Plan, Settings
from lab.rank_studies import studies

pytestmark = pytest.mark.filterwarnings("ignore")  # a warning is an answer like any other
SITUATIONS = {
    "bench": [
        "bench --batch-size 2 --rounds 1 --dataset-option rows=40 --timed-epochs 0 --losses bce",
        "bench rows.csv --label class --split part --rounds 1 --losses bce --timed-epochs 1",
    ],
    "cafa evaluate": ["cafa evaluate model rows.csv --rows test"],
    "cafa predict": ["cafa predict model rows.csv --id-column key --out a.tsv"],
    "compare": [
        "compare rows.csv --label class --split part --methods bce",
    ],
    "data describe": ["data describe rows.csv --label class", "data describe synthetic"],
    "demo": ["demo"],
    "evaluate": ["evaluate model rows.csv --rows test"],
    "export": ["export model --out model.onnx"],
    "serve": ["serve model --port 0"],
    "explain": ["explain texts texts.csv"],
    "forget": ["forget model --id N1 --out smaller"],
    "index": ["index model --out indexed"],
    "inspect": ["inspect tree.csv"],
    "noise": ["noise rows.csv --label class --split part --methods bce"],
    "predict": [
        "predict model rows.csv --out a.csv",
        "predict texts texts.csv --out a.csv",
    ],
    "prune": ["prune tree.csv --data rows.csv --label class --out pruned.json"],
    "rank": ["rank s0 s1 s2"],
    "remap": ["remap model --hierarchy tree.csv --out moved"],
    "remember": ["remember model rows.csv --rows test --out bigger"],
    "report": ["report model --data rows.csv --rows test"],
    "train": [
        "train rows.csv --label class --split part --out new",
        "train texts.csv --label class --text words --out new",
    ],
}
NO_SITUATION = {"data list", "data fetch", "paper"}  # paper: see test_paper.py
SAME = {  # what rightly makes no difference here, and why
    "device": "the CPU is what auto finds",
    "force": "nothing is replaced",
    "trust": "nothing needs it",
    "debug": "nothing fails",
    "label_sep": "no cell holds it",
    "escape_formulas": "there are none",
    "recall": "so few rows are always found",
}
SAME_HERE = {
    "bench": ("json",),  # written after what is stopped here
    "serve": ("threads",),  # of torch, not of the server
    "prune": ("ignore", "column_kind"),  # of inputs, which are read but not counted
    "cafa predict": ("min_score",),  # all rows are remembered: their scores are 0 or 1
    "cafa threshold": COLUMN_NAMES,  # read as by cafa evaluate, where they are tried
}
VALUES = {
    "device": "cpu",
    "data_dir": "nowhere",
    "dataset_option": "zzz=1",
    "column_kind": "a=text",
    "ignore": "a",
    "depth": "1",
    "breadth": "1",
    "layout": "zzz",
    "metrics": ",",
    "losses": ",",
    "methods": ",",
    "rates": ",",
    "kinds": ",",
    "limit": "2",
    "epochs": "7",
    "min_rows": "30",
    "draws": "2",
    "count": "2",
    "max_terms": "1",
    "svg": "a.svg",
}


def commands(group, path=()):
    """Yield the name and the command of every leaf of the command line."""
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, (*path, name))
        else:
            yield " ".join((*path, name)), one


COMMANDS = dict(commands(cli.commands()))
LINES = [(name, line) for name, lines in SITUATIONS.items() for line in lines]


USUAL = {**Settings().to_dict(), **Plan().to_dict()}  # of options that are made from these


def words_of(option, kind):
    """Return the words that give an option a value that is not its default."""
    long = next(word for word in option.opts if word.startswith("--"))
    if kind is bool:
        usual = USUAL.get(option.name) if option.default is None else option.default
        return [*(option.secondary_opts if usual else []), long][:1]
    usual = {int: "3", float: "0.37", list: "zzz=1"}
    return [long, VALUES.get(option.name, usual.get(kind, "zzz"))]


def described(value):
    """Return anything that is passed to a training as text."""
    if hasattr(value, "hierarchy") and hasattr(value, "splits"):
        inputs = value.inputs
        text = inputs.tobytes() if hasattr(inputs, "tobytes") else repr(inputs).encode()
        rows = hashlib.sha256(text).hexdigest()
        return f"{rows} {value.labels} {value.hierarchy.fingerprint} {value.splits} {value.ids}"
    if isinstance(value, (list, tuple)):
        return str([described(one) for one in value])
    return str(value)


def stop(name):
    """Return what takes the place of a training: it tells what it was asked for."""

    def instead(*words, **more):
        shown = [described(one) for one in words]
        kept = {key: described(one) for key, one in more.items() if not callable(one)}
        kept.pop("reporting", None)
        digest = hashlib.sha256(repr((shown, kept)).encode()).hexdigest()
        raise HierlearnError(f"{name} asked for {digest}")

    return instead


def untuned(dataset, candidates, trials, protocol, **more):
    """Take the place of a search."""
    return {"by_candidate": {}, "trials": [trials]}


def no_plot(summary, folder):
    """Take the place of a figure."""
    return []


@pytest.fixture(scope="module")
def files(with_memory, tmp_path_factory):
    folder = tmp_path_factory.mktemp("options") / "files"
    shutil.copytree(with_memory, folder)
    (folder / "tree.csv").write_text(
        "path\nanimal/dog/pug\nanimal/dog/lab\nanimal/cat\nplant/oak\nplant/rose\n"
    )
    studies(folder, [[0.1, 0.5], [0.2, 0.6], [0.3, 0.2]], ("bce", "hcl"))
    return folder


@pytest.fixture
def outcome(files, monkeypatch, capsys, tmp_path):
    """Run a line in a fresh copy of the files; return all that came of it."""
    import hierlearn.lab.commands.bench
    import hierlearn.lab.compare
    import hierlearn.lab.demo
    import hierlearn.lab.noise
    import hierlearn.lab.pages.figures
    import hierlearn.lab.suites
    import hierlearn.lab.tune
    import hierlearn.pipeline.export
    import hierlearn.service.server

    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(hierlearn.pipeline, "train", stop("train"))
    monkeypatch.setattr(hierlearn.lab.compare, "run_study", stop("compare"))
    monkeypatch.setattr(hierlearn.lab.tune, "tune", untuned)
    monkeypatch.setattr(hierlearn.lab.noise, "noise_study", stop("noise"))
    monkeypatch.setattr(hierlearn.lab.commands.bench, "time_losses", stop("bench"))
    monkeypatch.setattr(hierlearn.training.prepare, "prepare", stop("bench"))
    monkeypatch.setattr(hierlearn.pipeline.export, "export", stop("export"))
    monkeypatch.setattr(
        hierlearn.service.server,
        "serve",
        lambda service, _: stop("serve")(service.settings),
    )
    monkeypatch.setattr(hierlearn.lab.demo, "run_demo", lambda out, say: say(str(out)))
    monkeypatch.setattr(hierlearn.lab.demo, "show", lambda *_: None)
    monkeypatch.setattr(hierlearn.lab.pages.figures, "critical_difference", no_plot)

    def run(words, place):
        shutil.copytree(files, place, ignore=shutil.ignore_patterns("checkpoints"))
        monkeypatch.chdir(place)
        monkeypatch.setattr(sys, "argv", ["hierlearn", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        said = capsys.readouterr()
        written = {
            str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(place.rglob("*"))
            if path.is_file()
        }
        return caught.value.code, said.out, said.err, written

    return run


def test_every_command_has_a_situation():
    assert set(SITUATIONS) | NO_SITUATION == set(COMMANDS)


@pytest.mark.parametrize(("name", "line"), LINES, ids=[line for _, line in LINES])
def test_every_option_makes_a_difference_or_is_refused(name, line, outcome, tmp_path):
    words, command = shlex.split(line), COMMANDS[name]
    kinds = option_kinds(command.callback, without=())
    before = outcome(words, tmp_path / "before")
    ignored = []
    for option in command.params:
        same = {*SAME, *SAME_HERE.get(name, ())}
        if option.name not in kinds or option.name in same or not option.opts[0].startswith("-"):
            continue
        given = words_of(option, kinds[option.name])
        if given[0] in words:
            continue
        after = outcome([*words, *given], tmp_path / option.name)
        assert "Traceback" not in after[2], f"{given}: {after[2]}"
        if after == before:
            ignored.append(" ".join(given))
        shutil.rmtree(tmp_path / option.name)
    assert not ignored, "ignored: " + "; ".join(ignored)
