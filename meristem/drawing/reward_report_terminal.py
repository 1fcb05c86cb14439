"""Reward run in the terminal: a live table during training, and the report at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meristem.drawing.html_page import shorten_middle
from meristem.drawing.reward_report import (
    BeforeAfterMetric,
    OptionalFloat,
    RewardReport,
    RewardStepMetrics,
    ScoredText,
    TextComparison,
    equivalent_best_of,
    finite_values,
    format_number,
    format_p_value,
    summarize,
)
from meristem.drawing.terminal_tables import report_table, short_text, with_title

MAX_PAIRS = 3
"""Samples shown in the report."""
MAX_LIVE_SAMPLES = 3
"""Samples shown during training."""
MAX_HISTORY = 4096
"""Logged steps that are kept for sparklines."""
SPARKLINE_WIDTH = 24
"""Width of a sparkline in characters."""
SPARKLINE_LEVELS = "▁▂▃▄▅▆▇█"
SEVERITY_MARKS = {"serious": ("‼", "bold red"), "mild": ("!", "yellow")}


def reward_report_tables(report: RewardReport) -> Iterator[RenderableType]:
    """The report: summary, warnings, metrics, judges and some samples."""
    yield Padding(Text(summarize(report), style="bold"), (0, 0, 1, 0))
    if report.warnings:
        yield _warnings(report)
    if report.numbers:
        yield _metrics_table(report.numbers)
    if report.judges:
        yield _judges_table(report)
    if (count := equivalent_best_of(report)) is not None:
        yield Text(
            f"In mean reward, one text of the trained model equals the best of about {count:.1f} of the start.\n"
        )
    if report.pairs:
        yield _samples_table(report.pairs[:MAX_PAIRS])


def _warnings(report: RewardReport) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for warning in report.warnings:
        mark, style = SEVERITY_MARKS[warning.severity]
        table.add_row(
            Text(mark, style=style),
            Text.assemble((shorten_middle(warning.kind, 30), style), " ", short_text(warning.sentence, 400)),
        )
    return with_title("Warnings", Padding(table, (0, 0, 1, 0)))


def _metrics_table(numbers: Sequence[BeforeAfterMetric]) -> RenderableType:
    table = report_table()
    table.add_column("metric", overflow="fold")
    for name in ("before", "95 %", "after", "95 %"):
        table.add_column(name, justify="right", no_wrap=True, style="dim" if "%" in name else "")
    for metric in numbers:
        table.add_row(
            short_text(metric.name),
            format_number(metric.before),
            _format_interval(metric.before_interval),
            Text(format_number(metric.after), style="bold"),
            _format_interval(metric.after_interval),
        )
    return with_title("Before and after", table)


def _format_interval(interval: tuple[float, float] | None) -> str:
    return f"{format_number(interval[0])} – {format_number(interval[1])}" if interval else ""


def _judges_table(report: RewardReport) -> RenderableType:
    table = report_table(["judge"], ["won", "tied", "lost", "win rate", "95 %", "p"], overflow="fold")
    for judge in report.judges:
        low, high = judge.won.interval
        table.add_row(
            Text.assemble(short_text(judge.name), ("" if judge.independent else " (trained for)", "dim")),
            *(f"{count:,}" for count in (judge.won.wins, judge.won.ties, judge.won.losses)),
            Text(f"{100 * judge.won.rate:.1f} %", style="bold"),
            f"{100 * low:.0f} – {100 * high:.0f} %",
            format_p_value(judge.won.p_value),
        )
    return with_title("How often the new text is better", table)


def _samples_table(pairs: Sequence[TextComparison]) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for pair in pairs:
        table.add_row(Text("prompt", style="dim"), "", Text(shorten_middle(pair.prompt, 160), style="bold"))
        for name, scored in (("before", pair.before), ("after", pair.after)):
            is_preferred = pair.preferred == name
            mark = Text(f"{'✓' if is_preferred else ' '} {name}", style="green" if is_preferred else "")
            table.add_row(mark, format_number(scored.reward), short_text(scored.text, 240))
        if pair.opinion:
            table.add_row("", "", Text(shorten_middle(pair.opinion, 160), style="dim"))
        table.add_row("", "", "")
    return with_title("Samples (✓ preferred by the judge)", table)


# ------------------------------------------------------------ during training


class LiveRewards:
    """Live metrics of a run: a table that a terminal redraws in place, or a line for each logged step elsewhere."""

    def __init__(
        self, console: Console, say: Callable[[str], None], *, total: int, kl_target: OptionalFloat = None
    ) -> None:
        self.total, self.kl_target = total, kl_target
        self._say = None if console.is_terminal else say
        self._first_values: dict[str, OptionalFloat] = {}
        self._history: deque[RewardStepMetrics] = deque(maxlen=MAX_HISTORY)
        self._latest_samples: Sequence[tuple[str, ScoredText]] = ()
        self._time_left = ""
        self._renderable: RenderableType = Text("generating the first texts …", style="dim")

    def update(
        self, step_metrics: RewardStepMetrics, *, samples: Sequence[tuple[str, ScoredText]] = (), time_left: str = ""
    ) -> None:
        """Add a logged step, the newest prompts with their completions, and the remaining time."""
        self._history.append(step_metrics)
        self._first_values = step_metrics.named_values() | self._first_values
        self._latest_samples, self._time_left = samples or self._latest_samples, time_left
        # built here, because a terminal redraws in its own thread
        self._renderable = Group(self._metrics_table(step_metrics), self._samples_table())
        if self._say is not None:
            self._say(self.format_line())

    def format_line(self) -> str:
        """The newest step on one line."""
        latest = self._history[-1]
        values = {name.removeprefix("· "): value for name, value in latest.named_values().items() if value is not None}
        formatted = "  ".join(
            f"{shorten_middle(name, 40)} {self._format_current(name, value)}" for name, value in values.items()
        )
        return f"step {latest.step}/{self.total}  {formatted}{f'  left {self._time_left}' if self._time_left else ''}"

    def __rich__(self) -> RenderableType:
        return self._renderable

    def _metrics_table(self, step_metrics: RewardStepMetrics) -> Table:
        table = report_table()
        time_left = f"  left {self._time_left}" if self._time_left else ""
        table.add_column(f"step {step_metrics.step}/{self.total}{time_left}", no_wrap=True)
        for name in ("first", "now"):
            table.add_column(name, justify="right", no_wrap=True, style="dim" if name == "first" else "bold")
        table.add_column("history", no_wrap=True)
        history = [step_values.named_values() for step_values in self._history]
        for name, value in step_metrics.named_values().items():
            if series := finite_values(step_values.get(name) for step_values in history):
                first, current = format_number(self._first_values[name]), self._format_current(name, value)
                spark = Text(sparkline(series, SPARKLINE_WIDTH), style="cyan")
                table.add_row(short_text(name, 32), first, current, spark)
        return table

    def _format_current(self, name: str, value: OptionalFloat) -> str:
        target = f"/{self.kl_target:.3g}" if name == "KL" and self.kl_target is not None else ""
        return format_number(value) + target

    def _samples_table(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(justify="right", no_wrap=True, min_width=7)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        for prompt, scored in self._latest_samples[:MAX_LIVE_SAMPLES]:
            grid.add_row(
                Text(format_number(scored.reward), style="bold"),
                Text.assemble((shorten_middle(prompt, 40), "dim"), " → ", shorten_middle(scored.text, 160)),
            )
        return grid


def sparkline(values: Sequence[float], width: int) -> str:
    """The history of a metric in a few characters, each the mean of a window."""
    size = max(1, -(-len(values) // width))
    means = [
        sum(values[start : start + size]) / len(values[start : start + size]) for start in range(0, len(values), size)
    ]
    low, high = min(means), max(means)
    value_range = (high - low) or 1.0
    return "".join(SPARKLINE_LEVELS[min(7, int(8 * (mean - low) / value_range))] for mean in means)
