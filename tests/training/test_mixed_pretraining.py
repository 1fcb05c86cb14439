"""Text and images in one pretraining run; describe and evaluate on paired data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_factory import RunFactory

from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import Recipe, resolve_recipe
from meristem.describe.describe_recipe import describe_recipe
from meristem.evaluation.evaluate import evaluate
from meristem.learning.build import check_recipe
from meristem.samples.microworld import describe_scene, draw, generate_scene
from meristem.training.pretraining import pretrain

CAPTIONER = {"family": "captioner", "layers": 1, "hidden_size": 16, "heads": 2, "max_length": 32, "patch_size": 8}
TRANSFORMER = {"family": "transformer", "layers": 1, "hidden_size": 16, "heads": 2, "max_length": 32}
MIX = [
    {"objective": "caption", "corpus": "builtin:microworld-pictures?size=60", "weight": 2},
    {"objective": "denoising", "corpus": "builtin:microworld-en?size=20"},
    {"objective": "seq2seq", "corpus": "builtin:microworld-pairs?size=60"},
]


def recipe_of(steps: int = 8, **parts: Any) -> Recipe:
    """A tiny recipe."""
    return resolve_recipe("tiny", {
        "corpus": {"processes": 1, "validation": 0.1, "test": 0.1}, "model": TRANSFORMER,
        "tokenizer": {"vocab_size": 300, "sentinels": 10},
        "train": {"steps": steps, "batch_tokens": 128, "log_every": 1, "threads": 1, "evaluate_tokens": 256,
                  "evaluate_every": 100, "schedule": "constant", "warmup": 0, "learning_rate": 3e-3},
        **parts,
    })  # fmt: skip


def train(recipe: Recipe, out: Path) -> Any:
    return pretrain(recipe, out, fresh=False, console=Console(quiet=True))


def test_images_and_text_train_in_one_run_and_resume_bit_for_bit(run_factory: RunFactory) -> None:
    parts = {"mix": MIX, "model": CAPTIONER}
    result = train(recipe_of(12, **parts), run_factory.root / "whole")
    train(recipe_of(6, **parts), run_factory.root / "parted")
    train(recipe_of(12, **parts), run_factory.root / "parted")
    first, second = (load_checkpoint(run_factory.root / name / "checkpoints") for name in ("whole", "parted"))
    assert first is not None and second is not None
    assert first.snapshot.step == second.snapshot.step == 12
    for kind in ("model", "optimizer"):
        expected_tensors, other = getattr(first.snapshot, kind), getattr(second.snapshot, kind)
        assert expected_tensors.keys() == other.keys()
        assert [name for name in expected_tensors if not (expected_tensors[name] == other[name]).all()] == []
    assert run_factory.losses("whole") == run_factory.losses("parted")
    lines = run_factory.lines("train", "whole")
    assert {key for line in lines for key in line} >= {"caption.loss", "denoising.loss", "seq2seq.loss"}
    assert sum("caption.loss" in line for line in lines) == 6  # half of the steps, by weight
    assert {"caption.loss", "denoising.loss", "seq2seq.loss", "caption.perplexity"} <= result.metrics.keys()
    assert {"caption.caption.top1", "loss"} <= result.test.keys()


def test_what_is_learned_gets_better(run_factory: RunFactory) -> None:
    recipe = recipe_of(60, mix=MIX, model=CAPTIONER)
    train(recipe, run_factory.root / "run")
    lines = run_factory.lines("train", "run")
    for term in ("caption", "denoising", "seq2seq"):
        losses = [line[f"{term}.loss"] for line in lines if f"{term}.loss" in line]
        assert sum(losses[-4:]) / 4 < 0.9 * losses[0], term


@pytest.mark.parametrize(("objective", "corpus", "model"), [
    ("seq2seq", "builtin:microworld-pairs", TRANSFORMER),
    ("seq2seq", {"source": "nowhere.tsv", "target": "de"}, TRANSFORMER),
    ("denoising", "builtin:microworld-en", TRANSFORMER),
    ([{"name": "denoising", "kind": "spans"}], "builtin:microworld-en", TRANSFORMER),
    ("caption", "builtin:microworld-pictures", CAPTIONER),
    ("caption", {"source": "nowhere.jsonl", "image": "file"}, CAPTIONER),
])  # fmt: skip
def test_describe_needs_no_data(objective: Any, corpus: Any, model: dict[str, Any], run_factory: RunFactory) -> None:
    corpus = {"source": corpus} if isinstance(corpus, str) else corpus
    recipe = describe_recipe(recipe_of(objective=objective, corpus=corpus, model=model))
    assert recipe.parameters > recipe.vocabulary * 16
    assert recipe.steps == 8 and 128 - 2 * 16 < recipe.tokens_per_step <= 128  # whole samples
    assert recipe.flops_per_token > 6 * 16 * 300


def test_describe_of_a_mixture(run_factory: RunFactory) -> None:
    assert describe_recipe(recipe_of(mix=MIX, model=CAPTIONER)).objective == "caption, denoising, seq2seq"


@pytest.mark.parametrize(("parts", "message"), [
    ({"objective": "seq2seq"}, "seq2seq reads pairs, and this corpus is plain text: set corpus.target=COLUMN"),
    ({"objective": "caption", "model": CAPTIONER}, "caption reads pictures, and this corpus is plain text"),
    ({"objective": "seq2seq", "corpus": {"source": "builtin:microworld-pictures"}}, "this corpus is pictures"),
    ({"objective": "caption", "corpus": {"source": "builtin:microworld-pictures"}}, "caption needs a image backbone"),
    ({"objective": "caption", "model": CAPTIONER, "dataset": {"image_size": 64},
      "corpus": {"source": "builtin:microworld-pictures"}},
      "model.image_size=32 and dataset.image_size=64 must be the same"),
])  # fmt: skip
def test_what_cannot_work_is_refused_before_anything_is_read(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        check_recipe(recipe_of(**parts))


def test_other_pairs_are_evaluated_as_the_run_read_its_own(run_factory: RunFactory) -> None:
    rows = [
        (f"the gardener number {n} planted a tree", f"der gärtner nummer {n} pflanzte einen baum") for n in range(40)
    ]
    for name, rows_written in (("train", rows), ("other", rows[:10])):
        (run_factory.root / f"{name}.en").write_text("".join(f"{a}\n" for a, _ in rows_written))
        (run_factory.root / f"{name}.de").write_text("".join(f"{b}\n" for _, b in rows_written))
        (run_factory.root / f"{name}.jsonl").write_text(
            "".join(json.dumps({"en": a, "de": b}) + "\n" for a, b in rows_written)
        )
    console = Console(quiet=True)
    for kind, corpus in (
        ("lines", {"source": "train.en", "target": "train.de"}),
        ("columns", {"source": "train.jsonl", "text": "en", "target": "de"}),
    ):
        train(recipe_of(2, objective="seq2seq", corpus=corpus), run_factory.root / kind)
        run = load_run(run_factory.root / kind)
        evaluation = evaluate(run, data="other.en" if kind == "lines" else "other.jsonl", console=console)
        assert evaluation["samples"] == {"rows": 10}
        assert {"loss", "perplexity", "seq2seq.top1"} <= evaluation["metrics"].keys()
        assert evaluate(run, data="builtin:microworld-pairs?size=7", console=console)["samples"]["rows"] == 7
    run = load_run(run_factory.root / "lines")
    (run_factory.root / "alone.en").write_text("a\n")
    with pytest.raises(MeristemError, match="there is none beside this one"):
        evaluate(run, data="alone.en", console=console)
    with pytest.raises(MeristemError, match="have no targets"):
        evaluate(run, data="builtin:microworld-en?size=5", console=console)


def test_images_of_the_user(run_factory: RunFactory) -> None:
    image = pytest.importorskip("PIL.Image")
    rows = []
    for number in range(24):
        scene = generate_scene(0, number)
        image.fromarray(draw(scene, 50)).save(run_factory.root / f"{number}.png")
        rows.append({"file": f"{number}.png", "said": describe_scene(scene, "en"), "id": "x"})
    (run_factory.root / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = {"source": "list.jsonl", "text": "said", "image": "file", "validation": 0.1, "test": 0.1}
    result = train(recipe_of(3, objective="caption", corpus=corpus, model=CAPTIONER), run_factory.root / "run")
    assert {"loss", "perplexity", "caption.top1"} <= result.test.keys()
    run = load_run(run_factory.root / "run")
    console = Console(quiet=True)
    assert evaluate(run, data="list.jsonl", console=console)["samples"]["rows"] == 24
    assert evaluate(run, data="builtin:microworld-pictures?size=5", console=console)["samples"]["rows"] == 5
