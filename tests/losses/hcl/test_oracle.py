"""HCLLoss against tests/reference/hcl.py."""

import math
import random

import pytest

from hierlearn import LabelSpace
from hierlearn.losses import HCLLoss
from losses.oracle_checks import assert_same
from losses.random_batches import random_batch
from reference.hcl import hcl


@pytest.mark.parametrize("seed", range(150))
def test_the_reference_in_all_variants(seed):
    rng = random.Random(seed)
    link = rng.choice(["sigmoid", "sigmoid", "softmax", "conditional", "max"])
    # The softmax link says that every row has a class: a row without one costs infinitely much,
    # and so does a row that ends at an inner class unless that is terminal.
    labels = (1, 2) if link == "softmax" else (0, 2)
    batch = random_batch(seed, dag=seed % 2 == 1, labels=labels)
    everyone = range(len(batch.hierarchy))
    options = {
        "link": link,
        "scope": rng.choice(["levels", "ancestors", None]),
        "curriculum": rng.choice(["batch", "batch", None]),
        "normalize": rng.choice(["sum", "mean", "losses"]),
        "floor": rng.choice([0.0, 0.1, 0.5]),
        "threshold": rng.choice([None, None, 3.5]),
        "reduction": rng.choice(["mean", "sum", "none"]),
    }
    base = rng.choice(["bce", "bce2", "focal"])
    loss = HCLLoss(LabelSpace(batch.hierarchy, everyone), base=base, **options)
    expected = hcl(
        *batch.lists,
        batch.parents,
        base=base.removesuffix("2"),
        log_base=2 if base == "bce2" else math.e,
        mask=batch.mask_list,
        terminals=list(everyone),
        **options,
    )
    assert_same(loss(batch.logits, batch.targets, batch.mask), expected["loss"])
    if options["curriculum"] is None:
        assert loss.last == {}
        return
    assert loss.last["selected"].tolist() == expected["selected"]
    assert_same(loss.last["e_h"], expected["e_h"])
    assert_same(loss.last["l_hc"], expected["l_hc"])
    assert_same(loss.last["selected_fraction"], sum(expected["selected"]) / len(batch.hierarchy))
