"""Linear probing: one classifier per layer of a frozen model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from rich.console import Console

sys.path.append(str(Path(__file__).parent))

from small import BACKBONES, Small, small

from meristem import api
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, RecipeError
from meristem.data.text_units import join_words
from meristem.evaluation.task_predictions import evaluate_predictions
from meristem.interfaces.sample import Sample
from meristem.tasks.components.layer_probe import ProbePrediction
from meristem.tasks.components.tag_predictions import TagPrediction

POS = [
    ("the old gardener sleeps", "DET ADJ NOUN VERB"),
    ("a sailor sings", "DET NOUN VERB"),
    ("the sailor sleeps", "DET NOUN VERB"),
    ("a gardener sings loud", "DET NOUN VERB ADV"),
]
SENSES = [
    ("the bank of the river", "_ river _ _ _"),
    ("a bank with money", "_ money _ _"),
    ("the river has a bank", "_ _ _ _ river"),
    ("money in the bank", "_ _ _ money"),
]
CARRIERS = ["bert", "gpt2", "elmo", "xlnet", "transformer"]


def samples(examples: list[tuple[str, str]]) -> list[Sample]:
    out = []
    for number, (text, tags) in enumerate(examples, 1):
        words = tuple(text.split())
        joint, offsets = join_words(words)
        inputs = {"words": words, "text": joint, "offsets": offsets}
        out.append(Sample(inputs=inputs, gold=tuple(tags.split()), location=f"a.conll:{number}"))
    return out


def build_task(backbone: str = "bert", examples: list[tuple[str, str]] = POS, **more: Any) -> Small:
    return small("probe", samples(examples), backbone, **more)


@pytest.mark.parametrize("backbone", CARRIERS)
def test_every_layer_learns_and_the_model_does_not(backbone: str) -> None:
    it = build_task(backbone)
    backbone_ = it.learner.model.backbone
    before = {name: value.clone() for name, value in backbone_.state_dict().items()}
    it.learner.train()
    it.learn(80, 3e-2)
    assert all(torch.equal(before[name], value) for name, value in backbone_.state_dict().items())
    assert all(parameter.grad is None for parameter in backbone_.parameters())
    assert backbone_.training
    metrics = it.score()
    assert list(metrics) == ["accuracy", "best_layer", "layer_0_accuracy", "layer_1_accuracy", "layer_2_accuracy"]
    assert min(metrics[f"layer_{number}_accuracy"] for number in range(3)) == metrics["accuracy"] == 1.0


def test_the_model_is_in_evaluation_mode() -> None:
    it = build_task()
    it.learner.train()
    it.learner.model.backbone.embed.dropout = 0.5  # type: ignore[union-attr, assignment]  # BERT's own
    layers = [it.task.encode(it.learner.model, it.batch()).layers for _ in range(2)]
    assert all(torch.equal(first, second) for first, second in zip(*layers, strict=True))
    awake = it.learner.model.backbone(**it.batch().inputs, want=("layers",)).layers
    assert not torch.equal(awake[0], layers[0][0])


def test_layers_have_separate_classifiers() -> None:
    """Before a model has looked around, a word's sense cannot be seen; afterwards it can."""
    it = build_task(examples=SENSES)
    assert it.recipe.task.labels == ("money", "river")
    assert it.batch().target_counts["probe"] == 4
    it.learn(120, 3e-2)
    metrics = it.score()
    assert metrics["layer_0_accuracy"] < 1.0  # all that differs there is where the word stands
    assert metrics["accuracy"] == 1.0
    assert metrics["best_layer"] > 0


def test_elmos_first_layer_is_its_words() -> None:
    it = build_task("elmo", examples=SENSES)
    layers = it.task.encode(it.learner.model, it.batch()).layers
    assert len(layers) == 3
    bank = it.batch().targets["read"]["at"][[1, 6]]  # the same letters
    flat = layers[0].flatten(0, 1)[bank]
    assert torch.allclose(flat[0], flat[1], atol=1e-6)
    assert not torch.allclose(*layers[1].flatten(0, 1)[bank], atol=1e-3)


@pytest.mark.parametrize("on", ["words", "text"])
@pytest.mark.parametrize("backbone", CARRIERS)
def test_padding_and_batches_change_no_prediction(backbone: str, on: str) -> None:
    probe_samples = samples(POS)
    if on == "text":
        probe_samples = [
            Sample(inputs={"text": prediction.inputs["text"]}, gold="ab"[n % 2], location="x")
            for n, prediction in enumerate(probe_samples)
        ]
    it = small("probe", probe_samples, backbone, level=on)
    it.learn(3, 1e-2)
    for prediction, sample in zip(it.answers(), probe_samples, strict=True):
        (alone,) = it.answers([sample])
        for layer, other in zip(prediction.layers, alone.layers, strict=True):
            assert layer.tags == other.tags
            assert np.allclose(layer.scores, other.scores, rtol=0, atol=1e-5)


def test_texts_are_probed_by_their_mean_state() -> None:
    labelled_texts = [
        Sample(inputs={"text": text}, gold=label, location=f"a.tsv:{n}")
        for n, (text, label) in enumerate(
            [("good soup", "1"), ("bad bread", "0"), ("good bread", "1"), ("bad soup", "0")]
        )
    ]
    it = small("probe", labelled_texts, level="text")
    assert (it.task.sample_type, type(it.task).sample_type_for(it.recipe.task)) == ("text", "text")
    it.learn(50, 3e-2)
    assert it.score()["layer_0_accuracy"] == 1.0
    shown = it.task.format_output(it.answers()[0], labelled_texts[0])
    assert [(layer["layer"], layer["label"]) for layer in shown] == [(0, "1"), (1, "1"), (2, "1")]
    assert it.answers([it.task.parse_input("good good")])[0].layers[0].tags == ("1",)
    with pytest.raises(MeristemError, match=r"x:1: a probe predicts a single label"):
        small("probe", [Sample(inputs={"text": "a"}, gold=("a", "b"), location="x:1")], level="text")


def test_evaluation() -> None:
    it = build_task(examples=SENSES)
    right, wrong = ({"tags": ("_", sense), "scores": (0.0, 0.9)} for sense in ("river", "money"))
    some = samples([("the bank", "_ river"), ("a bank", "_ river"), ("my bank", "_ money")])
    predictions = [ProbePrediction(layers=(TagPrediction(**wrong), TagPrediction(**right))) for _ in some]
    judged = evaluate_predictions(it.task, predictions, some)
    assert judged.metrics == {
        "accuracy": pytest.approx(2 / 3), "best_layer": 1.0,
        "layer_0_accuracy": pytest.approx(1 / 3), "layer_1_accuracy": pytest.approx(2 / 3)}  # fmt: skip
    assert it.task.metrics.resampler(predictions, some)(np.array([2, 2, 0]))["best_layer"] == 0.0
    assert judged.confusion is not None
    assert judged.confusion.matrix.sum() == 3
    assert [(mistake.input_text, mistake.gold, mistake.prediction) for mistake in judged.mistakes] == [
        ("my [bank]", "money", "river")
    ]
    (strange,) = it.task.metrics.unseen_labels(samples([("a bank", "_ seat")]))
    assert "'seat' does not occur in the training data" in strange
    shown = it.task.format_output(predictions[0], some[0])
    assert (shown[1]["word"], shown[1]["start"], [mistake["label"] for mistake in shown[1]["layers"]]) == (
        "bank", 4, ["money", "river"])  # fmt: skip


def test_settings_a_probe_does_not_have_are_rejected() -> None:
    with pytest.raises(RecipeError, match="a probe uses the layers unchanged"):
        build_task(scalar_mix=True)
    with pytest.raises(MeristemError, match="the rnn family has no layer outputs to probe"):
        build_task("rnn")


def test_an_interrupted_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    file = tmp_path / "train.conll"
    blocks = ["\n".join(map("\t".join, zip(text.split(), tags.split(), strict=True))) for text, tags in POS * 5]
    file.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    recipe = tmp_path / "probe.yaml"
    recipe.write_text(yaml.safe_dump({
        "task": {"name": "probe"},
        "data": {"train": str(file), "held_out": 0.2},
        "tokenizer": {"kind": "wordpiece", "vocab_size": 300},
        "model": {"family": "bert", "max_length": 16, "dropout": 0.1, **BACKBONES["bert"]},
        "train": {
            "schedule": "constant", "batch_samples": 4, "threads": 1, "evaluate_every": 3, "learning_rate": 1e-3,
            "optimizer": "muon",
        },
    }))  # fmt: skip

    def train(out: str, steps: int) -> dict[str, Any]:
        api.finetune(recipe, {"train.steps": steps}, out=tmp_path / out, console=Console(quiet=True))
        checkpoint = load_checkpoint(RunFolder.open(tmp_path / out).checkpoints)
        assert checkpoint is not None
        return {"step": checkpoint.snapshot.step, **checkpoint.snapshot.model}

    whole = train("whole", 5)
    begun = train("parted", 3)
    parted = train("parted", 5)
    assert whole["step"] == parted["step"] == 5
    assert all(torch.equal(value, parted[name]) for name, value in whole.items() if name != "step")
    frozen = [name for name in whole if name.startswith("backbone.")]
    assert frozen
    assert all(torch.equal(begun[name], whole[name]) for name in frozen)
    shown = api.load(tmp_path / "whole").predict("a gardener sleeps")
    assert [word["word"] for word in shown] == ["a", "gardener", "sleeps"]
