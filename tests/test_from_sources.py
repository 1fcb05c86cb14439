"""Encoder-decoders as a person meets them: trained by their recipes, asked through Python and the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import meristem
from meristem.cli import main
from meristem.config.errors import MeristemError
from meristem.training import budget

Command = Callable[..., tuple[int, str, str]]
TINY = {
    "model.layers": 1,
    "model.hidden_size": 32,
    "model.heads": 2,
    "model.max_length": 32,
    "tokenizer.vocab_size": 400,
    "train.batch_tokens": 128,
    "train.steps": 6,
    "train.threads": 1,
    "corpus.processes": 1,
    "corpus.validation": 0.1,
    "corpus.test": 0.1,
}


@pytest.fixture(autouse=True, scope="module")
def _small_peak() -> Iterator[None]:
    """The machine's peak is measured on a small product: it is nobody's question here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        yield


def trained(recipe: str, source: str, folder: Path) -> Path:
    result = meristem.pretrain(recipe, TINY, source=source, out=folder / recipe, console=Console(quiet=True))
    assert any(f"generate {result.run}" in line for line in result.example_commands)  # a person is told how to use it
    return result.run


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("transformer-mini", "builtin:microworld-pairs?size=60", tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("captioner-mini", "builtin:microworld-pictures?size=60", tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """What a command prints, and how it ends."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["meristem", *map(str, words)])
        with pytest.raises(SystemExit) as error:
            main()
        out, err = capsys.readouterr()
        return int(error.value.code or 0), out, err

    return run


def test_a_prompt_is_the_source_and_only_the_target_is_printed(translator: Path, run_command: Command) -> None:
    words = ("generate", translator, "--prompt", "One day at noon Diego played chess.", "--max-tokens", 8)
    code, out, _ = run_command(*words, "--temperature", 0)
    assert code == 0
    assert "Diego" not in out
    _, json_text, _ = run_command(*words, "--temperature", 0, "--json")
    (completion,) = json.loads(json_text)
    assert completion["prompt"].startswith("One day")
    assert completion["text"] == out.removesuffix("\n")
    _, beams_json, _ = run_command(*words, "--beams", 3, "--count", 2, "--json")
    scores = [beam_completion["score"] for beam_completion in json.loads(beams_json)]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 2
    code, _, err = run_command("generate", translator)
    assert (code, "generates from a source text" in err) == (1, True)


def test_vectors_and_attention_are_the_encoders(translator: Path) -> None:
    loaded = meristem.load(translator)
    assert loaded.lm_kind == "source"
    first, same_vector, other = loaded.embed(["Diego played chess.", "Diego played chess.", "Linda was a carpenter."])
    assert first.shape == (32,)
    assert torch.equal(first, same_vector)
    assert not torch.allclose(first, other, atol=1e-3)
    tokens, layers = loaded.attention("Diego played chess.")
    assert [layer.shape for layer in layers] == [(2, len(tokens), len(tokens))]


def test_pictures_are_captioned(captioner: Path, tmp_path: Path, run_command: Command) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(256, size=(32, 32, 3), dtype=np.uint8)
    image.fromarray(pixels).save(tmp_path / "scene.png")
    loaded = meristem.load(captioner)
    ((from_array,),) = loaded.generate(pixels, greedy=True, max_tokens=6)
    ((from_file,),) = loaded.generate(tmp_path / "scene.png", greedy=True, max_tokens=6)
    assert from_array == from_file
    code, out, _ = run_command(
        "generate", captioner, "--image", tmp_path / "scene.png", "--max-tokens", 6, "--temperature", 0
    )
    assert (code, out) == (0, from_array.text + "\n")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    with pytest.raises(MeristemError, match=r"broken.png: not an image"):
        loaded.generate(tmp_path / "broken.png")
    with pytest.raises(MeristemError, match=r"images of 32×32×3, not 16×16×3"):
        loaded.generate(pixels[:16, :16])
