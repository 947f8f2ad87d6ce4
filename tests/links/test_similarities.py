"""Similarities to titles: against naive loops, what they become in a limit, and refusals."""

import random

import pytest
import torch

from hierlearn import Hierarchy, LabelSpace, from_similarities
from hierlearn.decoding import make_decoder
from hierlearn.errors import HierlearnError
from losses.random_batches import random_hierarchy
from reference.similarities import node_probabilities

TREE = Hierarchy.from_paths(["animal/cat", "animal/dog", "plant"])


def draw(seed, *, inner=True):
    """Return a label space, the classes of the titles, and similarities of five rows."""
    rng = random.Random(seed)
    hierarchy = random_hierarchy(rng, dag=seed % 2 == 1)
    own = [c for c in range(len(hierarchy)) if rng.random() < 0.3]
    space = LabelSpace(hierarchy, own)
    classes = list(space.terminals.tolist())
    classes += [rng.choice(classes) for _ in range(rng.randint(0, 3))]
    if inner:
        classes += [rng.randrange(len(hierarchy)) for _ in range(rng.randint(0, 4))]
    rng.shuffle(classes)
    rows = [[rng.uniform(-1, 1) for _ in classes] for _ in range(5)]
    return space, classes, rows


def parents_of(space):
    return [list(space.hierarchy.parents(c)) for c in range(len(space))]


@pytest.mark.parametrize("seed", range(30))
def test_probabilities_equal_the_naive_loops(seed):
    space, classes, rows = draw(seed)
    x = torch.tensor(rows, dtype=torch.float64)
    found = from_similarities(x, space, classes=classes, temperature=0.2)
    wanted = [
        node_probabilities(row, classes, parents_of(space), space.terminals.tolist(), 0.2)
        for row in rows
    ]
    torch.testing.assert_close(found.probabilities, torch.tensor(wanted).double())
    both = found.log_p.exp() + found.log_not_p.exp()
    torch.testing.assert_close(both, torch.ones_like(both), rtol=0, atol=1e-9)


def test_titles_of_terminal_classes_alone_are_a_softmax_over_them():
    space = LabelSpace(TREE)
    x = torch.randn(4, 3)
    found = from_similarities(x, TREE, temperature=0.5).probabilities
    torch.testing.assert_close(found[:, space.terminal_ids()], (x / 0.5).softmax(dim=1))


def test_the_order_of_columns_and_equal_titles_do_not_matter():
    x = torch.randn(4, 3)
    names = ["plant", "dog", "cat"]
    wanted = from_similarities(x, TREE, classes=names).probabilities
    order = [2, 0, 1, 0]  # the title of plant twice
    found = from_similarities(x[:, order], TREE, classes=[names[k] for k in order])
    torch.testing.assert_close(found.probabilities, wanted)


def test_vectors_of_titles_may_be_averaged_instead_of_similarities():
    space, classes, _ = draw(8)
    generator = torch.Generator().manual_seed(0)
    rows, titles = (torch.randn(n, 6, generator=generator).double() for n in (5, len(classes)))
    from hierlearn.links.similarities import terminal_scores

    weights = terminal_scores(titles.T, space, classes)  # (6, T)
    scores = terminal_scores(rows @ titles.T, space, classes)
    torch.testing.assert_close(rows @ weights, scores)


def test_output_goes_to_decoders():
    found = from_similarities([[0.30, 0.29, -0.5], [0.1, -0.9, -0.9]], TREE, classes=[2, 3, 1])
    assert make_decoder(TREE, "stop", threshold=0.9)(found).tolist() == [0, 2]


def test_half_precision_and_no_rows():
    x = torch.randn(3, 3).bfloat16()
    found = from_similarities(x, TREE)
    torch.testing.assert_close(
        found.probabilities, from_similarities(x.float(), TREE).probabilities
    )
    assert from_similarities(torch.zeros(0, 3), TREE).probabilities.shape == (0, 4)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([[0.1, 0.2]], {}, r"\(1, 2\) must be \(N, 3\), one column per terminal class"),
        ([[0.1, 0.2]], {"classes": ["cat"]}, r"\(1, 2\) must be \(N, 1\), one column per class"),
        ([[0.1, 0.2]], {"classes": ["cat", "dog"]}, "'plant' has no title, nor has any class"),
        ([[0.1, 0.2, float("nan")]], {}, "row 0 of the similarities is not finite"),
        ([[1, 2, 3]], {}, r"must be \(N, K\) floats"),
        ([[0.1], [0.2, 0.3]], {}, r"must be \(N, K\) floats, not list"),
        ([["a"]], {}, r"must be \(N, K\) floats, not list"),
        ([0.1], {}, r"must be \(N, K\) floats"),
        ([[0.1, 0.2, 0.3]], {"temperature": 0}, "temperature must be a number above 0"),
        ([[0.1, 0.2, 0.3]], {"classes": "cat"}, "one class per column, not the text 'cat'"),
    ],
)
def test_refusals(values, options, message):
    with pytest.raises(HierlearnError, match=message):
        from_similarities(values, TREE, **options)
