"""Lightning: the steps of the mix-in, and a curriculum that resumes from checkpoints."""

import logging

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from hierlearn.errors import HierlearnError
from hierlearn.integrations.common import curriculum_state
from hierlearn.integrations.lightning import CurriculumCallback, HierarchicalMixin
from hierlearn.lab.baselines.teacher import TeacherLoss
from hierlearn.losses import BCELoss, HCLLoss, LeafCELoss
from hierlearn.metrics.measure import measure
from integrations.tiny import NAMES, TREE, Recorder

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before"),
]


class Classifier(HierarchicalMixin, lightning.LightningModule):
    def __init__(self, loss, **options):
        super().__init__()
        torch.manual_seed(0)
        self.network = torch.nn.Linear(6, len(TREE))
        self.set_loss(loss, **options)

    def forward(self, x):
        return self.network(x)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.05, weight_decay=0.0)


def rows(count=24):
    draw = torch.Generator().manual_seed(0)
    index = torch.randint(0, 5, (count,), generator=draw)
    x = torch.randn(count, 6, generator=draw)
    x[torch.arange(count), index] += 3.0
    return x, index


def loader(labels=None, count=24, batch_size=8):
    x, index = rows(count)
    data = torch.utils.data.TensorDataset(x, index if labels is None else labels)
    return torch.utils.data.DataLoader(data, batch_size)


def trainer(folder, **options):
    defaults = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 3,
        "logger": False,
        "enable_checkpointing": "callbacks" in options,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        "log_every_n_steps": 1,
    }
    return lightning.Trainer(**{**defaults, **options})


@pytest.mark.parametrize("as_indices", [True, False])
def test_a_training_is_that_of_a_plain_loop(as_indices, tmp_path):
    x, index = rows()
    targets = TREE.encode([NAMES[one] for one in index])
    module = Classifier(BCELoss(TREE), class_names=NAMES)
    trainer(tmp_path).fit(module, loader(None if as_indices else targets))
    network = Classifier(BCELoss(TREE)).network
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.05, weight_decay=0.0)
    for _ in range(3):
        for part in torch.arange(24).split(8):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                network(x[part]), targets[part].float()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for one, other in zip(network.parameters(), module.network.parameters(), strict=True):
        torch.testing.assert_close(other, one)


@pytest.mark.parametrize("loss", [HCLLoss(TREE), BCELoss(TREE)])
def test_losses_and_metrics_are_logged(loss, tmp_path):
    x, index = rows()
    targets = TREE.encode([NAMES[one] for one in index])
    names = ["leaf-accuracy", "level-accuracy", "hier-f1", "lca-height", "au-prc"]
    module = Classifier(loss, metrics=names, class_names=NAMES)
    runner = trainer(tmp_path)
    runner.fit(module, loader(), loader())
    found = {name: float(value) for name, value in runner.callback_metrics.items()}
    (tested,) = runner.test(module, loader(), verbose=False)
    p = torch.cat(runner.predict(module, torch.utils.data.DataLoader(x, 10)))
    expected = measure(p, targets, TREE, names)
    for level, value in enumerate(expected.pop("level-accuracy"), start=1):
        expected[f"level-accuracy-{level}"] = value
    with torch.no_grad():
        expected["loss"] = loss(module(x), targets).item() if type(loss) is BCELoss else None
    for name, value in expected.items():
        if value is not None:
            assert found[f"valid_{name}"] == pytest.approx(value, abs=1e-6)
            assert tested[f"test_{name}"] == pytest.approx(value, abs=1e-6)
    assert found["train_loss"] > 0
    assert ("selected" in found) == (loss.selection is not None)


def test_rows_without_a_known_label_do_not_count(tmp_path):
    x, index = rows()
    some = index.clone()
    some[::3] = -100
    module = Classifier(LeafCELoss(TREE), metrics=["hier-f1"], class_names=NAMES)
    runner = trainer(tmp_path)
    kept = some >= 0
    data = torch.utils.data.TensorDataset(x[kept], index[kept])
    (part,) = runner.validate(module, torch.utils.data.DataLoader(data, 24), verbose=False)
    (whole,) = runner.validate(module, loader(some, batch_size=24), verbose=False)
    assert whole == pytest.approx(part)


def test_steps_and_epochs_are_reported_once(tmp_path):
    module = Classifier(Recorder(TREE), class_names=NAMES)
    trainer(tmp_path).fit(module, loader(), loader())
    expected = [0, 1, 2, "end", 3, 4, 5, "end", 6, 7, 8, "end"]
    assert module.loss.told == [one if one == "end" else one / 9 for one in expected]


def curriculum():
    return TeacherLoss(TREE, floor=0.1)


# Checkpoints in the middle of an epoch, after its last step, after its end.
@pytest.mark.parametrize(
    ("options", "step"),
    [({"every_n_train_steps": 4}, 4), ({"every_n_train_steps": 3}, 3), ({"every_n_epochs": 1}, 3)],
)
def test_a_resumed_curriculum_is_that_of_an_uninterrupted_one(options, step, tmp_path):
    def fit(resume=None):
        saving = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, **options)
        module = Classifier(curriculum(), class_names=NAMES)
        # Equal batches: Lightning resumes in the middle of an epoch with its first batch.
        x, index = rows(8)
        data = torch.utils.data.TensorDataset(x.repeat(3, 1), index.repeat(3))
        batches = torch.utils.data.DataLoader(data, 8)
        trainer(tmp_path, callbacks=[saving]).fit(module, batches, ckpt_path=resume)
        return module

    whole = fit()
    resumed = fit(tmp_path / f"step={step}.ckpt")
    states = curriculum_state(whole.loss), curriculum_state(resumed.loss)
    assert not states[0]["selected"].all()
    torch.testing.assert_close(*states, rtol=0, atol=0, equal_nan=True)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(other, one)


def test_the_callback_alone_takes_a_loss_of_any_module(tmp_path):
    class Plain(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = torch.nn.Linear(6, len(TREE))

        def training_step(self, batch, batch_idx):
            return loss(self.network(batch[0]), TREE.encode([NAMES[one] for one in batch[1]]))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loss = Recorder(TREE)
    trainer(tmp_path, callbacks=[CurriculumCallback(loss)], max_epochs=1).fit(Plain(), loader())
    assert loss.told == [0, 1 / 3, 2 / 3, "end"]
    message = "Plain has no loss of hierlearn as its attribute 'loss'; pass it as"
    with pytest.raises(HierlearnError, match=message):
        trainer(tmp_path, callbacks=[CurriculumCallback()]).fit(Plain(), loader())


def test_the_state_of_a_curriculum_is_in_the_callback(tmp_path):
    """Also of a loss that is no part of the module, and what the epoch has selected so far."""
    loss = HCLLoss.paper(TREE)
    callback = CurriculumCallback(loss)
    loss(torch.randn(4, len(TREE)), TREE.encode(NAMES[:4]))
    callback.open_steps = 1
    torch.save(callback.state_dict(), tmp_path / "state.pt")
    other = CurriculumCallback(HCLLoss.paper(TREE))
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    states = curriculum_state(loss), curriculum_state(other.loss)
    assert states[0]["ever_selected"].any()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert other.open_steps == 1


def test_evaluating_changes_nothing():
    module = Classifier(TeacherLoss(TREE), class_names=NAMES)
    module.log = lambda *args, **options: None
    module.training_step(rows(4), 0)
    before = curriculum_state(module.loss)
    assert before["epoch_counts"].max() == 4
    with torch.no_grad():
        module.validation_step(rows(8), 0)
    after = curriculum_state(module.loss)
    torch.testing.assert_close(before, after, rtol=0, atol=0, equal_nan=True)


def test_what_is_wrong_is_said():
    with pytest.raises(HierlearnError, match="needs a loss with reduction 'mean', not 'sum'"):
        Classifier(BCELoss(TREE, reduction="sum"))
    with pytest.raises(HierlearnError, match="unknown metric 'acuracy'"):
        Classifier(BCELoss(TREE), metrics=["acuracy"])
    with pytest.raises(HierlearnError, match="metric 'accuracy' is about what a decoder answers"):
        Classifier(BCELoss(TREE), metrics=["accuracy"])
    message = "a batch must be a pair of inputs and labels, not dict; override unpack"
    with pytest.raises(HierlearnError, match=message):
        Classifier(BCELoss(TREE)).unpack({"x": 1})
