"""Options that no machine can follow are refused in one sentence."""

import sys

import pytest

from hierlearn.cli import main

LINE = "train rows.csv --label class --split part --epochs 1 --out m"


@pytest.mark.parametrize("device", ["mps", "xpu", "meta", "cuda:99", "toaster"])
def test_devices(rows, call, device):
    assert "device" in call(f"{LINE} --device {device}", code=2)


@pytest.mark.parametrize("width", [10**12, 10**20])
def test_a_network_that_fits_nowhere(rows, call, width):
    said = call(f"{LINE} --network mlp --network-option width={width}", code=2, begun=False)
    assert "of memory; make it narrower" in said


def test_a_cost_is_a_name_or_a_tensor(rows, call):
    said = call(f"{LINE} --decoder cost --decoder-option cost=3", code=2)
    assert "cost must be 'lca-height', 'path' or a tensor, not 3" in said


def test_a_name_that_is_not_utf8(rows, call, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hierlearn", *LINE.split(), "--name", "\udcff"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        "hierlearn: --name '\\udcff' is not valid UTF-8, as the files of a model are; rename it\n"
    )
