"""Noise from counters: SplitMix64 by the book, and its use by dropout."""

import pytest
import torch

from hierlearn.networks.layers import CALL, Dropout, Share, StepSeeds

WORD = 2**64


def splitmix(state):
    """Return the number of SplitMix64 at a state, in integers of Python."""
    z = state * 0x9E3779B97F4A7C15 % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def expected_scales(seed, call, size, kept):
    """Return what entries are multiplied with: four of 16 bits from each number, as signed ones."""
    found = []
    for entry in range(size):
        number = splitmix((seed + call * CALL + entry // 4) % WORD)
        drawn = number >> 16 * (entry % 4) & 0xFFFF
        drawn -= 0x10000 * (drawn >= 0x8000)
        found.append(65_536 / kept if drawn + 32_768 < kept else 0.0)
    return torch.tensor(found)


@pytest.mark.parametrize("size", [1, 6, 257])
def test_draws_are_those_of_splitmix(size):
    seeds = [3, 2**63 - 1]
    draws = StepSeeds(torch.tensor(seeds))
    for call in range(3):
        found = draws.scales(size, 40_000)
        for row, seed in zip(found, seeds, strict=True):
            torch.testing.assert_close(row, expected_scales(seed, call, size, 40_000))


def dropout(p, seeds, share=None):
    layer = Dropout(p)
    layer.generators, layer.share = [torch.Generator() for _ in seeds], share
    layer.seeds = StepSeeds(torch.tensor(seeds))
    return layer


def test_a_member_drops_what_it_drops_alone():
    x = torch.ones(3, 5, 7)
    together = dropout(0.4, [5, 6, 7])(x)
    for member, seed in enumerate([5, 6, 7]):
        assert torch.equal(dropout(0.4, [seed])(x[member]), together[member])
    assert not torch.equal(together[0], together[1])


def test_the_mean_is_kept_and_calls_differ():
    layer = dropout(0.25, [1])
    x = torch.ones(1000, 100)
    first, second = layer(x), layer(x)
    for found in (first, second):
        assert float(found.mean()) == pytest.approx(1, abs=0.01)
        assert float((found == 0).float().mean()) == pytest.approx(0.25, abs=0.005)
    both = ((first == 0) & (second == 0)).float().mean()
    assert float(both) == pytest.approx(0.0625, abs=0.005)
    columns = (first == 0).float().mean(dim=0)
    assert float((columns - 0.25).abs().max()) < 0.07  # five standard deviations


def test_processes_use_the_noise_of_their_own_rows():
    x = torch.ones(6, 3)
    whole = dropout(0.5, [9])(x)
    rows = torch.tensor([4, 1])
    assert torch.equal(dropout(0.5, [9], Share(rows, 6))(x[:2]), whole[rows])


def test_half_precision_stays_half():
    x = torch.ones(4, 8, dtype=torch.bfloat16)
    assert dropout(0.5, [1])(x).dtype == torch.bfloat16
