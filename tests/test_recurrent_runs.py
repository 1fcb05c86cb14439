"""ELMo and the recurrent translator as a person meets them: trained from a recipe, loaded, asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

import meristem
from meristem.config.errors import MeristemError
from meristem.training import budget

SMALL = {
    "model.layers": 1,
    "model.hidden_size": 16,
    "model.max_length": 24,
    "tokenizer.vocab_size": 400,
    "train.batch_tokens": 192,
    "train.steps": 8,
    "train.threads": 1,
    "corpus.processes": 1,
    "corpus.validation": 0.1,
    "corpus.test": 0.1,
    "train.optimizer": "adamw",
}
LETTERS = {"model.cell_size": 24, "model.char_filters": [[1, 8], [2, 8]], "model.char_embedding_size": 4}


@pytest.fixture(autouse=True, scope="module")
def _small_peak() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        yield


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return meristem.pretrain(
        "elmo-mini",
        {**SMALL, **LETTERS, "objective.sampled_softmax": 20},
        source="builtin:microworld-en?size=40",
        out=tmp_path_factory.mktemp("runs") / "elmo",
        console=Console(quiet=True),
    ).run


def test_words_never_seen_have_vectors(elmo: Path) -> None:
    loaded = meristem.load(elmo)
    texts = ["Grelbons walk.", "Grelbonz walk.", "Grelbons walk."]
    ids = [loaded.tokenizer.encode(text).ids.tolist() for text in texts]
    assert ids[0] == ids[1] and loaded.tokenizer.unknown in ids[0]  # to the vocabulary they are the same
    first_vector, other, same_word_vector = loaded.embed(texts)
    assert (
        first_vector.shape == (32,)
        and torch.equal(first_vector, same_word_vector)
        and not torch.allclose(first_vector, other, atol=1e-5)
    )
    assert loaded.embed(["", "one " * 70]).isfinite().all()  # longer than any row it was trained on


def test_both_directions_are_measured_exactly(elmo: Path) -> None:
    metrics = meristem.load(elmo).evaluate(limit=4)["metrics"]
    assert metrics["loss"] == pytest.approx((metrics["forward"] + metrics["backward"]) / 2)
    assert {"forward.top1", "backward.top5"} <= metrics.keys()


def test_a_run_that_was_fine_tuned_keeps_no_language_model(elmo: Path, tmp_path: Path) -> None:
    """What it says instead is how to ask it."""
    rows = [f"day {number} was {label}\t{label}" for number in range(12) for label in ("good", "bad")]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *rows]), encoding="utf-8")
    files = {f"data.{split}": str(tmp_path / "train.tsv") for split in ("train", "validation", "test")}
    run = meristem.finetune(
        "classification",
        {"from": str(elmo), "train.steps": 1, "train.batch_samples": 8, "train.evaluate_every": 1, **files},
        out=tmp_path / "task",
        console=Console(quiet=True),
    ).run
    for verb in ("generate", "score", "fill"):
        with pytest.raises(MeristemError, match=rf"{verb}: this run was trained for .*classification.*predict"):
            getattr(meristem.load(run), verb)("A [MASK] text")


def test_a_translator_writes(tmp_path: Path) -> None:
    run = meristem.pretrain(
        "rnn-mini",
        {**SMALL, "train.steps": 4},
        source="builtin:microworld-pairs?size=40",
        out=tmp_path / "rnn",
        console=Console(quiet=True),
    ).run
    loaded = meristem.load(run)
    ((greedy,), (second_completion,)) = loaded.generate(
        ["The dog sleeps.", "Anna walks to the old house."], greedy=True, max_tokens=6
    )
    assert loaded.generate("The dog sleeps.", greedy=True, max_tokens=6)[0][0].text == greedy.text
    assert isinstance(second_completion.text, str)
    assert len(loaded.generate("The dog sleeps.", beams=3, max_tokens=5)[0]) == 1
    assert loaded.embed(["The dog sleeps.", "Anna walks."]).shape == (2, 16)
