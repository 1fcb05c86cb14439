"""Recipes by budget, and the loss curve that says what to expect: planted curves, coverage, too few points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import Meristem

from benchmarks.records.points import best_points
from meristem.config.errors import MeristemError
from meristem.config.recipe import builtin_budget_recipes, read_recipe, resolve_recipe
from meristem.describe.budget_recipes import BUDGETS, KINDS, SourceSize, measure_source, recipe_name, recommend
from meristem.describe.loss_curve import LossPoint, expected_loss, read_points

BUDGET_FLOPS = [1e13, 3e13, 1e14, 4e14, 1.5e15, 6e15]


def planted(noise: float, seed: int, count: int = 6) -> list[LossPoint]:
    """Points of the curve 2.5 + 1.2 · (C / 1e14)^−0.25."""
    generator = np.random.default_rng(seed)
    return [
        LossPoint(
            track="baby10m",
            kind="encoder",
            label="x",
            flops=flops,
            loss=true_loss(flops) + float(generator.normal(0, noise)),
            seeds=3,
        )
        for flops in BUDGET_FLOPS[:count]
    ]


def true_loss(flops: float) -> float:
    return 2.5 + 1.2 * (flops / 1e14) ** -0.25


def test_a_planted_curve_is_found() -> None:
    expected = expected_loss(planted(1e-6, 0), "encoder", "baby10m", 3e16)
    assert expected.loss == pytest.approx(true_loss(3e16), abs=1e-3)
    assert expected.note == "6 recorded budgets on baby10m, 5.0× beyond the largest"


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(150):
        expected = expected_loss(planted(0.03, seed), "encoder", "baby10m", 1e15)
        assert expected.low is not None and expected.high is not None
        inside += expected.low <= true_loss(1e15) <= expected.high
    assert inside / 150 > 0.9  # of a new measurement 95 %; the truth has no noise of its own


@pytest.mark.parametrize("count", [0, 1, 3])
def test_fewer_than_four_points_say_nothing(count: int) -> None:
    expected = expected_loss(planted(0, 0, count), "encoder", "baby10m", 1e15)
    assert expected.loss is expected.low is expected.high is None
    assert expected.note == f"{count} recorded budgets on baby10m; a curve needs 4"
    other_kind = expected_loss(planted(0, 0), "causal", "baby10m", 1e15)
    assert other_kind.loss is None and other_kind.points == 0


def test_the_shipped_points_are_readable() -> None:
    for point in read_points():
        assert point.kind in KINDS and point.flops > 0 and point.loss > 0


def test_points_are_the_best_label_of_each_budget() -> None:
    def record(label: str, seed: int, loss: float, recipe: str = "modern-mini", **changes: Any) -> dict[str, Any]:
        return {
            "track": "baby10m",
            "label": label,
            "recipe": recipe,
            "overrides": {},
            "budget": "minutes=8",
            "seed": seed,
            "metrics": {"loss": loss},
            "used": {"flops": 1e14},
            **changes,
        }

    records = [
        *(record("a", seed, 4.0 + seed) for seed in (0, 1)),
        *(record("b", seed, 4.1) for seed in (0, 1)),
        record("b", 0, 3.5, budget="minutes=30", used={"flops": 4e14}),
        record("masked", 0, 3.0, "modernbert-mini"),
        record("pairs", 0, 1.0, "bert-mini"),  # the sum of two losses
        record("gone", 0, 1.0, "nowhere.yaml"),
    ]
    points = [(point.kind, point.label, point.flops, point.loss, point.seeds) for point in best_points(records)]
    assert points == [
        ("causal", "b", 1e14, pytest.approx(4.1), 2),
        ("causal", "b", 4e14, 3.5, 1),
        ("encoder", "masked", 1e14, 3.0, 1),
    ]


@pytest.mark.parametrize(
    ("hours", "suffix"), [(0.05, "10m"), (0.3, "10m"), (0.5, "1h"), (2, "1h"), (3, "night"), (99, "night")]
)
def test_the_nearest_budget_is_chosen(hours: float, suffix: str) -> None:
    assert recipe_name("encoder", hours) == f"encoder-{suffix}"


def test_every_kind_has_a_recipe_for_every_budget_that_grows_with_it() -> None:
    assert set(builtin_budget_recipes()) == {f"{kind}-{suffix}" for kind in KINDS for suffix in BUDGETS}
    for kind in KINDS:
        recipes = [resolve_recipe(*read_recipe(f"{kind}-{suffix}")) for suffix in BUDGETS]
        assert [recipe.train.minutes for recipe in recipes] == [60 * hours for hours in BUDGETS.values()]
        sizes = [recipe.model.layers * recipe.model.hidden_size**2 for recipe in recipes]
        assert sizes == sorted(set(sizes))
        rates = [recipe.train.learning_rate for recipe in recipes]
        assert rates == sorted(rates, reverse=True)


def test_the_text_is_measured(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The gardener planted a tree.\n" * 5000, encoding="utf-8")
    english = measure_source(str(tmp_path))
    assert english.track == "baby10m" and english.complete
    assert english.megabytes == pytest.approx(0.145, rel=0.05)
    (tmp_path / "a.txt").write_text("园丁在花园里种了一棵树。\n" * 5000, encoding="utf-8")
    assert measure_source(str(tmp_path / "a.txt")).track == "zhwiki"
    (tmp_path / "a.txt").write_text("\n", encoding="utf-8")
    with pytest.raises(MeristemError):
        measure_source(str(tmp_path / "a.txt"))


def test_recommended_recipes_say_how_often_the_text_is_read() -> None:
    source = SourceSize(source="a", megabytes=42, complete=True, track="baby10m")  # 10 million tokens
    encoder, causal, _ = recommend(1 / 6, 1e11, planted(0.01, 0), source)
    assert encoder.recipe == "encoder-10m" and causal.recipe == "causal-10m"
    assert encoder.flops == pytest.approx(600 * 1e11)
    assert encoder.parameters < encoder.flops / encoder.tokens < 6 * encoder.parameters  # few tokens are predicted
    assert encoder.epochs == pytest.approx(encoder.tokens / 1e7)
    assert encoder.expected.loss == pytest.approx(true_loss(6e13), abs=0.1)
    assert causal.expected.loss is None


@pytest.mark.slow
def test_the_command_recommends(meristem: Meristem, tmp_path: Path) -> None:
    # over 10 s: steps are measured, and the recipes are built to be counted
    (tmp_path / "a.txt").write_text("The gardener planted a tree.\n" * 500, encoding="utf-8")
    payload = json.loads(meristem("describe", "--hours", 0.2, "--source", tmp_path / "a.txt", "--json").out)
    assert [item["recipe"] for item in payload["recommended"]] == [f"{kind}-10m" for kind in KINDS]
    assert payload["recommended"][0]["epochs"] > 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a recipe or a run, or --hours N"),
        (("bert-mini", "--source", "a.txt"), "--source: it is for --hours N"),
        (("--hours", "0"), "--hours"),
    ],
)
def test_wrong_use_is_one_sentence(meristem: Meristem, arguments: tuple[str, ...], message: str) -> None:
    result = meristem("describe", *arguments)
    assert result.code == 2 and message in result.err
