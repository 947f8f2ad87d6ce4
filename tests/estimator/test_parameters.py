"""The parameters of the estimator are checked when it is fitted, and stored as JSON."""

import numpy as np
import pytest
import torch

from estimator_problems import LEAVES, blobs, classifier
from hierlearn import HierarchicalClassifier
from hierlearn.errors import HierlearnError
from hierlearn.estimator.parameters import make_plan, storable
from hierlearn.training.settings import Settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": "hlc"}, "unknown recipe 'hlc'; did you mean 'hcl'"),
        ({"loss": "hcll"}, "unknown loss 'hcll'; did you mean 'hcl"),
        ({"loss": "hcl", "loss_options": {"flor": 1}}, "unknown option of hcl 'flor'; did you"),
        ({"network": "mpl"}, "unknown network 'mpl'; did you mean 'mlp'"),
        (
            {"network_options": {"widht": 3}},
            "unknown option of network mlp 'widht'; did you mean 'width'",
        ),
        ({"link": "softmx"}, "unknown link 'softmx'; did you mean 'softmax'"),
        ({"decoder": "lef"}, "unknown decoder 'lef'; did you mean 'leaf'"),
        (
            {"unlabeled_descendants": "positive"},
            "unknown unlabeled_descendants 'positive'; known: ignore, negative",
        ),
        ({"sep": ""}, "sep must be a non-empty text, not ''"),
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"epochs": 1.5}, "epochs must be an integer, not 1.5"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin'; did you mean 'cosine'"),
        ({"metric": "au-prk", "patience": 1}, "unknown metric 'au-prk'; did you mean 'au-prc'"),
        ({"patience": 1, "valid_fraction": 1.0}, "valid_fraction must be in"),
        ({"random_state": -1}, "random_state must be at least 0, not -1"),
        ({"ensemble_size": 0}, "ensemble_size must be at least 1, not 0"),
        ({"device": "gpu"}, "'gpu' is no device; use auto, cpu or cuda"),
    ],
)
def test_refused_in_fit(changes, message):
    X, group = blobs(20)
    estimator = classifier(**{"epochs": 1, **changes})  # nothing is checked here
    with pytest.raises(HierlearnError, match=message):
        estimator.fit(X, LEAVES[group])


def test_a_hierarchy_is_no_file():
    X, group = blobs(20)
    with pytest.raises(HierlearnError, match=r"hierarchy is 'tree\.csv', not a Hierarchy; build"):
        classifier().fit(X, LEAVES[group], hierarchy="tree.csv")


def test_the_defaults_are_those_of_the_recipe():
    plan = make_plan(HierarchicalClassifier(random_state=7).get_params())
    assert plan.settings == {"seed": 7}
    assert plan.valid_fraction == 0  # no patience, no rows held out
    documented = (100, 128, 0.001, 0.0, "au-prc")
    settings = Settings()
    assert documented == (
        *(settings.epochs, settings.batch_size, settings.learning_rate),
        *(settings.weight_decay, settings.metric),
    )


def test_what_json_cannot_hold_is_refused():
    stored = storable({"ensemble_size": np.int64(2), "random_state": np.random.RandomState(0)})
    assert stored == {"ensemble_size": 2, "random_state": None}
    with pytest.raises(HierlearnError, match="the parameter decoder_options cannot be written"):
        storable({"decoder_options": {"cost": torch.eye(2)}})
