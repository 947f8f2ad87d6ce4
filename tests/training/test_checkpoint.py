"""Checkpoint files: whole or not at all, the newest few; a sentence for what is none."""

import os

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from files.stray_files import stray_name
from hierlearn.training.checkpoint import (
    CheckpointError,
    Checkpoints,
    read_tensors,
    write_tensors,
)
from hierlearn.training.solvers.gradient import optimizer_tensors, restore_optimizer

TENSORS = {
    "a": torch.randn(3, 4).T,  # not contiguous
    "empty": torch.zeros(0, 2),
    "flag": torch.tensor([True, False]),
    "half": torch.randn(2).bfloat16(),
    "number": torch.tensor(3.5, dtype=torch.float64),
}


def test_tensors_and_facts_come_back_bit_for_bit(tmp_path):
    facts = {"step": 3, "best": [None, 0.1 + 0.2], "name": "Ä/ö"}
    write_tensors(tmp_path / "a.safetensors", TENSORS, facts)
    tensors, found = read_tensors(tmp_path / "a.safetensors")
    assert found == facts
    assert tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert tensors[name].dtype == value.dtype
        assert torch.equal(tensors[name], value)


def test_any_reader_of_safetensors_can_read_them(tmp_path):
    write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(2)}, {"step": 1})
    with safe_open(tmp_path / "a.safetensors", "np") as file:
        checksum, _, text = file.metadata()["hierlearn"].partition(" ")
        assert (len(checksum), text) == (64, '{"step": 1}')
        assert file.get_tensor("a").tolist() == [1, 1]


def test_what_was_read_survives_its_file(tmp_path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.arange(5000.0)}, {})
    tensors, _ = read_tensors(path)
    path.write_bytes(b"")  # in place, as a copy over it would
    assert torch.equal(tensors["a"], torch.arange(5000.0))


def test_the_newest_stay(tmp_path):
    checkpoints = Checkpoints(tmp_path / "deep" / "er", keep=2)
    assert checkpoints.latest() is None
    for step in (5, 10, 100, 1000):
        path = checkpoints.save(step, {"a": torch.tensor(step)}, {"step": step})
        assert path.is_file()
    names = [path.name for path in checkpoints.paths()]
    assert names == ["step-000000000100.safetensors", "step-000000001000.safetensors"]
    latest = checkpoints.latest()
    assert latest.path == path
    assert latest.metadata == {"format": "hierlearn.checkpoint", "step": 1000}
    assert int(latest.tensors["a"]) == 1000


def test_what_a_killed_process_left_is_no_checkpoint_and_goes(tmp_path):
    left = tmp_path / stray_name("part")
    left.write_bytes(b"half a file")
    mine = tmp_path / "notes.txt"
    mine.write_text("mine")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() is None
    path = checkpoints.save(1, {"a": torch.zeros(1)}, {})
    assert sorted(tmp_path.iterdir()) == sorted([mine, path])


def test_one_too_many_goes_when_a_training_is_resumed(tmp_path):
    """A process that is killed after writing and before removing leaves one more."""
    from hierlearn.pipeline import train
    from training.datasets import plan, problem

    chosen = plan(epochs=3, keep_checkpoints=1)
    train(problem(), plan(epochs=3, keep_checkpoints=3), out=tmp_path / "m")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "m" / name).unlink()
    assert len(Checkpoints(tmp_path / "m" / "checkpoints").paths()) == 3
    train(problem(), chosen, out=tmp_path / "m", resume=True)
    assert len(Checkpoints(tmp_path / "m" / "checkpoints").paths()) == 1


def test_a_write_that_fails_leaves_the_one_before(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    path = checkpoints.save(1, {"a": torch.ones(2)}, {"step": 1})
    with pytest.raises(TypeError, match="not JSON serializable"):
        checkpoints.save(2, {"a": torch.ones(2)}, {"step": object()})
    assert list(tmp_path.iterdir()) == [path]
    assert checkpoints.latest().metadata["step"] == 1


def test_saving_the_same_step_again_replaces_it(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for value in (1.0, 2.0):
        checkpoints.save(7, {"a": torch.tensor(value)}, {})
    assert len(checkpoints.paths()) == 1
    assert float(checkpoints.latest().tensors["a"]) == 2


def test_what_is_no_checkpoint(tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(CheckpointError, match=r"a\.safetensors is not there"):
        read_tensors(path)
    path.write_bytes(b"PK\x03\x04 a zip file, say, which nobody unpickles here")
    with pytest.raises(CheckpointError, match=r"a\.safetensors is damaged or truncated \(.*\);"):
        read_tensors(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(CheckpointError, match=r"a\.safetensors was not written by hierlearn"):
        read_tensors(path)
    save_file({"a": torch.zeros(1)}, path, {"hierlearn": "[1, 2]"})
    with pytest.raises(CheckpointError, match=r"a\.safetensors was not written by hierlearn"):
        read_tensors(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(CheckpointError, match=r"a\.safetensors is a folder, not a file"):
        read_tensors(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, TENSORS, {})
    path.chmod(0)
    with pytest.raises(CheckpointError, match=r"a\.safetensors cannot be read: Permission denied"):
        read_tensors(path)


@pytest.mark.parametrize("cut", range(0, 400, 23))
def test_a_file_cut_anywhere_is_refused(tmp_path, cut):
    path = tmp_path / "a.safetensors"
    write_tensors(path, TENSORS, {"step": 3})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * cut // 400])
    with pytest.raises(CheckpointError, match="damaged or truncated"):
        read_tensors(path)


def test_an_optimizer_goes_on_bit_for_bit():
    def steps(parameter, optimizer, count):
        for _ in range(count):
            optimizer.zero_grad()
            (parameter * torch.arange(4.0)).square().sum().backward()
            optimizer.step()

    whole, cut, again = (torch.nn.Parameter(torch.ones(4)) for _ in range(3))
    optimizers = [torch.optim.AdamW([p], lr=0.1, fused=True) for p in (whole, cut, again)]
    steps(whole, optimizers[0], 7)
    steps(cut, optimizers[1], 3)
    again.data = cut.data.clone()
    restore_optimizer(optimizers[2], optimizer_tensors(optimizers[1]))
    steps(again, optimizers[2], 4)
    assert torch.equal(whole, again)
    assert optimizer_tensors(torch.optim.AdamW([whole])) == {}
