"""Multiple choice: a row for each choice, and a softmax over the choices of a sample."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

sys.path.append(str(Path(__file__).parent))

from small import FEW_FIRST, Small, close, small

from meristem import api
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, RecipeError
from meristem.interfaces.backbone import Head
from meristem.interfaces.sample import Sample

CASES: list[tuple[str, str, tuple[str, ...], int]] = [
    ("The grass was wet.", "cause", ("It rained all night.", "The sun shone."), 0),
    ("He dropped the glass.", "effect", ("It sang.", "It broke into many small pieces.", "It grew."), 1),
    ("She was late.", "cause", ("Her train stood still for an hour.", "She left early.", "He slept."), 0),
    ("They lit a fire.", "effect", ("The room was warm.",), 0),
    ("The dog barked.", "effect", ("It snowed.", "Nobody heard a thing.", "The cat ran away."), 2),
    ("I read until morning.", "", ("I was wide awake at night.", "I was tired."), 1),
]


def samples() -> list[Sample]:
    return [
        Sample(inputs={"text": text, "question": question, "choices": choices}, gold=gold, location=f"a.jsonl:{n}")
        for n, (text, question, choices, gold) in enumerate(CASES, 1)
    ]


def build_task(backbone: str = "bert", **task_settings: Any) -> Small:
    return small("choice", samples(), backbone, **task_settings)


@pytest.mark.parametrize("backbone", FEW_FIRST)
def test_it_overfits_a_few_choices(backbone: str) -> None:
    it = build_task(backbone)
    assert it.learn(200, until=0.05) < 0.2
    assert it.score() == {"accuracy": 1.0}


@pytest.mark.parametrize("backbone", FEW_FIRST)
def test_padding_and_neighbours_with_more_choices_change_no_prediction(backbone: str) -> None:
    it = build_task(backbone)
    it.learn(3)
    alone = [it.answers([sample])[0] for sample in it.samples]
    assert close(it.answers(), alone)
    assert [len(probs) for probs in alone] == [2, 3, 3, 1, 3, 2]
    assert all(probs.sum() == pytest.approx(1.0) for probs in alone)
    assert any(not np.allclose(probs, 1 / len(probs), atol=1e-3) for probs in alone)


def test_the_loss_is_the_cross_entropy_over_the_choices_of_a_sample() -> None:
    it = build_task()
    it.learn(3)
    answers = it.answers()
    expected = -sum(float(np.log(probs[sample.gold])) for probs, sample in zip(answers, it.samples, strict=True))
    outcome = it.learner("task", it.batch(), {"choice": 1})
    assert outcome.loss_sums["choice"].item() == pytest.approx(expected, rel=1e-4)
    assert outcome.metrics["accuracy"][1].item() == len(CASES)
    assert it.batch().target_counts == {"choice": len(CASES)}


def test_gradients_are_finite_where_samples_have_fewer_choices() -> None:
    it = build_task()
    loss = it.learner("task", it.batch(), {"choice": 6}).loss
    loss.backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in it.learner.parameters())


def test_a_row_is_the_context_and_a_choice() -> None:
    it = build_task("gpt2", max_length=64)
    batch = it.batch()
    assert (len(batch.sample_index), it.task.max_rows_per_sample) == (14, 3)
    assert batch.sample_index.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 4, 4, 5, 5]
    read = [it.tokenizer.decode(row.tolist(), skip_special=False) for row in batch.inputs["tokens"]]
    assert read[0].startswith("<|start|>The grass was wet because<|delimiter|>It rained all night.<|extract|>")
    assert read[2].startswith("<|start|>He dropped the glass so<|delimiter|>It sang.<|extract|>")
    assert read[12].startswith("<|start|>I read until morning.<|delimiter|>I was wide")


def test_questions_are_joined_to_the_context() -> None:
    task = build_task().task
    assert task.parts.encoder.context_text({"text": "A story.", "question": "Who came?"}) == "A story. Who came?"
    assert task.parts.encoder.context_text({"text": "A story.", "question": ""}) == "A story."
    other = build_task(question_templates={"Who came?": "Of {text}, the guest was"}).task
    assert (
        other.parts.encoder.context_text({"text": "a {text} story.", "question": "Who came?"})
        == "Of a {text} story, the guest was"
    )
    assert other.parts.encoder.context_text({"text": "It broke.", "question": "cause"}) == "It broke. cause"


def test_heads_are_those_of_exports() -> None:
    assert build_task("bert").task.heads["choice"] == Head("pooled", (("classes", 1),))
    assert build_task("gpt2").task.heads["choice"] == Head("scores", (("classes", 1),))


@pytest.mark.parametrize("backbone", ["gpt2", "transformer_xl"])
def test_the_language_model_loss_covers_every_choice(backbone: str) -> None:
    it = build_task(backbone, lm_weight=0.5)
    batch = it.batch()
    outcome = it.learner("task", batch, {"choice": 1, "lm": 1})
    model, tokens, present = it.learner.model, batch.inputs["tokens"], batch.inputs["present"]
    logits = model.heads["clm"](model.backbone(tokens=tokens, causal=True).last_hidden_state[:, :-1])
    each = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(len(tokens), -1)
    assert batch.target_counts["lm"] == int(present[:, 1:].sum())
    assert outcome.loss_sums["lm"].item() == pytest.approx((each * present[:, 1:]).sum().item(), rel=1e-4)
    assert outcome.loss.item() == pytest.approx(
        outcome.loss_sums["choice"].item() + 0.5 * outcome.loss_sums["lm"].item(), rel=1e-5
    )


def test_a_long_context_is_truncated_at_its_beginning_and_counted() -> None:
    it = build_task("gpt2", max_length=24)
    long = Sample(inputs={"text": "word " * 60 + "the end.", "question": "cause", "choices": ("It rained.", "No.")})
    (piece,) = it.task.encode_samples([long])
    context, choice = piece.features["pairs"][0]
    assert it.tokenizer.decode(context.ids.tolist()).endswith("the end because")
    assert it.tokenizer.decode(choice.ids.tolist()) == "It rained."
    whole = len(it.tokenizer.encode(it.task.parts.encoder.context_text(long.inputs)).ids)
    sizes = [len(it.tokenizer.encode(choice).ids) for choice in long.inputs["choices"]]
    assert piece.num_truncated == whole + max(sizes) - it.task.template.max_text_tokens(2)
    assert len(it.answers([long])[0]) == 2


def test_input_and_output_formats() -> None:
    it = build_task()
    sample = it.task.parse_input(
        {"text": "The grass was wet.", "question": "cause", "choices": ["It rained.", "It shone."]}
    )
    shown = it.task.format_output(np.array([0.25, 0.75], np.float32), sample)
    assert shown == {"label": 1, "choice": "It shone.", "score": 0.75}
    for wrong in ("text", {"text": "a"}, {"text": "a", "choices": "b"}):
        with pytest.raises(MeristemError, match="task choice takes a text and its choices"):
            it.task.parse_input(wrong)
    with pytest.raises(MeristemError, match="there are no choices"):
        it.task.parse_input({"text": "a", "choices": []})
    (command,) = it.task.example_commands("runs/x", it.samples[5])
    assert command.endswith("'I read until morning.' --choices 'I was wide awake at night.' --choices 'I was tired.'")
    assert (
        it.task.describe_sample(it.samples[5])
        == "I read until morning.  →  I was wide awake at night. | [I was tired.]"
    )


def test_metrics_and_mistakes() -> None:
    it = build_task()
    right = [np.eye(len(sample.inputs["choices"]), dtype=np.float32)[sample.gold] for sample in it.samples]
    wrong = [*right[:4], np.array([0.1, 0.7, 0.2], np.float32), np.array([0.9, 0.1], np.float32)]
    assert it.task.metrics.compute(wrong, it.samples) == {"accuracy": pytest.approx(4 / 6)}
    again = it.task.metrics.resampler(wrong, it.samples)
    assert again(np.arange(6)) == it.task.metrics.compute(wrong, it.samples)
    assert again(np.array([4, 4, 5])) == {"accuracy": 0.0}
    first, second = it.task.metrics.mistakes(wrong, it.samples)
    assert (first.location, first.gold, first.prediction) == ("a.jsonl:6", "I was tired.", "I was wide awake at night.")
    assert (second.input_text, second.confidence) == ("The dog barked so", pytest.approx(0.7))


def test_a_gold_out_of_range_is_reported() -> None:
    bad = Sample(inputs={"text": "a", "question": "", "choices": ("b", "c")}, gold=2, location="a.jsonl:9")
    with pytest.raises(MeristemError, match=r"a\.jsonl:9: the correct choice is 2, but choices are 0 to 1"):
        build_task().task.encode_samples([bad])


def test_a_captioner_is_rejected_with_the_families_that_can() -> None:
    overrides = {"task": "choice", "model": {"family": "captioner"}, "data.train": "nowhere.tsv"}
    with pytest.raises(RecipeError, match=r"task choice needs .* captioner is .*support it: bert, .*xlnet"):
        api.finetune("classification", overrides, console=Console(quiet=True))


def test_an_interrupted_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    rows = [
        {"premise": t, "question": q, "choice1": c[0], "choice2": c[-1], "label": int(g > 0)} for t, q, c, g in CASES
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def train(out: str, steps: int) -> dict[str, Any]:
        overrides = {
            "task": {"name": "choice", "lm_weight": 0.5},
            "model": {"family": "gpt2", "max_length": 64, "dropout": 0.1, "layers": 1, "hidden_size": 32, "heads": 2},
            "tokenizer": {"kind": "bpe", "vocab_size": 300},
            "data": {"train": str(file), "held_out": 0},
            "train": {"steps": steps, "schedule": "constant", "batch_samples": 4, "threads": 1, "warmup": 0},
        }  # fmt: skip
        api.finetune("classification", overrides, out=tmp_path / out, console=Console(quiet=True))
        checkpoint = load_checkpoint(RunFolder.open(tmp_path / out).checkpoints)
        assert checkpoint is not None
        return {"step": torch.tensor(checkpoint.snapshot.step), **checkpoint.snapshot.model}

    whole = train("whole", 5)
    train("parted", 2)
    parted = train("parted", 5)
    assert int(whole["step"]) == 5
    assert all(torch.equal(value, parted[name]) for name, value in whole.items())
    prediction = api.load(tmp_path / "whole").predict(
        {"text": "He fell.", "question": "effect", "choices": ["He cried.", "No."]}
    )
    assert prediction["choice"] in ("He cried.", "No.")
