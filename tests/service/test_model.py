"""A served model does not change: it grows by making another one."""

import json

import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.networks.memories import embeddings_of
from hierlearn.pipeline import Pipeline
from hierlearn.service.batching import Question, Service, ServingSettings
from hierlearn.service.model import MOST_KEPT, Options, ServedModel, Task, copied

TEXTS = ["purrs meow", "acorn tall", "blorp zizz"]


@pytest.fixture
def model(models):
    return ServedModel(Pipeline.load(models / "texts"))


def test_growing_leaves_the_old_model_as_it_is(model):
    task = Task(model.inputs.columns(TEXTS))
    before, config = model.predict([task]), json.dumps(model.pipeline.config, default=str)
    labels = [["plant/fern"]] * 3
    bigger, growth = model.grown(task.columns, labels, ["1", "2", "3"])
    assert growth.classes == ("plant/fern",)
    assert bigger.remembered_rows == model.remembered_rows + 3
    assert model.predict([task]) == before
    assert json.dumps(model.pipeline.config, default=str) == config
    assert "plant/fern" not in model.pipeline.hierarchy.names
    assert bigger.predict([task])[0][2]["path"] == "plant/fern"
    assert b"plant/fern" in bigger.hierarchy_json()
    assert b"plant/fern" not in model.hierarchy_json()


def test_a_copy_shares_weights_and_rows(model):
    other = copied(model.pipeline)
    for one, two in zip(
        model.pipeline.network.parameters(), other.network.parameters(), strict=True
    ):
        assert one is two
    for name, held in embeddings_of(model.pipeline.network).items():
        assert embeddings_of(other.network)[name].data_ptr() == held.data_ptr()
    assert other.network is not model.pipeline.network


def test_a_batch_with_requests_of_two_models(model):
    columns = model.inputs.columns(TEXTS)
    bigger, _ = model.grown(columns, [["plant/fern"]] * 3, None)
    service = Service(bigger, ServingSettings())
    tasks = [Task(columns), Task(columns), Task(columns, Options(top=2))]
    own = [bigger, model, bigger]
    found = service._predict([Question(m, t) for m, t in zip(own, tasks, strict=True)])
    answers = [json.loads(b"[" + one + b"]") for one in found]
    assert [one[2]["path"] == "plant/fern" for one in answers] == [True, False, True]
    assert ["top_2" in one[0] for one in answers] == [False, False, True]


def test_options_are_kept_and_few(model):
    kept = model.formatter(Options(top=1))
    assert model.formatter(Options(top=1)) is kept
    for number in range(2 * MOST_KEPT):
        model.formatter(Options(decoder="stop", threshold=number / 1000))
    assert len(model._formatters) == MOST_KEPT
    with pytest.raises(HierlearnError, match="top must be at most"):
        model.formatter(Options(top=1000))


def test_rows_do_not_depend_on_what_they_are_joined_with(model):
    texts = [f"{text} n{number}" for number in range(4) for text in TEXTS]
    together = model.predict([Task({"note": texts})])[0]
    alone = model.predict([Task({"note": [text]}) for text in texts])
    assert [one[0]["path"] for one in alone] == [one["path"] for one in together]
    p = torch.tensor([one["probability"] for one in together])
    assert torch.equal(p, torch.tensor([one[0]["probability"] for one in alone]))  # one batch, too
