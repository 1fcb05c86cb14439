"""Resume checks: which settings may change when a run is resumed, and the error for all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meristem.config.errors import RecipeError
from meristem.config.recipe import Recipe, resolve_recipe
from meristem.training.resume_checks import refuse_changed_settings

BERT: dict[str, Any] = {
    "model": {"family": "modern", "layers": 2, "hidden_size": 32, "heads": 2, "max_length": 16},
    "objective": ["mlm", "nsp"],
    "train": {"steps": 10},
}
MIX: dict[str, Any] = {"model": BERT["model"], "mix": [{"objective": "mlm", "weight": 2}, {"objective": "clm"}]}
OUT = Path("runs/here")


def build_recipe(*overrides: str, base: dict[str, Any] = BERT) -> Recipe:
    return resolve_recipe("test", base, list(overrides))


@pytest.mark.parametrize(
    "override",
    [
        "train.steps=20",
        "train.minutes=5",
        "train.epochs=3",
        "train.device=cuda",
        "train.dataloader_workers=2",
        "train.threads=1",
        "train.log_every=3",
        "train.save_every=1m",
        "train.keep_checkpoints=9",
        "corpus.processes=7",
    ],
)
def test_budgets_devices_and_intervals_may_change(override: str) -> None:
    refuse_changed_settings(build_recipe(), build_recipe(override), OUT)


def test_the_memory_of_an_index_may_change() -> None:
    refuse_changed_settings(build_recipe("corpus.near_dedup=true"), build_recipe("corpus.near_dedup.memory_mb=64"), OUT)
    with pytest.raises(RecipeError, match=r"corpus\.near_dedup\.jaccard: 0\.8 in the run, 0\.7 now"):
        refuse_changed_settings(
            build_recipe("corpus.near_dedup=true"), build_recipe("corpus.near_dedup.jaccard=0.7"), OUT
        )


def test_another_name_is_the_same_run() -> None:
    refuse_changed_settings(build_recipe(), build_recipe().with_name("other"), OUT)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("train.learning_rate=0.5", "train.learning_rate: 0.001 in the run, 0.5 now"),
        ("train.seed=4", "train.seed: 0 in the run, 4 now"),
        ("train.batch_tokens=64", "train.batch_tokens: 4096 in the run, 64 now"),
        ("model.layers=3", "model.layers: 2 in the run, 3 now"),
        ("objective.mask_rate=0.3", "objective.mlm.mask_rate: 0.15 in the run, 0.3 now"),
        ("corpus.source=builtin:microworld", "corpus.source: 'builtin:pydocs' in the run, 'builtin:microworld' now"),
        ("tokenizer.vocab_size=500", "tokenizer.vocab_size: 8192 in the run, 500 now"),
        ("from=.", "from.path: None in the run, '.' now"),
        ("train.betas=[0.9, 0.99]", "train.betas: [0.9, 0.98] in the run, [0.9, 0.99] now"),
    ],
)
def test_anything_else_is_refused_with_the_difference(override: str, line: str) -> None:
    with pytest.raises(RecipeError) as error:
        refuse_changed_settings(build_recipe(), build_recipe(override), OUT)
    lines = str(error.value).splitlines()
    assert lines[0] == "runs/here was started with different settings:"
    assert lines[1:-2] == [f"  {line}"]
    assert "--out runs/here-2" in lines[-2]
    assert "--fresh" in lines[-1]


def test_a_part_that_came_or_went_is_named() -> None:
    with pytest.raises(RecipeError, match=r"objective\.nsp\.weight: 1\.0 in the run, not set now"):
        refuse_changed_settings(build_recipe(), build_recipe("objective=mlm"), OUT)


def test_each_source_of_a_mix_may_change_its_processes_and_nothing_else() -> None:
    refuse_changed_settings(build_recipe(base=MIX), build_recipe("mix.0.corpus.processes=3", base=MIX), OUT)
    with pytest.raises(RecipeError, match=r"mix\.mlm\.weight: 2\.0 in the run, 5\.0 now"):
        refuse_changed_settings(build_recipe(base=MIX), build_recipe("mix.0.weight=5", base=MIX), OUT)


def test_many_differences_are_counted() -> None:
    with pytest.raises(RecipeError, match=r"… and \d+ more"):
        refuse_changed_settings(
            build_recipe(),
            build_recipe("model.family=gpt2", "model.hidden_size=64", "model.max_length=32", base=MIX),
            OUT,
        )
