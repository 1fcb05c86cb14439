"""Choice: a row for each answer, one softmax over a sample's own, whatever their number."""

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
from meristem.batch import Head
from meristem.checkpoint.load import load
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError, RecipeError
from meristem.task import Sample

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
        Sample(given={"text": text, "question": question, "choices": choices}, gold=gold, place=f"a.jsonl:{n}")
        for n, (text, question, choices, gold) in enumerate(CASES, 1)
    ]


def made(backbone: str = "bert", **told: Any) -> Small:
    return small("choice", samples(), backbone, **told)


@pytest.mark.parametrize("backbone", FEW_FIRST)
def test_it_learns_a_few_choices_by_heart(backbone: str) -> None:
    it = made(backbone)
    assert it.learn(200, until=0.05) < 0.2
    assert it.score() == {"accuracy": 1.0}


@pytest.mark.parametrize("backbone", FEW_FIRST)
def test_padding_and_neighbours_with_more_choices_change_no_answer(backbone: str) -> None:
    it = made(backbone)
    it.learn(3)
    alone = [it.answers([sample])[0] for sample in it.samples]
    assert close(it.answers(), alone)
    assert [len(one) for one in alone] == [2, 3, 3, 1, 3, 2]
    assert all(one.sum() == pytest.approx(1.0) for one in alone)
    assert any(not np.allclose(one, 1 / len(one), atol=1e-3) for one in alone)


def test_the_loss_is_the_right_choice_among_its_own() -> None:
    it = made()
    it.learn(3)
    answers = it.answers()
    expected = -sum(float(np.log(one[sample.gold])) for one, sample in zip(answers, it.samples, strict=True))
    outcome = it.learner("task", it.batch(), {"choice": 1})
    assert outcome.sums["choice"].item() == pytest.approx(expected, rel=1e-4)
    assert outcome.metrics["accuracy"][1].item() == len(CASES)
    assert it.batch().counts == {"choice": len(CASES)}


def test_gradients_are_finite_where_samples_have_fewer_choices() -> None:
    it = made()
    loss = it.learner("task", it.batch(), {"choice": 6}).loss
    loss.backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in it.learner.parameters())


def test_a_row_is_the_context_and_a_choice() -> None:
    it = made("gpt2", length=64)
    batch = it.batch()
    assert (len(batch.owner), it.task.rows_per_sample) == (14, 3)
    assert batch.owner.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 4, 4, 5, 5]
    read = [it.tokenizer.decode(row.tolist(), skip_special=False) for row in batch.inputs["tokens"]]
    assert read[0].startswith("<|start|>The grass was wet because<|delimiter|>It rained all night.<|extract|>")
    assert read[2].startswith("<|start|>He dropped the glass so<|delimiter|>It sang.<|extract|>")
    assert read[12].startswith("<|start|>I read until morning.<|delimiter|>I was wide")


def test_questions_are_put_into_words() -> None:
    task = made().task
    assert task.context({"text": "A story.", "question": "Who came?"}) == "A story. Who came?"
    assert task.context({"text": "A story.", "question": ""}) == "A story."
    other = made(joined={"Who came?": "Of {text}, the guest was"}).task
    assert other.context({"text": "a {text} story.", "question": "Who came?"}) == "Of a {text} story, the guest was"
    assert other.context({"text": "It broke.", "question": "cause"}) == "It broke. cause"


def test_heads_are_those_that_exports_know() -> None:
    assert made("bert").task.heads["choice"] == Head("pooled", (("classes", 1),))
    assert made("gpt2").task.heads["choice"] == Head("scores", (("classes", 1),))


@pytest.mark.parametrize("backbone", ["gpt2", "transformer_xl"])
def test_the_language_models_term_reads_every_choice(backbone: str) -> None:
    it = made(backbone, lm=0.5)
    batch = it.batch()
    outcome = it.learner("task", batch, {"choice": 1, "lm": 1})
    model, tokens, present = it.learner.model, batch.inputs["tokens"], batch.inputs["present"]
    logits = model.heads["clm"](model.backbone(tokens=tokens, causal=True).last[:, :-1])
    each = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(len(tokens), -1)
    assert batch.counts["lm"] == int(present[:, 1:].sum())
    assert outcome.sums["lm"].item() == pytest.approx((each * present[:, 1:]).sum().item(), rel=1e-4)
    assert outcome.loss.item() == pytest.approx(
        outcome.sums["choice"].item() + 0.5 * outcome.sums["lm"].item(), rel=1e-5
    )


def test_a_context_that_does_not_fit_loses_its_beginning_and_is_counted() -> None:
    it = made("gpt2", length=24)
    long = Sample(given={"text": "word " * 60 + "the end.", "question": "cause", "choices": ("It rained.", "No.")})
    (piece,) = it.task.pieces([long])
    context, choice = piece.parts["pairs"][0]
    assert it.tokenizer.decode(context.ids.tolist()).endswith("the end because")
    assert it.tokenizer.decode(choice.ids.tolist()) == "It rained."
    whole = len(it.tokenizer.encode(it.task.context(long.given)).ids)
    sizes = [len(it.tokenizer.encode(choice).ids) for choice in long.given["choices"]]
    assert piece.cut == whole + max(sizes) - it.task.reader.room(2)
    assert len(it.answers([long])[0]) == 2


def test_what_it_is_asked_and_how_it_answers() -> None:
    it = made()
    sample = it.task.asked({"text": "The grass was wet.", "question": "cause", "choices": ["It rained.", "It shone."]})
    shown = it.task.shown(np.array([0.25, 0.75], np.float32), sample)
    assert shown == {"label": 1, "choice": "It shone.", "score": 0.75}
    for wrong in ("text", {"text": "a"}, {"text": "a", "choices": "b"}):
        with pytest.raises(MeristemError, match="task choice reads a text and its choices"):
            it.task.asked(wrong)
    with pytest.raises(MeristemError, match="there are no choices"):
        it.task.asked({"text": "a", "choices": []})
    (command,) = it.task.commands("runs/x", it.samples[5])
    assert command.endswith("'I read until morning.' --choices 'I was wide awake at night.' --choices 'I was tired.'")
    assert it.task.told(it.samples[5]) == "I read until morning.  →  I was wide awake at night. | [I was tired.]"


def test_numbers_and_mistakes_are_those_of_the_answers() -> None:
    it = made()
    right = [np.eye(len(sample.given["choices"]), dtype=np.float32)[sample.gold] for sample in it.samples]
    wrong = [*right[:4], np.array([0.1, 0.7, 0.2], np.float32), np.array([0.9, 0.1], np.float32)]
    assert it.task.score(wrong, it.samples) == {"accuracy": pytest.approx(4 / 6)}
    again = it.task.resampled(wrong, it.samples)
    assert again(np.arange(6)) == it.task.score(wrong, it.samples)
    assert again(np.array([4, 4, 5])) == {"accuracy": 0.0}
    first, second = it.task.mistakes(wrong, it.samples)
    assert (first.place, first.gold, first.said) == ("a.jsonl:6", "I was tired.", "I was wide awake at night.")
    assert (second.given, second.confidence) == ("The dog barked so", pytest.approx(0.7))


def test_a_right_choice_that_is_not_there_is_named() -> None:
    bad = Sample(given={"text": "a", "question": "", "choices": ("b", "c")}, gold=2, place="a.jsonl:9")
    with pytest.raises(MeristemError, match=r"a\.jsonl:9: the right choice is number 2, and there are 0 to 1"):
        made().task.pieces([bad])


def test_a_captioner_is_refused_with_the_families_that_can() -> None:
    overrides = {"task": "choice", "model": {"family": "captioner"}, "data.train": "nowhere.tsv"}
    with pytest.raises(RecipeError, match=r"task choice needs .* captioner is .*carry it: bert, .*xlnet"):
        api.finetune("classification", overrides, console=Console(quiet=True))


def test_a_run_that_was_interrupted_ends_bit_for_bit_like_one_that_was_not(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    rows = [
        {"premise": t, "question": q, "choice1": c[0], "choice2": c[-1], "label": int(g > 0)} for t, q, c, g in CASES
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def train(out: str, steps: int) -> dict[str, Any]:
        overrides = {
            "task": {"name": "choice", "lm": 0.5},
            "model": {"family": "gpt2", "length": 64, "dropout": 0.1, "layers": 1, "width": 32, "heads": 2},
            "tokenizer": {"kind": "bpe", "size": 300},
            "data": {"train": str(file), "held_out": 0},
            "train": {"steps": steps, "schedule": "constant", "batch_samples": 4, "threads": 1, "warmup": 0},
        }  # fmt: skip
        api.finetune("classification", overrides, out=tmp_path / out, console=Console(quiet=True))
        found = load(Run.open(tmp_path / out).checkpoints)
        assert found is not None
        return {"step": torch.tensor(found.snapshot.step), **found.snapshot.model}

    whole = train("whole", 5)
    train("parted", 2)
    parted = train("parted", 5)
    assert int(whole["step"]) == 5
    assert all(torch.equal(value, parted[name]) for name, value in whole.items())
    said = api.load(tmp_path / "whole").predict(
        {"text": "He fell.", "question": "effect", "choices": ["He cried.", "No."]}
    )
    assert said["choice"] in ("He cried.", "No.")
