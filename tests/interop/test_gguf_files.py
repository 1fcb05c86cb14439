"""GGUF files written and read back: every tensor, the tokenizer from its metadata alone, refusals, damaged files.

llama.cpp itself opens them in tests/integrations/test_format_consumers.py.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from test_recipe_export import TEXTS, tiny_run
from transformers_models import same_tensors
from typer.testing import CliRunner

from meristem.api import export, import_folder, resolve_pretrain_recipe
from meristem.checkpoint.load_run import load_run
from meristem.cli.app import app
from meristem.config.errors import MeristemError, RecipeError
from meristem.interop.gguf_files.charsmap import build_charsmap
from meristem.interop.gguf_files.gguf_tokenizer import read_tokenizer_json, tokenizer_metadata
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.learning.build import build_learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

RECIPES = ["gpt2-mini", "modern-mini", "bert-mini", "modernbert-mini", "t5-mini"]
HEADLESS = {"bert-mini", "modernbert-mini"}
SENTENCES = ["The gardener planted 7 trees.", "it's raining, isn't it?", "naïve café 😀", "园丁种下了苹果树", "a  b\tc"]


@pytest.fixture(scope="module")
def gpt2_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gguf")
    export(tiny_run("gpt2-mini", folder / "run"), folder / "out", gguf=True)
    return folder / "out" / "model.gguf"


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_tensor_and_the_tokenizer_come_back(recipe: str, tmp_path: Path) -> None:
    run = tiny_run(recipe, tmp_path / "run")
    exported = export(run, tmp_path / "out", gguf=True)
    assert {path.name for path in exported.folder.iterdir()} == {"model.gguf", "README.md"}
    imported = import_folder(tmp_path / "out" / "model.gguf", tmp_path / "again")
    first, second = load_run(run), load_run(imported.run)
    if recipe in HEADLESS:
        assert any("left out" in note for note in exported.notes)
        own, other = first.learner.model.backbone.state_dict(), second.learner.model.backbone.state_dict()
        assert own.keys() == other.keys()
        assert [name for name in own if not torch.equal(own[name], other[name])] == []
    elif recipe == "t5-mini":
        same_tensors(run, imported.run)
    else:
        same_tensors(run, imported.run)
    for text in SENTENCES:
        assert first.tokenizer.encode(text).ids.tolist() == second.tokenizer.encode(text).ids.tolist()


def test_a_scaled_t5_output_comes_back_within_rounding(tmp_path: Path) -> None:
    recipe = resolve_pretrain_recipe(
        "t5-mini",
        ["model.layers=1", "model.hidden_size=32", "model.heads=4", "model.scale_output=true", "model.activation=relu",
         "model.ffn_size=48", "tokenizer.vocab_size=700"],
    )  # fmt: skip
    tokenizer = train_tokenizer(recipe.tokenizer, TEXTS)
    learner = build_learner(recipe, tokenizer)
    state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
    run = write_run(tmp_path / "run", recipe, tokenizer, {k: v.detach() for k, v in state.items()}, {}).path
    export(run, tmp_path / "out", gguf=True)
    again = load_run(import_folder(tmp_path / "out" / "model.gguf", tmp_path / "again").run)
    assert again.recipe.model.scale_output
    for name, tensor in load_run(run).learner.model.state_dict().items():
        assert torch.allclose(tensor, again.learner.model.state_dict()[name], rtol=1e-6), name


@pytest.mark.parametrize(
    ("kind", "lowercase"), [("bpe", False), ("wordpiece", False), ("wordpiece", True), ("unigram", False)]
)
def test_a_tokenizer_is_rebuilt_from_metadata_alone(kind: str, lowercase: bool) -> None:
    settings = resolve_pretrain_recipe(
        "bert-mini", [f"tokenizer.kind={kind}", f"tokenizer.lowercase={str(lowercase).lower()}"]
    ).tokenizer
    tokenizer = train_tokenizer(settings, TEXTS + SENTENCES)
    description = json.loads(tokenizer.json_text)
    metadata = tokenizer_metadata(_with_template(description, kind), tokenizer.vocab_size + 3, {})
    assert len(metadata["tokenizer.ggml.tokens"]) == tokenizer.vocab_size + 3
    del metadata["tokenizer.huggingface.json"]
    rebuilt = Tokenizer(read_tokenizer_json(metadata))
    for text in [*SENTENCES, *TEXTS[:5]]:
        expected, actual = tokenizer.encode(text).ids.tolist(), rebuilt.encode(text).ids.tolist()
        assert actual == expected, (kind, text)


def _with_template(description: dict[str, Any], kind: str) -> dict[str, Any]:
    start, end = ("<s>", "</s>") if kind == "bpe" else ("[CLS]", "[SEP]")
    ids = {token["content"]: token["id"] for token in description["added_tokens"]}
    pieces = [{"SpecialToken": {"id": name, "type_id": 0}} for name in (start, end)]
    description["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [pieces[0], {"Sequence": {"id": "A", "type_id": 0}}, pieces[1]],
        "pair": [],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (start, end)},
    }
    return description


def test_the_character_map_is_nfkc_with_single_spaces() -> None:
    from tokenizers import normalizers

    charsmap = normalizers.Precompiled(build_charsmap(lowercase=False))
    expected = normalizers.Sequence([normalizers.NFKC()])
    for text in ["ﬁne ①②", "e\u0301te\u0301", "ｆｕｌｌ　width", "ÅΩ", "plain text"]:
        assert charsmap.normalize_str(text).replace("\u3000", " ") == expected.normalize_str(text)
    assert charsmap.normalize_str("a\tb\u00a0c\nd") == "a b c d"


def test_int8_is_q8_0_within_its_rounding(tmp_path: Path) -> None:
    run = tiny_run("gpt2-mini", tmp_path / "run")
    for name, int8 in (("plain", False), ("rounded", True)):
        export(run, tmp_path / name, gguf=True, int8=int8)
    plain, rounded = (gguf.GGUFReader(tmp_path / name / "model.gguf") for name in ("plain", "rounded"))
    kinds = {tensor.name: tensor.tensor_type.name for tensor in rounded.tensors}
    assert kinds["blk.0.attn_qkv.weight"] == kinds["token_embd.weight"] == "Q8_0"
    assert kinds["position_embd.weight"] == kinds["blk.0.attn_norm.weight"] == "F32"
    for first, second in zip(plain.tensors, rounded.tensors, strict=True):
        values = gguf.quants.dequantize(second.data, second.tensor_type).reshape(first.data.shape)
        assert np.abs(values - first.data).max() <= np.abs(first.data).max() / 127
    assert import_folder(tmp_path / "rounded" / "model.gguf", tmp_path / "again").parameters > 0


@pytest.mark.parametrize(
    ("recipe", "settings", "reason"),
    [
        ("bart-mini", [], "bart is not written as GGUF; supported: gpt2, llama, bert, modernbert, t5"),
        ("gpt2-mini", ["model.activation=relu"], "activation_function=relu: llama.cpp computes gelu_new there"),
        ("gpt2-mini", ["tokenizer.kind=words"], "llama.cpp has no WordLevel tokenizer"),
        ("gpt2-mini", ["tokenizer.lowercase=true"], "the normalizer Lowercase"),
        ("gpt2-mini", ["tokenizer.kind=wordpiece"], "llama.cpp's WordPiece always puts one token before a text"),
        ("t5-mini", ["model.relative_max_distance=64"], "llama.cpp has 128 only"),
    ],
)
def test_what_llama_cpp_cannot_hold_is_refused_by_name(
    recipe: str, settings: list[str], reason: str, tmp_path: Path
) -> None:
    sizes = ["model.layers=1", "model.hidden_size=32", "model.heads=4", "tokenizer.vocab_size=700"]
    resolved = resolve_pretrain_recipe(recipe, [*sizes, *settings])
    tokenizer = train_tokenizer(resolved.tokenizer, TEXTS)
    model = build_learner(resolved, tokenizer).model
    state = checkpoint_state(model, dict(model.named_parameters()))
    run = write_run(tmp_path / "run", resolved, tokenizer, {k: v.detach() for k, v in state.items()}, {}).path
    with pytest.raises(MeristemError, match=reason):
        export(run, tmp_path / "out", gguf=True)
    assert not (tmp_path / "out").exists()


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    for options, reason in (
        ({"gguf": True, "onnx": True}, "--onnx and --gguf: an export has one format"),
        ({"int8": True}, "--int8: transformers has no such weights here"),
        ({"gguf": True, "drop_crf": True}, "--drop-crf chooses what is exported for transformers"),
    ):
        with pytest.raises(RecipeError, match=reason):
            export(tmp_path, tmp_path / "out", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", ["empty", "not", "cut", "noise"])
def test_a_damaged_file_is_one_sentence(damage: str, gpt2_file: Path, tmp_path: Path) -> None:
    content = bytearray(gpt2_file.read_bytes())
    files: list[bytes] = []
    if damage == "empty":
        files = [b""]
    elif damage == "not":
        files = [b"GGML" + bytes(content[4:])]
    elif damage == "cut":
        files = [bytes(content[: int(len(content) * share)]) for share in (0.001, 0.3, 0.9)]
    else:
        rng = random.Random(0)
        for _ in range(12):
            broken = bytearray(content)
            for _ in range(4):
                broken[rng.randrange(4, 3000)] = rng.randrange(256)
            files.append(bytes(broken))
    for number, data in enumerate(files):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(data)
        result = CliRunner().invoke(app, ["import", str(path), "--out", str(tmp_path / f"run{number}")])
        assert result.exception is None or isinstance(result.exception, MeristemError), repr(result.exception)
        if damage != "noise":
            assert isinstance(result.exception, MeristemError) and str(path) in str(result.exception)


def test_an_unknown_architecture_and_a_sentencepiece_bpe_are_named(tmp_path: Path) -> None:
    for architecture, model, reason in (
        ("mamba", "gpt2", "architecture 'mamba' is not supported; supported: gpt2, llama, bert, modern-bert, t5"),
        ("llama", "llama", r"its tokenizer is 'llama' \(SentencePiece BPE\)"),
    ):
        path = tmp_path / f"{architecture}.gguf"
        writer = gguf.GGUFWriter(str(path), architecture)
        writer.add_tokenizer_model(model)
        writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with pytest.raises(MeristemError, match=reason):
            import_folder(path, tmp_path / "run")
