"""Reward report data: JSON, and derived values."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))

from reward_report_examples import example_report, pair

from meristem.drawing.reward_report import (
    BestOfResult,
    JudgeResult,
    RewardStepMetrics,
    ScoredText,
    equivalent_best_of,
    format_number,
    reward_difference,
    step_metrics,
    to_dict,
    to_json,
)
from meristem.drawing.reward_report import summarize as told
from meristem.metrics.win_rate import WinRate


def test_every_part_of_a_report_is_in_its_json() -> None:
    report = example_report()
    payload = json.loads(to_json(report))
    assert payload.keys() == to_dict(report).keys() == {field.name for field in dataclasses.fields(report)}
    assert payload["before"] == list(report.before) and payload["judges"][0]["won"] == dataclasses.asdict(
        report.judges[0].won
    )
    assert payload["pairs"][0]["after"]["text"] == report.pairs[0].after.text
    assert "春天来了" in to_json(report)  # readable, not escaped


def test_values_that_are_not_finite_become_null() -> None:
    report = example_report(
        train=(RewardStepMetrics(step=1, reward=float("nan"), parts={"a": float("inf")}),), before=(float("nan"), 1.0)
    )
    payload = json.loads(to_json(report))
    assert payload["train"][0]["reward"] is None and payload["train"][0]["parts"] == {"a": None}
    assert payload["before"] == [None, 1.0]


def test_half_a_character_does_not_stop_a_report() -> None:
    report = example_report(pairs=(pair(0, after=ScoredText(text="half \ud83d")),))
    json.loads(to_json(report))


def test_step_metrics_from_a_logged_line() -> None:
    line = {"reward": 0.5, "reward.grammar": -1.0, "reward.my:own": 2, "kl": 3.0, "leash": 0.1, "entropy": 2.5,
            "written": 40, "distinct2": 0.7, "loss": 1.0, "texts": ["x"]}  # fmt: skip
    assert step_metrics(7, line) == RewardStepMetrics(
        step=7, reward=0.5, parts={"grammar": -1.0, "my:own": 2.0}, kl=3.0, coefficient=0.1, entropy=2.5, length=40.0,
        distinct2=0.7,
    )  # fmt: skip
    assert step_metrics(1, {"loss": 1.0}) == RewardStepMetrics(step=1)


@pytest.mark.parametrize(("wins", "losses", "after", "expected_summary"), [
    (50, 10, 1.0, "The reward rose (0.000 → 1.00; {}), and an independent judge prefers the new texts"),
    (10, 50, 1.0, "The reward rose (0.000 → 1.00; {}), but an independent judge prefers the old texts"),
    (30, 29, 1.0, "The reward rose (0.000 → 1.00; {}), but an independent judge sees no difference beyond chance"),
    (50, 10, -1.0, "The reward fell (0.000 → -1.00; {}), but an independent judge prefers the new texts"),
    (10, 50, -1.0, "The reward fell (0.000 → -1.00; {}), and an independent judge prefers the old texts"),
    (10, 50, 0.0, "The reward shows no difference beyond chance (0.000 → 0.000; {}), and an independent judge prefers"),
])  # fmt: skip
def test_the_summary(wins: int, losses: int, after: float, expected_summary: str) -> None:
    judge = JudgeResult(name="j", won=WinRate(wins=wins, ties=0, losses=losses))
    ends = f"{format_number(after)} to {format_number(after)}"
    tested = expected_summary.format(f"the difference over the same 8 prompts is {ends} with 95 % confidence")
    assert told(example_report(before=(0.0,) * 8, after=(after,) * 8, judges=(judge,))).startswith(tested)


def test_a_difference_is_claimed_only_where_it_is_more_than_chance() -> None:
    draws = np.random.default_rng(3)
    hard = draws.normal(0, 5, 60)  # how hard a prompt is moves both models far more than training does
    noise, gain = draws.normal(0, 0.3, 60), 0.4
    for shift, expected_start in (
        (gain, "The reward rose"),
        (-gain, "The reward fell"),
        (0.0, "The reward shows no diff"),
    ):
        report = example_report(before=tuple(hard), after=tuple(hard + noise + shift), judges=(), warnings=())
        assert told(report).startswith(expected_start), told(report)
    small_report = example_report(before=(0.0,) * 5, after=(1.0,) * 5, judges=(), warnings=())
    assert told(small_report).startswith(
        "The reward shows no difference beyond chance (0.000 → 1.00; the difference over the"
    )
    assert equivalent_best_of(small_report) is None and reward_difference(small_report) is not None


def test_the_summary_uses_only_independent_judges() -> None:
    judge = JudgeResult(name="grammar", won=WinRate(wins=50, ties=0, losses=1), independent=False)
    assert "judge" not in told(example_report(judges=(judge,)))


@pytest.mark.parametrize(("single", "count"), [
    (0.2, 1.0), (0.3, 2**0.5), (0.4, 2.0), (0.6, 4.0), (0.1, None), (0.7, None),
])  # fmt: skip
def test_how_many_texts_of_the_start_are_as_good_as_one(single: float, count: float | None) -> None:
    start = {1: 0.2, 2: 0.4, 4: 0.6}
    rows = tuple(BestOfResult(count=n, start=value, trained=single if n == 1 else None) for n, value in start.items())
    equivalent_count = equivalent_best_of(example_report(best_of=rows))
    assert equivalent_count == (None if count is None else pytest.approx(count))
    assert equivalent_best_of(example_report(best_of=())) is None


def test_numbers_have_as_many_digits_as_say_something() -> None:
    formatted = [
        format_number(value) for value in (0.12345, 1.2345, -31.25, 12345.6, 0.00001, 0.0, 3.5e9, None, float("nan"))
    ]
    assert formatted == ["0.123", "1.23", "-31.2", "12,345.6", "1.0e-05", "0.000", "3.50e+09", "–", "–"]
