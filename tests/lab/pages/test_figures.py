"""The plots as files for papers."""

import struct
import sys
import xml.etree.ElementTree as ET

import pytest

from hierlearn.errors import HierlearnError
from hierlearn.lab.pages import report_pngs

NAMES = ("metrics", "severity", "levels", "curriculum")


@pytest.fixture(scope="module")
def written(study, tmp_path_factory):
    return report_pngs(study.folder, tmp_path_factory.mktemp("figures"))


def test_every_plot_is_a_png_and_an_svg(written):
    assert [path.name for path in written] == [
        f"{name}.{ending}" for name in NAMES for ending in ("png", "svg")
    ]
    for path in written:
        if path.suffix == ".png":
            head = path.read_bytes()[:24]
            width, height = struct.unpack(">II", head[16:24])
            assert head.startswith(b"\x89PNG")
            assert width > 600
            assert height > 200
        else:
            assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_the_same_study_gives_the_same_files(study, written, tmp_path):
    again = report_pngs(study.folder, tmp_path)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


def test_dollars_in_names_are_no_formulas(hostile, tmp_path):
    """matplotlib would read $\\hcl_2$ as a formula, and refuse it, for there is no sign \\hcl."""
    written = report_pngs(hostile.folder, tmp_path)
    texts = {path.name: path.read_text() for path in written if path.suffix == ".svg"}
    for name in ("metrics.svg", "severity.svg", "levels.svg", "curriculum.svg"):
        assert "<!-- $\\hcl_2$ " in texts[name]


def test_no_curriculum_no_figure(tmp_path):
    from hierlearn import Hierarchy
    from reports.handmade_study import study as study_by_hand

    tree = Hierarchy.from_paths(["a/b", "a/c"])
    study = study_by_hand(tmp_path / "s", tree, [["b"]], {"one": [[1]]})
    names = {path.stem for path in report_pngs(study.folder, tmp_path / "f")}
    assert names == {"metrics", "severity", "levels"}


def test_without_matplotlib_it_says_what_to_install(study, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(HierlearnError, match=r"install it with: pip install matplotlib"):
        report_pngs(study.folder, tmp_path)
