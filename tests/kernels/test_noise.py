"""The kernel of dropout draws what the plain path draws."""

import pytest
import torch

from hierlearn.kernels import noise as kernels
from hierlearn.networks.layers import StepSeeds
from kernels.kernel_cases import DEVICE


@pytest.mark.parametrize("size", [1, 4, 1023, 5000])
@pytest.mark.parametrize("kept", [1, 20_000, 49_152, 65_536])
def test_it_draws_what_the_plain_path_draws(size, kept, monkeypatch):
    seeds = torch.tensor([0, 2**62 + 12345, 77])
    plain, fused = StepSeeds(seeds), StepSeeds(seeds.to(DEVICE))
    for _ in range(2):
        monkeypatch.setattr(kernels, "can_use", lambda _: False)
        expected = plain.scales(size, kept)
        monkeypatch.setattr(kernels, "can_use", lambda _: True)
        assert torch.equal(fused.scales(size, kept).cpu(), expected)
    assert not kernels.failures


def test_without_a_compiler_the_plain_path_draws(monkeypatch):
    def fail(*given, **options):
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(kernels, "failures", [])
    monkeypatch.setattr(kernels, "can_use", lambda _: not kernels.failures)
    monkeypatch.setattr("hierlearn.kernels.entries_triton.write_scales", {(1, 1): fail})
    expected = StepSeeds(torch.tensor([5]))
    found = StepSeeds(torch.tensor([5]))
    first = found.scales(9, 40_000)
    assert kernels.failures == ["Failed to find C compiler"]
    assert torch.equal(first, expected.scales(9, 40_000))
    assert torch.equal(found.scales(9, 40_000), expected.scales(9, 40_000))
