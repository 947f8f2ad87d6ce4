"""Tiny text models with random weights and a dataset that they can read, made on the spot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn import Hierarchy
from hierlearn.datasets import Dataset

if TYPE_CHECKING:
    from pathlib import Path

ADJECTIVES = ["red", "green", "blue", "small", "large", "round"]
LABELS = ["fruit/apple", "fruit/pear", "fruit/plum", "vehicle/car", "vehicle/bus"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = [*SPECIAL, *ADJECTIVES, *(label.split("/")[1] for label in LABELS)]


def save_tokenizer(folder: Path, *, padding: bool = True, special: bool = True) -> None:
    """Save a tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(WORDS)}
    found = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    if special:
        found.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    names: dict[str, Any] = {"unk_token": "[UNK]"}
    if padding:
        names["pad_token"] = "[PAD]"
    PreTrainedTokenizerFast(tokenizer_object=found, **names).save_pretrained(folder)


def bert_config(**changes: Any) -> Any:
    """A BERT of two layers of width 32."""
    from transformers import BertConfig

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return BertConfig(vocab_size=len(WORDS), intermediate_size=64, **{**sizes, **changes})


def save_model(folder: Path, config: Any, *, seed: int = 0, **tokenizer: bool) -> Path:
    """Save a model with random weights and its tokenizer."""
    from transformers import AutoModel

    torch.manual_seed(seed)
    AutoModel.from_config(config).save_pretrained(folder)
    save_tokenizer(folder, **tokenizer)
    return folder


def dataset(rows: int = 60, test: int = 20, seed: int = 0) -> Dataset:
    """Texts that name their class."""
    draw = np.random.default_rng(seed)
    labels = [LABELS[number] for number in draw.integers(0, len(LABELS), rows)]
    texts = [
        " ".join([*draw.choice(ADJECTIVES, draw.integers(1, 5)), label.split("/")[1]])
        for label in labels
    ]
    every = np.arange(rows)
    splits = {"train": every[: rows - test], "test": every[rows - test :]}
    named = [[label] for label in labels]
    return Dataset(texts, named, Hierarchy.from_paths(LABELS), splits=splits)
