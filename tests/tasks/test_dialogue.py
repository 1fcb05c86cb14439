"""Dialogue: turns are context, and only replies are trained on."""

from __future__ import annotations

import json
import math
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

sys.path.append(str(Path(__file__).parent))

from writers import batch_of, finetuned, fresh, overfitted, recipe_of, written

from meristem import api
from meristem.config.errors import MeristemError
from meristem.evaluation.task_predictions import evaluate_predictions, predict
from meristem.inputs.batch import Row
from meristem.interfaces.sample import Sample
from meristem.utils.randomness import SampleRng

TALKS = [
    (("hello", "hi , who is it ?", "the gardener"), "come in"),
    (("hello", "hi , who is it ?", "nobody"), "go away"),
    (("where is the boat ?",), "in the harbour"),
    (("tea ?",), "no thank you"),
]
SAMPLES = [
    Sample(inputs={"turns": turns}, gold=(reply,), location=f"talk:{n}") for n, (turns, reply) in enumerate(TALKS, 1)
]
WAYS = ["gpt2", "transformer"]


def task_of(learner: Any) -> Any:
    return learner.objectives["task"]


@pytest.mark.parametrize("model", [*WAYS, "rnn"])
def test_replies_depend_on_earlier_turns(model: str) -> None:
    learner = overfitted("dialogue", model, SAMPLES)
    assert written(learner, SAMPLES) == [reply for _, reply in TALKS]  # the first two differ in one turn
    task = task_of(learner)
    assert (
        written(
            learner, [task.parse_input("tea ?"), task.parse_input(["tea ?"]), task.parse_input({"turns": ["tea ?"]})]
        )
        == ["no thank you"] * 3
    )
    evaluation = evaluate_predictions(task, predict(learner, SAMPLES).predictions, SAMPLES)
    assert {"perplexity", "bleu", "chrf", "distinct1", "distinct2"} <= set(evaluation.metrics)
    assert set(evaluation.intervals) == set(evaluation.metrics)
    assert task.format_output(predict(learner, SAMPLES[:1]).predictions[0], SAMPLES[0]) == {"generated_text": "come in"}


def test_turns_are_joined_by_the_delimiter() -> None:
    task = task_of(fresh(recipe_of("dialogue", "gpt2", SAMPLES), SAMPLES))
    start, delimiter, extract = (
        task.tokenizer.token_to_id(name) for name in ("<|start|>", "<|delimiter|>", "<|extract|>")
    )
    turns = [task.tokenizer.encode(turn).ids.tolist() for turn in TALKS[0][0]]
    reply = task.tokenizer.encode("come in").ids.tolist()
    row = task.prepare(Row(inputs={}, metadata={"piece": task.encode_samples(SAMPLES)[0]}), SampleRng(0, 0, 0))
    read = [start, *turns[0], delimiter, *turns[1], delimiter, *turns[2], delimiter]
    assert row.inputs["tokens"].tolist() == [*read, *reply]
    assert row.targets["clm"]["at"].tolist() == list(range(len(read) - 1, len(read) + len(reply)))
    assert row.targets["clm"]["values"].tolist() == [*reply, extract]


def test_the_turns_are_the_source_of_an_encoder() -> None:
    task = task_of(fresh(recipe_of("dialogue", "transformer", SAMPLES), SAMPLES))
    turns = [task.tokenizer.encode(turn).ids.tolist() for turn in TALKS[0][0]]
    end = task.tokenizer.end
    assert task.encode_samples(SAMPLES)[0].features["given"].tolist() == [
        *turns[0],
        end,
        *turns[1],
        end,
        *turns[2],
        end,
    ]


def test_a_turn_is_context_and_never_a_target() -> None:
    """The logits' gradient is zero wherever a turn would be predicted; the turns' own embeddings do get one."""
    learner = fresh(recipe_of("dialogue", "gpt2", SAMPLES), SAMPLES)
    model: Any = learner.model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    batch = batch_of(learner, SAMPLES)
    states: list[torch.Tensor] = []
    entered: list[torch.Tensor] = []

    def entering(module: Any, inputs: Any, out: torch.Tensor) -> None:
        out.retain_grad()
        entered.append(out)

    handle = model.backbone.embedding().register_forward_hook(entering)
    hidden = model.backbone(causal=True, **batch.inputs)  # every position, unlike what the task asks for
    handle.remove()
    hidden.last_hidden_state.retain_grad()
    states.append(hidden.last_hidden_state)
    task_of(learner).loss(model, hidden, batch).loss_sums["clm"].backward()
    (gradient,) = (state.grad for state in states)
    assert gradient is not None
    moved = gradient.abs().sum(-1).flatten()
    at = batch.targets["clm"]["at"]
    others = torch.ones(len(moved), dtype=torch.bool)
    others[at] = False
    assert bool((moved[at] > 0).all()) and float(moved[others].sum()) == 0.0
    tokens, width = batch.inputs["tokens"], batch.inputs["tokens"].shape[1]
    read = entered[0].grad
    assert read is not None
    for row in range(len(tokens)):
        first = int(at[at // width == row][0]) % width
        assert bool((read[row, 1:first].abs().sum(-1) > 0).all())  # what was said before shapes the reply


def test_changing_what_a_turn_would_predict_changes_no_loss() -> None:
    learner = fresh(recipe_of("dialogue", "gpt2", SAMPLES), SAMPLES).eval()
    batch = batch_of(learner, SAMPLES)
    values = set(batch.targets["clm"]["values"].tolist())
    task = task_of(learner)
    replies = {token for _, reply in TALKS for token in task.tokenizer.encode(reply).ids.tolist()}
    assert values == replies | {task.parts.head.layout.end_id}
    assert batch.target_counts == {"clm": sum(len(task.tokenizer.encode(reply).ids) + 1 for _, reply in TALKS)}


@pytest.mark.parametrize("model", WAYS)
def test_a_long_dialogue_keeps_its_last_complete_turns(model: str) -> None:
    turns = tuple(f"turn number {n} of this talk" for n in range(30))
    samples = [Sample(inputs={"turns": turns}, gold=("yes",), location="x:1")]
    task = task_of(fresh(recipe_of("dialogue", model, samples), samples))
    (piece,) = task.encode_samples(samples)
    read = piece.features["prompt"][1:-1] if model == "gpt2" else piece.features["given"][:-1]
    ids = [task.tokenizer.encode(turn).ids.tolist() for turn in turns]
    parts = [part.tolist() for part in np.split(read, np.flatnonzero(read == task.parts.encoder.truncate.separator[0]))]
    last_turns = [part[1:] if number else part for number, part in enumerate(parts)]
    assert 1 < len(last_turns) < 30 and last_turns == ids[-len(last_turns) :]
    assert piece.num_truncated == sum(map(len, ids[: -len(last_turns)]))
    single_turn = [Sample(inputs={"turns": ("word " * 200,)}, gold=("yes",), location="x:2")]
    (piece,) = task.encode_samples(single_turn)
    assert (
        piece.num_truncated == len(task.tokenizer.encode("word " * 200).ids) - task.parts.head.layout.max_source_tokens
    )


def test_perplexity_is_that_of_the_reference_replies() -> None:
    learner = fresh(recipe_of("dialogue", "gpt2", SAMPLES), SAMPLES)
    result = predict(learner, SAMPLES)
    metrics = task_of(learner).metrics.compute(result.predictions, SAMPLES)
    assert metrics["perplexity"] == pytest.approx(math.exp(result.losses["loss"]), rel=1e-4)


def test_input_formats() -> None:
    task = task_of(fresh(recipe_of("dialogue", "gpt2", SAMPLES), SAMPLES))
    assert (
        task.parse_input(["a", "b"]).inputs == {"turns": ("a", "b")} == task.parse_input({"turns": ("a", "b")}).inputs
    )
    assert task.example_commands("run", SAMPLES[0]) == ["meristem predict run 'the gardener'"]
    for wrong in ([], {"question": "?"}, [1, 2]):
        with pytest.raises(MeristemError, match="dialogue takes a text or a list of turns"):
            task.parse_input(wrong)


def test_a_causal_run_is_finetuned_on_dialogue(tmp_path: Path) -> None:
    corpus, out, file = tmp_path / "corpus.txt", tmp_path / "pretrained", tmp_path / "talks.jsonl"
    corpus.write_text("\n\n".join(" ".join((*turns, reply)) for turns, reply in TALKS * 10), encoding="utf-8")
    small = {
        "tokenizer.vocab_size": 300, "model.layers": 1, "model.hidden_size": 32, "model.heads": 2,
        "model.max_length": 64,
        "train.steps": 2, "train.batch_tokens": 128, "train.threads": 1,
    }  # fmt: skip
    api.pretrain("gpt2-mini", small, source=str(corpus), out=out, console=Console(file=StringIO()))
    lines = [json.dumps({"turns": turns, "reply": reply}) for turns, reply in TALKS * 3]
    file.write_text("\n".join(lines), encoding="utf-8")
    settings = {"from": str(out), "train.steps": 2, "task.max_tokens": 8, "data.target": "reply"}
    finetuned("dialogue", "gpt2", file, tmp_path / "run", settings)
    loaded = api.load(tmp_path / "run")
    assert loaded.recipe.model.layers == 1 and loaded.recipe.task.backbone_mode == "causal"
    assert set(loaded.model.heads) == {"clm"}
    assert list(loaded.predict({"turns": ["hello", "hi"]})) == ["generated_text"]
