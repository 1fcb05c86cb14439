"""Train settings: intervals and budgets."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from meristem.training.settings import TrainSettings, interval_seconds, interval_steps


@pytest.mark.parametrize(
    ("interval", "time", "count"),
    [
        (500, None, 500),
        ("500", None, 500),
        ("30s", 30.0, None),
        ("10m", 600.0, None),
        ("1.5h", 5400.0, None),
        ("1epoch", None, 40),
        ("2epochs", None, 80),
        ("0.5epoch", None, 20),
    ],
)
def test_intervals_are_steps_times_or_epochs(interval: int | str, time: float | None, count: int | None) -> None:
    parsed = TrainSettings(save_every=interval).save_every
    assert interval_seconds(parsed) == time
    assert interval_steps(parsed, 40.0) == count


@pytest.mark.parametrize("interval", ["soon", "10", "-5m", "m", "1 epoch", "", "5d"])
def test_other_intervals_are_refused(interval: str) -> None:
    if interval == "10":
        assert TrainSettings(evaluate_every=interval).evaluate_every == 10
        return
    with pytest.raises(ValidationError, match=r"expected steps \(500\), time \(30s, 10m, 2h\) or epochs \(1epoch\)"):
        TrainSettings(evaluate_every=interval)


def test_one_budget() -> None:
    assert TrainSettings(tokens="1e6").budget == ("tokens", 1e6)  # type: ignore[arg-type]  # as YAML reads it
    with pytest.raises(ValidationError, match="a run has one budget, not steps and tokens"):
        TrainSettings(steps=1, tokens=1)
