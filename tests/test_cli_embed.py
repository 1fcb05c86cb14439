"""`meristem embed`: a text, a file or a pipe becomes vectors on the screen, as JSON lines or in a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Meristem

import meristem as package
from meristem.api import LoadedModel

pytestmark = pytest.mark.usefixtures("small_peak")
TEXTS = ["Return the length of the array.", "A file is closed.", "Nothing else."]
TINY = {
    "model.layers": 1,
    "model.hidden_size": 32,
    "model.heads": 2,
    "model.max_length": 32,
    "tokenizer.vocab_size": 600,
    "train.batch_tokens": 256,
    "train.steps": 2,
    "corpus.limit": 60,
    "train.evaluate_tokens": 256,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "bert"
    package.pretrain("bert-mini", {**TINY, "objective": "mlm"}, out=out)
    return out


@pytest.fixture(scope="module")
def loaded(run: Path) -> LoadedModel:
    return package.load(run)


def test_a_text_on_the_screen_and_as_json(meristem: Meristem, run: Path, loaded: LoadedModel) -> None:
    result = meristem("embed", run, TEXTS[0])
    assert result.code == 0 and TEXTS[0] in result.out and "(32)" in result.out
    (embedding,) = meristem("embed", run, TEXTS[0], "--json", "--layer", "0", "--pooling", "first").answers
    assert embedding["index"] == 0 and embedding["text"] == TEXTS[0]
    assert embedding["embedding"] == pytest.approx(
        loaded.embed(TEXTS[:1], layer=0, pooling="first")[0].tolist(), abs=1e-5
    )


@pytest.mark.parametrize("level", ["token", "word"])
def test_tokens_and_words(meristem: Meristem, run: Path, loaded: LoadedModel, level: str) -> None:
    (embedding,) = meristem("embed", run, TEXTS[0], "--json", "--level", level, "--layer", "mix").answers
    (expected,) = loaded.embed(TEXTS[0], level=level, layer="mix")  # type: ignore[call-overload]  # one of both
    assert [row[level] for row in embedding[f"{level}s"]] == list(expected.units)
    np.testing.assert_allclose([row["embedding"] for row in embedding[f"{level}s"]], expected.vectors, atol=1e-5)


def test_a_pipe_and_files(meristem: Meristem, run: Path, loaded: LoadedModel) -> None:
    vectors = loaded.embed(TEXTS).numpy()
    piped = meristem("embed", run, "--json", pipe="\n\n".join(TEXTS).encode()).answers
    np.testing.assert_allclose([embedding["embedding"] for embedding in piped], vectors, atol=1e-5)
    Path("texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    for name in ("v.npy", "deep/v.jsonl", "v.tsv"):
        result = meristem("embed", run, "--file", "texts.txt", "--out", name)
        assert result.code == 0 and f"wrote {name}" in result.err and not result.out
    np.testing.assert_allclose(np.load("v.npy"), vectors, atol=1e-5)
    lines = [json.loads(line) for line in Path("deep/v.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines == piped
    table = [line.split("\t") for line in Path("v.tsv").read_text(encoding="utf-8").splitlines()]
    assert table[0][:2] == ["text", "0"] and [row[0] for row in table[1:]] == TEXTS
    np.testing.assert_allclose([[float(cell) for cell in row[1:]] for row in table[1:]], vectors, atol=1e-5)


def test_words_in_files(meristem: Meristem, run: Path, loaded: LoadedModel) -> None:
    Path("texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    expected = loaded.embed(TEXTS, level="word")
    meristem("embed", run, "--file", "texts.txt", "--level", "word", "--out", "w.npy")
    np.testing.assert_allclose(
        np.load("w.npy"), np.concatenate([vectors_of_text.vectors for vectors_of_text in expected]), atol=1e-5
    )
    rows = [line.split("\t") for line in Path("w.units.tsv").read_text(encoding="utf-8").splitlines()]
    assert rows[0] == ["text", "word", "start", "end"] and len(rows) == 1 + sum(map(len, expected))
    for text, word, start, end in rows[1:]:
        assert TEXTS[int(text)][int(start) : int(end)] == word


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "--out", "v.csv"], ".npy, .jsonl, .tsv"),
        (["a", "--layer", "top"], "a number or mix"),
        (["a", "--layer", "9"], "0 (embeddings) to 1"),
        (["a", "--level", "word", "--pooling", "last"], "--pooling"),
        (["a", "--file", "b.txt"], "cannot be combined"),
        (["--file", "nosuch.txt"], "nosuch.txt"),
    ],
)
def test_what_is_wrong_is_named(meristem: Meristem, run: Path, words: list[str], message: str) -> None:
    result = meristem("embed", run, *words)
    assert result.code in (1, 2) and message in result.err


def test_what_was_cut_is_said(meristem: Meristem, run: Path) -> None:
    result = meristem("embed", run, "the file " * 60)
    assert result.code == 0 and "tokens were left out" in result.err
    assert meristem("embed", run, pipe=b"\xff\xfe\x00").code == 1
