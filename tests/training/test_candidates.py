"""The candidates of a step: who they are, who is left out, and how they train."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy import sparse

from hierlearn import Dataset
from hierlearn.datasets import read_table, stream_table
from hierlearn.hierarchy.labels import Labels
from hierlearn.memory import Candidates, SetCandidates
from hierlearn.networks import LinearHead, Network
from hierlearn.networks.ensemble import LoopedEnsemble, member_state, members_of
from hierlearn.networks.heads import neighbor_head
from hierlearn.training.prepare import prepare
from hierlearn.training.rows import CandidateSampler, Rows, sample
from hierlearn.training.stream import ShardOrder
from training.datasets import (
    CPU,
    TREE,
    assert_identical,
    neighbor_plan,
    partial_problem,
    plan,
    problem,
    state,
    texts,
    trainer_of,
    without_splits,
)


def rows_of(count=12, ids=None, weights=None, policy="negative"):
    names = [TREE.names[number % 8] for number in range(count)]
    labels = Labels([[name] for name in names], TREE, unlabeled_descendants=policy)
    rows = Rows(np.arange(count * 2.0).reshape(count, 2), labels, CPU, weights)
    rows.ids = ids
    return rows


def run(dataset, chosen, weights=None, **callbacks):
    records = []
    trainer = trainer_of(dataset, chosen, weights, on_epoch=records.append, **callbacks)
    trainer.train()
    return trainer, [record["loss"] for record in records]


# ---------------------------------------------------------------------- drawing


def test_a_sample_has_no_row_twice_and_is_everything_in_order_where_it_is_all():
    for size, count in ((10, 4), (1000, 7), (1000, 999)):
        found = sample(size, count, 3)
        assert len(set(found.tolist())) == count
        assert 0 <= int(found.min()) <= int(found.max()) < size
        assert torch.equal(found, sample(size, count, 3))
    assert sample(5, 5, 1).tolist() == sample(5, 9, 2).tolist() == [0, 1, 2, 3, 4]


def test_every_row_is_drawn_as_often():
    seen = torch.cat([sample(20, 5, seed) for seed in range(2000)]).bincount()
    assert (seen - 500).abs().max() < 100  # 4.6 standard deviations


@pytest.mark.parametrize("apart", [False, True], ids=["one", "members"])
@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2, 12)], ids=["alike", "weighted"])
def test_candidates_by_label_set_are_the_same(monkeypatch, weights, apart):
    rows = rows_of(ids=[f"row {number % 9}" for number in range(12)], weights=weights)
    sampler = CandidateSampler(rows, [7, 3] if apart else [7], 8, apart=apart)
    index = torch.tensor([[0, 5, 9], [1, 2, 11]] if apart else [0, 5, 9])
    x, targets, mask, candidates = sampler.batch(index, 4, 0, 0)
    assert isinstance(candidates, Candidates)
    monkeypatch.setattr(sampler, "takes_sets", lambda _: True)
    same, own, none, found = sampler.batch(index, 4, 0, 0)
    assert isinstance(found, SetCandidates)
    assert mask is none is None
    for one, expected in ((same, x), (own, targets), (found.targets, candidates.targets)):
        assert torch.equal(one, expected)
    assert torch.equal(found.excluded, candidates.excluded)
    assert found.excluded.any()
    expected = torch.ones(8) if weights is None else candidates.weight
    assert torch.equal(found.weight, expected.expand_as(found.weight))
    assert found.count == candidates.count == 8


def test_candidates_that_a_window_lacks_do_not_count(monkeypatch):
    sampler = CandidateSampler(rows_of(), [7], 8, apart=False)
    monkeypatch.setattr(sampler, "takes_sets", lambda _: True)
    monkeypatch.setattr(sampler, "draw", lambda *_: torch.tensor([4, 5, -1, -1]))
    _, _, _, found = sampler.batch(torch.tensor([0]), 0, 0, 0)
    assert found.weight.tolist() == [1, 1, 0, 0]


def test_label_sets_are_for_large_batches_on_a_gpu(monkeypatch):
    monkeypatch.setattr("hierlearn.kernels.neighbor_head.has_triton", lambda: True)
    sampler = CandidateSampler(rows_of(), [7], 8, apart=False)
    assert not sampler.takes_sets(1 << 30)  # on the CPU
    sampler.rows.device = torch.device("cuda")
    assert sampler.takes_sets(1 << 30)
    assert not sampler.takes_sets(1)
    partial = CandidateSampler(rows_of(policy="ignore"), [7], 8, apart=False)
    partial.rows.device = torch.device("cuda")
    assert not partial.takes_sets(1 << 30)


@pytest.mark.parametrize("policy", ["negative", "ignore"])
def test_without_candidates_the_rows_of_a_batch_are_compared_with_each_other(policy):
    weights = np.linspace(0.5, 2, 12)
    rows = rows_of(
        ids=[f"row {number % 9}" for number in range(12)], weights=weights, policy=policy
    )
    network = Network(torch.nn.Identity(), neighbor_head(2, TREE, size=3, candidates=0))
    index = torch.tensor([0, 5, 9, 4, 8])  # 0 and 9 are one row
    sampler = CandidateSampler(rows, [7], 0, apart=False)
    x, _, _, candidates = sampler.batch(index, 0, 0, 0)
    assert torch.equal(x, rows.take(index))
    found = network(x, candidates).log_p
    z, scale = network.heads["main"].embed(x), network.heads["main"].scale()
    targets, mask = rows.targets(index).double(), rows.mask(index)
    known = torch.ones_like(targets) if mask is None else mask.double()
    for one in range(5):
        others = [other for other in range(5) if {one, other} - {0, 2} and one != other]
        weight = torch.stack(
            [
                float(rows.weights[index[other]])
                * (-((z[one] - z[other]) ** 2).sum() / scale).exp()
                for other in others
            ]
        ).double()
        whole = weight @ known[others]
        p = torch.where(whole > 0, weight @ (targets * known)[others] / whole.clamp_min(1e-30), 0.0)
        if mask is None:  # a tree without partial labels needs no repair
            torch.testing.assert_close(found[one].exp().double(), p, atol=1e-5, rtol=1e-4)
    # Two processes with a share each compare it with the whole batch.
    parts = []
    for part in (index[:2], index[2:]):
        x, targets, _, candidates = sampler.batch(part, 0, 0, 0, index)
        assert len(x) == len(part) + 5
        assert torch.equal(targets, rows.targets(part))
        parts.append(network(x, candidates).log_p)
    torch.testing.assert_close(torch.cat(parts), found)


def test_accumulated_gradients_are_those_of_the_whole_batch():
    dataset = problem()
    options = {"candidates": 0}
    chosen = [neighbor_plan(head=options, accumulate=parts, epochs=2) for parts in (1, 3)]
    (one, losses), (other, same) = (run(dataset, plan) for plan in chosen)
    np.testing.assert_allclose(losses, same, rtol=1e-4)
    for name, value in state(one.network).items():
        torch.testing.assert_close(state(other.network)[name], value, atol=1e-4, rtol=1e-3)


def test_candidates_depend_on_seed_and_step_alone():
    one = CandidateSampler(rows_of(), [7], 5, apart=False)
    again = CandidateSampler(rows_of(), [3, 7], 5, apart=True)
    torch.rand(3)
    for step in (0, 4):
        assert one.draw(step, 0, 0).shape == (5,)
        assert torch.equal(one.draw(step, 0, 0), one.draw(step, 9, 8))
        assert torch.equal(again.draw(step, 0, 0)[1], one.draw(step, 0, 0))
        assert not torch.equal(again.draw(step, 0, 0)[0], one.draw(step, 0, 0))
    assert not torch.equal(one.draw(0, 0, 0), one.draw(1, 0, 0))
    assert CandidateSampler(rows_of(), [7], 99, apart=False).draw(3, 0, 0).tolist() == list(
        range(12)
    )


def test_a_batch_comes_with_the_rows_of_its_candidates():
    rows = rows_of(weights=np.arange(12.0), policy="ignore")
    sampler = CandidateSampler(rows, [7], 5, apart=False)
    index = torch.tensor([4, 0, 11])
    x, targets, mask, found = sampler.batch(index, 2, 0, 0)
    drawn = sampler.draw(2, 0, 0)
    assert torch.equal(x, rows.inputs[torch.cat([index, drawn])])
    assert torch.equal(targets, rows.targets(index))
    assert torch.equal(mask, rows.mask(index))
    assert torch.equal(found.targets, rows.targets(drawn))
    assert torch.equal(found.mask, rows.mask(drawn))
    assert torch.equal(found.weight, rows.weights[drawn])
    assert torch.equal(found.excluded, index[:, None] == drawn)


def test_rows_with_the_same_id_are_one_thing():
    sampler = CandidateSampler(rows_of(6, ids=["a", "b", "a", "c", "b", "d"]), [0], 9, apart=False)
    found = sampler.batch(torch.tensor([2, 3]), 0, 0, 0)[3]
    assert found.excluded.int().tolist() == [[1, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0]]
    without = CandidateSampler(rows_of(6), [0], 9, apart=False)
    assert without.batch(torch.tensor([2]), 0, 0, 0)[3].excluded.int().tolist() == [
        [0, 0, 1, 0, 0, 0]
    ]


def memorizing(ids):
    """Return random labels of 40 rows that occur twice each."""
    rng = np.random.default_rng(0)
    leaves = [TREE.names[number] for number in TREE.leaves]
    inputs = rng.standard_normal((40, 6)).astype(np.float32)
    labels = [[leaves[rng.integers(len(leaves))]] for _ in range(40)]
    return Dataset(np.tile(inputs, (2, 1)), labels * 2, TREE, ids=ids)


def test_a_copy_of_a_row_under_its_id_is_no_evidence():
    options = {"epochs": 12, "learning_rate": 0.01, "batch_size": 20}
    chosen = replace(
        neighbor_plan(head={"candidates": 80, "scale": 1.0}, **options),
        network_options={"width": 64, "dropout": 0.0},
    )
    known = [f"thing {number % 40}" for number in range(80)]
    _, honest = run(memorizing(known), chosen)
    _, leaking = run(memorizing([str(number) for number in range(80)]), chosen)
    assert leaking[-1][0] < 0.1  # the copy tells the label
    assert honest[-1][0] > 0.35


# ---------------------------------------------------------------------- weights


def gradients(dataset, weights=None, **options):
    """Return the loss and the gradients of one step of all rows at once."""
    head = {"candidates": 1000}
    chosen = neighbor_plan(epochs=1, batch_size=1000, head=head, prior_bias=False, **options)
    trainer, losses = run(without_splits(dataset), replace(chosen, standardize=False), weights)
    found = {name: value.grad for name, value in trainer.network.named_parameters()}
    return {"loss": torch.tensor(losses[0]), **found}


@pytest.mark.parametrize("make", [problem, partial_problem])
def test_a_row_of_weight_0_is_absent_and_weights_that_are_all_alike_change_nothing(make):
    dataset = make(rows=30)
    weights = np.random.default_rng(0).uniform(0.5, 2, 30)
    weights[20:24] = 0
    kept = [*range(20), *range(24, 30)]
    joint = {"joint": {"mcloss": 2.0}}
    weighted = gradients(dataset, weights, **joint)
    for same in (
        gradients(dataset.take(kept), weights[kept], **joint),
        gradients(dataset, 2 * weights, **joint),
    ):
        for name, value in weighted.items():
            torch.testing.assert_close(value, same[name], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(weighted["loss"], gradients(dataset, **joint)["loss"], rtol=1e-3)


def test_a_row_of_weight_2_under_one_id_is_the_row_twice():
    dataset = problem(rows=30)
    weights = np.ones(30)
    weights[3:9] = 2
    rows = [*range(30), *range(3, 9)]
    copied = replace(dataset.take(rows), ids=tuple(str(row) for row in rows))
    weighted = gradients(dataset, weights)
    for name, value in gradients(copied).items():
        torch.testing.assert_close(weighted[name], value, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------------- stacked, looped, alone


def compare(dataset, **options):
    """Train seeds 4, 5 and 6 stacked, looped and alone, and compare all that they leave."""
    options = {"dropout": 0.3, "max_grad_norm": 0.05, **options}
    chosen = neighbor_plan(seed=4, ensemble_size=3, **options)
    stacked, together = run(dataset, chosen)
    assert members_of(stacked.network) == 3
    parts = [
        prepare(dataset, neighbor_plan(seed=4 + number, **options), CPU).network
        for number in range(3)
    ]
    looped = trainer_of(dataset, chosen)
    looped = type(looped)(
        LoopedEnsemble(parts),
        looped.loss,
        looped.rows,
        looped.settings,
        valid=looped.valid,
        read=looped.read,
    )
    looped.train()
    p = {
        kind: torch.stack(list(probabilities(trainer)))
        for kind, trainer in (("stacked", stacked), ("looped", looped))
    }
    torch.testing.assert_close(p["looped"], p["stacked"], rtol=1e-3, atol=1e-4)
    for member in range(3):
        alone, losses = run(dataset, neighbor_plan(seed=4 + member, **options))
        for name, value in state(alone).items():
            for found in (state(stacked, member), state(looped, member)):
                torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
        for one, many in zip(losses, together, strict=True):
            assert many[member] == pytest.approx(one[0], rel=1e-4)
        torch.testing.assert_close(
            p["stacked"][member], probabilities(alone)[0], rtol=1e-3, atol=1e-4
        )


def probabilities(trainer):
    from hierlearn.training.inference import member_probabilities

    return member_probabilities(trainer.network, trainer.rows, trainer.read)


def test_members():
    compare(problem())


def test_members_with_joint_heads_and_a_learned_scale():
    compare(problem(), joint={"soft-labels": 3.0}, answer="average", head={"learn_scale": True})


def test_members_with_masks():
    compare(partial_problem(), unlabeled_descendants="ignore", head={"distance": "euclidean"})


def test_members_with_sparse_rows():
    compare(texts(), network="token-bag")


# ---------------------------------------------------------------------- kinds of rows and precision


def test_half_precision_trains():
    trainer, losses = run(problem(), neighbor_plan(precision="bf16", epochs=6, learning_rate=0.01))
    full, exact = run(problem(), neighbor_plan(epochs=6, learning_rate=0.01))
    assert losses[-1][0] < 0.8 * losses[0][0]
    assert losses[-1][0] == pytest.approx(exact[-1][0], rel=0.1)
    assert losses != exact
    assert next(iter(trainer.network.heads["main"].memory.embeddings)).dtype == torch.float16
    del full


@pytest.mark.parametrize("network", ["linear", "token-bag"])
@pytest.mark.parametrize("members", [1, 2])
def test_sparse_rows_train_as_their_dense_ones(network, members):
    dataset = problem(features=6)
    dense = np.where(dataset.inputs > 0.3, dataset.inputs, 0).astype(np.float32)
    held = replace(dataset, inputs=sparse.csr_array(dense))
    chosen = replace(
        neighbor_plan(network=network, ensemble_size=members, epochs=4, learning_rate=0.02),
        standardize=False,
    )
    trainer, losses = run(held, chosen)
    assert losses[-1][0] < 0.95 * losses[0][0]
    if network == "linear":
        other, _ = run(replace(dataset, inputs=dense), chosen)
        for name, value in state(other).items():
            torch.testing.assert_close(state(trainer)[name], value, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------- rows that stay in a file


@pytest.fixture
def table(tmp_path):
    draw = np.random.default_rng(3)
    kinds = draw.integers(0, 4, 61)
    values = kinds[:, None] + draw.standard_normal((61, 3))
    columns = {f"x{k}": values[:, k] for k in range(3)}
    columns["y"] = [("a/b", "a/c", "d", "d/e/f")[k] for k in kinds]
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=8)
    return tmp_path / "rows.parquet"


def streamed(table, window, **options):
    return prepare(
        stream_table(table, window=window, label="y"),
        neighbor_plan(batch_size=7, **options),
        CPU,
    )


def test_candidates_come_from_the_window(table):
    rows = streamed(table, 20).rows
    sampler = CandidateSampler(rows, [0, 1], 15, apart=True)
    for epoch in (0, 1):
        for place in range(0, 61, 7):
            drawn = sampler.draw(place, epoch, place)
            for seed, own in enumerate(drawn):
                begin = 0
                order = ShardOrder(rows, seed, epoch, size=7)
                for window in map(order.window, range(len(order.windows))):
                    if begin <= place < begin + len(window):
                        real = own[own >= 0].tolist()
                        assert set(real) <= set(window.tolist())
                        assert len(real) == len(set(real)) == min(15, len(window))
                    begin += len(window)
            sampler.batch(rows.order([0, 1], epoch)[:, place : place + 7], place, epoch, place)


def test_a_window_that_lacks_candidates_leaves_places_empty(table):
    rows = streamed(table, 20).rows
    alone = CandidateSampler(rows, [0], 99, apart=False)
    both = CandidateSampler(rows, [0, 1], 99, apart=True)
    lacking = 0
    for place in range(0, 61, 7):
        drawn = alone.draw(3, 0, place)
        assert drawn.shape == (20,)
        assert torch.equal(both.draw(3, 0, place)[0], drawn)
        index = rows.order([0], 0)[0][place : place + 7]
        found = alone.batch(index, 3, 0, place)[3]
        assert found.excluded[:, drawn < 0].all()
        lacking += int((drawn < 0).sum())
    assert lacking > 0


@pytest.mark.parametrize("size", [1, 2])
def test_a_window_that_covers_the_file_trains_as_in_memory_bit_for_bit(table, size):
    options = {"batch_size": 7, "dropout": 0.3, "ensemble_size": size}
    for head in ({"candidates": 99}, {"candidates": 20}):
        chosen = neighbor_plan(head=head, **options)
        held, _ = run(read_table(table, label="y"), chosen)
        file, _ = run(stream_table(table, label="y"), chosen)
        assert_identical(state(file), state(held))
        for first, second in zip(probabilities(file), probabilities(held), strict=True):
            assert torch.equal(first, second)


def test_stacked_members_read_the_windows_that_they_read_alone(table):
    options = {"dropout": 0.3, "head": {"candidates": 99}}
    chosen = replace(
        neighbor_plan(batch_size=7, ensemble_size=2, epochs=6, learning_rate=0.02, **options),
        network_options={"width": 8, "dropout": 0.3, "input_dropout": 0.2},
    )
    dataset = stream_table(table, window=20, label="y")
    both, _ = run(dataset, chosen)
    for member in range(2):
        settings = {**chosen.settings, "ensemble_size": 1, "seed": member}
        alone, losses = run(dataset, replace(chosen, settings=settings))
        assert losses[-1][0] < losses[0][0]
        for name, value in state(alone).items():
            found = member_state(both.network, member)[name]
            torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-5)


def test_a_network_of_torch_layers_trains_with_a_memory():
    torch.manual_seed(0)
    dataset = problem()
    encoder = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU())
    heads = {
        "main": neighbor_head(8, dataset.hierarchy, size=4, candidates=20, scale=4.0),
        "linear": LinearHead(8, dataset.hierarchy),
    }
    records = []
    trainer = trainer_of(
        dataset,
        plan("bce", epochs=5, learning_rate=0.02),
        network=Network(encoder, heads),
        on_epoch=records.append,
    )
    trainer.train()
    assert records[-1]["loss"][0] < records[0]["loss"][0]
    assert len(heads["main"].memory) == len(trainer.rows)
