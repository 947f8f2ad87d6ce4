"""The score: equal to the metrics where those apply, and fair to what is unknown."""

import pytest
import torch

from hierlearn import Hierarchy, Labels
from hierlearn.errors import DataError
from hierlearn.estimator.score import exact_fraction, pooled_f1
from hierlearn.metrics import exact_match, hierarchical_f1

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])


def random_sets(seed):
    draw = torch.Generator().manual_seed(seed)
    sets = torch.rand(40, len(TREE), generator=draw) < 0.15
    return TREE.max_up(sets.to(torch.uint8)).bool()


@pytest.mark.parametrize("seed", range(5))
def test_the_metrics_are_the_oracle(seed):
    answers, truth = random_sets(seed), random_sets(seed + 100)
    labels, ones = Labels(TREE.decode(truth), TREE), torch.ones(40).double()
    assert pooled_f1(answers, labels, ones) == pytest.approx(
        float(hierarchical_f1(answers, truth, TREE))
    )
    assert exact_fraction(answers, labels, ones) == float(exact_match(answers, truth, TREE))


def test_a_weight_counts_a_row_so_many_times():
    answers, truth = random_sets(0), random_sets(1)
    answers[::2] = truth[::2]
    weights = torch.arange(40) % 4
    rows = torch.arange(40).repeat_interleave(weights)
    ones = torch.ones(len(rows))
    for measure in (pooled_f1, exact_fraction):
        weighted = measure(answers, Labels(TREE.decode(truth), TREE), weights.double())
        repeated = measure(answers[rows], Labels(TREE.decode(truth[rows]), TREE), ones)
        assert weighted == pytest.approx(repeated)


def test_what_is_unknown_is_not_held_against_an_answer():
    answers = TREE.encode(["a/b/c", "a/b", "a/e", "h"])
    labels = Labels(["a/b", "a/b/c", "a/b", None], TREE, unlabeled_descendants="ignore")
    weights = torch.ones(4)
    # Below the label: right. Above it: wrong. Beside it: wrong. No label: not counted.
    assert exact_fraction(answers, labels, weights) == pytest.approx(1 / 3)
    # |A n T| = 2 + 2 + 1 + 0, |A| = 2 + 2 + 2 + 0 over known classes, |T| = 2 + 3 + 2 + 0
    assert pooled_f1(answers, labels, weights) == pytest.approx(10 / 13)
    with pytest.raises(DataError, match="no row has a label, so there is nothing to score"):
        exact_fraction(
            answers[3:], Labels([None], TREE, unlabeled_descendants="ignore"), weights[:1]
        )
    nothing = torch.zeros(1, len(TREE), dtype=torch.bool)
    assert pooled_f1(nothing, Labels([None], TREE), weights[:1]) == 0
