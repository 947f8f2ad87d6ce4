"""Features of a frozen backbone: no row is encoded twice, and a damaged cache changes nothing."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backbones.text_models import bert_config, dataset, save_model
from hierlearn.backbones.hf import TextEncoder
from hierlearn.errors import HierlearnError
from hierlearn.features import from_state
from hierlearn.features.embed import EmbedPreprocessor, FeatureCache, trim
from hierlearn.pipeline import evaluate, load, train
from hierlearn.training import Plan

if TYPE_CHECKING:
    from pathlib import Path

    import torch

TEXTS = dataset(80).inputs


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The batches that were encoded."""
    found: list[torch.Tensor] = []
    forward = TextEncoder.forward

    def count(self: TextEncoder, x: torch.Tensor) -> torch.Tensor:
        found.append(x)
        return forward(self, x)

    monkeypatch.setattr(TextEncoder, "forward", count)
    return found


def embed(folder: Path, **options: Any) -> EmbedPreprocessor:
    return EmbedPreprocessor(f"hf:{folder}", **options).fit([])


def rows_of(batches: list[torch.Tensor]) -> int:
    return sum(map(len, batches))


def test_features_come_in_order_whatever_the_length(bert: Path) -> None:
    step = embed(bert, cache=False)
    together = step.transform(TEXTS)
    alone = np.concatenate([step.transform([text]) for text in TEXTS[:20]])
    np.testing.assert_allclose(together[:20], alone, atol=1e-5)


def test_texts_of_like_length_are_encoded_together(bert: Path, encoded: list[torch.Tensor]) -> None:
    texts = ["red", "red " * 60] * 64
    embed(bert, cache=False).transform(texts)
    widths = [int((batch >= 0).sum(dim=1).max()) for batch in encoded]
    assert sorted(widths) == [3] * 4 + [62] * 4  # in several threads


def test_a_second_time_nothing_is_encoded(bert: Path, encoded: list[torch.Tensor]) -> None:
    first = embed(bert).transform(TEXTS)
    assert rows_of(encoded) == len({*TEXTS}) < len(TEXTS)
    encoded.clear()
    assert np.array_equal(embed(bert).transform(TEXTS[::-1]), first[::-1])
    assert not encoded
    embed(bert).transform([*TEXTS, "a new text"])
    assert rows_of(encoded) == 1


def test_many_rows_are_encoded_in_blocks(
    bert: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hierlearn.features.embed.BLOCK", 32)
    step = embed(bert)
    whole = embed(bert, cache=False).transform(TEXTS[:40])
    np.testing.assert_allclose(step.transform(TEXTS[:64])[:40], whole, atol=1e-5)
    with closing(sqlite3.connect(next(own_cache.glob("features/*.sqlite")))) as database:
        assert database.execute("SELECT COUNT(*) FROM rows").fetchone() == (len({*TEXTS[:64]}),)


def test_folds_evaluation_and_a_second_training_encode_nothing_again(
    bert: Path, tmp_path: Path, encoded: list[torch.Tensor]
) -> None:
    data = dataset()
    plan = Plan(network=f"hf:{bert}", settings={"device": "cpu", "epochs": 1})
    train(data, plan, out=tmp_path / "model")
    assert rows_of(encoded) <= len(data)
    encoded.clear()
    train(data, plan)
    model = load(tmp_path / "model")
    evaluate(model, data)
    model.probabilities(data.inputs)
    assert not encoded


def test_other_weights_or_options_have_features_of_their_own(
    bert: Path, tmp_path: Path, encoded: list[torch.Tensor]
) -> None:
    mean = embed(bert).transform(TEXTS)
    encoded.clear()
    first = embed(bert, pooling="cls").transform(TEXTS)
    other = embed(save_model(tmp_path / "other", bert_config(), seed=1)).transform(TEXTS)
    assert rows_of(encoded) == 2 * len({*TEXTS})
    assert not np.allclose(mean, first)
    assert not np.allclose(mean, other)
    encoded.clear()
    embed(bert, max_tokens=50).transform(TEXTS)  # the same tokens
    assert not encoded


@pytest.mark.parametrize("how", ["option", "environment"])
def test_it_can_be_switched_off(
    bert: Path,
    own_cache: Path,
    encoded: list[torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    if how == "environment":
        monkeypatch.setenv("HIERLEARN_NO_CACHE", "1")
    for _ in range(2):
        embed(bert, **({"cache": False} if how == "option" else {})).transform(TEXTS)
    assert rows_of(encoded) == 2 * len(TEXTS)
    assert not own_cache.exists()
    with pytest.raises(HierlearnError, match="cache must be True or False, not 3"):
        embed(bert, cache=3)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "gone", "another width", "text"])
def test_a_damaged_file_is_passed_over_and_written_again(
    bert: Path, own_cache: Path, encoded: list[torch.Tensor], damage: str
) -> None:
    expected = embed(bert).transform(TEXTS)
    (path,) = own_cache.glob("features/*.sqlite")
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage in ("another width", "changed"):
        change = "substr(value, 1, 20)" if damage == "another width" else "substr(value, 2) || 'x'"
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(f"UPDATE rows SET value = CAST({change} AS BLOB)")
    else:
        path.write_bytes({"cut": whole[:3000], "empty": b"", "text": b"no database " * 99}[damage])
    encoded.clear()
    again = embed(bert)
    np.testing.assert_allclose(again.transform(TEXTS), expected, atol=1e-6)
    assert encoded
    again.transform(TEXTS)  # what was removed is written again
    encoded.clear()
    np.testing.assert_allclose(again.transform(TEXTS), expected, atol=1e-6)
    assert not encoded


def test_a_cache_that_cannot_be_written_is_no_error(bert: Path, own_cache: Path) -> None:
    own_cache.write_text("a file where the folder would be")
    assert embed(bert).transform(TEXTS).shape == (len(TEXTS), 32)


def test_rows_are_hashed_and_not_stored(bert: Path, own_cache: Path) -> None:
    embed(bert).transform(["secret", *TEXTS])
    assert not any(b"secret" in path.read_bytes() for path in own_cache.rglob("*.*"))


def test_a_few_rows_are_not_worth_a_file(bert: Path, own_cache: Path) -> None:
    embed(bert).transform(TEXTS[:3])
    assert not own_cache.exists()


def test_the_features_not_used_for_longest_are_removed(own_cache: Path) -> None:
    caches = [FeatureCache(f"some{number}", 8) for number in range(3)]
    keys = [bytes([row]) * 32 for row in range(32)]
    for number, cache in enumerate(caches):
        cache.add(keys, np.full((32, 8), number, dtype=np.float32))
        os.utime(cache.path, (number + 1, number + 1))
    assert caches[0].find(keys)[0][:, 0].tolist() == [0] * 32  # used now
    trim(caches[0].path.parent, 2 * caches[0].path.stat().st_size)
    assert [bool(cache.find(keys)[1].all()) for cache in caches] == [True, False, True]
    assert len(list(own_cache.glob("features/*"))) == 2


def test_a_stored_encoder_needs_no_source(bert: Path, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "source", bert_config(), seed=3)
    step = embed(folder, pooling="cls", max_tokens=9)
    settings, arrays = step.state()
    for path in folder.iterdir():
        path.unlink()
    again = from_state(settings, arrays)
    assert np.array_equal(again.transform(TEXTS), step.transform(TEXTS))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers 1,000,000,000 is not the one"),
        ({"num_hidden_layers": 3}, "is not the one that was saved"),
        ({"hidden_size": 10**8}, "is not the one that was saved"),
        ({"vocab_size": 5}, "has 15 tokens, but the backbone knows 5"),
        ({"model_type": "nothing"}, "cannot be built"),
    ],
)
def test_a_hostile_state_is_one_sentence_at_once(
    bert: Path, change: dict[str, Any], words: str
) -> None:
    settings, arrays = embed(bert).state()
    hostile = {**settings, "description": {**settings["description"], **change}}
    begun = time.process_time()
    with pytest.raises(HierlearnError, match=words):
        from_state(hostile, arrays)
    assert time.process_time() - begun < 30
