"""Prepare: splits, preprocessing, the class priors, and what is refused before the work."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

from hierlearn import Dataset, Hierarchy
from hierlearn.errors import DataError, HierlearnError
from hierlearn.features import FEATURES, NumericPreprocessor, Preprocessor, TextPreprocessor
from hierlearn.links import LINKS
from hierlearn.networks import NETWORKS, InputSpec, LinearHead, Network, SparseRows
from hierlearn.networks.ensemble import member_state, members_of
from hierlearn.training import RECIPES, Plan, Recipe
from hierlearn.training.prepare import PrepareOptions, prepare, split_rows, summary
from training.datasets import (
    CPU,
    TREE,
    last_layer,
    partial_problem,
    plan,
    problem,
    texts,
    trainer_of,
    without_splits,
)


def test_named_splits_are_kept_apart():
    dataset = problem(rows=50)
    rows, valid = split_rows(dataset, Plan())
    assert np.array_equal(rows, dataset.splits["train"])
    assert np.array_equal(valid, dataset.splits["valid"])
    held = {"test": dataset.splits["test"], "valid": dataset.splits["valid"]}
    rest, _ = split_rows(replace(dataset, splits=held), Plan())
    assert np.array_equal(rest, dataset.splits["train"])


def test_a_share_is_set_aside_by_seed():
    dataset = replace(problem(rows=50), splits={"test": np.arange(10)})
    rows, valid = split_rows(dataset, Plan(valid_fraction=0.25))
    assert len(valid) == 10
    assert sorted([*rows, *valid]) == list(range(10, 50))
    again = split_rows(dataset, Plan(valid_fraction=0.25))
    other = split_rows(dataset, Plan(valid_fraction=0.25, settings={"seed": 1}))
    assert np.array_equal(again[1], valid)
    assert not np.array_equal(other[1], valid)
    everything, none = split_rows(without_splits(dataset), Plan())
    assert (len(everything), len(none)) == (50, 0)


def test_a_share_of_no_rows_is_refused():
    with pytest.raises(HierlearnError, match=r"a fraction of 0.001 of 60 rows is 0 rows"):
        split_rows(without_splits(problem()), Plan(valid_fraction=0.001))


def test_the_preprocessing_is_fitted_on_the_training_rows_alone():
    dataset = problem()
    ready = prepare(dataset, plan(), CPU)
    assert isinstance(ready.preprocessor, NumericPreprocessor)
    torch.testing.assert_close(ready.rows.inputs.mean(dim=0), torch.zeros(5), atol=1e-6, rtol=0)
    assert ready.valid.inputs.mean(dim=0).abs().max() > 1e-3
    assert (len(ready.rows), len(ready.valid)) == (36, 12)


def test_texts_and_sparse_rows_go_through_a_linear_model_unless_a_network_is_asked_for():
    dataset = problem()
    matrix = sparse.csr_array(np.where(dataset.inputs > 0, dataset.inputs, 0))
    for rows in (texts(), replace(dataset, inputs=matrix)):
        assert prepare(rows, Plan(), CPU).network_spec.name == "linear"
        wide = prepare(rows, Plan(network_options={"width": 8}), CPU)
        assert (wide.decision.name, wide.network_spec.name) == ("hcl", "token-bag")
    assert prepare(dataset, Plan(), CPU).decision.name == "quick"


def test_texts_and_sparse_rows_go_through_a_bag_of_tokens():
    ready = prepare(texts(), Plan(recipe="hcl"), CPU)
    assert ready.network_spec.name == "token-bag"
    assert isinstance(ready.preprocessor, TextPreprocessor)
    assert isinstance(ready.rows.inputs, SparseRows)
    dataset = problem()
    matrix = sparse.csr_array(np.where(dataset.inputs > 0, dataset.inputs, 0))
    ready = prepare(replace(dataset, inputs=matrix), Plan(recipe="hcl"), CPU)
    assert ready.network_spec.name == "token-bag"
    assert ready.preprocessor is None


def test_an_ensemble_has_as_many_members_as_asked_for():
    ready = prepare(problem(), plan("hcl", ensemble_size=3), CPU)
    assert members_of(ready.network) == ready.network_spec.members == 3
    single = prepare(problem(), plan("hcl"), CPU)
    assert members_of(single.network) is None


def test_weights_are_drawn_by_seed_and_torchs_generator_is_left_alone():
    before = torch.get_rng_state()
    stacked = prepare(problem(), plan(ensemble_size=2, seed=4), CPU).network
    alone = prepare(problem(), plan(seed=5), CPU).network.state_dict()
    name = "heads.main.linear.weight"
    assert torch.equal(member_state(stacked, 1)[name], alone[name])
    assert not torch.equal(member_state(stacked, 0)[name], alone[name])
    assert torch.equal(torch.get_rng_state(), before)


def priors_of(dataset):
    """Return the share of each class among the training rows, by counting."""
    train = dataset.split("train")
    targets = dataset.hierarchy.encode(train.labels).double()
    return targets.mean(dim=0), len(train)


@pytest.mark.parametrize("loss", ["bce", "mixed", "leaf-ce", "cond-softmax", "hcl"])
def test_the_first_predictions_are_the_class_priors(loss):
    dataset = problem(rows=400)
    ready = prepare(dataset, plan(loss, network="linear"), CPU)
    shares, count = priors_of(dataset)
    output = ready.network(torch.zeros(1, 5))  # the mean row, once standardized
    p = output.probabilities.detach()[0].double()
    # Half a row is added to either side of a prior, to each of the leaves under a softmax.
    torch.testing.assert_close(p, shares, atol=6 / count, rtol=0)
    assert (p - 1 / len(shares)).abs().max() > 0.1


def test_without_prior_bias_the_bias_is_drawn():
    drawn, prior = (
        last_layer(prepare(problem(), plan(prior_bias=wanted), CPU).network).bias
        for wanted in (False, True)
    )
    assert drawn.abs().max() <= 8**-0.5
    assert prior.min() < -1.5


def test_the_label_space_is_that_of_the_training_rows():
    ready = prepare(partial_problem(), plan("leaf-ce"), CPU)
    ends = ready.rows.labels.terminal_classes.tolist()
    assert ready.label_space.terminals.tolist() == ends
    assert ready.loss.link.terminals.tolist() == ends


@pytest.mark.parametrize(
    ("loss", "link", "trained", "read"),
    [
        ("leaf-ce", None, "softmax", "softmax"),
        ("bce", None, "sigmoid", "max"),
        ("bce", "from-loss", "sigmoid", "sigmoid"),
        ("bce", "conditional", "sigmoid", "conditional"),
        ("mixed", None, "sigmoid", "max"),
        ("mixed", "from-loss", "sigmoid", "max"),
        ("cond-softmax", "from-loss", "siblings", "siblings"),
    ],
)
def test_how_logits_are_trained_and_read(loss, link, trained, read):
    ready = prepare(problem(), Plan(loss=loss, link=link, network="linear"), CPU)
    assert isinstance(ready.network(torch.zeros(1, 5)).link, LINKS[trained])
    assert isinstance(ready.link, LINKS[read])
    logits = ready.network(torch.ones(1, 5)).logits
    torch.testing.assert_close(
        ready.read(ready.network(torch.ones(1, 5))).log_p, ready.link(logits)[0]
    )


def test_a_network_from_elsewhere_is_taken_as_it_is():
    network = nn.Sequential(nn.Linear(5, 12))
    ready = prepare(problem(), plan(), CPU, PrepareOptions(network=network))
    assert ready.network is network
    assert ready.network_spec is None


@pytest.mark.parametrize("name", [one for one in NETWORKS if one != "cnn"])
def test_networks_by_name(name):
    ready = prepare(problem(), plan(network=name), CPU)
    assert ready.network_spec.name == name
    assert ready.network_spec.inputs == InputSpec.numbers(5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": "bcee"}, "unknown loss 'bcee'"),
        ({"loss": "bce", "link": "maxx"}, "unknown link 'maxx'"),
        ({"network_options": {"widht": 3}}, "unknown option of network mlp 'widht'"),
        ({"network_options": {"members": 3}}, "unknown option of network mlp 'members'"),
        ({"network_options": {"width": "a"}}, "width must be an integer of at least 1, not 'a'"),
        (
            {"network_options": {"dropout": "a"}},
            "network mlp cannot be made with width=512, dropout='a'",
        ),
        ({"unlabeled_descendants": "open"}, "unknown unlabeled_descendants 'open'"),
    ],
)
def test_what_is_refused(values, message):
    with pytest.raises(HierlearnError, match=message):
        prepare(problem(), Plan(**values), CPU)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(59), r"weights \(59,\) must be \(60,\), one per row"),
        (np.ones((60, 1)), r"weights \(60, 1\) must be \(60,\), one per row"),
        (np.r_[1, -1, np.ones(58)], "the weight of row 1 is -1.0; weights are finite, at least 0"),
        (np.r_[1, 1, np.nan, np.ones(57)], "the weight of row 2 is nan"),
        (np.zeros(60), "every training row has weight 0"),
    ],
)
def test_weights_that_cannot_weigh(weights, message):
    with pytest.raises(DataError, match=message):
        prepare(problem(), plan(), CPU, PrepareOptions(weights=weights))


def test_labels_unknown_to_the_hierarchy_and_no_rows_are_refused():
    with pytest.raises(HierlearnError, match="'z'"):
        prepare(Dataset(np.zeros((1, 2), "float32"), [["z"]], TREE), plan(), CPU)
    empty = replace(problem(), splits={"train": np.array([], dtype=np.int64)})
    with pytest.raises(HierlearnError, match="0 rows"):
        prepare(empty, plan(), CPU)


def test_a_summary_in_words_and_in_details():
    said = summary(prepare(problem(), plan("hcl", ensemble_size=2, epochs=7), CPU))
    assert said == (
        "model: a network trained by hcl, because the loss was named; 36 training rows, 12 for "
        "validation\ndetails: recipe custom, HCLLoss on the softmax link, read by the softmax "
        "link, decoder leaf, 7 epochs, 2 networks on cpu"
    )


def test_the_sentence_names_no_link_where_the_network_decides(monkeypatch):
    def own(label_space, inputs):
        return Network(nn.Identity(), LinearHead(inputs.width, label_space, "softmax"))

    monkeypatch.setitem(NETWORKS, "own", own)
    ready = prepare(problem(), Plan(loss="bce", network="own"), CPU)
    assert "BCELoss, decoder leaf" in summary(ready)
    assert isinstance(ready.read(ready.network(torch.zeros(1, 5))).link, LINKS["softmax"])


def test_a_recipe_may_name_its_preprocessing(monkeypatch):
    recipe = Recipe("bce", "raw numbers", preprocessing="numeric")
    options = {"preprocessing_options": {"standardize": False}}
    monkeypatch.setitem(RECIPES, "raw", replace(recipe, **options))
    ready = prepare(problem(), Plan(recipe="raw"), CPU)
    assert not ready.preprocessor.standardize
    assert prepare(problem(), Plan(), CPU).preprocessor.standardize


def test_a_network_without_parameters_is_refused():
    with pytest.raises(HierlearnError, match="this Identity has no parameters to train"):
        trainer_of(problem(features=12), plan(), network=nn.Identity())


class Lengths(Preprocessor):
    """A step of texts that produces numbers: the length of each, and how many words it has."""

    name, reads, produces = "lengths", "texts", "numbers"
    columns = 2

    def fit(self, inputs):
        return self

    def transform(self, inputs):
        return np.array([[len(text), len(text.split())] for text in inputs], dtype=np.float32)

    def state(self):
        return {"name": self.name}, {}

    @classmethod
    def from_state(cls, settings, arrays):
        return cls()


def test_the_network_fits_what_the_preprocessing_produces(monkeypatch):
    monkeypatch.setitem(FEATURES, "lengths", Lengths)
    ready = prepare(texts(), Plan(preprocessing="lengths"), CPU)
    assert ready.network_spec.inputs == InputSpec.numbers(2)
    assert ready.network_spec.name == "mlp"


def test_validation_rows_keep_the_rows_of_one_id_together():
    data = Dataset(np.zeros((60, 2)), [["a"], ["b"]] * 30, Hierarchy.from_paths(["a", "b"]))
    plan = Plan(valid_fraction=0.2)
    alone = split_rows(replace(data, ids=[str(row) for row in range(60)]), plan)
    for one, two in zip(alone, split_rows(data, plan), strict=True):
        assert one.tolist() == two.tolist()
    rest, held = split_rows(replace(data, ids=[f"patient {row // 5}" for row in range(60)]), plan)
    assert len(held) in (10, 15)
    assert not {*(held // 5).tolist()} & {*(rest // 5).tolist()}
