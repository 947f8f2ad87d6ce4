"""Tiny problems for the integrations: a taxonomy, token rows, a transformer, and both Trainers."""

import gc
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import numpy as np
import torch
import transformers
from torch import nn

from hierlearn import Hierarchy, Labels, Settings
from hierlearn.losses import BCELoss
from hierlearn.training.rows import Rows
from hierlearn.training.solvers.gradient import Trainer

# The folder tests/datasets can be imported, which transformers takes for Hugging Face's package.
transformers.trainer.is_datasets_available = lambda: False
# The Trainer collects garbage at its end, which takes longer than a tiny training: nothing of what
# the libraries have made while they were imported is garbage.
gc.freeze()

TREE = Hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "h"])
NAMES = ["h", "a/b/c", "a/b/d", "a/e", "f/g"]  # in an order of the user's own
WORDS, LENGTH = 30, 6


class Recorder(BCELoss):
    """A loss that remembers what it was told."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.told = []

    def set_progress(self, progress):
        self.told.append(progress)

    def end_epoch(self):
        self.told.append("end")


def token_rows(count=24, seed=0):
    """Return (N, LENGTH) tokens that tell their class, and (N,) indices into NAMES."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(10, WORDS, (count, LENGTH))
    index = rng.integers(0, len(NAMES), count)
    tokens[:, 1] = index + 2
    return tokens, index


def bert(seed=0, **options):
    """Return a BERT of two layers without dropout, with one output per class."""
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **{"num_labels": len(TREE), **options},
    )
    return transformers.AutoModelForSequenceClassification.from_config(config)


def dataset(tokens, labels):
    """Return rows as a list of dictionaries, which is what the Trainer needs of a dataset."""
    return [
        {"input_ids": row.tolist(), "label": label}
        for row, label in zip(tokens, labels, strict=True)
    ]


def arguments(folder, **options):
    """Return arguments under which nothing is reported, clipped, scheduled or shuffled."""
    defaults = {
        "per_device_train_batch_size": 8,
        "num_train_epochs": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "seed": 0,
    }
    return transformers.TrainingArguments(str(folder), **{**defaults, **options})


def step_losses(trainer):
    """Return the losses that Hugging Face's Trainer logged."""
    return [one["loss"] for one in trainer.state.log_history if "loss" in one]


class TokensToLogits(nn.Module):
    """A transformer as hierlearn's trainer calls a module: rows of numbers to logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(input_ids=x.long()).logits


def train_with_hierlearn(model, loss, tokens, names, epochs, batch_size=8):
    """Train with hierlearn's trainer; return its losses and the rows in the order it took them."""
    settings = Settings(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=1e-3,
        schedule="constant",
        prior_bias=False,
        seed=5,
    )
    rows = Rows(tokens.astype(np.float32), Labels(names, TREE), torch.device("cpu"))
    trainer = Trainer(TokensToLogits(model), loss, rows, settings)
    losses = []
    trainer.on_step = lambda _: losses.append(float(trainer.losses[-1]))
    trainer.train()
    order = torch.cat([rows.order([settings.seed], epoch)[0] for epoch in range(epochs)])
    return losses, order.numpy()
