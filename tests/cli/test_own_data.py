"""Tables as people have them: what the commands say about them, end to end."""

import csv
import json
import shlex
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.filterwarnings("always::hierlearn.errors.DataWarning")
WORDS = {"tea": "leaf green hot", "coffee": "bean roast dark", "saw": "blade wood", "nail": "metal"}
PARENTS = {"tea": "drinks", "coffee": "drinks", "saw": "tools", "nail": "tools"}


def write(folder, name="rows.csv", *, delimiter=",", join="/", replaced=None, more=""):
    lines = [f"text{delimiter}class{delimiter}sector" if more else f"text{delimiter}class"]
    for number in range(40):
        kind = list(WORDS)[number % 4]
        label = (replaced or {}).get(number, f"{PARENTS[kind]}{join}{kind}")
        cells = [f"{WORDS[kind]} {number}", label, *([kind] if more else [])]
        lines.append(delimiter.join(cells))
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def run_cli(call):
    """Run a command; return what it wrote to standard output and standard error."""

    def run(*words, code=0):
        said = call(shlex.join(words), code)
        if code:
            return SimpleNamespace(stdout="", stderr=said)
        return SimpleNamespace(stdout=said, stderr=call.warned)

    return run


def describe(run, *words):
    """What the command says on standard error, and its description."""
    done = run("data", "describe", *words, "--text", "text", "--out", "described", "--force")
    return done.stderr


def test_semicolons_between_cells_are_found_and_said(run_cli, tmp_path):
    write(tmp_path, delimiter=";")
    said = describe(run_cli, "rows.csv", "--label", "class")
    assert said == (
        "hierlearn: rows.csv: cells are separated by semicolons, not by commas; set --delimiter if "
        "that is wrong\n"
    )
    assert json.loads((tmp_path / "described/description.json").read_text())["rows"] == 40
    assert describe(run_cli, "rows.csv", "--label", "class", "--delimiter", ";") == ""


def test_a_forgotten_sep_is_said_with_its_option(run_cli, tmp_path):
    write(tmp_path, join=" > ")
    said = describe(run_cli, "rows.csv", "--label", "class")
    assert "look like paths joined by ' > ', but sep is '/'; set --sep to ' > '" in said
    assert describe(run_cli, "rows.csv", "--label", "class", "--sep", " > ") == ""


def test_a_name_that_holds_the_separator_of_labels(run_cli, tmp_path):
    names = dict.fromkeys(range(2, 40, 4), "tools/saws; blades")
    write(tmp_path, replaced=names)
    said = describe(run_cli, "rows.csv", "--label", "class")
    assert "line 4, column 'class': 'tools/saws; blades' looks like one name, but is split" in said
    assert "set --label-sep none if every cell holds one label" in said
    assert describe(run_cli, "rows.csv", "--label", "class", "--label-sep", "none") == ""
    found = json.loads((tmp_path / "described/hierarchy.json").read_text())
    assert "saws; blades" in json.dumps(found)


def test_a_misspelled_label_is_listed_and_warned_about(run_cli, tmp_path):
    write(tmp_path, replaced={3: "tools/Nail"})
    done = run_cli("data", "describe", "rows.csv", "--label", "class", "--text", "text")
    assert "1 label may be misspelled: 'tools/Nail' (1) for 'tools/nail' (9 rows)" in done.stderr
    assert "labels that may be misspelled" in done.stdout
    assert "classes with one row" in done.stdout
    words = ("--label", "class", "--text", "text", "--epochs", "1", "--out", "model")
    done = run_cli("train", "rows.csv", *words)
    assert "1 label may be misspelled: 'tools/Nail'" in done.stderr
    assert "classes with one row: 1: 'tools/Nail'" in done.stdout


def test_a_column_that_is_no_split_is_refused(run_cli, tmp_path):
    write(tmp_path, more="sector")
    words = ("--label", "class", "--text", "text", "--split", "sector", "--out", "model")
    done = run_cli("train", "rows.csv", *words, code=2)
    assert (
        "column 'sector' holds values such as 'tea', 'coffee', 'saw', which name no" in done.stderr
    )
    assert not (tmp_path / "model").exists()


def test_there_are_as_many_answers_as_rows(run_cli, tmp_path):
    write(tmp_path)
    run_cli("train", "rows.csv", "--label", "class", "--epochs", "1", "--out", "model")
    (tmp_path / "new.csv").write_text('text\nleaf green\n""\nblade wood\n\nmetal\n')
    done = run_cli("predict", "model", "new.csv", "--out", "answers.csv")
    assert "1 blank line (the first is line 5) read as an empty cell" in done.stderr
    with (tmp_path / "answers.csv").open() as file:
        answers = list(csv.DictReader(file))
    assert len(answers) == 5
    assert answers[1]["probability"] == answers[3]["probability"]  # the two empty texts
    (tmp_path / "tabs.csv").write_text("id\ttext\n1\tleaf green\n")
    words = ("--id-column", "id", "--delimiter", "tab", "--out", "tabs-answers.csv")
    assert run_cli("predict", "model", "tabs.csv", *words).stderr == ""


def test_levels_whose_names_hold_a_slash_need_no_sep(run_cli, tmp_path):
    rows = "".join(f"{n} word,food/drinks,{'tea' if n % 2 else 'juice'}\n" for n in range(20))
    (tmp_path / "rows.csv").write_text("text,kind,name\n" + rows)
    said = describe(run_cli, "rows.csv", "--levels", "kind,name")
    assert (
        "'food/drinks' holds a '/', so paths are joined by ' > '; choose another with --sep" in said
    )


@pytest.mark.parametrize("word", ["semi", ";;"])
def test_a_delimiter_of_two_characters(run_cli, tmp_path, word):
    write(tmp_path)
    done = run_cli("data", "describe", "rows.csv", "--label", "class", "--delimiter", word, code=2)
    assert done.stderr.startswith("hierlearn: --delimiter must be one character such as ; or | or")
