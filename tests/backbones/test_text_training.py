"""Text backbones in a training: frozen, adapted and trained, from any of the doors."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from backbones.text_models import LABELS, bert_config, dataset, save_model
from hierlearn import HierarchicalClassifier
from hierlearn.errors import HierlearnError
from hierlearn.networks.ensemble import LoopedEnsemble
from hierlearn.pipeline import Pipeline, load, train
from hierlearn.pipeline.run import Reporting
from hierlearn.training import Plan
from hierlearn.training.prepare import prepare
from hierlearn.training.solvers.gradient import Trainer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CPU = torch.device("cpu")
QUIET = Reporting(bar=False)
HUGE = "red apple " * 10_000  # 100 kB


def plan_of(folder: Path, tuning: str | None = None, **changes: Any) -> Plan:
    """A plan of one epoch; what is not a setting belongs to the backbone."""
    settings = {"device": "cpu", "epochs": 1, **changes.pop("settings", {})}
    options = {**({} if tuning is None else {"tuning": tuning}), **changes.pop("options", {})}
    return Plan(network=f"hf:{folder}", network_options=options, settings=settings, **changes)


def weights_of(pipeline: Pipeline) -> Mapping[str, torch.Tensor]:
    return pipeline.network.state_dict()


@pytest.mark.parametrize("tuning", [None, "frozen", "lora", "full"])
def test_a_model_folder_needs_no_source(tmp_path: Path, tuning: str | None) -> None:
    folder = save_model(tmp_path / "source", bert_config(), seed=2)
    data = dataset(40, 10)
    made = train(data, plan_of(folder, tuning), out=tmp_path / "model", reporting=QUIET)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    again = load(tmp_path / "model")
    assert torch.equal(made.probabilities(data.inputs), again.probabilities(data.inputs))


@pytest.mark.parametrize("tuning", ["frozen", "lora", "full"])
def test_what_is_trained_is_what_was_asked_for(bert: Path, tuning: str) -> None:
    from transformers import AutoModel

    pipeline = train(dataset(), plan_of(bert, tuning), reporting=QUIET)
    before = AutoModel.from_pretrained(bert).state_dict()
    state = weights_of(pipeline)
    if tuning == "frozen":
        assert not any("encoder.model" in name for name in state)
        state = {
            f"encoder.{name}": value
            for name, value in pipeline.preprocessor.first.encoder.state_dict().items()  # type: ignore[union-attr]
        }
    after = {
        name.removeprefix("encoder.model.").replace(".base_layer", ""): value
        for name, value in state.items()
        if name.startswith("encoder.model.") and "lora_" not in name
    }
    assert set(after) == {name for name in before if "pooler" not in name}
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert bool(changed) == (tuning == "full")
    if tuning == "lora":
        assert any("lora_B" in name and value.any() for name, value in state.items())


def test_adapters_take_larger_steps_than_weights(bert: Path) -> None:
    rates = {}
    for tuning in ("lora", "full"):
        ready = prepare(dataset(), plan_of(bert, tuning), CPU)
        rates[tuning] = ready.decision.settings.learning_rate
    assert rates == {"lora": 5e-4, "full": 5e-5}
    asked = plan_of(bert, "lora", settings={"learning_rate": 0.25})
    assert prepare(dataset(), asked, CPU).decision.settings.learning_rate == 0.25


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tuning": "half"}, "unknown tuning 'half'; known: frozen, full, lora"),
        ({"poling": "cls"}, "unknown option of hf:.* 'poling'; did you mean 'pooling'"),
        ({"tuning": "full", "width": 3}, "unknown option of hf:.* 'width'"),
        ({"tuning": "full", "cache": False}, "unknown option of hf:.* 'cache'"),
        ({"lora_rank": 3}, "lora_rank is for tuning 'lora', not 'frozen'"),
        ({"tuning": "full", "lora_alpha": 3}, "lora_alpha is for tuning 'lora', not 'full'"),
        ({"pooling": "max"}, "unknown pooling 'max'"),
        ({"max_tokens": 1000}, "reads at most 512 tokens"),
    ],
)
def test_wrong_options_are_one_sentence(bert: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(HierlearnError, match=words):
        prepare(dataset(), plan_of(bert, options=options), CPU)


def test_options_of_the_network_after_a_frozen_backbone(bert: Path) -> None:
    ready = prepare(dataset(), plan_of(bert, options={"width": 7, "pooling": "cls"}), CPU)
    assert ready.network_spec is not None
    assert ready.network_spec.options["width"] == 7


def test_numbers_are_no_texts(bert: Path) -> None:
    data = replace(dataset(), inputs=np.zeros((60, 3), dtype=np.float32))
    with pytest.raises(HierlearnError, match=r"hf:.* reads texts, but the inputs are numbers"):
        prepare(data, plan_of(bert), CPU)


@pytest.mark.parametrize("tuning", ["frozen", "full"])
def test_cells_that_are_empty_huge_or_of_emoji(bert: Path, tmp_path: Path, tuning: str) -> None:
    data = dataset(60, 10)
    odd = ["", HUGE, "\U0001f34e\U0001f697", "\0", "nothing known", "\ud83d", " " * 100_000]
    texts = [*odd, *data.inputs[len(odd) :]]
    data = replace(data, inputs=texts)
    train(data, plan_of(bert, tuning), out=tmp_path / "model", reporting=QUIET)
    p = load(tmp_path / "model").probabilities(odd)
    assert bool(p.isfinite().all())
    torch.testing.assert_close(p[1], load(tmp_path / "model").probabilities([HUGE[:2000]])[0])


# ---------------------------------------------------------------------- like other networks


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_a_training_resumes_bit_for_bit(bert: Path, tmp_path: Path, tuning: str) -> None:
    options = {"lora_dropout": 0.2} if tuning == "lora" else {}
    every = {"checkpoint_every": 1, "keep_checkpoints": 9, "batch_size": 16, "accumulate": 2}
    plan = plan_of(bert, tuning, options=options, settings=every)
    whole = train(dataset(), plan, out=tmp_path / "whole", reporting=QUIET)

    def stop(step: int, _: int) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(dataset(), plan, tmp_path / "cut", reporting=Reporting(bar=False, on_step=stop))
    resumed = train(dataset(), plan, tmp_path / "cut", resume=True, reporting=QUIET)
    for name, value in weights_of(whole).items():
        assert torch.equal(weights_of(resumed)[name], value), name


def test_members_of_an_ensemble_are_the_networks_alone(bert: Path) -> None:
    several = train(
        dataset(), plan_of(bert, "full", settings={"ensemble_size": 2}), reporting=QUIET
    )
    assert isinstance(several.network, LoopedEnsemble)
    for member in range(2):
        alone = train(dataset(), plan_of(bert, "full", settings={"seed": member}), reporting=QUIET)
        own = several.network.networks[member].state_dict()
        for name, value in weights_of(alone).items():
            torch.testing.assert_close(own[name], value, atol=1e-6, rtol=1e-5)


def test_bf16(bert: Path) -> None:
    pipeline = train(
        dataset(), plan_of(bert, "full", settings={"precision": "bf16"}), reporting=QUIET
    )
    assert {one.dtype for one in pipeline.network.parameters()} == {torch.float32}
    assert bool(pipeline.probabilities(["red apple"]).isfinite().all())


def test_a_memory_on_a_trained_encoder(bert: Path) -> None:
    pipeline = train(dataset(), plan_of(bert, "full", head="neighbors"), reporting=QUIET)
    assert pipeline.probabilities(["red apple", ""]).shape == (2, 7)


def test_effort_best_encodes_once_and_stores_one_encoder(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hierlearn.backbones.hf import HFBackbone
    from hierlearn.training.blending import Ingredient

    few = {
        "quick": Ingredient("quick"),
        "ple": Ingredient("quick", {"preprocessing": "piecewise-linear"}),
    }
    monkeypatch.setattr("hierlearn.pipeline.blend.ingredients", lambda facts: few)
    loads = []
    load_weights = HFBackbone.load

    def count(self: HFBackbone, *given: Any) -> None:
        loads.append(given)
        load_weights(self, *given)

    monkeypatch.setattr(HFBackbone, "load", count)
    settings = {"ensemble_size": 1, "epochs": 2, "metric": "hit@1"}
    data = dataset()
    made = train(
        data, plan_of(bert, effort="best", settings=settings), tmp_path / "m", reporting=QUIET
    )
    assert len(loads) == 1
    again = load(tmp_path / "m")
    assert torch.equal(again.probabilities(data.inputs), made.probabilities(data.inputs))
    from safetensors import safe_open

    with safe_open(tmp_path / "m" / "model.safetensors", "pt") as file:
        names = [name for name in file.keys() if "word_embeddings" in name]  # noqa: SIM118
    assert len(names) == 1


def test_effort_best_refuses_an_encoder_that_is_trained(bert: Path) -> None:
    with pytest.raises(HierlearnError, match="effort 'best' chooses among recipes itself"):
        train(dataset(), plan_of(bert, "full", effort="best"), reporting=QUIET)


@pytest.mark.parametrize("options", [{}, {"tuning": "lora"}])
def test_the_estimator(bert: Path, options: dict[str, Any]) -> None:
    from sklearn.base import clone

    data = dataset()
    labels = [one for (one,) in data.labels]
    made = HierarchicalClassifier(
        network=f"hf:{bert}", network_options=options, epochs=2, accumulate=2, device="cpu"
    )
    found = clone(made).fit(data.inputs, labels).predict(data.inputs)
    assert {*found} <= {*LABELS, "fruit", "vehicle"}


@pytest.mark.parametrize("tuning", ["frozen", "full"])
def test_rows_in_a_parquet_file_train_as_in_memory(bert: Path, tmp_path: Path, tuning: str) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    from hierlearn.datasets import read_table, stream_table

    data = dataset(60, 0)
    texts = [text if number < 30 else "red" for number, text in enumerate(data.inputs)]
    labels = [one for (one,) in data.labels]
    path = tmp_path / "rows.parquet"  # of groups whose longest texts differ
    write_table(pa.table({"title": texts, "label": labels}), path, row_group_size=20)
    roles = {"text": "title", "label": "label"}
    plan = plan_of(bert, tuning, settings={"batch_size": 16})
    held = train(read_table(path, **roles), plan, reporting=QUIET)
    streamed = train(stream_table(path, **roles), plan, reporting=QUIET)
    for name, value in weights_of(held).items():
        torch.testing.assert_close(weights_of(streamed)[name], value, atol=1e-5, rtol=1e-4)
    windows = train(stream_table(path, window=40, **roles), plan, reporting=QUIET)
    assert windows.probabilities(texts[:3]).shape == (3, 7)


# ---------------------------------------------------------------------- hostile folders


def test_a_hostile_description_in_a_model_folder(bert: Path, tmp_path: Path) -> None:
    from hierlearn.files.tensors import CheckpointError
    from hierlearn.pipeline.folder import write_config

    train(dataset(), plan_of(bert, "full"), out=tmp_path / "model", reporting=QUIET)
    path = tmp_path / "model" / "config.json"
    whole = json.loads(path.read_text())
    for name, value in (("num_hidden_layers", 10**9), ("hidden_size", 10**7), ("vocab_size", 3)):
        config = json.loads(json.dumps(whole))
        config["network"]["options"]["description"][name] = value
        write_config(path, config)
        with pytest.raises(CheckpointError):
            load(tmp_path / "model")


@pytest.mark.parametrize("parts", [1, 4])
def test_the_trainer_of_transformers_takes_the_same_steps(
    bert: Path, tmp_path: Path, parts: int
) -> None:
    """A batch of 16 in 4 parts: the losses and weights of gradient_accumulation_steps=4."""
    from torch import nn
    from transformers import Trainer as HFTrainer
    from transformers import TrainingArguments

    settings = {"batch_size": 16, "accumulate": parts, "warmup": 0.0, "schedule": "constant"}
    settings |= {"learning_rate": 1e-2, "weight_decay": 0.01, "max_grad_norm": 1.0}
    plan = plan_of(bert, "full", loss="leaf-ce", settings=settings)
    ready = prepare(dataset(68, 20), plan, CPU)  # 48 rows: three whole batches
    for module in ready.network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    theirs, loss = copy.deepcopy(ready.network), copy.deepcopy(ready.loss)
    ours = Trainer(ready.network, ready.loss, ready.rows, ready.decision.settings)
    order, records, seen = ready.rows.order([0], 0)[0], [], []
    ours.on_epoch = records.append
    ours.train()

    class Rows(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(order)

        def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
            x, targets, _ = ready.rows.batch(order[place : place + 1])
            return {"x": x[0], "labels": targets[0]}  # type: ignore[index]

    class InOrder(HFTrainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:  # its own looks for a package named datasets
            return torch.utils.data.DataLoader(Rows(), batch_size=16 // parts)

        def compute_loss(self, model: nn.Module, inputs: Any, *_: Any, **__: Any) -> torch.Tensor:
            found: torch.Tensor = loss(model(inputs["x"]), inputs["labels"]) / parts
            seen.append(found.item())  # all parts have the same number of rows
            return found

    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=1,
        per_device_train_batch_size=16 // parts,
        gradient_accumulation_steps=parts,
        learning_rate=1e-2,
        weight_decay=0.01,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    hf = InOrder(theirs, arguments, train_dataset=Rows())
    hf.model_accepts_loss_kwargs = True  # no division by the number of parts of its own
    hf.get_decay_parameter_names = lambda model: [name for name, _ in model.named_parameters()]
    hf.train()
    assert ours.step == hf.state.global_step == 3
    assert records[0]["loss"][0] == pytest.approx(sum(seen) / 3, abs=1e-5)
    for name, value in ready.network.state_dict().items():
        torch.testing.assert_close(theirs.state_dict()[name], value, atol=1e-5, rtol=1e-4)
