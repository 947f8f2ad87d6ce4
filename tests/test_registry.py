"""One lookup for things by name: registered, installed, or package.module:name."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import warm
from hierlearn import (
    DATASETS,
    DECODERS,
    FEATURES,
    HEADS,
    LINKS,
    LOSSES,
    METRICS,
    NETWORKS,
    RECIPES,
    HierarchicalClassifier,
    Hierarchy,
    compare,
    load,
)
from hierlearn.cli import main
from hierlearn.errors import HierlearnError
from hierlearn.lab.candidates import parse_candidate
from hierlearn.lab.corpora.synthetic import make_synthetic
from hierlearn.lab.protocol import Protocol
from hierlearn.links import make_link
from hierlearn.links.link import link_name
from hierlearn.pipeline.folder import write_config
from hierlearn.registry import refuse_imports

REGISTRIES = {
    "losses": LOSSES,
    "links": LINKS,
    "networks": NETWORKS,
    "heads": HEADS,
    "recipes": RECIPES,
    "decoders": DECODERS,
    "metrics": METRICS,
    "datasets": DATASETS,
    "features": FEATURES,
}
CODE = '''
import torch
from hierlearn.lab.corpora.synthetic import make_synthetic
from hierlearn.decoding import Leaf
from hierlearn.features import NumericPreprocessor
from hierlearn.links import SigmoidLink
from hierlearn.losses import BCELoss
from hierlearn.networks import LinearHead, Network
from hierlearn.training import Recipe


class MyLoss(BCELoss):
    """Cross entropy by another name."""

    def __init__(self, label_space, *, factor=1.0, **options):
        super().__init__(label_space, **options)
        self.factor = factor

    def losses(self, output, targets, mask):
        return self.factor * super().losses(output, targets, mask)


class MyLink(SigmoidLink):
    def __init__(self, label_space, *, shift=0.0):
        super().__init__(label_space)
        self.shift = shift

    @property
    def options(self):
        return {"shift": self.shift}


class MyDecoder(Leaf):
    pass


class MyStep(NumericPreprocessor):
    name = "shop-step"


def my_network(label_space, inputs, *, width=4):
    encoder = torch.nn.Linear(inputs.width, width)
    return Network(encoder, LinearHead(width, label_space, "sigmoid"))


def my_metric(p, targets, label_space):
    """The mean probability of what is true."""
    return p[targets > 0].mean()


def my_rows(rows=60):
    """Rows of a shop."""
    return make_synthetic(rows=rows, depth=2)


my_recipe = Recipe("bce", "a recipe of a shop", network="shop_code.parts:my_network")
not_a_thing = 7
'''
NAMES = {
    "losses": ("shop-loss", "MyLoss"),
    "links": ("shop-link", "MyLink"),
    "networks": ("shop-network", "my_network"),
    "heads": ("shop-head", "LinearHead"),
    "recipes": ("shop-recipe", "my_recipe"),
    "decoders": ("shop-decoder", "MyDecoder"),
    "metrics": ("shop-metric", "my_metric"),
    "datasets": ("shop-rows", "my_rows"),
    "features": ("shop-step", "MyStep"),
}
each_kind = pytest.mark.parametrize("kind", NAMES)


def divided():
    """A dataset with test rows."""
    splits = {"train": np.arange(60), "test": np.arange(60, 80)}
    return replace(make_synthetic(rows=80, depth=2), splits=splits)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A package of somebody else: importable code, and an installed distribution that names it."""
    code = tmp_path / "site"
    (code / "shop_code").mkdir(parents=True)
    (code / "shop_code" / "__init__.py").touch()
    (code / "shop_code" / "parts.py").write_text(CODE)
    (code / "shop_code" / "broken.py").write_text("1 / 0\n")
    info = code / "shop_code-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-code\nVersion: 1.0\n")
    points = "\n".join(
        f"[hierlearn.{kind}]\n{name} = shop_code.parts:{attribute}\n"
        for kind, (name, attribute) in NAMES.items()
    )
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(code)
    yield code
    for name in [one for one in sys.modules if one.startswith("shop_code")]:
        del sys.modules[name]
    for registry in REGISTRIES.values():
        registry.imported.clear()


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Run a command in this process; return what it said."""
    monkeypatch.chdir(tmp_path)

    def run(line, code=0):
        monkeypatch.setattr(sys, "argv", ["hierlearn", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        said = "".join(capsys.readouterr())
        assert (end.value.code or 0) == code, said
        return " ".join(said.split())

    return run


def test_the_shop_has_every_registry():
    assert set(NAMES) == set(REGISTRIES)
    for kind, registry in REGISTRIES.items():
        assert registry.group == f"hierlearn.{kind}"


@each_kind
def test_installed_and_imported_names_are_found(kind, shop):
    registry, (name, attribute) = REGISTRIES[kind], NAMES[kind]
    listed = list(registry)
    spelled = f"shop_code.parts:{attribute}"
    for one in (name, spelled):
        assert one in registry
        found = registry[one]
        assert registry.get(one) is found
        parts = sys.modules["shop_code.parts"]
        expected = getattr(parts, attribute)
        assert expected in (found, getattr(found, "function", None), getattr(found, "load", None))
    assert list(registry) == listed  # what others add is found, and no contract of ours lists it


@each_kind
def test_what_is_not_there_is_named_with_the_nearest(kind, shop):
    registry, (name, _) = REGISTRIES[kind], NAMES[kind]
    assert f"{name}x" not in registry
    with pytest.raises(HierlearnError, match=re.escape(f"'{name}x'; did you mean '{name}'")):
        registry[f"{name}x"]
    for wrong, reason in {
        "shop_code.nothing:Loss": "cannot be imported: No module named",
        "shop_code.parts:Nothing": "cannot be imported: module 'shop_code.parts'",
        "shop_code.broken:Loss": "cannot be imported: ZeroDivisionError: division by zero",
        "shop_code.parts:not_a_thing": f"is not {registry.expected}, but int 7",
    }.items():
        with pytest.raises(HierlearnError, match=re.escape(f"{wrong!r} {reason}")):
            registry[wrong]


def test_a_registered_name_comes_first(shop):
    LOSSES["shop-loss"] = LOSSES["bce"]
    try:
        assert LOSSES["shop-loss"] is LOSSES["bce"]
    finally:
        del LOSSES["shop-loss"]
    assert LOSSES["shop-loss"].__name__ == "MyLoss"


@pytest.mark.parametrize("spelled", [False, True])
def test_a_model_of_somebody_elses_parts(spelled, shop, tmp_path):
    """Everything by name at once: trained, saved, and loaded where it is trusted."""

    def named(kind):
        name, attribute = NAMES[kind]
        return f"shop_code.parts:{attribute}" if spelled else name

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), ["a/x", "a/y", "b", "c"] * 10
    clf = HierarchicalClassifier(
        loss=named("losses"),
        loss_options={"factor": 2.0},
        link=named("links"),
        network=named("networks"),
        decoder=named("decoders"),
        preprocessing=NAMES["features"][0],
        epochs=2,
        random_state=0,
    ).fit(X, y)
    assert type(clf.pipeline_.link).__name__ == "MyLink"
    clf.save(tmp_path / "model")
    if spelled:
        with pytest.raises(HierlearnError, match=r"code outside of hierlearn; pass trust=True"):
            load(tmp_path / "model")
    again = HierarchicalClassifier.load(tmp_path / "model", trust=spelled)
    assert (again.predict(X) == clf.predict(X)).all()


@pytest.mark.parametrize(
    ("place", "value", "kind"),
    [
        (("decoder", "name"), "shop_code.parts:MyDecoder", "decoder"),
        (("recipe", "loss"), "shop_code.parts:MyLoss", "loss"),
        (("recipe", "loss_options"), {"parts": {"shop_code.parts:MyLoss": 1}}, "loss"),
        (("recipe", "joint"), {"shop_code.parts:MyLoss": 1.0}, "head"),
        (("link",), "shop_code.parts:MyLink:shift=1", "link"),
        (("preprocessing", "name"), "shop_code.parts:MyStep", "preprocessing"),
    ],
)
def test_a_stored_name_imports_nothing_unless_it_is_trusted(shop, tmp_path, place, value, kind):
    X, y = np.random.default_rng(0).normal(size=(20, 3)), ["a/x", "a/y", "b", "c"] * 5
    HierarchicalClassifier(recipe="hcl", epochs=1).fit(X, y).save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    inner = config
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    write_config(path, config)
    with pytest.raises(HierlearnError, match=rf"names the {kind} '[\w.:]*', which is code outside"):
        load(tmp_path / "model")
    assert "shop_code.parts" not in sys.modules


def test_nothing_is_imported_while_imports_are_refused(shop):
    with (
        refuse_imports("the file"),
        pytest.raises(HierlearnError, match=r"the file names the loss 'shop_code\.parts:MyLoss'"),
    ):
        LOSSES["shop_code.parts:MyLoss"]
    assert LOSSES["shop_code.parts:MyLoss"].__name__ == "MyLoss"


def test_a_link_with_options(shop):
    h = Hierarchy.from_paths(["a", "b"])
    link = make_link(h, "shop_code.parts:MyLink:shift=2")
    assert link.shift == 2
    assert link_name(link) == "shop_code.parts:MyLink:shift=2"


@pytest.mark.parametrize(
    ("text", "loss", "recipe", "options"),
    [
        ("shop_code.parts:MyLoss", "shop_code.parts:MyLoss", None, {}),
        ("shop_code.parts:MyLoss:factor=2", "shop_code.parts:MyLoss", None, {"factor": 2}),
        ("loss:shop_code.parts:MyLoss:factor=2", "shop_code.parts:MyLoss", None, {"factor": 2}),
        ("shop-loss:factor=2", "shop-loss", None, {"factor": 2}),
        ("shop_code.parts:my_recipe", None, "shop_code.parts:my_recipe", {}),
        ("shop-recipe", None, "shop-recipe", {}),
    ],
)
def test_a_candidate_of_somebody_else(shop, text, loss, recipe, options):
    found = parse_candidate(text)
    assert (found.loss, found.recipe, found.options) == (loss, recipe, options)
    assert found.uses_hierarchy is False
    assert ":" not in found.file_name


def test_compare_writes_what_the_command_writes(shop, tmp_path):
    study = compare(
        divided(),
        ["bce", "shop_code.parts:MyLoss:factor=2", "shop-loss"],
        tmp_path / "study",
        Protocol(seeds=1, settings={"epochs": 1, "device": "cpu"}, metrics=("hit@1",)),
    )
    written = {path.name for path in study.folder.iterdir()}
    assert {"summary.json", "table.csv", "table.md", "table.tex", "report.html"} <= written
    assert "MyLoss" in (study.folder / "table.md").read_text()


def test_the_command_line_takes_them_all(shop, call):
    methods = "--methods bce,shop_code.parts:MyLoss,shop-recipe --seeds 1 --epochs 1"
    said = call(f"compare shop-rows {methods} --metrics shop-metric,hit@1 --out s")
    assert "MyLoss" in said
    said = call("compare shop-rows --methods bce,shop-los --out t", code=2)
    assert "unknown loss or recipe 'shop-los'; did you mean 'shop-loss'" in said
    said = call("train shop-rows --loss shop_code.parts:MyLos --out m", code=2)
    assert "loss 'shop_code.parts:MyLos' cannot be imported: module" in said


def test_a_report_of_somebody_elses_study_imports_nothing(shop, tmp_path):
    protocol = Protocol(seeds=1, settings={"epochs": 1, "device": "cpu"}, metrics=("hit@1",))
    compare(divided(), ["bce", "shop_code.parts:MyLoss"], tmp_path / "study", protocol)
    done = subprocess.run(
        [*warm.python(), "-m", "hierlearn", "report", str(tmp_path / "study")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # the shop is not on its path


def test_torch_still_sees_plain_modules(shop):
    h = Hierarchy.from_paths(["a", "b"])
    loss = LOSSES["shop-loss"](h, factor=3.0)
    logits = torch.zeros(1, 2, requires_grad=True)
    plain = LOSSES["bce"](h)(logits, h.encode(["a"]))
    assert torch.allclose(loss(logits, h.encode(["a"])), 3 * plain)
