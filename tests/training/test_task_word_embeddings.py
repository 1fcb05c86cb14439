"""[x; ELMo]: a task whose BiLSTM reads word embeddings beside a frozen ELMo is saved, resumed and used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rich.console import Console
from vector_files import glove, random_vectors

import meristem
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("small_peak")
QUIET = Console(quiet=True)
ELMO = {
    "model.layers": 1,
    "model.hidden_size": 16,
    "model.cell_size": 24,
    "model.max_length": 32,
    "model.char_filters": [[1, 8], [2, 8]],
    "tokenizer.vocab_size": 400,
    "train.batch_tokens": 128,
    "train.steps": 2,
    "corpus.limit": 40,
    "train.evaluate_tokens": 128,
}
TASK = {
    "task.network": "recurrent",
    "task.network_hidden_size": 16,
    "task.word_embedding_size": 8,
    "from.train": "head",
    "data.train": "builtin:microworld-entities?size=24&seed=1",
    "data.validation": "builtin:microworld-entities?size=8&seed=2",
    "train.batch_samples": 8,
    "train.evaluate_every": 4,
    "train.save_every": 2,
    "train.schedule": "constant",  # the others follow the whole budget
    "train.warmup": 0,
}


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "elmo"
    return meristem.pretrain("elmo-mini", ELMO, source="builtin:microworld-en", out=out, console=QUIET).run


def _taught(elmo: Path, out: Path, steps: int, **overrides: object) -> dict[str, torch.Tensor]:
    settings = {**TASK, "from": str(elmo), "train.steps": steps, **overrides}
    meristem.finetune("tagging", settings, out=out, console=QUIET)
    return _weights(out)


def _weights(run: Path) -> dict[str, torch.Tensor]:
    loaded = load_checkpoint(RunFolder.open(run).checkpoints)
    assert loaded is not None
    return loaded.snapshot.model


def test_saved_resumed_and_used(elmo: Path, tmp_path: Path) -> None:
    uninterrupted = _taught(elmo, tmp_path / "unbroken", 4)
    broken = _taught(elmo, tmp_path / "broken", 2)
    resumed = _taught(elmo, tmp_path / "broken", 4)
    assert all(torch.equal(uninterrupted[name], resumed[name]) for name in uninterrupted)
    embedding_name = "heads.word_embedding.weight"
    assert embedding_name in uninterrupted and not torch.equal(
        broken[embedding_name], resumed[embedding_name]
    )  # it learns
    before = _weights(elmo)
    backbone_names = [name for name in uninterrupted if name.startswith("backbone.")]
    assert backbone_names and all(
        torch.equal(before[name], uninterrupted[name]) for name in backbone_names
    )  # ELMo does not
    run = meristem.load(tmp_path / "broken")
    assert isinstance(run.predict("Trenor cooked in Mugan."), list)
    mixed, plain = (run.embed("the old garden", layer=layer) for layer in ("mix", None))  # type: ignore[arg-type]
    assert mixed.shape == plain.shape == (1, 32) and not torch.equal(mixed, plain)


def test_word_vectors_initialize_the_tasks_own_embeddings(elmo: Path, tmp_path: Path) -> None:
    words = {"the": random_vectors()["the"], "in": random_vectors()["garden"], "and": -random_vectors()["the"]}
    file = glove(tmp_path / "glove.txt", words)
    weights = _taught(elmo, tmp_path / "vectors", 1, **{"from.word_vectors": str(file), "train.learning_rate": 1e-9})
    tokenizer = meristem.load(tmp_path / "vectors").tokenizer
    the, and_ = (weights["heads.word_embedding.weight"][tokenizer.token_to_id(word)] for word in ("the", "and"))
    centre = (the + and_) / 2  # opposite vectors stay opposite round the mean of all, whatever the projection
    assert torch.nn.functional.cosine_similarity(the - centre, and_ - centre, dim=0) < -0.99
    log = (tmp_path / "vectors" / "log.txt").read_text(encoding="utf-8")
    assert "word vectors: 3 words of 32 dimensions" in log
