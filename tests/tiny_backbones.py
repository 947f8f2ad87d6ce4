"""Tiny backbones with random weights, saved as folders; nothing is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torchvision_operators import declare_operators

if TYPE_CHECKING:
    from pathlib import Path

WORDS = [
    *("red", "green", "blue", "small", "large", "round", "apple", "pear", "plum"),
    *("car", "bus", "fruit", "vehicle", "a", "photo", "of"),
]


def save_tiny_bert(folder: Path, *, width: int = 32, dropout: float = 0.1) -> Path:
    """Save a BERT whose vocabulary is ``WORDS``, and return its folder."""
    declare_operators()
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, sep_token="[SEP]", **named).save_pretrained(
        folder
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=width,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=2 * width,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
        BertModel(config).save_pretrained(folder)
    return folder
