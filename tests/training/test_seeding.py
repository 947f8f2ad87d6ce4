"""Random numbers depend on seed, purpose and count alone."""

import torch

from hierlearn.training.seeding import derive, epoch_order, generator


def test_known_values_so_that_checkpoints_of_today_go_on_tomorrow():
    assert derive(0, "weights") == 664910812957149500
    assert derive(7, "noise 0", 41) == 2887576535194475954


def test_seed_purpose_and_count_all_matter():
    found = {derive(s, p, c) for s in range(3) for p in ("order", "noise 0") for c in range(4)}
    assert len(found) == 24
    assert all(0 <= one < 2**63 for one in found)


def test_a_generator_follows_its_seed_and_leaves_torchs_alone():
    before = torch.get_rng_state()
    one, two = (torch.rand(3, generator=generator(1, "order", 2)) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_member_reads_every_row_in_an_order_of_its_own():
    order = epoch_order([0, 1], 20, epoch=3)
    assert order.shape == (2, 20)
    for member in order:
        assert member.sort().values.tolist() == list(range(20))
    assert not torch.equal(order[0], order[1])
    assert torch.equal(order[1], epoch_order([1], 20, epoch=3)[0])
    assert not torch.equal(order[0], epoch_order([0], 20, epoch=4)[0])
