"""No class is more probable than its parents, on any tree or DAG and for any labels."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.propagate import log_zero
from hierlearn.memory import DISTANCES, Candidates, LabelSets, NeighborHead, Remembered
from memory.random_memories import POLICIES
from strategies import labeled

TINY = 1e-12  # double precision, sums of a few terms


@st.composite
def memories(draw):
    """A hierarchy, labels of at least one row, and embeddings that may coincide."""
    taxonomy, rows = draw(labeled())
    hierarchy, _ = taxonomy.build()
    rows = [[taxonomy.ids[node] for node in row] for row in rows or [[]]]
    labels = Labels(rows, hierarchy, unlabeled_descendants=draw(st.sampled_from(POLICIES)))
    seed = draw(st.integers(0, 99))
    generator = torch.Generator().manual_seed(seed)
    size = draw(st.sampled_from([0.0, 1.0, 30.0]))
    embeddings = torch.randn(len(rows), 2, generator=generator, dtype=torch.float64) * size
    queries = torch.randn(3, 2, generator=generator, dtype=torch.float64) * size
    return labels, embeddings, queries, draw(st.sampled_from(list(DISTANCES)))


def assert_coherent(labels, output):
    p, q = (one.exp() for one in output.pair)
    structure = labels.hierarchy.structure
    child, parent = (torch.tensor(e) for e in (structure.edge_children, structure.parent_ids))
    assert (p[..., child] <= p[..., parent] + TINY).all()
    assert (q[..., child] >= q[..., parent] - TINY).all()
    torch.testing.assert_close(p + q, torch.ones_like(p), rtol=0, atol=1e-9)


@given(memories(), st.integers(1, 6))
def test_answers_from_the_memory(drawn, k):
    labels, embeddings, queries, distance = drawn
    head = NeighborHead(labels.hierarchy, nn.Identity(), distance=distance, neighbors=k)
    ids = [str(number) for number in range(len(labels))]
    head.memory.set(embeddings, Remembered(LabelSets.from_labels(labels), ids))
    output = head.look_up(queries)
    assert_coherent(labels, output)
    # Where all remembered rows agree, the answer is exact.
    targets, mask = labels.targets(), labels.mask()
    never = ~(targets & mask).any(dim=0)
    assert (output.log_p[:, never] == log_zero(torch.float64)).all()
    assert (output.log_not_p[:, never] == 0).all()
    if labels.unlabeled_descendants == "negative":
        always = targets.all(dim=0)
        assert (output.log_p[:, always] == 0).all()
        assert (output.log_not_p[:, always] == log_zero(torch.float64)).all()


@given(memories(), st.integers(0, 99), st.booleans())
def test_training_steps(drawn, seed, weighted):
    labels, embeddings, queries, distance = drawn
    generator = torch.Generator().manual_seed(seed)
    excluded = torch.rand(len(queries), len(labels), generator=generator) < 0.3
    weight = torch.rand(len(labels), generator=generator) if weighted else None
    mask = labels.mask() if labels.unlabeled_descendants == "ignore" else None
    head = NeighborHead(labels.hierarchy, nn.Identity(), distance=distance)
    candidates = Candidates(labels.targets(), excluded, mask, weight)
    assert_coherent(labels, head.compare(queries, embeddings, candidates))
