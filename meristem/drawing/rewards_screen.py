"""A reward run in a terminal: a table that changes while it trains, and what came of it at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meristem.drawing.page import shortened
from meristem.drawing.rewards import (
    Attempted,
    Moment,
    Number,
    Pair,
    RewardReport,
    Value,
    as_good_as,
    chance,
    known,
    number,
    verdict,
)

PAIRS = 3
"""Samples shown at the end."""
NEWEST = 3
"""Samples shown while it trains."""
KEPT = 4096
"""Logged steps that are kept for the course of a number."""
WIDE = 24
"""Characters in which that course is drawn."""
LEVELS = "▁▂▃▄▅▆▇█"
MARKS = {"serious": ("‼", "bold red"), "mild": ("!", "yellow")}


def tables(report: RewardReport) -> Iterator[RenderableType]:
    """One after the other: the verdict, warnings, numbers, who prefers what, and some samples."""
    yield Padding(Text(verdict(report), style="bold"), (0, 0, 1, 0))
    if report.warnings:
        yield _warnings(report)
    if report.numbers:
        yield _numbers(report.numbers)
    if report.judges:
        yield _judges(report)
    if (count := as_good_as(report)) is not None:
        yield Text(f"By the mean reward, one trained text is worth the best of about {count:.1f} of the start.\n")
    if report.pairs:
        yield _pairs(report.pairs[:PAIRS])


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


def _titled(title: str, table: RenderableType) -> RenderableType:
    return Group(Text(title, style="bold"), Padding(table, (0, 0, 0, 1)))


def _text(text: str, most: int = 60) -> Text:
    return Text(shortened(text, most))


def _warnings(report: RewardReport) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for one in report.warnings:
        mark, style = MARKS[one.severity]
        table.add_row(
            Text(mark, style=style), Text.assemble((shortened(one.kind, 30), style), " ", _text(one.sentence, 400))
        )
    return _titled("Warnings", Padding(table, (0, 0, 1, 0)))


def _numbers(numbers: Sequence[Number]) -> RenderableType:
    table = _table()
    table.add_column("measure", overflow="fold")
    for name in ("before", "95 %", "after", "95 %"):
        table.add_column(name, justify="right", no_wrap=True, style="dim" if "%" in name else "")
    for one in numbers:
        table.add_row(
            _text(one.name),
            number(one.before),
            _between(one.before_interval),
            Text(number(one.after), style="bold"),
            _between(one.after_interval),
        )
    return _titled("Before and after", table)


def _between(interval: tuple[float, float] | None) -> str:
    return f"{number(interval[0])} – {number(interval[1])}" if interval else ""


def _judges(report: RewardReport) -> RenderableType:
    table = _table()
    table.add_column("judge", overflow="fold")
    for name in ("won", "tied", "lost", "win rate", "95 %", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in report.judges:
        low, high = one.won.interval
        table.add_row(
            Text.assemble(_text(one.name), ("" if one.independent else " (was trained for)", "dim")),
            *(f"{count:,}" for count in (one.won.wins, one.won.ties, one.won.losses)),
            Text(f"{100 * one.won.rate:.1f} %", style="bold"),
            f"{100 * low:.0f} – {100 * high:.0f} %",
            chance(one.won.chance),
        )
    return _titled("How often the new text is better", table)


def _pairs(pairs: Sequence[Pair]) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for one in pairs:
        table.add_row(Text("prompt", style="dim"), "", Text(shortened(one.prompt, 160), style="bold"))
        for name, said in (("before", one.before), ("after", one.after)):
            wins = one.preferred == name
            mark = Text(f"{'✓' if wins else ' '} {name}", style="green" if wins else "")
            table.add_row(mark, number(said.reward), _text(said.text, 240))
        if one.opinion:
            table.add_row("", "", Text(shortened(one.opinion, 160), style="dim"))
        table.add_row("", "", "")
    return _titled("Samples (✓ the judge prefers it)", table)


# ------------------------------------------------------------ while it trains


class LiveRewards:
    """What a run does now: a table that a terminal redraws in place, or a line for each logged step elsewhere."""

    def __init__(self, console: Console, say: Callable[[str], None], *, total: int, kl_target: Value = None) -> None:
        self.total, self.kl_target = total, kl_target
        self._say = None if console.is_terminal else say
        self._first: dict[str, Value] = {}
        self._seen: deque[Moment] = deque(maxlen=KEPT)
        self._newest: Sequence[tuple[str, Attempted]] = ()
        self._left = ""
        self._drawn: RenderableType = Text("the first texts are being written …", style="dim")

    def update(self, now: Moment, *, newest: Sequence[tuple[str, Attempted]] = (), left: str = "") -> None:
        """A logged step, the newest prompts with what was written for them, and how long it will still take."""
        self._seen.append(now)
        self._first = now.values() | self._first
        self._newest, self._left = newest or self._newest, left
        self._drawn = Group(self._table(now), self._samples())  # here, because a terminal redraws in its own thread
        if self._say is not None:
            self._say(self.line())

    def line(self) -> str:
        """The newest step in one line."""
        now = self._seen[-1]
        there = {name.removeprefix("· "): value for name, value in now.values().items() if value is not None}
        told = "  ".join(f"{shortened(name, 40)} {self._now(name, value)}" for name, value in there.items())
        return f"step {now.step}/{self.total}  {told}{f'  left {self._left}' if self._left else ''}"

    def __rich__(self) -> RenderableType:
        return self._drawn

    def _table(self, now: Moment) -> Table:
        table = _table()
        left = f"  left {self._left}" if self._left else ""
        table.add_column(f"step {now.step}/{self.total}{left}", no_wrap=True)
        for name in ("first", "now"):
            table.add_column(name, justify="right", no_wrap=True, style="dim" if name == "first" else "bold")
        table.add_column("course", no_wrap=True)
        seen = [one.values() for one in self._seen]
        for name, value in now.values().items():
            if course := known(one.get(name) for one in seen):
                drawn = Text(curve(course, WIDE), style="cyan")
                table.add_row(_text(name, 32), number(self._first[name]), self._now(name, value), drawn)
        return table

    def _now(self, name: str, value: Value) -> str:
        target = f"/{self.kl_target:.3g}" if name == "KL" and self.kl_target is not None else ""
        return number(value) + target

    def _samples(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(justify="right", no_wrap=True, min_width=7)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        for prompt, said in self._newest[:NEWEST]:
            grid.add_row(
                Text(number(said.reward), style="bold"),
                Text.assemble((shortened(prompt, 40), "dim"), " → ", shortened(said.text, 160)),
            )
        return grid


def curve(values: Sequence[float], width: int) -> str:
    """The course of a number in a few characters, each the mean of a stretch."""
    size = max(1, -(-len(values) // width))
    means = [sum(values[at : at + size]) / len(values[at : at + size]) for at in range(0, len(values), size)]
    low, high = min(means), max(means)
    reach = (high - low) or 1.0
    return "".join(LEVELS[min(7, int(8 * (mean - low) / reach))] for mean in means)
