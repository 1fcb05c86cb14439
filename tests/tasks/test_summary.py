"""Summaries: what is read of a long text, what is written, and what the first sentence would have scored."""

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
from meristem.evaluation.answering import answer, judge
from meristem.tasks.summary import lead, usual

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
def test_it_learns_a_few_by_heart_and_is_judged_beside_the_first_sentence(model: str) -> None:
    learner = overfitted("summary", model, SAMPLES, {"task.no_repeat": None, "model.length": 160, "task.length": 160})
    task: Any = learner.objectives["task"]
    answers = answer(learner, SAMPLES).answers
    assert [task.shown(one, SAMPLES[0]) for one in answers] == [{"summary_text": gold} for _, gold in TEXTS]
    found = judge(task, answers, SAMPLES)
    assert {"rouge1", "rouge2", "rougeL"} <= set(found.metrics)
    assert found.metrics["rouge1"] == pytest.approx(1.0)
    assert found.intervals["rougeL"] == pytest.approx((0.4385, 1.0), abs=1e-4)  # Wilson's, of three texts
    baselines = task.baselines(SAMPLES, SAMPLES)
    assert list(baselines) == ["the first sentence"]
    assert 0 < baselines["the first sentence"]["rouge1"] < 1


@pytest.mark.parametrize("model", ["transformer", "gpt2"])
def test_of_a_long_text_the_beginning_is_read_or_both_ends(model: str) -> None:
    words = [f"word{number}" for number in range(40)]
    samples = pairs([(" ".join(words), "short")])
    for keep in ("start", "ends"):
        recipe = recipe_of("summary", model, samples, {"task.keep": keep, "task.length": 24, "task.max_tokens": 4})
        task: Any = fresh(recipe, samples).objectives["task"]
        ids = task.tokenizer.encode(samples[0].given["source"]).ids.tolist()
        (piece,) = task.pieces(samples)
        room = task.laid.room
        tail = room // 2 if keep == "ends" else 0
        wanted = ids[: room - tail] + ids[len(ids) - tail :]
        read = piece.parts["given"] if model == "transformer" else piece.parts["prompt"][1:-1]
        assert read.tolist()[:room] == wanted
        assert piece.cut == len(ids) - room > 0


def test_no_trigram_is_written_twice() -> None:
    samples = pairs([("many boats", "boats and boats and boats and boats and boats"), ("a tree", "one tree")])
    plain = overfitted("summary", "transformer", samples, {"task.no_repeat": None})
    assert written(plain, samples) == [one.gold[0] for one in samples]
    settings = plain.objectives["task"].settings  # type: ignore[attr-defined]  # every task has them
    task: Any = type(plain.objectives["task"])(
        settings.model_copy(update={"no_repeat": 3}), plain.objectives["task"].tokenizer
    )  # type: ignore[attr-defined]
    for one in task.write(plain.model, samples):
        for text in one.texts:
            words = text.split()
            runs = [tuple(words[at : at + 3]) for at in range(len(words) - 2)]
            assert len(set(runs)) == len(runs)


def test_the_first_sentences() -> None:
    text = "Mr. Gray sold it. Nobody knew! 第一句。第二句。"
    assert lead(text) == "Mr. Gray sold it."
    assert lead(text, 2) == "Mr. Gray sold it. Nobody knew!"
    assert lead("第一句。第二句。") == "第一句。"
    assert lead("only one", 3) == "only one" and lead("") == ""
    assert usual(["One. Two. Three.", "One. Two.", "One. Two."]) == 2
    assert usual([]) == 1


@pytest.mark.parametrize("recipe", ["bart-mini", "t5-mini"])
def test_a_denoising_run_goes_on_to_summaries(recipe: str, tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus.txt", tmp_path / "pretrained"
    corpus.write_text("\n\n".join(text for text, _ in TEXTS * 8), encoding="utf-8")
    small = {
        "tokenizer.size": 300, "model.layers": 1, "model.width": 32, "model.heads": 2, "model.length": 96,
        "train.steps": 2, "train.batch_tokens": 192, "train.threads": 1,
        "objective.begin": ["end"],
    }  # fmt: skip
    if recipe == "t5-mini":
        small["model.inner"] = 64
    quiet = Console(file=StringIO())
    api.pretrain(recipe, small, source=str(corpus), out=out, console=quiet)
    file = tmp_path / "train.jsonl"
    lines = [f'{{"article": "{text}", "summary": "{gold}"}}' for text, gold in TEXTS * 3]
    file.write_text("\n".join(lines), encoding="utf-8")
    told = finetuned(
        "summary", "bart", file, tmp_path / "run", {"from": str(out), "train.steps": 2, "task.max_tokens": 8}
    )
    loaded = api.load(tmp_path / "run")
    task: Any = loaded.revived.learner.objectives["task"]
    assert task.begin_ids == (loaded.tokenizer.end,) == loaded.model.begin  # as it was pretrained
    assert loaded.recipe.model.layers == 1
    assert "seq2seq" not in told.partition("fresh")[2].partition("\n")[0]  # the words it could write are not new
    assert list(loaded.predict("Boats were sold.")) == ["summary_text"]
    assert np.array_equal(task.laid.start(task.pieces([task.asked("Boats")])[0]).prompt, [loaded.tokenizer.end])
