"""Summarization: truncation of long texts, repeated n-grams, and the lead baseline."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

sys.path.append(str(Path(__file__).parent))

from writers import finetuned, fresh, overfitted, pairs, recipe_of, written

from meristem import api
from meristem.evaluation.task_predictions import evaluate_predictions, predict
from meristem.tasks.summary import first_sentences, median_sentence_count

TEXTS = [
    (
        "The old harbour was closed. Boats went to the town instead. Nobody had asked the sailors.",
        "The harbour closed.",
    ),
    ("My sister planted a tree in spring. It rained for a week. The tree grew.", "A tree grew."),
    ("Ten letters were sold. The painter wanted them back. He paid for all of them.", "The painter paid."),
]
SAMPLES = pairs(TEXTS)


@pytest.mark.parametrize("model", ["transformer", "gpt2"])
def test_it_overfits_a_few_and_is_compared_with_the_first_sentence(model: str) -> None:
    learner = overfitted(
        "summary", model, SAMPLES, {"task.no_repeat_ngram_size": None, "model.max_length": 160, "task.max_length": 160}
    )
    task: Any = learner.objectives["task"]
    answers = predict(learner, SAMPLES).predictions
    assert [task.format_output(prediction, SAMPLES[0]) for prediction in answers] == [
        {"summary_text": gold} for _, gold in TEXTS
    ]
    evaluation = evaluate_predictions(task, answers, SAMPLES)
    assert {"rouge1", "rouge2", "rougeL"} <= set(evaluation.metrics)
    assert evaluation.metrics["rouge1"] == pytest.approx(1.0)
    assert evaluation.intervals["rougeL"] == pytest.approx((0.4385, 1.0), abs=1e-4)  # Wilson's, of three texts
    baselines = task.metrics.baselines(SAMPLES, SAMPLES)
    assert list(baselines) == ["the first sentence"]
    assert 0 < baselines["the first sentence"]["rouge1"] < 1


@pytest.mark.parametrize("model", ["transformer", "gpt2"])
def test_a_long_text_keeps_its_start_or_both_ends(model: str) -> None:
    words = [f"word{number}" for number in range(40)]
    samples = pairs([(" ".join(words), "short")])
    for keep in ("start", "ends"):
        recipe = recipe_of(
            "summary", model, samples, {"task.truncation_keep": keep, "task.max_length": 24, "task.max_tokens": 4}
        )
        task: Any = fresh(recipe, samples).objectives["task"]
        ids = task.tokenizer.encode(samples[0].inputs["source"]).ids.tolist()
        (piece,) = task.encode_samples(samples)
        room = task.parts.head.layout.max_source_tokens
        tail = room // 2 if keep == "ends" else 0
        expected_ids = ids[: room - tail] + ids[len(ids) - tail :]
        read = piece.features["given"] if model == "transformer" else piece.features["prompt"][1:-1]
        assert read.tolist()[:room] == expected_ids
        assert piece.num_truncated == len(ids) - room > 0


def test_no_trigram_is_repeated() -> None:
    samples = pairs([("many boats", "boats and boats and boats and boats and boats"), ("a tree", "one tree")])
    plain = overfitted("summary", "transformer", samples, {"task.no_repeat_ngram_size": None})
    assert written(plain, samples) == [prediction.gold[0] for prediction in samples]
    settings = plain.objectives["task"].settings  # type: ignore[attr-defined]  # every task has them
    task: Any = type(plain.objectives["task"])(
        settings.model_copy(update={"no_repeat_ngram_size": 3}), plain.objectives["task"].tokenizer
    )  # type: ignore[attr-defined]
    for prediction in task.generate(plain.model, task.encode_samples(samples)):
        for text in prediction.texts:
            words = text.split()
            runs = [tuple(words[at : at + 3]) for at in range(len(words) - 2)]
            assert len(set(runs)) == len(runs)


def test_the_first_sentences() -> None:
    text = "Mr. Gray sold it. Nobody knew! 第一句。第二句。"
    assert first_sentences(text) == "Mr. Gray sold it."
    assert first_sentences(text, 2) == "Mr. Gray sold it. Nobody knew!"
    assert first_sentences("第一句。第二句。") == "第一句。"
    assert first_sentences("only one", 3) == "only one" and first_sentences("") == ""
    assert median_sentence_count(["One. Two. Three.", "One. Two.", "One. Two."]) == 2
    assert median_sentence_count([]) == 1


@pytest.mark.parametrize("recipe", ["bart-mini", "t5-mini"])
def test_a_denoising_run_is_finetuned_on_summaries(recipe: str, tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus.txt", tmp_path / "pretrained"
    corpus.write_text("\n\n".join(text for text, _ in TEXTS * 8), encoding="utf-8")
    small = {
        "tokenizer.vocab_size": 300, "model.layers": 1, "model.hidden_size": 32, "model.heads": 2,
        "model.max_length": 96,
        "train.steps": 2, "train.batch_tokens": 192, "train.threads": 1,
        "objective.start_tokens": ["end"],
    }  # fmt: skip
    if recipe == "t5-mini":
        small["model.ffn_size"] = 64
    quiet = Console(file=StringIO())
    api.pretrain(recipe, small, source=str(corpus), out=out, console=quiet)
    file = tmp_path / "train.jsonl"
    lines = [f'{{"article": "{text}", "summary": "{gold}"}}' for text, gold in TEXTS * 3]
    file.write_text("\n".join(lines), encoding="utf-8")
    log_text = finetuned(
        "summary", "bart", file, tmp_path / "run", {"from": str(out), "train.steps": 2, "task.max_tokens": 8}
    )
    loaded = api.load(tmp_path / "run")
    task: Any = loaded.loaded_run.learner.objectives["task"]
    assert task.decoder_start_ids == (loaded.tokenizer.end,) == loaded.model.decoder_start_ids  # as it was pretrained
    assert loaded.recipe.model.layers == 1
    assert "seq2seq" not in log_text.partition("fresh")[2].partition("\n")[0]  # the words it could write are not new
    assert list(loaded.predict("Boats were sold.")) == ["summary_text"]
    assert np.array_equal(
        task.parts.head.layout.generation_inputs(task.encode_samples([task.parse_input("Boats")])[0]).prompt_ids,
        [loaded.tokenizer.end],
    )
