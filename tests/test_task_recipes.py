"""Every recipe for a task: it resolves, runs from built-in data to an answer, and learns more than a guess."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from meristem import api
from meristem.config.recipe import (
    builtin_recipes,
    builtin_task_recipes,
    parse_recipe_file,
    recipe_summary,
    resolve_recipe,
)
from meristem.interfaces.task import TASKS
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.labelled.load import load_splits
from meristem.learning.build import build_learner
from meristem.metrics import linear_baseline
from meristem.recipe_resolution import resolve_task_recipe
from meristem.tokenizers.train import train_tokenizer

RECIPES = builtin_task_recipes()
SMALL = {
    "model.layers": 1, "model.hidden_size": 32, "model.heads": 2, "tokenizer.vocab_size": 600, "train.steps": 3,
    "train.batch_samples": 8, "train.evaluate_every": 3,
}  # fmt: skip
SPLITS = ("train", "validation", "test")
SHOWN = {
    "classification": {"label", "score"}, "sentiment": {"label", "score"}, "sentiment-zh": {"label", "score"},
    "pair": {"label", "score"}, "similarity": {"label", "score"}, "choice": {"label", "choice", "score"},
    "commands": {"intent", "score", "slots"}, "span": {"answer", "score", "start", "end"},
    "translation": {"translation_text"}, "lines": {"translation_text"}, "summary": {"summary_text"},
    "dialogue": {"generated_text"}, "caption": {"generated_text"},
}  # fmt: skip
"""What an answer has, as in transformers' pipelines; a list where a recipe is not here."""


def data(recipe: str, **sizes: int) -> dict[str, Any]:
    """The recipe's own data, fewer of them."""
    recipe_data = parse_recipe_file(RECIPES[recipe])["data"]
    return {
        f"data.{split}": re.sub(r"size=\d+", f"size={sizes.get(split, 12)}", recipe_data[split]) for split in SPLITS
    }


def trained(recipe: str, out: Path, overrides: dict[str, Any]) -> dict[str, Any]:
    """The report of a run of a recipe."""
    api.finetune(recipe, overrides, out=out, console=Console(quiet=True))
    report: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return report


def test_every_task_has_a_recipe_named_like_it() -> None:
    assert set(TASKS) <= set(RECIPES)
    assert not set(RECIPES) & set(builtin_recipes())


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_says_what_it_is_and_resolves(recipe: str) -> None:
    assert len(recipe_summary(RECIPES[recipe])) > 15
    resolved = api.resolve_task_recipe(recipe)
    assert TASKS[resolved.task.name]
    assert all(str(getattr(resolved.data, split)).startswith("builtin:microworld-") for split in SPLITS)
    seeds = [re.search(r"seed=(\d)", str(getattr(resolved.data, split))) for split in SPLITS]
    assert [seed[1] for seed in seeds if seed] == ["1", "2", "3"]


def test_whoever_brings_data_is_not_judged_on_built_in_ones() -> None:
    resolved = api.resolve_task_recipe("classification", {"data.train": "mine.tsv", "data.text": "review"})
    assert resolved.data.train == "mine.tsv"
    assert resolved.data.validation is None
    assert resolved.data.test is None
    assert api.resolve_task_recipe("classification", {"data.limit": 7}).data.test is not None


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs_to_an_answer(recipe: str, tmp_path: Path) -> None:
    report = trained(recipe, tmp_path / "run", {**SMALL, **data(recipe, train=40)})
    assert report["split"] == "test"
    assert report["samples"] == {"train": 40, "validation": 12, "test": 12}
    assert report["metrics"]
    loaded = api.load(tmp_path / "run")
    task = TASKS[loaded.recipe.task.name]
    sample = load_splits(loaded.recipe.data, task.sample_type).samples["test"][0]
    answer = loaded.predict(dict(sample.inputs))
    keys = SHOWN.get(recipe)
    assert isinstance(answer, list) if keys is None else set(answer) >= keys, answer


def beats(report: dict[str, Any], min_gain: float) -> bool:
    """Whether the run is so much above every answer that takes no model, in the number both are cited by."""
    metrics, metric_name = report["metrics"], report["metric"]
    guesses = {name: values for name, values in report["baselines"].items() if name != linear_baseline.NAME}
    pairs = [
        (metrics[name], value)
        for guess in guesses.values()
        for name, value in guess.items()
        if name == metric_name or (metric_name not in guess and name in metrics)
    ]
    return len(pairs) >= len(guesses) > 0 and all(metric_value > guess + min_gain for metric_value, guess in pairs)


@pytest.mark.parametrize(("recipe", "min_gain"), [("classification", 0.15), ("entities", 0.08),
                                            pytest.param("tagging", 0.02, marks=pytest.mark.slow),
                                            pytest.param("commands", 0.05, marks=pytest.mark.slow)])  # fmt: skip
def test_a_short_training_beats_a_guess(recipe: str, min_gain: float, tmp_path: Path) -> None:
    # about 10 s each: a number that means something needs a hundred steps
    model_settings = {**SMALL, "model.layers": 2, "model.hidden_size": 64, "tokenizer.vocab_size": 2000,
            "train.learning_rate": 2e-3,
            "train.steps": 150, "train.batch_samples": 16, "train.evaluate_every": 1000}  # fmt: skip
    crf_settings = {"task.crf": False} if recipe == "entities" else {}
    report = trained(recipe, tmp_path / "run", {**model_settings, **crf_settings, **data(recipe, train=400, test=150)})
    assert beats(report, min_gain), (report["metrics"], report["baselines"])


@pytest.mark.slow
def test_a_longer_training_finds_answers(tmp_path: Path) -> None:
    # minutes: where a passage answers a question is learned late
    settings = {**data("span", train=3000, test=150), "model.layers": 2, "model.hidden_size": 128,
            "tokenizer.vocab_size": 3000,
            "train.epochs": 5, "train.learning_rate": 1e-3, "train.evaluate_every": "1epoch"}  # fmt: skip
    report = trained("span", tmp_path / "run", settings)
    assert beats(report, 0.05), (report["metrics"], report["baselines"])


def test_a_shipped_recipe_keeps_its_second_loss_for_causal_models_only(tmp_path: Path) -> None:
    for family, objective, expected_weight in (("gpt2", "clm", 0.5), ("bert", "mlm", 0.0)):
        model = {"family": family, "layers": 1, "hidden_size": 16, "heads": 2, "max_length": 32}
        recipe = resolve_recipe("tiny", {"model": model, "objective": [objective], "tokenizer": {"vocab_size": 300}})
        tokenizer = train_tokenizer(recipe.tokenizer, ["Ada walked to the old harbour and it rained on Diego."] * 5)
        learner = build_learner(recipe, tokenizer)
        state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
        weights = {key: value.detach() for key, value in state.items()}
        run = write_run(tmp_path / family, recipe, tokenizer, weights, {}).path
        assert resolve_task_recipe("choice", [f"from={run}"]).task.lm_weight == expected_weight
    task_recipe = resolve_task_recipe("choice", [f"from={run}", "task.lm_weight=0.5"])
    assert task_recipe.task.lm_weight == 0.5  # whoever asks for it is told why it cannot be
