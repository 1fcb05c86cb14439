"""Hub models by name, from a cache in huggingface_hub's own layout; there is no network in tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
import transformers
from rich.console import Console

from meristem import api
from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError
from meristem.interop import hub_weights
from meristem.interop.cached_import import resolve_run
from meristem.recipe_resolution import resolve_pretrain_recipe, resolve_task_recipe

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.,", "the", "sailor", "home", "went"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
Fill = Callable[..., Path]


@pytest.fixture(scope="module")
def model() -> transformers.BertForMaskedLM:
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=64, **shape)
    return transformers.BertForMaskedLM(config)


@pytest.fixture
def fill(model: transformers.BertForMaskedLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fill:
    """Put the model into a cache of its own under a name; `hf download` leaves blobs, links and a ref just so."""
    cache = tmp_path / "hub"
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)

    def write_cache(name: str, *, without: str = "") -> Path:
        model.save_pretrained(tmp_path / "theirs")
        (tmp_path / "theirs" / "vocab.txt").write_text("\n".join(WORDS))
        (tmp_path / "theirs" / "modeling_own.py").write_text("raise SystemExit('code of a model was run')")
        home = cache / f"models--{name.replace('/', '--')}"
        snapshot = home / "snapshots" / COMMIT
        for folder in (home / "blobs", home / "refs", snapshot):
            folder.mkdir(parents=True)
        (home / "refs" / "main").write_text(COMMIT)
        for file in (tmp_path / "theirs").iterdir():
            if file.name != without:
                blob = home / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
                blob.write_bytes(file.read_bytes())
                (snapshot / file.name).symlink_to(Path("../..") / "blobs" / blob.name)
        return snapshot

    return write_cache


@pytest.mark.parametrize(
    ("name", "run_name"),
    [
        ("bert-tiny", "bert-tiny"),
        ("bert-tiny", "hub:bert-tiny"),
        ("some/bert-tiny", "some/bert-tiny"),
        ("some/bert-tiny", f"hub:some/bert-tiny@{COMMIT}"),
    ],
)
def test_a_name_is_found_in_the_cache(
    fill: Fill, model: transformers.BertForMaskedLM, name: str, run_name: str
) -> None:
    fill(name)
    state_dict = load_run(resolve_run(run_name)).learner.model.state_dict()
    theirs = model.state_dict()["bert.embeddings.word_embeddings.weight"]
    assert any(tensor.shape == theirs.shape and torch.equal(tensor, theirs) for tensor in state_dict.values())


def test_import_takes_a_name(fill: Fill, tmp_path: Path) -> None:
    fill("some/bert-tiny")
    folder = api.import_folder("hub:some/bert-tiny", tmp_path / "run")
    assert folder.recipe.model.family == "bert"
    assert folder.notices == ()


def test_a_run_or_folder_of_that_name_comes_first(fill: Fill, tmp_path: Path) -> None:
    fill("bert-tiny")
    (tmp_path / "bert-tiny").mkdir()
    assert resolve_run("bert-tiny") == Path("bert-tiny")


def test_pretraining_goes_on_from_a_name_or_a_folder_with_its_shape_and_tokenizer(
    fill: Fill, model: transformers.BertForMaskedLM, tmp_path: Path
) -> None:
    fill("bert-tiny")
    (tmp_path / "text.txt").write_text("\n".join(f"the sailor went home, {n} times." for n in range(60)))
    small = ["objective=mlm", "corpus.document=line", "train.steps=2", "train.batch_tokens=128", "train.threads=1"]
    small += ["train.learning_rate=1e-9", "train.optimizer=adamw", "model.max_length=32"]
    theirs = model.state_dict()["bert.embeddings.word_embeddings.weight"]
    for number, start_name in enumerate(("bert-tiny", str(tmp_path / "theirs"))):
        result = api.pretrain(
            "bert-mini",
            [*small, f"from={start_name}"],
            source=str(tmp_path / "text.txt"),
            out=tmp_path / f"run{number}",
            console=Console(quiet=True),
        )
        run = load_run(result.run)
        assert run.tokenizer.vocab_size == len(WORDS)
        assert (run.recipe.model.hidden_size, run.recipe.model.layers, run.recipe.model.max_length) == (32, 2, 32)
        assert torch.allclose(run.learner.model.backbone.embedding().weight, theirs, atol=1e-6)
    pretrain_recipe = resolve_pretrain_recipe("bert-mini", ["from=bert-tiny", "from.tokenizer=own"])
    assert pretrain_recipe.model.hidden_size == 32 and pretrain_recipe.tokenizer.vocab_size == 8192
    assert resolve_task_recipe("classification", ["from=bert-tiny"]).model.hidden_size == 32


@pytest.mark.parametrize("without", ["", "model.safetensors", "config.json"])
def test_what_is_not_whole_in_the_cache_is_answered_with_the_command(fill: Fill, without: str) -> None:
    if without:
        fill("some/bert-tiny", without=without)
    command = (
        'hf download some/bert-tiny --include "*.json" --include "*.txt" --include "*.model" --include "*.safetensors"'
    )
    with pytest.raises(MeristemError) as error:
        resolve_run("hub:some/bert-tiny")
    assert str(error.value).endswith(command)
    assert "HF_HUB_OFFLINE" in str(error.value)


def test_a_mistyped_name_is_answered_with_what_is_there(fill: Fill, tmp_path: Path) -> None:
    (tmp_path / "bert-small").mkdir()
    with pytest.raises(MeristemError, match=r"bert-smal: no such run or folder, did you mean bert-small\?"):
        resolve_run("bert-smal")
    (tmp_path / "runs").mkdir()
    assert resolve_run("runs/bert-smal") == Path("runs/bert-smal")  # a run that is missing, said by whoever opens it
    for wrong in ("hub:", "hub:../secrets", "hub:a/b/c"):
        with pytest.raises(MeristemError, match="needs a name"):
            resolve_run(wrong)


def test_only_files_that_an_import_reads_are_fetched() -> None:
    files = [
        "config.json",
        "vocab.txt",
        "model.safetensors",
        "pytorch_model.bin",
        "tf_model.h5",
        "modeling_own.py",
        "onnx/model.safetensors",
        "README.md",
        "tokenizer.json",
    ]
    assert sorted(hub_weights._needed_files(files)) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "vocab.txt",
    ]
    assert "pytorch_model.bin" in hub_weights._needed_files([file for file in files if "safetensors" not in file])
    parts = ["model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert hub_weights._needed_files(parts) == parts


def test_a_tokenizer_that_is_too_small_is_pointed_out(fill: Fill, tmp_path: Path) -> None:
    fill("bert-tiny")
    (tmp_path / "theirs" / "vocab.txt").write_text("\n".join(WORDS[:6]))
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["vocab_size"] == len(WORDS)
    folder = api.import_folder(tmp_path / "theirs", tmp_path / "run")
    assert "WARNING: the tokenizer has 6 tokens, and the weights have rows for 37" in folder.summary()
