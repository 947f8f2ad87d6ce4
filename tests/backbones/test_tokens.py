"""Tokens: cells of any kind, tokenizers of any kind."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from backbones.text_models import WORDS, bert_config, save_model
from hierlearn.errors import DataError, HierlearnError
from hierlearn.features import from_state
from hierlearn.features.embed import TokenPreprocessor

if TYPE_CHECKING:
    from pathlib import Path

CLS, SEP, UNKNOWN = 2, 3, 1


def tokens(folder: Path, **options: int) -> TokenPreprocessor:
    return TokenPreprocessor(f"hf:{folder}", **options).fit([])


def test_ids_are_those_of_the_tokenizer(bert: Path) -> None:
    from transformers import AutoTokenizer

    texts = ["red apple", "small round green plum", ""]
    found = tokens(bert).transform(texts)
    known = AutoTokenizer.from_pretrained(bert)
    assert [row[row >= 0].tolist() for row in found] == known(texts)["input_ids"]
    assert found.dtype == np.int32
    assert found.shape == (3, 6)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", [CLS, SEP]),
        ("   \n\t", [CLS, SEP]),
        ("\U0001f34e \U0001f680", [CLS, UNKNOWN, UNKNOWN, SEP]),
        ("\0", [CLS, UNKNOWN, SEP]),
        ("nothing known", [CLS, UNKNOWN, UNKNOWN, SEP]),
        ("\ud83d red", [CLS, UNKNOWN, WORDS.index("red"), SEP]),  # half of a surrogate pair
    ],
)
def test_odd_cells_are_tokens_like_others(bert: Path, text: str, ids: list[int]) -> None:
    assert tokens(bert).transform([text])[0].tolist() == ids


def test_a_cell_of_100_kb_costs_what_its_first_tokens_cost(
    bert: Path,
) -> None:
    step = tokens(bert, max_tokens=16)
    many = ["red apple " * 10_000, "x" * 100_000, " " * 100_000, "\U0001f34e" * 25_000] * 50
    seen = []
    tokenizer = step._tokenizer

    class Counting:
        def encode_batch(self, texts: list[str]) -> object:
            seen.extend(map(len, texts))
            return tokenizer.encode_batch(texts)

    step._tokenizer = Counting()
    found = step.transform(many)
    assert sum(seen) < 300_000  # of 16 million characters
    assert found.shape == (200, 16)
    red, apple = WORDS.index("red"), WORDS.index("apple")
    assert found[0].tolist() == [CLS, *[red, apple] * 7, SEP]


def test_a_text_is_cut_only_behind_its_tokens(bert: Path) -> None:
    texts = ["red " * 500, "apple " * 500]
    whole = tokens(bert, max_tokens=64).transform(texts)
    again = tokens(bert, max_tokens=64).transform([text[:600] for text in texts])
    assert np.array_equal(whole, again)


def test_no_rows(bert: Path) -> None:
    assert tokens(bert).transform([]).shape == (0, 1)


def test_a_tokenizer_without_special_tokens_gives_rows_without_tokens(tmp_path: Path) -> None:
    folder = save_model(tmp_path, bert_config(), special=False, padding=False)
    found = tokens(folder).transform(["", "red"])
    assert found.tolist() == [[-1], [WORDS.index("red")]]


# ---------------------------------------------------------------------- limits


def test_max_tokens_is_bounded_by_the_network(tmp_path: Path) -> None:
    folder = save_model(tmp_path, bert_config(max_position_embeddings=8))
    assert tokens(folder).max_tokens == 8
    assert tokens(folder).transform(["red " * 50]).shape == (1, 8)
    with pytest.raises(HierlearnError, match=r"max_tokens is 9, but .* reads at most 8 tokens"):
        tokens(folder, max_tokens=9)
    with pytest.raises(HierlearnError, match="max_tokens is 2, but every text has 2 special"):
        tokens(folder, max_tokens=2)
    with pytest.raises(HierlearnError, match="max_tokens must be an integer from 1"):
        tokens(folder, max_tokens=0)


def test_by_default_128_tokens(bert: Path) -> None:
    assert tokens(bert).max_tokens == 128


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(tmp_path: Path) -> None:
    config = bert_config()
    config.vocab_size = 10
    folder = save_model(tmp_path, config)
    with pytest.raises(HierlearnError, match="has 15 tokens, but the network knows 10"):
        tokens(folder)


# ---------------------------------------------------------------------- sources and states


def test_a_folder_without_a_tokenizer(bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(HierlearnError, match="has no tokenizer"):
        tokens(tmp_path)


@pytest.mark.parametrize("content", ["{}", "no JSON", '{"model": null, "added_tokens": []}'])
def test_a_damaged_tokenizer(bert: Path, tmp_path: Path, content: str) -> None:
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(HierlearnError, match=r"tokenizer of .* cannot be read|has no tokenizer"):
        tokens(tmp_path)


def test_a_tokenizer_in_python_only(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoTokenizer

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: object())
    with pytest.raises(HierlearnError, match="slow tokenizer only"):
        tokens(bert)


def test_a_stored_tokenizer_gives_the_same_ids(bert: Path) -> None:
    step = tokens(bert, max_tokens=5)
    texts = ["red round apple and more", "", "\U0001f34e"]
    again = from_state(*step.state())
    assert np.array_equal(step.transform(texts), again.transform(texts))
    assert again.columns == step.columns == len(WORDS)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"model": 3}'])
def test_a_damaged_stored_tokenizer_is_one_sentence(bert: Path, content: bytes) -> None:
    settings, _ = tokens(bert).state()
    with pytest.raises(DataError, match="stored preprocessor is damaged: it has no tokenizer"):
        from_state(settings, {"tokenizer": np.frombuffer(content, dtype=np.uint8)})
