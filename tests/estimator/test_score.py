"""The score: equal to the metrics where those apply, and fair to what is unknown."""

import pytest
import torch

from hierlearn import Hierarchy, Labels
from hierlearn.errors import DataError
from hierlearn.estimator.scoring import weighted_exact
from hierlearn.metrics import exact_match, hierarchical_f1
from hierlearn.metrics.answers import Answers, f1

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])


def weighted_f1(answers, weights):
    return float(f1(answers, weights=weights))


def random_sets(seed):
    draw = torch.Generator().manual_seed(seed)
    sets = torch.rand(40, len(TREE), generator=draw) < 0.15
    return TREE.max_up(sets.to(torch.uint8)).bool()


def of(sets, labels):
    mask = labels.mask() if labels.unlabeled_descendants == "ignore" else None
    return Answers(sets.double(), labels, TREE, mask, "coherent")


@pytest.mark.parametrize("seed", range(5))
def test_the_metrics_are_the_oracle(seed):
    answers, truth = random_sets(seed), random_sets(seed + 100)
    found, ones = of(answers, Labels(TREE.decode(truth), TREE)), torch.ones(40).double()
    assert weighted_f1(found, ones) == pytest.approx(float(hierarchical_f1(answers, truth, TREE)))
    assert weighted_exact(found, ones) == float(exact_match(answers, truth, TREE))


def test_a_weight_counts_a_row_so_many_times():
    answers, truth = random_sets(0), random_sets(1)
    answers[::2] = truth[::2]
    weights = torch.arange(40) % 4
    rows = torch.arange(40).repeat_interleave(weights)
    ones = torch.ones(len(rows))
    for measure in (weighted_f1, weighted_exact):
        weighted = measure(of(answers, Labels(TREE.decode(truth), TREE)), weights.double())
        repeated = measure(of(answers[rows], Labels(TREE.decode(truth[rows]), TREE)), ones)
        assert weighted == pytest.approx(repeated)


def test_what_is_unknown_is_not_held_against_an_answer():
    answers = TREE.encode(["a/b/c", "a/b", "a/e", "h"])
    labels = Labels(["a/b", "a/b/c", "a/b", None], TREE, unlabeled_descendants="ignore")
    weights = torch.ones(4)
    # Below the label: right. Above it: wrong. Beside it: wrong. No label: not counted.
    assert weighted_exact(of(answers, labels), weights) == pytest.approx(1 / 3)
    # |A n T| = 2 + 2 + 1 + 0, |A| = 2 + 2 + 2 + 0 over known classes, |T| = 2 + 3 + 2 + 0
    assert weighted_f1(of(answers, labels), weights) == pytest.approx(10 / 13)
    nothing = Labels([None], TREE, unlabeled_descendants="ignore")
    with pytest.raises(DataError, match="no row has a label, so there is nothing to score"):
        weighted_exact(of(answers[3:], nothing), weights[:1])
    empty = torch.zeros(1, len(TREE), dtype=torch.bool)
    assert weighted_f1(of(empty, Labels([None], TREE)), weights[:1]) == 0
