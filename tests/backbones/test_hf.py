"""HF: text encoders against transformers itself, and sources that cannot be read."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from backbones.text_models import WORDS, bert_config, save_model, save_tokenizer
from hierlearn.backbones import find_backbone
from hierlearn.backbones.backbone import check_numbers
from hierlearn.backbones.hf import HFBackbone, TextEncoder, longest_input
from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HF = HFBackbone()
IDS = [[2, 5, 9, 3], [2, 4, 3], [2, 3]]


def encoder_of(folder: Path, **options: Any) -> TextEncoder:
    made = HF.build(HF.describe(str(folder)), **options)
    HF.load(made, str(folder))
    return made.eval()  # type: ignore[no-any-return]


def padded(rows: list[list[int]], width: int = 6) -> torch.Tensor:
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows], dtype=torch.int32)


def alone(folder: Path, ids: list[int]) -> torch.Tensor:
    """The hidden states of one text, by transformers and without padding."""
    from transformers import AutoModel

    with torch.no_grad():
        found: torch.Tensor = AutoModel.from_pretrained(folder).eval()(torch.tensor([ids]))[0][0]
        return found


@pytest.mark.parametrize(
    ("pooling", "pool"),
    [("mean", lambda s: s.mean(0)), ("cls", lambda s: s[0]), ("last", lambda s: s[-1])],
)
def test_features_are_the_pooled_states_of_each_text_alone(
    bert: Path, pooling: str, pool: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    found = encoder_of(bert, pooling=pooling)(padded(IDS))
    expected = torch.stack([pool(alone(bert, ids)) for ids in IDS])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_text_without_tokens_has_features_of_zero(bert: Path, pooling: str) -> None:
    encoder = encoder_of(bert, pooling=pooling)
    found = encoder(padded([[], IDS[0]]))
    assert found[0].eq(0).all()
    torch.testing.assert_close(found[1:], encoder(padded([IDS[0]])), atol=1e-6, rtol=1e-5)
    assert encoder(padded([[]])).eq(0).all()
    found.sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in encoder.parameters())


def test_a_batch_without_rows_has_gradients_of_zero(bert: Path) -> None:
    encoder = encoder_of(bert).train()
    found = encoder(torch.zeros(0, 3, dtype=torch.int32))
    assert found.shape == (0, 32)
    found.sum().backward()
    used = [one.grad for one in encoder.parameters()]
    assert all(grad is not None and not grad.any() for grad in used)


def test_of_t5_the_encoder_is_used(tmp_path: Path) -> None:
    from transformers import T5Config, T5EncoderModel

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    folder = save_model(tmp_path, T5Config(vocab_size=len(WORDS), **sizes))
    encoder = encoder_of(folder)
    assert not any("decoder" in name for name in encoder.state_dict())
    known = T5EncoderModel.from_pretrained(folder).eval()
    expected = known(torch.tensor([IDS[0]])).last_hidden_state.mean(1)
    torch.testing.assert_close(encoder(padded(IDS[:1])), expected, atol=1e-5, rtol=1e-5)
    assert longest_input(HF.describe(str(folder))) is None


def test_of_a_decoder_the_last_token_has_seen_the_text(tmp_path: Path) -> None:
    from transformers import GPT2Config

    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 8}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    folder = save_model(tmp_path, GPT2Config(vocab_size=len(WORDS), **sizes, **ends))
    found = encoder_of(folder, pooling="last")(padded(IDS))
    expected = torch.stack([alone(folder, ids)[-1] for ids in IDS])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(HierlearnError, match="first token of a gpt2 has seen no other"):
        encoder_of(folder, pooling="cls")


def test_positions_of_roberta_begin_after_that_of_padding() -> None:
    shifted = {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
    assert longest_input(shifted) == 512
    assert longest_input({"model_type": "bert", "max_position_embeddings": 512}) == 512


def test_no_more_tokens_are_read_than_there_are_positions(tmp_path: Path) -> None:
    encoder = encoder_of(save_model(tmp_path, bert_config(max_position_embeddings=4)))
    long = [2, 5, 9, 3, 7, 7]
    torch.testing.assert_close(encoder(padded([long])), encoder(padded([long[:4]])))


# ---------------------------------------------------------------------- LoRA


def test_adapters_change_nothing_before_training_and_alone_are_trained(bert: Path) -> None:
    plain, adapted = encoder_of(bert), encoder_of(bert, tuning="lora", lora_rank=2)
    assert torch.equal(plain(padded(IDS)), adapted(padded(IDS)))
    trained = [name for name, one in adapted.named_parameters() if one.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    assert len(trained) == 2 * 6 * 2  # A and B of six linear layers in each of two


def test_adapters_are_those_of_the_formula(bert: Path) -> None:
    rank, alpha = 2, 6.0
    adapted = encoder_of(bert, tuning="lora", lora_rank=rank, lora_alpha=alpha)
    layer = adapted.model.encoder.layer[0].attention.self.query
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    torch.nn.init.normal_(b)
    x = torch.randn(3, 32)
    frozen = x @ layer.base_layer.weight.T + layer.base_layer.bias
    torch.testing.assert_close(layer(x), frozen + alpha / rank * x @ a.T @ b.T)


def test_adapters_of_named_layers(bert: Path) -> None:
    adapted = encoder_of(bert, tuning="lora", lora_targets="query, value")
    names = {n.split(".")[-4] for n, p in adapted.named_parameters() if p.requires_grad}
    assert names == {"query", "value"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lora_rank": 0}, "lora_rank must be an integer from 1 to 4096, not 0"),
        ({"lora_rank": "x"}, "lora_rank must be"),
        ({"lora_alpha": -1}, "lora_alpha must be above 0"),
        ({"lora_dropout": 1.0}, r"lora_dropout must be in \[0, 1\)"),
        ({"lora_targets": "nothing"}, "lora_targets 'nothing' do not fit this network"),
        ({"lora_targets": 3}, "lora_targets must be names of layers"),
        ({"pooling": "max"}, "unknown pooling 'max'; known: cls, last, mean"),
    ],
)
def test_wrong_options_are_one_sentence(bert: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(HierlearnError, match=words):
        encoder_of(bert, tuning="lora", **options)


# ---------------------------------------------------------------------- sources


def damaged(bert: Path, folder: Path, change: Callable[[Path], object]) -> Path:
    shutil.copytree(bert, folder, dirs_exist_ok=True)
    change(folder)
    return folder


def with_config(**changes: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def foreign(folder: Path) -> None:
    (folder / "own.py").write_text("raise SystemExit('foreign code ran')")
    with_config(model_type="own", auto_map={"AutoConfig": "own.C", "AutoModel": "own.M"})(folder)


def pickled(folder: Path) -> None:
    torch.save({}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def images(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "vit", "hidden_size": 32}')


def half(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "configuration of .* cannot be"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights as safetensors"),
        (pickled, "no weights as safetensors, and others are not read"),
        (half, "the model of .* cannot be read"),
        (foreign, "needs code of its own, which is never run"),
        (with_config(num_hidden_layers=3), "lacks weights .* encoder.layer.2"),
        (with_config(hidden_size=64), "cannot be read|lacks weights"),
        (images, "no text encoder"),
        (with_config(quantization_config={"quant_method": "gptq"}), "is quantized"),
        (with_config(model_type="nothing"), "configuration of .* cannot be read"),
    ],
)
def test_a_damaged_source_is_one_sentence(
    bert: Path, tmp_path: Path, change: Callable[[Path], object], words: str
) -> None:
    with pytest.raises(HierlearnError, match=words) as raised:
        encoder_of(damaged(bert, tmp_path, change))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("/no/such/folder", "/no/such/folder: no such folder"),
        ("./nothing", "no such folder"),
        ("nobody/nothing", "nobody/nothing is no folder, and HF_HUB_OFFLINE does not allow"),
    ],
)
def test_a_missing_source_is_one_sentence_at_once(source: str, words: str) -> None:
    begun = time.process_time()
    with pytest.raises(HierlearnError, match=words):
        HF.describe(source)
    assert time.process_time() - begun < 30


def test_a_server_that_cannot_be_reached_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    calls = []

    def refuse(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", refuse)
    with pytest.raises(HierlearnError, match=r"cannot be downloaded \(no route\)"):
        HF.describe("nobody/nothing")
    assert len(calls) == 1


def test_a_file_is_no_source(bert: Path) -> None:
    with pytest.raises(HierlearnError, match="is a file; name the folder"):
        HF.describe(str(bert / "config.json"))
    with pytest.raises(HierlearnError, match="names no backbone; write hf:"):
        find_backbone("hf:")


def test_reading_prints_nothing_and_leaves_transformers_as_it_was(
    bert: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    encoder_of(bert)  # whose pooler is not used
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_half_precision_is_read_as_float32(tmp_path: Path) -> None:
    from transformers import BertModel

    BertModel(bert_config()).to(torch.bfloat16).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    assert {one.dtype for one in encoder_of(tmp_path).parameters()} == {torch.float32}


# ---------------------------------------------------------------------- descriptions


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**9},
        {"vocab_size": 10**12},
        {"intermediate_size": 1e300},
        {"text_config": {"num_hidden_layers": 10**6}},
    ],
)
def test_a_description_larger_than_its_weights_is_refused(
    bert: Path, change: dict[str, Any]
) -> None:
    encoder = encoder_of(bert)
    shapes = {name: tuple(value.shape) for name, value in encoder.state_dict().items()}
    description = HF.describe(str(bert))
    check_numbers(description, shapes)
    with pytest.raises(HierlearnError, match="is not the one that was saved"):
        check_numbers({**description, **change}, shapes)


@pytest.mark.parametrize(
    "change", [{"hidden_size": "x"}, {"model_type": None}, {"num_attention_heads": 0}]
)
def test_a_description_that_cannot_be_built_is_one_sentence(
    bert: Path, change: dict[str, Any]
) -> None:
    with pytest.raises(HierlearnError, match="the text encoder cannot be built"):
        HF.build({**HF.describe(str(bert)), **change})


def test_a_description_cannot_name_code(bert: Path) -> None:
    hostile = {"_attn_implementation": "nobody/kernel", "auto_map": {"AutoModel": "own.M"}}
    made = HF.build({**HF.describe(str(bert)), **hostile, "return_dict": False})
    assert made.model.config._attn_implementation in ("sdpa", "eager")
    assert made(padded(IDS)).shape == (3, 32)
