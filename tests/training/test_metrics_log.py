"""Run logger: the progress bar, and intervals of logging, evaluation and saving."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from cases import Case, loop_of, real, stepper_of
from rich.console import Console
from run_factory import RunFactory

from meristem.config.errors import RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.dataset.token_dataset import TokenDataset
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training import loop as looping
from meristem.training.budget import evaluation_count, evaluation_tokens
from meristem.training.run_logger import RunLogger
from meristem.training.settings import TrainSettings
from meristem.training.train_state import TrainState


def test_intervals_are_steps_epochs_or_none(run_factory: RunFactory) -> None:
    off = ("train.evaluate_every=none", "train.save_every=none")
    result = run_factory.train("train.steps=7", "train.log_every=0.1epoch", "train.batch_tokens=2048", *off)
    assert result.metrics == {} and result.test["loss"] > 0 and not run_factory.lines("evaluation")
    steps = [line["step"] for line in run_factory.lines("train")]
    assert steps[0] == 1 and steps[-1] == 7 and 2 < len(steps) <= 7
    assert len(list((run_factory.root / "run/checkpoints").glob("step-*"))) == 1


@pytest.mark.parametrize(("train_settings", "message"), [
    ({"log_every": "10s"}, r"train\.log_every: expected steps"),
    ({"log_every": ""}, "expected steps"), ({"log_every": "s"}, "expected steps"),
    ({"log_every": "none"}, "expected steps"), ({"log_every": 0}, "greater than or equal to 1"),
    ({"evaluate_every": "none", "patience": 2}, "patience: early stopping needs evaluations"),
    ({"evaluate_every": "never"}, r"train\.evaluate_every: expected"),
])  # fmt: skip
def test_intervals_that_make_no_sense_are_refused(train_settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        resolve_recipe("test", {"model": {"family": "gpt2"}, "objective": "clm", "train": train_settings})


def test_none_is_accepted_where_the_help_says_none() -> None:
    plain = {"model": {"family": "gpt2"}, "objective": "clm"}
    recipe = resolve_recipe(
        "test", plain, ["train.max_grad_norm=none", "train.patience=None", "from.path=none", "train.threads=none"]
    )
    assert (recipe.train.max_grad_norm, recipe.train.patience, recipe.start.path, recipe.train.threads) == (
        None,
        None,
        None,
        None,
    )
    assert resolve_recipe(
        "test", {"model": {"family": "electra"}, "objective": {"name": "rtd", "generator_size": "none"}}
    )


def test_the_first_step_has_a_line_and_slow_ones_too(
    tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(name: str) -> list[dict[str, Any]]:
        learner, feed, settings = real(Case("mlm", "bert"), tokenizer, store, steps=6, log_every=3)
        loop = loop_of(tmp_path / name, stepper_of(learner, settings), feed, settings, TrainState(total=6))
        written_steps: list[dict[str, Any]] = []
        monkeypatch.setattr(
            loop.logger, "write_metrics", lambda kind, step, values: written_steps.append({"step": step, **values})
        )
        with loop.logger:
            loop.fit()
        return written_steps

    quick = lines("quick")
    assert [line["step"] for line in quick] == [1, 3, 6]
    monkeypatch.setattr(looping, "LINE_SECONDS", 0.0)
    slow = lines("slow")
    assert [line["step"] for line in slow] == [1, 2, 3, 4, 5, 6]
    assert [line["loss"] for line in slow if line["step"] in (1, 3, 6)] == [line["loss"] for line in quick]


def test_short_runs_evaluate_less() -> None:
    settings = TrainSettings()
    assert evaluation_tokens(settings, 4e6) == 65_536 and evaluation_count(4e6, 65_536) == 10
    assert evaluation_tokens(settings, 100_000) == 25_000 and evaluation_count(100_000, 25_000) == 1
    assert evaluation_tokens(settings, 10) == 8192
    assert evaluation_tokens(TrainSettings(evaluate_tokens=50_000), 10) == 50_000  # what was asked for is done
    for planned in (1e4, 1e5, 1e6, 1e7):
        tokens_each = evaluation_tokens(settings, planned)
        assert evaluation_count(planned, tokens_each) * tokens_each <= max(
            tokens_each, 0.3 * planned
        )  # a tenth of the time, reading being cheap


def metrics_output(width: int, *, terminal: bool, seconds_left: float = 90.0) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    with RunLogger(None, console) as journal:
        journal.start_progress(0, 1000)
        journal.show_metrics(1, 1000, {"loss": "9.123", "tok/s": "12,345", "MFU": "23%"}, seconds_left=seconds_left)
        journal.update_progress(2, seconds_left)
        journal.log("the text is one document: all of its negatives come from elsewhere in it, not from another")
        journal.log_metrics("step 2/1000  validation", [f"metric.number{n} {n / 7:.4g}" for n in range(9)])
    return out.getvalue()


def test_a_narrow_terminal_breaks_no_number() -> None:
    output = metrics_output(60, terminal=True)
    plain = [line.rstrip() for line in output.replace("\r", "\n").splitlines()]
    assert all(f"metric.number{n} {n / 7:.4g}" in output for n in range(9))
    assert max(len(line) for line in plain if "metric" in line) <= 60
    assert "loss 9.123" in output and "1.5 min left" in output and "2/1000" in output
    assert any(line.endswith("come from") for line in plain)  # between words
    assert "MFU" not in output and "MFU" in metrics_output(120, terminal=True)


def test_without_a_terminal_the_first_step_of_a_long_run_is_printed() -> None:
    assert "step 1/1000  loss 9.123  tok/s 12,345  MFU 23%  left 1.5 min" in metrics_output(80, terminal=False)
    assert "loss" not in metrics_output(80, terminal=False, seconds_left=3.0)
