"""The Trainer of transformers: labels, metrics, names of classes, heads of hierlearn."""

import doctest
import json
import pickle
import re

import numpy as np
import pytest
import torch
import transformers

from hierlearn import Labels, LabelSpace
from hierlearn.errors import DataWarning, HierlearnError, LabelError
from hierlearn.integrations import transformers as integration
from hierlearn.integrations.transformers import (
    LabelCollator,
    TrainerLoss,
    TrainerMetrics,
    config_labels,
)
from hierlearn.losses import LOSSES, BCELoss, HCLLoss, LeafCELoss, MCLoss
from hierlearn.metrics.measure import measure
from hierlearn.networks.heads import LinearHead
from integrations.tiny import NAMES, TREE, arguments, bert, dataset, token_rows

# Curricula that select by the batch have no such identity, whoever accumulates.
BY_ROW = [n for n in LOSSES if n not in ("hcl", "hcl-cl", "hcl-paper", "sample-curriculum")]
ROWS = ["c", "a/b", None, ["c", "f"], "h", [], "a", "a/e"]


# ---------------------------------------------------------------------- labels


def test_labels_become_closed_targets():
    batch = LabelCollator(BCELoss(TREE))([{"x": [1.0, 2.0], "label": row} for row in ROWS])
    assert torch.equal(batch["x"], torch.tensor([[1.0, 2.0]]).expand(8, 2))
    assert torch.equal(batch["labels"] == 1, Labels(ROWS, TREE).targets())
    assert torch.equal(batch["labels"] == 0, ~Labels(ROWS, TREE).targets())
    copied = pickle.loads(pickle.dumps(LabelCollator(BCELoss(TREE))))  # for the workers of a loader
    assert torch.equal(copied.labels(ROWS), batch["labels"])


def test_what_is_unknown_is_marked():
    """An entry where losses count entries; where they count rows, a row without a label."""
    labels = Labels(ROWS, TREE, unlabeled_descendants="ignore")
    targets, mask = labels.targets(), labels.mask()
    entries = LabelCollator(BCELoss(TREE), unlabeled_descendants="ignore").labels(ROWS)
    assert torch.equal(entries != -100, mask)
    assert torch.equal(entries == 1, targets)
    rows = LabelCollator(LeafCELoss(TREE), unlabeled_descendants="ignore").labels(ROWS)
    assert torch.equal(rows >= 0, mask & targets.any(dim=1, keepdim=True))
    assert torch.equal((rows != -100).all(dim=1), targets.any(dim=1))
    assert torch.equal((rows == -100).all(dim=1), ~targets.any(dim=1))


@pytest.mark.parametrize("policy", ["negative", "ignore"])
@pytest.mark.parametrize("name", BY_ROW)
def test_parts_of_a_step_add_up_to_the_mean_over_what_is_known(name, policy):
    """Whatever a mean leaves out: rows without labels, unknown descendants, unknown labels."""
    loss = LOSSES[name](TREE)
    if name == "leaf-ce":
        loss = LOSSES[name](LabelSpace(TREE, ["a/b", "a", "f"]))
    rows = ["c", "a/b", None, "e", "h", [], "a", "a/e", "no class", "g", "c", "d"]
    known = [row if row != "no class" else None for row in rows]
    labels = Labels(known, TREE, unlabeled_descendants=policy)
    targets, mask = labels.targets(), labels.mask()
    mask[rows.index("no class")] = False
    logits = torch.randn(12, len(TREE), generator=torch.Generator().manual_seed(0)).double()
    expected = loss(logits, targets, mask)
    collator = LabelCollator(loss, unknown="ignore", unlabeled_descendants=policy)
    with pytest.warns(DataWarning, match="unknown label 'no class'"):
        found = collator.labels(rows)
    items, total = (found != -100).sum(), 0.0
    for part in torch.arange(12).split([5, 1, 4, 2]):
        total += TrainerLoss(loss)((logits[part],), found[part], items)
    torch.testing.assert_close(total, expected)


def test_an_unknown_label_raises_or_leaves_its_row_out():
    strict = LabelCollator(BCELoss(TREE))
    with pytest.raises(LabelError, match=r"^row 1: unknown label 'a/b/z'; did you mean"):
        strict.labels(["c", "a/b/z"])
    lenient = LabelCollator(BCELoss(TREE), unknown="ignore")
    message = "; rows with labels that are not in the hierarchy are left out"
    with pytest.warns(DataWarning, match=message) as found:
        labels = lenient.labels(["c", "a/b/z", ["c", "y"], None, np.array(["h", "z"])])
    assert len(found) == 1
    assert [bool((row == -100).all()) for row in labels] == [False, True, True, False, True]
    assert torch.equal(labels[0] == 1, TREE.encode(["c"])[0])
    twice = integration.LabelCollator(
        BCELoss(type(TREE).from_paths(["a/x", "b/x"])), unknown="ignore"
    )
    with pytest.raises(LabelError, match="label 'x' is ambiguous"):
        twice.labels(["x"])


def test_what_is_wrong_with_a_collator_is_said():
    with pytest.raises(HierlearnError, match="unknown value of unknown 'skip'"):
        LabelCollator(BCELoss(TREE), unknown="skip")
    with pytest.raises(HierlearnError, match="unknown value of unlabeled_descendants"):
        LabelCollator(BCELoss(TREE), unlabeled_descendants="skip")
    message = (
        "row 0 of the batch has no 'kind', but ['label', 'x']; pass column=, and "
        "remove_unused_columns=False to TrainingArguments if the key is neither 'label' nor "
        "'labels'"
    )
    with pytest.raises(HierlearnError, match=f"^{re.escape(message)}$"):
        LabelCollator(BCELoss(TREE), column="kind")([{"x": 1.0, "label": "c"}])


def test_class_indices_that_are_ignored_do_not_count():
    """-100 as a class index would be a class counted from the end."""
    loss, logits = BCELoss(TREE), torch.randn(4, len(TREE))
    found = TrainerLoss(loss, NAMES)((logits,), torch.tensor([1, -100, 0, -100]))
    expected = loss(logits[[0, 2]], TREE.encode([NAMES[1], NAMES[0]]))
    torch.testing.assert_close(found, expected)


def test_labels_that_cannot_be_read_are_said():
    logits = torch.zeros(4, len(TREE))
    message = (
        "labels (4,) are class indices; pass class_names, the class that each index stands for, "
        "in order"
    )
    with pytest.raises(HierlearnError, match=re.escape(message)):
        TrainerLoss(BCELoss(TREE))((logits,), torch.zeros(4, dtype=torch.long))
    message = "labels (4, 3) must be (N,) class indices or (N, 8) targets"
    with pytest.raises(HierlearnError, match=re.escape(message)):
        TrainerLoss(BCELoss(TREE))((logits,), torch.zeros(4, 3))


# ---------------------------------------------------------------------- metrics and names


def prediction(logits, labels):
    return transformers.EvalPrediction(predictions=logits, label_ids=np.asarray(labels))


@pytest.mark.parametrize("loss", [HCLLoss(TREE), BCELoss(TREE), MCLoss(TREE)])
def test_metrics_are_those_of_the_probabilities(loss):
    rng = np.random.default_rng(0)
    logits, index = rng.standard_normal((30, len(TREE))), rng.integers(0, 5, 30)
    coherent = loss.link if type(loss) is HCLLoss else None
    if coherent is None:  # read by the max link: p of a class is the largest of its subtree
        p = torch.from_numpy(logits).float().sigmoid()
        p = torch.stack(
            [p[:, [n for n in range(len(TREE)) if c in TREE.ancestors(n) or c == n]].amax(1)
             for c in range(len(TREE))], dim=1,
        )  # fmt: skip
    else:
        p = coherent.probabilities(torch.from_numpy(logits).float())
    targets = TREE.encode([NAMES[one] for one in index])
    names = ["leaf-accuracy", "level-accuracy", "hier-f1", "terminal-accuracy"]
    expected = measure(p, targets, TREE, names)
    levels = expected.pop("level-accuracy")
    found = TrainerMetrics(loss, names, NAMES)(prediction(logits, index))
    assert found == pytest.approx(
        expected | {f"level-accuracy-{k}": value for k, value in enumerate(levels, 1)}
    )
    several = TrainerMetrics(loss, names)(prediction(logits, targets))
    assert several == pytest.approx(found)
    by_default = TrainerMetrics(loss)(prediction((logits, logits), targets.float()))
    assert {"exact", "accuracy-3", "f1"} <= set(by_default)
    json.dumps(by_default)


def test_rows_without_a_known_label_are_not_measured():
    logits = np.random.default_rng(0).standard_normal((6, len(TREE)))
    index = np.array([0, 1, -100, 3, 4, -100])
    metrics = TrainerMetrics(BCELoss(TREE), ["hier-f1"], NAMES)
    kept = index >= 0
    assert metrics(prediction(logits, index)) == metrics(prediction(logits[kept], index[kept]))


def test_an_unknown_metric_raises_before_the_training():
    with pytest.raises(HierlearnError, match="unknown metric 'acuracy'"):
        TrainerMetrics(BCELoss(TREE), ["acuracy"])


def test_a_configuration_names_the_classes(tmp_path):
    model = bert(**config_labels(TREE))
    assert model.config.id2label[2] == TREE.names[2]
    assert model.classifier.out_features == len(TREE)
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert list(loaded.config.id2label.values()) == list(TREE.names)
    assert loaded.config.label2id == {name: number for number, name in enumerate(TREE.names)}
    assert config_labels(LabelSpace(TREE, ["a"])) == config_labels(TREE)


# ---------------------------------------------------------------------- with the Trainer


def test_training_learns_and_evaluates(tmp_path):
    tokens, index = token_rows(60)
    rows = dataset(tokens, [NAMES[one] for one in index])
    loss = HCLLoss(TREE)
    trainer = transformers.Trainer(
        bert(**config_labels(TREE)),
        arguments(tmp_path, num_train_epochs=8, learning_rate=5e-3),
        train_dataset=rows,
        eval_dataset=rows[:20],
        data_collator=LabelCollator(loss),
        compute_loss_func=TrainerLoss(loss),
        compute_metrics=TrainerMetrics(loss, ["leaf-accuracy", "level-accuracy"]),
    )
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_leaf-accuracy"] > 0.8 > before["eval_leaf-accuracy"]
    assert after["eval_loss"] < before["eval_loss"]
    assert {f"eval_level-accuracy-{level}" for level in (1, 2, 3)} <= set(after)


class WithHead(torch.nn.Module):
    """A backbone without a head, and a head of hierlearn."""

    def __init__(self, head):
        super().__init__()
        self.backbone = transformers.AutoModel.from_config(bert().config)
        self.head = head

    def forward(self, input_ids, attention_mask=None):
        hidden = self.backbone(input_ids, attention_mask=attention_mask).last_hidden_state
        return {"logits": self.head(hidden.mean(dim=1)).logits}


def test_a_head_of_hierlearn_over_a_backbone(tmp_path):
    tokens, index = token_rows(40)
    rows = dataset(tokens, [NAMES[one] for one in index])
    loss = HCLLoss(TREE)
    torch.manual_seed(0)
    trainer = transformers.Trainer(
        WithHead(LinearHead(32, TREE, link="softmax")),
        arguments(tmp_path, num_train_epochs=4, learning_rate=5e-3, label_names=["labels"]),
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=LabelCollator(loss),
        compute_loss_func=TrainerLoss(loss),
        compute_metrics=TrainerMetrics(loss, ["leaf-accuracy"]),
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before


def test_examples_hold():
    assert doctest.testmod(integration).failed == 0


def test_without_transformers_its_package_is_named(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(integration, "import_module", missing)
    message = "curriculum_callback needs transformers; install it with: pip install transformers"
    with pytest.raises(HierlearnError, match=message):
        integration.curriculum_callback(BCELoss(TREE))
