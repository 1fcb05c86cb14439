"""Initial weights from another run: all of them, only its embeddings, or with a new tokenizer."""

from __future__ import annotations

import re

import pytest
import torch
from rich.console import Console
from run_factory import RunFactory

from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.config.errors import MeristemError
from meristem.learning.build import build_learner
from meristem.training.data.pretraining_data import load_pretraining_data
from meristem.training.init.initial_weights import load_start_weights

STILL = "train.learning_rate=1e-12"  # a run that learns nothing shows what it began with


def weights(run_factory: RunFactory, run: str, step: int | None = None) -> dict[str, torch.Tensor]:
    loaded = load_checkpoint(run_factory.root / run / "checkpoints", step=step)
    assert loaded is not None
    return loaded.snapshot.model


def test_starting_from_a_run_starts_with_its_final_weights(run_factory: RunFactory) -> None:
    first = run_factory.train("train.steps=40", "train.learning_rate=3e-3", run="first")
    result = run_factory.train("from=first", "train.steps=1", STILL, run="second")
    fresh = run_factory.train("train.steps=1", STILL, run="third")
    assert result.metrics["loss"] == pytest.approx(first.metrics["loss"], abs=1e-6)
    assert fresh.metrics["loss"] > first.metrics["loss"] + 0.5
    assert re.search(r"from first: loaded: (\d+) of \1 tensors", run_factory.output.getvalue())
    assert (run_factory.root / "first/tokenizer.json").read_bytes() == (
        run_factory.root / "second/tokenizer.json"
    ).read_bytes()


def test_continued_pretraining_on_other_text_keeps_the_tokenizer(run_factory: RunFactory) -> None:
    run_factory.train(run="first")
    run_factory.train(
        "from=first", "corpus.source=builtin:microworld-en?size=30&seed=9", "tokenizer.vocab_size=290", run="second"
    )
    assert (
        load_run(run_factory.root / "second").tokenizer.digest == load_run(run_factory.root / "first").tokenizer.digest
    )


def test_resuming_a_run_with_initial_weights_does_not_load_them_again(run_factory: RunFactory) -> None:
    run_factory.train(run="first")
    settings = ("from=first", "train.schedule=constant", "train.warmup=0")
    run_factory.train("train.steps=3", *settings, run="second")
    run_factory.train("train.steps=6", *settings, run="second")
    run_factory.train("train.steps=6", *settings, run="at-once")
    assert run_factory.losses("second") == run_factory.losses("at-once")


def test_only_the_embeddings(run_factory: RunFactory) -> None:
    """From a BERT into a GPT-2: they share no layer, and half of a vocabulary."""
    run_factory.train("train.steps=10", "tokenizer.kind=bpe", family="bert", run="bert")
    other = "corpus.source=builtin:microworld-en?size=30&seed=5"
    run_factory.train("from.path=bert", "from.load=embeddings", "train.steps=1", STILL, other, run="gpt2")
    run_factory.train("train.steps=1", STILL, other, run="fresh")
    old, new = load_run(run_factory.root / "bert"), load_run(run_factory.root / "gpt2")
    assert old.tokenizer.digest != new.tokenizer.digest
    _assert_shared_rows_copied(old, new)
    fresh = weights(run_factory, "fresh")
    size = new.tokenizer.vocab_size
    others = {name: tensor for name, tensor in weights(run_factory, "gpt2").items() if tensor.shape[:1] != (size,)}
    assert all(torch.allclose(tensor, fresh[name], atol=1e-9) for name, tensor in others.items())
    assert "everything else is newly initialized" in run_factory.output.getvalue()


def test_all_weights_with_a_new_tokenizer(run_factory: RunFactory) -> None:
    tables = ("model.layers=2", "model.value_embeddings=1")
    run_factory.train("train.steps=10", *tables, run="first")
    own_tokenizer = ("from.path=first", "from.tokenizer=own", "tokenizer.vocab_size=280")
    run_factory.train(*own_tokenizer, *tables, "train.steps=1", STILL, run="second")
    old, new = load_run(run_factory.root / "first"), load_run(run_factory.root / "second")
    assert new.tokenizer.vocab_size < old.tokenizer.vocab_size
    _assert_shared_rows_copied(old, new)
    theirs = weights(run_factory, "first")
    layers = {name: tensor for name, tensor in weights(run_factory, "second").items() if "layers" in name}
    assert layers and all(torch.allclose(tensor, theirs[name], atol=1e-9) for name, tensor in layers.items())


def _assert_shared_rows_copied(old: LoadedRun, new: LoadedRun) -> None:
    tables_of_runs = [
        [module.weight for module in run.learner.model.backbone.modules() if _has_rows_of_tokens(module, run)]
        for run in (old, new)
    ]
    shared = [
        (number, old_id)
        for number in range(new.tokenizer.vocab_size)
        if (old_id := old.tokenizer.token_to_id(new.tokenizer.id_to_token(number))) is not None
    ]
    new_rows, old_rows = torch.tensor(shared).unbind(1)
    assert 100 < len(shared) < max(new.tokenizer.vocab_size, old.tokenizer.vocab_size)
    for theirs, new_weight in zip(*tables_of_runs, strict=True):
        torch.testing.assert_close(new_weight[new_rows], theirs[old_rows], atol=1e-9, rtol=0)


def _has_rows_of_tokens(module: torch.nn.Module, run: LoadedRun) -> bool:
    return isinstance(module, torch.nn.Embedding) and module.num_embeddings == run.tokenizer.vocab_size


def test_in_frozen_first_steps_only_the_embeddings_are_trained(run_factory: RunFactory) -> None:
    run_factory.train(run="first")
    settings = (
        "from.path=first",
        "from.embeddings_only_steps=4",
        "train.save_every=2",
        "train.keep_checkpoints=9",
        "train.steps=8",
    )
    run_factory.train(*settings, run="second")
    before, frozen, thawed = (
        weights(run_factory, "first"),
        weights(run_factory, "second", 4),
        weights(run_factory, "second", 8),
    )
    embedding = load_run(run_factory.root / "second").learner.model.backbone.embedding().weight
    moved = {name for name in before if not before[name].equal(frozen[name])}
    assert moved
    assert all(before[name].shape == embedding.shape for name in moved), "something else than the embeddings moved"
    assert {name for name in before if not frozen[name].equal(thawed[name])} == set(before)


def test_frozen_steps_end_at_the_same_step_after_an_interruption(run_factory: RunFactory) -> None:
    settings = ("train.schedule=constant", "train.warmup=0", "from.embeddings_only_steps=4", "from.path=first")
    run_factory.train(run="first")
    run_factory.train("train.steps=2", *settings, run="second")
    run_factory.train("train.steps=8", *settings, run="second")
    run_factory.train("train.steps=8", *settings, run="at-once")
    assert run_factory.losses("second") == run_factory.losses("at-once")


def test_embeddings_of_another_width_are_refused_with_the_setting_that_helps(run_factory: RunFactory) -> None:
    run_factory.train(run="first")
    with pytest.raises(
        MeristemError, match=r"embeddings have width 32 in .*first and 64 here; set model\.hidden_size=32"
    ):
        run_factory.train("from.path=first", "from.load=embeddings", "model.hidden_size=64", run="second")


def test_a_run_that_is_not_there(run_factory: RunFactory) -> None:
    run_factory.train(run="first")
    with pytest.raises(MeristemError, match=r"frist: no such run, did you mean first\?"):
        run_factory.train("from=frist", run="second")


def test_says_what_did_not_fit(run_factory: RunFactory) -> None:
    run_factory.train(run="first")
    other = load_run(run_factory.root / "first")
    recipe = run_factory.recipe("gpt2", "model.layers=2", "from=first")
    tokenizer = load_pretraining_data(recipe, None, Console(quiet=True)).tokenizer
    start_weights = load_start_weights(build_learner(recipe, tokenizer).model, tokenizer, other)
    assert "newly initialized:" in start_weights
    assert "layers.1" in start_weights
