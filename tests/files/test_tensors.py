"""Files of tensors: what is written comes back, and a file that changed is refused."""

import random

import numpy as np
import pytest
import torch

from hierlearn.files.tensors import CheckpointError, read_tensors, write_tensors

TENSORS = {
    "a/weights": torch.randn(5, 3, generator=torch.Generator().manual_seed(0)),
    "half": torch.arange(6, dtype=torch.bfloat16),
    "scalar": torch.tensor(7),
    "one": torch.ones(1).expand(1),
    "expanded": torch.tensor([3]).expand(2, 1),
    "turned": torch.arange(6).view(2, 3).T,
    "empty": torch.zeros(0, 4),
    "from numpy": torch.from_numpy(np.zeros(0, dtype=np.int64)),
    "mask": torch.tensor([True, False]),
}
METADATA = {"format": "example", "step": 3, "names": ["é", "b"]}


@pytest.fixture
def path(tmp_path):
    write_tensors(tmp_path / "t.safetensors", TENSORS, METADATA)
    return tmp_path / "t.safetensors"


def test_what_is_written_comes_back(path):
    tensors, metadata = read_tensors(path)
    assert metadata == METADATA
    assert tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert tensors[name].dtype == value.dtype
        assert torch.equal(tensors[name], value)


def test_every_changed_bit_is_refused(path):
    data = path.read_bytes()
    draw = random.Random(0)
    places = {draw.randrange(8 * len(data)) for _ in range(300)} | set(range(64))
    for place in places:
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(CheckpointError):
            read_tensors(path)


@pytest.mark.parametrize("length", [0, 1, 8, 100, -1])
def test_truncated_files_are_refused(path, length):
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError):
        read_tensors(path)


def test_files_of_others_are_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="was not written by hierlearn"):
        read_tensors(tmp_path / "other.safetensors")
