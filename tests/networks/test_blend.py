"""Blends: weighted averages of networks that read columns of their own."""

import json

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from tests.tolerances import FLOAT32

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import HierlearnError
from hierlearn.links import HeadOutput
from hierlearn.networks import InputSpec, read_output
from hierlearn.networks.blend import Blend, memories_alone, memory_shares
from hierlearn.networks.build import HeadSpec, NetworkSpec, PartSpec, build_network
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.memories import embed, embeddings_of, memory_heads

SPACE = LabelSpace(Hierarchy.from_paths(["a/b", "a/c", "d"]))
JOINT = {"main": HeadSpec("neighbors", {"size": 4}), "bce": HeadSpec("linear", {"link": "max"})}


def part(name, width, answers, begin=0, **more):
    spec = NetworkSpec("mlp", InputSpec.numbers(width), {"width": 5}, **more)
    return PartSpec(name, spec, "softmax", answers, begin)


def make(specs, seed=0):
    networks = []
    for number, spec in enumerate(specs):
        members = spec.network.members or 1
        seeds = [seed + 10 * number + k for k in range(members)]
        networks.append(build_network(spec.network, SPACE, seeds))
    return Blend(SPACE, specs, networks).eval()


def remember_rows(blend, rows=6):
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.memory import LabelSets, Remembered
    from hierlearn.networks.memories import set_memory

    width = max(one.begin + one.network.inputs.width for one in blend.specs)
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(5))
    names = ["a/b", "a/c", "d"] * (rows // 3)
    labels = LabelSets.from_labels(Labels([[name] for name in names], SPACE.hierarchy))
    with torch.no_grad():
        set_memory(blend, embed(blend, x), Remembered(labels, [str(k) for k in range(rows)]))


def test_the_answer_is_the_weighted_mean_of_what_each_part_says_of_its_columns():
    specs = [part("one", 3, {"main": 3.0}), part("two", 2, {"main": 1.0}, begin=3, members=2)]
    blend = make(specs)
    x = torch.randn(7, 5)
    expected = torch.zeros(7, len(SPACE))
    for number, weight in ((0, 0.75), (1, 0.25)):
        own = x[:, :3] if number == 0 else x[:, 3:]
        found = blend.parts[number](own)
        p = read_output(found, blend.links[number], overrides_link=True).probabilities
        expected += weight * (p if p.dim() == 2 else p.mean(dim=0))
    FLOAT32.assert_close(blend(x).probabilities, expected)


def test_several_answers_of_one_part_have_weights_of_their_own():
    blend = make([part("joint", 3, {"main": 0.5, "bce": 0.25, "average": 0.25}, heads=JOINT)])
    remember_rows(blend)
    x = torch.randn(4, 3)
    found = blend.parts[0](x)
    main, bce = found["main"].probabilities, found["bce"].probabilities
    expected = 0.5 * main + 0.25 * bce + 0.25 * (main + bce) / 2
    FLOAT32.assert_close(blend(x).probabilities, expected)


def test_weights_of_an_average_of_outputs():
    p = [torch.tensor([[0.2]]), torch.tensor([[0.6]]), torch.tensor([[1.0]])]
    outputs = [HeadOutput(one.log(), (1 - one).log()) for one in p]
    found = HeadOutput.average(outputs, [0.5, 0.5, 0.0])
    FLOAT32.assert_close(found.probabilities, torch.tensor([[0.4]]))
    FLOAT32.assert_close(HeadOutput.average(outputs).probabilities, torch.tensor([[0.6]]))
    FLOAT32.assert_close(found.log_not_p.exp(), torch.tensor([[0.6]]))


def test_columns_of_sparse_rows():
    dense = np.array([[0, 1, 2, 0], [3, 0, 0, 4], [0, 0, 0, 0]], dtype=np.float32)
    rows = SparseRows.from_scipy(csr_array(dense))
    for begin, width in ((0, 2), (1, 3), (2, 1), (0, 4)):
        found = rows.narrow(begin, width)
        assert found.shape == (3, width)
        assert np.array_equal(found.dense().numpy(), dense[:, begin : begin + width])


def test_a_spec_survives_json_and_builds_the_same_network():
    specs = (part("one", 3, {"main": 1.0}), part("two", 2, {"bce": 0.5}, begin=3, heads=JOINT))
    blend = make(specs)
    spec = NetworkSpec("blend", InputSpec.numbers(5), parts=specs)
    restored = NetworkSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert restored == spec
    again = build_network(restored, SPACE).eval()
    again.load_state_dict(blend.state_dict())
    remember_rows(blend)
    remember_rows(again)
    x = torch.randn(4, 5)
    assert torch.equal(again(x).probabilities, blend(x).probabilities)


def test_factories_outside_of_hierlearn_are_named_by_a_blend_of_them():
    foreign = NetworkSpec("somewhere:else", InputSpec.numbers(3))
    spec = NetworkSpec(
        "blend",
        InputSpec.numbers(3),
        parts=(part("one", 3, {"main": 1.0}), PartSpec("two", foreign, "softmax", {"main": 1.0})),
    )
    assert spec.foreign == ["somewhere:else"]


def test_shares_of_memories():
    specs = [
        part("one", 3, {"main": 2.0, "average": 1.0}, heads=JOINT),
        part("two", 3, {"main": 1.0}),
    ]
    assert memory_shares(make(specs)) == pytest.approx({"0.main": 2.5 / 4})


def test_memories_go_on_alone():
    specs = [
        part("plain", 3, {"main": 1.0}),
        part("joint", 2, {"average": 3.0}, begin=3, heads=JOINT),
    ]
    blend = make(specs)
    remember_rows(blend)
    held = embeddings_of(blend)
    x = torch.randn(4, 5)
    alone, names = memories_alone(blend, SPACE)
    assert names == {"1.main": "0.main"}
    assert list(memory_heads(alone)) == ["0.main"]
    assert torch.equal(embeddings_of(alone)["0.main"], held["1.main"])
    assert alone.specs[0].network.heads.keys() == {"main"}
    expected = alone.parts[0](x[:, 3:]).probabilities
    FLOAT32.assert_close(alone(x).probabilities, expected)


def test_a_blend_without_a_memory_cannot_go_on_by_memories():
    blend = make([part("plain", 3, {"main": 1.0})])
    assert memory_shares(blend) == {}
    with pytest.raises(HierlearnError, match="no part of this blend answers from a memory"):
        memories_alone(blend, SPACE)


def test_weights_must_not_all_be_0():
    with pytest.raises(HierlearnError, match="must sum to more than 0"):
        make([part("one", 3, {"main": 0.0})])
