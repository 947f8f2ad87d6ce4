"""The parameters of the estimator are checked when it is fitted, and stored as JSON."""

import inspect
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone

from estimator.toy_data import LEAVES, blobs, classifier
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
        ({"network": 3}, "network must be a name of NETWORKS, .*a torch module or None, not 3"),
        ({"network": torch.nn.Linear}, "network must be a name of NETWORKS, .*not <class"),
        ({"loss": "hcl", "loss_options": 3}, "loss_options must be a mapping, not 3"),
        ({"network_options": 3}, "network_options must be a mapping, not 3"),
        ({"decoder_options": "x"}, "decoder_options must be a mapping, not 'x'"),
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
        ({"ensemble_size": 0}, "ensemble_size must be from 1 to 1000, not 0"),
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


def test_the_signature_is_that_of_scikit_learn():
    """Parameters are named, have defaults, and reach get_params, repr and the docstring."""
    signature = inspect.signature(HierarchicalClassifier)
    names = list(signature.parameters)
    assert names[0] == "recipe"
    assert sorted(names) == HierarchicalClassifier._get_param_names()
    assert HierarchicalClassifier("max").recipe == "max"
    assert HierarchicalClassifier("max").get_params()["recipe"] == "max"
    shown = repr(HierarchicalClassifier("flat", epochs=3, ensemble_size=2))
    assert shown == "HierarchicalClassifier(ensemble_size=2, epochs=3, recipe='flat')"
    text = " ".join(HierarchicalClassifier.__doc__.split())
    for name in names:
        assert f" {name}: " in text, name
    assert "epochs: Passes over the training rows, at most. None: the recipe's, else 100." in text
    assert "{parameters}" not in text


def test_wrong_arguments_raise_as_python_does():
    with pytest.raises(TypeError) as caught:
        HierarchicalClassifier(epocs=3)
    expected = "HierarchicalClassifier.__init__() got an unexpected keyword argument 'epocs'"
    assert str(caught.value) == expected
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
        HierarchicalClassifier("hcl", "bce")
    with pytest.raises(ValueError, match="Invalid parameter 'epocs' for estimator"):
        HierarchicalClassifier().set_params(epocs=3)


def test_clones_and_pickles_keep_the_parameters():
    made = HierarchicalClassifier("max", loss_options={"a": 1}, validate_every=2, verbose=True)
    for copy in (clone(made), pickle.loads(pickle.dumps(made))):
        assert copy.get_params() == made.get_params()
