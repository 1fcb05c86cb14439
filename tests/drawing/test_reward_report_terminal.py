"""Reward run in the terminal: the live table, log lines without a terminal, and the final report."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

sys.path.append(str(Path(__file__).parent))

from reward_report_examples import HOSTILE, example_report, moments, pair

from meristem.drawing.reward_report import RewardStepMetrics, ScoredText
from meristem.drawing.reward_report_terminal import LiveRewards, reward_report_tables, sparkline
from meristem.training.run_logger import RunLogger

STYLES = re.compile("\x1b\\[[0-9;?]*[a-zA-Z]")


def screen(width: int = 100, *, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), width=width, height=40, force_terminal=terminal, color_system="truecolor")


def plain_output(console: Console) -> str:
    return STYLES.sub("", console.file.getvalue())  # type: ignore[attr-defined]  # a StringIO


@pytest.mark.parametrize("width", [60, 120])
def test_the_end_of_a_run(width: int) -> None:
    console = screen(width)
    for table in reward_report_tables(example_report()):
        console.print(table)
    text = plain_output(console)
    for fact in (
        "The reward rose",
        "Warnings",
        "2.3 times",
        "0.570 – 0.660",
        "68.8 %",
        "< 0.001",
        "春天来了",
        "✓ after",
    ):
        assert fact in text, fact
    assert text.count("prompt ") >= 3 and "prompts.jsonl:3" not in text and "prompt 3:" not in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_data_do_not_steer_a_terminal() -> None:
    console = screen(200)
    scored_text = ScoredText(text=HOSTILE, reward=1.0)
    for table in reward_report_tables(
        example_report(pairs=(pair(0, prompt=HOSTILE, after=scored_text, opinion=HOSTILE),))
    ):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "\x1b[31mred" not in text and "\x00" not in text and "\u202e" not in text
    assert "[bold]x[/y]" in text


def test_a_bare_report_has_its_summary() -> None:
    report = example_report(warnings=(), numbers=(), judges=(), best_of=(), pairs=(), before=(), after=())
    assert len(list(reward_report_tables(report))) == 1


def train(console: Console, *, steps: int = 3) -> str:
    with RunLogger(None, console) as journal:
        live = LiveRewards(console, journal.log, total=40, kl_target=6.0)
        journal.show_below(live)
        journal.start_progress(0, 40)
        for moment in moments(steps):
            live.update(
                moment, samples=[("春天 [bold]", ScoredText(text="花开\x1b[2J", reward=0.25))], time_left="2.0 min"
            )
            journal.show_metrics(moment.step, 40, {"loss": "0.1"}, 1.0)
    return plain_output(console)


def test_a_table_is_redrawn_beneath_the_bar() -> None:
    text = train(screen())
    last_frame = text[text.rindex("3/40 loss") :]
    assert "3/40 loss 0.1" in last_frame and "step 3/40  left 2.0 min" in last_frame
    for row in (
        r"reward +0\.101 +0\.103 +▁[▄▅]█",
        r"· part 1 +0\.990 +0\.970 +█[▄▅]▁",
        r"KL +0\.020 +0\.060/6",
        r"coefficient +0\.050",
        r"entropy +3\.00",
        r"length +30\.0",
        r"distinct-2 +0\.700",
        r"0\.250 春天 \[bold\] → 花开",
    ):
        assert re.search(row, last_frame), row
    assert "step 1/40  reward" not in text  # no lines beside it


def test_a_line_for_each_step_where_there_is_no_terminal() -> None:
    lines = [line for line in train(screen(terminal=False)).splitlines() if line.startswith("step")]
    assert len(lines) == 3
    assert lines[2] == (
        "step 3/40  reward 0.103  part 0 -0.030  part 1 0.970  KL 0.060/6  coefficient 0.050  entropy 3.00  "
        "length 30.0  distinct-2 0.700  left 2.0 min"
    )


def test_before_the_first_texts_and_with_numbers_missing() -> None:
    console = screen()
    live = LiveRewards(console, lambda line: None, total=9)
    console.print(live)
    live.update(RewardStepMetrics(step=1, reward=float("nan")))
    live.update(RewardStepMetrics(step=2, kl=1.0))
    console.print(live)
    text = plain_output(console)
    assert "first texts" in text and "step 2/9" in text and "nan" not in text


def test_the_run_logger_without_a_live_view_is_unchanged() -> None:
    console = screen(terminal=False)
    with RunLogger(None, console) as journal:
        journal.start_progress(0, 5)
        journal.show_metrics(5, 5, {"loss": "0.1"}, 1.0)
    assert "step 5/5  loss 0.1  left 1 s" in plain_output(console)


def test_sparklines() -> None:
    assert sparkline([0.0, 1.0, 2.0, 7.0], 8) == "▁▂▃█"
    assert len(sparkline([float(n) for n in range(1000)], 24)) <= 24
    assert sparkline([2.0, 2.0], 8) == "▁▁"
