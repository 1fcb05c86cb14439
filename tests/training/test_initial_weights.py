"""Initial weights from another run: all of them, only its embeddings, or with a new tokenizer."""

from __future__ import annotations

import re

import pytest
import torch
from place import Place
from rich.console import Console

from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.config.errors import MeristemError
from meristem.learning.build import build_learner
from meristem.training.data.pretraining_data import load_pretraining_data
from meristem.training.init.initial_weights import load_start_weights

STILL = "train.learning_rate=1e-12"  # a run that learns nothing shows what it began with


def weights(place: Place, run: str, step: int | None = None) -> dict[str, torch.Tensor]:
    loaded = load_checkpoint(place.root / run / "checkpoints", step=step)
    assert loaded is not None
    return loaded.snapshot.model


def test_starting_from_a_run_starts_with_its_final_weights(place: Place) -> None:
    first = place.train("train.steps=40", "train.learning_rate=3e-3", run="first")
    begun = place.train("from=first", "train.steps=1", STILL, run="second")
    fresh = place.train("train.steps=1", STILL, run="third")
    assert begun.metrics["loss"] == pytest.approx(first.metrics["loss"], abs=1e-6)
    assert fresh.metrics["loss"] > first.metrics["loss"] + 0.5
    assert re.search(r"from first: loaded: (\d+) of \1 tensors", place.said.getvalue())
    assert (place.root / "first/tokenizer.json").read_bytes() == (place.root / "second/tokenizer.json").read_bytes()


def test_continued_pretraining_on_other_text_keeps_the_tokenizer(place: Place) -> None:
    place.train(run="first")
    place.train(
        "from=first", "corpus.source=builtin:microworld-en?size=30&seed=9", "tokenizer.vocab_size=290", run="second"
    )
    assert load_run(place.root / "second").tokenizer.digest == load_run(place.root / "first").tokenizer.digest


def test_resuming_a_run_with_initial_weights_does_not_load_them_again(place: Place) -> None:
    place.train(run="first")
    settings = ("from=first", "train.schedule=constant", "train.warmup=0")
    place.train("train.steps=3", *settings, run="second")
    place.train("train.steps=6", *settings, run="second")
    place.train("train.steps=6", *settings, run="at-once")
    assert place.losses("second") == place.losses("at-once")


def test_only_the_embeddings(place: Place) -> None:
    """From a BERT into a GPT-2: they share no layer, and half of a vocabulary."""
    place.train("train.steps=10", "tokenizer.kind=bpe", family="bert", run="bert")
    other = "corpus.source=builtin:microworld-en?size=30&seed=5"
    place.train("from.path=bert", "from.load=embeddings", "train.steps=1", STILL, other, run="gpt2")
    place.train("train.steps=1", STILL, other, run="fresh")
    old, new = load_run(place.root / "bert"), load_run(place.root / "gpt2")
    assert old.tokenizer.digest != new.tokenizer.digest
    _assert_shared_rows_copied(old, new)
    fresh = weights(place, "fresh")
    size = new.tokenizer.vocab_size
    others = {name: tensor for name, tensor in weights(place, "gpt2").items() if tensor.shape[:1] != (size,)}
    assert all(torch.allclose(tensor, fresh[name], atol=1e-9) for name, tensor in others.items())
    assert "everything else is newly initialized" in place.said.getvalue()


def test_all_weights_with_a_new_tokenizer(place: Place) -> None:
    place.train("train.steps=10", run="first")
    place.train(
        "from.path=first", "from.tokenizer=own", "train.steps=1", STILL, "tokenizer.vocab_size=280", run="second"
    )
    old, new = load_run(place.root / "first"), load_run(place.root / "second")
    assert new.tokenizer.vocab_size < old.tokenizer.vocab_size
    _assert_shared_rows_copied(old, new)
    theirs = weights(place, "first")
    layers = {name: tensor for name, tensor in weights(place, "second").items() if "layers" in name}
    assert layers and all(torch.allclose(tensor, theirs[name], atol=1e-9) for name, tensor in layers.items())


def _assert_shared_rows_copied(old: LoadedRun, new: LoadedRun) -> None:
    theirs, mine = (one.learner.model.backbone.embedding().weight for one in (old, new))
    shared = [
        (number, found)
        for number in range(new.tokenizer.vocab_size)
        if (found := old.tokenizer.token_to_id(new.tokenizer.id_to_token(number))) is not None
    ]
    here, there = torch.tensor(shared).unbind(1)
    assert 100 < len(shared) < max(new.tokenizer.vocab_size, old.tokenizer.vocab_size)
    torch.testing.assert_close(mine[here], theirs[there], atol=1e-9, rtol=0)


def test_in_frozen_first_steps_only_the_embeddings_are_trained(place: Place) -> None:
    place.train(run="first")
    settings = (
        "from.path=first",
        "from.embeddings_only_steps=4",
        "train.save_every=2",
        "train.keep_checkpoints=9",
        "train.steps=8",
    )
    place.train(*settings, run="second")
    before, frozen, thawed = weights(place, "first"), weights(place, "second", 4), weights(place, "second", 8)
    embedding = load_run(place.root / "second").learner.model.backbone.embedding().weight
    moved = {name for name in before if not before[name].equal(frozen[name])}
    assert moved
    assert all(before[name].shape == embedding.shape for name in moved), "something else than the embeddings moved"
    assert {name for name in before if not frozen[name].equal(thawed[name])} == set(before)


def test_frozen_steps_end_at_the_same_step_after_an_interruption(place: Place) -> None:
    settings = ("train.schedule=constant", "train.warmup=0", "from.embeddings_only_steps=4", "from.path=first")
    place.train(run="first")
    place.train("train.steps=2", *settings, run="second")
    place.train("train.steps=8", *settings, run="second")
    place.train("train.steps=8", *settings, run="at-once")
    assert place.losses("second") == place.losses("at-once")


def test_embeddings_of_another_width_are_refused_with_the_setting_that_helps(place: Place) -> None:
    place.train(run="first")
    with pytest.raises(
        MeristemError, match=r"embeddings have width 32 in .*first and 64 here; set model\.hidden_size=32"
    ):
        place.train("from.path=first", "from.load=embeddings", "model.hidden_size=64", run="second")


def test_a_run_that_is_not_there(place: Place) -> None:
    place.train(run="first")
    with pytest.raises(MeristemError, match=r"frist: no such run, did you mean first\?"):
        place.train("from=frist", run="second")


def test_says_what_did_not_fit(place: Place) -> None:
    place.train(run="first")
    other = load_run(place.root / "first")
    recipe = place.recipe("gpt2", "model.layers=2", "from=first")
    tokenizer = load_pretraining_data(recipe, None, Console(quiet=True)).tokenizer
    start_weights = load_start_weights(build_learner(recipe, tokenizer).model, tokenizer, other)
    assert "newly initialized:" in start_weights
    assert "layers.1" in start_weights
