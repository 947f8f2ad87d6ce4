"""The wheel and the source distribution: complete, installable, and enough to work with."""

import ast
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import hierlearn

REPO = Path(__file__).parents[1]
SOURCES = sorted((REPO / "src" / "hierlearn").rglob("*.py"))
PYTHONS = ((3, 10), (3, 11), (3, 12), (3, 13))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of both distributions; the wheel is made from the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(REPO)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as file:
        (name,) = (one for one in file.namelist() if one.endswith(".dist-info/METADATA"))
        return message_from_string(file.read(name).decode())


def test_the_wheel_has_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if ".dist-info/" not in name}
    home = REPO / "src"
    ours = {
        str(path.relative_to(home))
        for path in (home / "hierlearn").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == ours
    for name in ("py.typed", "lab/pages/template.html", "lab/published/clus.csv"):
        assert f"hierlearn/{name}" in packed


def test_the_source_distribution_can_be_tested_and_documented(built):
    (found,) = built.glob("*.tar.gz")
    with tarfile.open(found) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    for name in ("Makefile", "constraints.txt", "mkdocs.yml", "README.md", "LICENSE"):
        assert name in names
    assert "docs/index.md" in names
    assert "tests/test_packaging.py" in names


def test_what_the_metadata_says(metadata):
    assert metadata["Version"] == hierlearn.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert "Home-page" not in metadata
    listed = [
        tuple(map(int, one.rpartition(" ")[2].split(".")))
        for one in metadata.get_all("Classifier")
        if re.search(r"Python :: 3\.\d+$", one)
    ]
    assert tuple(listed) == PYTHONS


def test_what_an_error_tells_to_install_is_declared(metadata):
    """It names packages, which pip finds whether hierlearn came from a wheel or from a clone."""
    declared = {Requirement(one).name for one in metadata.get_all("Requires-Dist")}
    found = 0
    for path in SOURCES:
        for line in re.findall(r"pip install ([\w' \[\]{}=.-]+)", path.read_text()):
            assert "hierlearn" not in line, path
            for name in re.findall(r"(?<![{=.\w-])[a-z][\w-]+(?![}\w])", line):
                assert name in declared, f"{path}: {name}"
                found += 1
    assert found >= 6


@pytest.mark.parametrize("version", PYTHONS, ids=lambda v: ".".join(map(str, v)))
def test_the_syntax_is_that_of_every_python(version):
    for path in SOURCES:
        ast.parse(path.read_text(), str(path), feature_version=version)


# ---------------------------------------------------------------------- an environment of its own


@pytest.fixture(scope="module")
def installed(wheel, metadata, tmp_path_factory):
    """A fresh environment with the wheel and its dependencies, and nothing else.

    The dependencies are linked from this environment, which takes no time; the source is not on
    the path, and neither is a package that only the tests use.
    """
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--no-index", wheel], check=True)
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    allowed: set[str] = set()
    for one in needed(metadata.get_all("Requires-Dist")):
        add_requirements(one, allowed)
    for one in allowed:
        found = distribution(one)
        for name in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(found.locate_file(name))
    return folder


def call(folder, *command, check=True):
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [folder / "env" / "bin" / command[0], *command[1:]],
        cwd=folder,
        env={**kept, "OMP_NUM_THREADS": "1", "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout if check else done


def write_rows(folder):
    kinds = {"animal/dog/pug": 0.0, "animal/dog/beagle": 2.0, "animal/cat": 4.0, "plant/oak": 8.0}
    rows = [
        f"{center + 0.01 * i:.2f},{-center - 0.02 * i:.2f},{name}"
        for i in range(10)
        for name, center in kinds.items()
    ]
    (folder / "rows.csv").write_text("\n".join(["width,height,class", *rows]) + "\n")
    (folder / "new.csv").write_text("width,height\n0.05,-0.1\n8.05,-8.1\n")


def needed(lines):
    """The names of requirements that hold here, without extras."""
    found = map(Requirement, lines)
    return [one.name for one in found if not one.marker or one.marker.evaluate({"extra": ""})]


def add_requirements(name, seen):
    """Add a distribution and every one that it needs."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key not in seen:
        seen.add(key)
        for one in needed(requires(name) or []):
            add_requirements(one, seen)


def test_the_wheel_works_in_an_empty_environment(installed):
    write_rows(installed)
    assert call(installed, "hierlearn", "--version") == f"hierlearn {hierlearn.__version__}\n"
    code = "import hierlearn; [getattr(hierlearn, name) for name in hierlearn.__all__]\n"
    code += "print(hierlearn.__file__)"
    home = call(installed, "python", "-c", code).strip()
    assert Path(home).is_relative_to(installed / "env")
    call(installed, "hierlearn", "train", "rows.csv", "--label", "class", "--out", "model")
    call(installed, "hierlearn", "predict", "model", "new.csv", "--out", "answers.csv")
    answers = (installed / "answers.csv").read_text().splitlines()
    assert len(answers) == 3
    assert "animal/dog/pug" in answers[1]
    assert "plant/oak" in answers[2]


def test_the_data_of_the_package_is_found_there(installed):
    code = "from hierlearn.lab.suites import SUITES, read_published\n"
    code += "assert read_published(SUITES['clus'])\n"
    code += "from importlib.resources import files\n"
    code += "assert files('hierlearn.lab.pages').joinpath('template.html').is_file()"
    call(installed, "python", "-c", code)


def test_an_extra_that_is_missing_is_named(installed):
    """The environment is empty indeed: matplotlib is there for the tests only."""
    wanted = "needs simple-icd-10-cm; install it with: pip install simple-icd-10-cm"
    for command in ("inspect", "compare", "demo", "data describe"):
        done = call(installed, "hierlearn", *command.split(), check=False)
        assert done.returncode == 2
        assert wanted in done.stderr
    assert "pip install" in call(installed, "hierlearn", "data", "list")
    done = call(installed, "python", "-c", "import matplotlib", check=False)
    assert "No module named 'matplotlib'" in done.stderr
    code = "from hierlearn.lab.pages.figures import need_matplotlib; need_matplotlib()"
    done = call(installed, "python", "-c", code, check=False)
    assert "install it with: pip install matplotlib" in done.stderr
