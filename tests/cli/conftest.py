"""The command line in this process, and the small tables that it trains on."""

import shlex
import sys

import numpy as np
import pytest

from hierlearn.cli import main

CLASSES = ["animal/dog/pug", "animal/dog/lab", "animal/cat", "plant/oak", "plant/rose"]
HEADER = "a,b,c,class,part"


def table_lines(rows=100, seed=0):
    """Rows around a corner a class; c is missing in some, the last ones are for validation."""
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, 5, rows)
    values = np.stack([kinds, kinds**2 % 3, kinds % 2], axis=1) + draw.normal(0, 0.3, (rows, 3))
    for row, (kind, cells) in enumerate(zip(kinds, values, strict=True)):
        part = "train" if row < rows * 0.7 else "valid" if row < rows * 0.8 else "test"
        written = [f"{cell:.4f}" for cell in cells]
        written[2] = "" if row % 6 == 0 else written[2]
        yield ",".join([*written, CLASSES[kind], part])


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Run a command line in ``tmp_path``; return what it printed, or what it refused."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(line, code=0, *, begun=False):
        monkeypatch.setattr(sys, "argv", ["hierlearn", *shlex.split(line)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        said = capsys.readouterr()
        run.warned = said.err
        assert (caught.value.code or 0) == code, said
        if code == 0:
            return said.out
        assert begun == bool(said.out)  # a refusal comes before anything is said
        assert said.err.count("\n") == 1, said.err
        assert said.err.startswith("hierlearn: ")
        return said.err.strip()

    return run


@pytest.fixture
def rows(tmp_path):
    """rows.csv with splits; new.csv without labels, its columns in another order; fresh.csv."""
    lines = list(table_lines())
    (tmp_path / "rows.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    new = [",".join([str(n), *reversed(line.split(",")[:3])]) for n, line in enumerate(lines)]
    (tmp_path / "new.csv").write_text("\n".join(["id,c,b,a", *new]) + "\n")
    fresh = [line.rsplit(",", 1)[0] for line in [HEADER, *table_lines(seed=1)]]
    (tmp_path / "fresh.csv").write_text("\n".join(fresh) + "\n")
    return tmp_path


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A model folder that no test changes, and the table that it was trained on."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "rows.csv").write_text("\n".join([HEADER, *table_lines()]) + "\n")
    from hierlearn.datasets import read_table
    from hierlearn.pipeline import train
    from hierlearn.training import Plan

    dataset = read_table(folder / "rows.csv", label="class", split="part")
    settings = {"epochs": 8, "batch_size": 16, "learning_rate": 0.05}
    plan = Plan(recipe="hcl", network_options={"width": 8}, settings=settings)
    metadata = {"columns": {"label": "class", "split": "part"}}
    train(dataset, plan, out=folder / "model", metadata=metadata)
    return folder / "model"


TEXTS = {
    "animal/dog/pug": "pug wrinkled nose snores small",
    "animal/dog/lab": "labrador retrieves water fetch big",
    "animal/cat": "cat purrs meow whiskers sleeps",
    "plant/oak": "oak acorn trunk tall leaves",
    "plant/rose": "rose thorn red garden smell",
}


@pytest.fixture(scope="session")
def with_memory(tmp_path_factory):
    """A folder that no test changes: ``model`` reads numbers and ``texts`` texts, by neighbors."""
    folder = tmp_path_factory.mktemp("with_memory")
    draw = np.random.default_rng(0)
    lines = [f"N{row},{line}" for row, line in enumerate(table_lines(60))]
    (folder / "rows.csv").write_text("\n".join([f"key,{HEADER}", *lines]) + "\n")
    cells = ["key,words,class"]
    for row in range(50):
        name = CLASSES[row % 5]
        words = draw.permutation(TEXTS[name].split())[:3]
        cells.append(f"T{row},{' '.join(words)} number{row},{name}")
    (folder / "texts.csv").write_text("\n".join(cells) + "\n")
    from hierlearn.datasets import read_table
    from hierlearn.pipeline import train
    from hierlearn.training import Plan

    settings = {"epochs": 3, "batch_size": 16, "learning_rate": 0.02}
    plan = Plan(loss="bce", head="neighbors", head_options={"scale": 1.0}, settings=settings)
    known = {"label": "class", "id_column": "key"}
    numbers = {**known, "split": "part"}
    dataset = read_table(folder / "rows.csv", **numbers)
    train(dataset, plan, out=folder / "model", metadata={"columns": numbers})
    known["text"] = "words"
    dataset = read_table(folder / "texts.csv", **known)
    train(dataset, plan, out=folder / "texts", metadata={"columns": known})
    return folder


@pytest.fixture
def memories(with_memory, tmp_path):
    """A copy of those models and their tables, where commands run."""
    import shutil

    shutil.copytree(with_memory, tmp_path, dirs_exist_ok=True)
    return tmp_path
