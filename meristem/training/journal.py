"""What a run tells: metrics.jsonl, log.txt, TensorBoard, and a progress bar for whoever watches."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
)
from rich.table import Column

from meristem import bounded
from meristem.console import TerminalConsole
from meristem.system_errors import naming_file
from meristem.terminal import printable
from meristem.training.event_files import EventFiles

QUIET_SECONDS = 10.0  # between lines where there is no terminal to draw a bar on
NARROW = 80  # columns of a terminal where a bar has room for no more than the loss
LOG_WIDTH = 120


class Journal:
    """One run's records; every line of metrics.jsonl carries its step. Without a folder it keeps none."""

    def __init__(self, folder: Path | None, console: Console, *, after: int = 0) -> None:
        self.console = console
        metrics, log = (Path(os.devnull) if folder is None else folder / name for name in ("metrics.jsonl", "log.txt"))
        self._metrics: TextIO = metrics.open("a", encoding="utf-8")
        self._log: TextIO = log.open("a", encoding="utf-8")
        self._events: EventFiles | None = None
        if folder is not None:
            self._events = EventFiles(folder, after=after, say=lambda text: self.say(text, quiet=True))
        self._bar: _Bar | None = None
        self._beneath: RenderableType | None = None
        self._task = TaskID(0)
        self._since = time.monotonic()
        self._said: float | None = None
        """When a line of progress was printed last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        with suppress(OSError) if error is not None else nullcontext():  # the first failure is the one to tell
            if self._events is not None:
                self._events.close()
            for file in (self._metrics, self._log):
                with naming_file(file.name):
                    file.close()

    def say(self, text: str, *, quiet: bool = False) -> None:
        """A line for the person and the log file; a quiet one only for the file."""
        self._write_log(text)
        if not quiet:  # a terminal's lines are broken between words, a file's nowhere
            self.console.print(text, highlight=False, markup=False, soft_wrap=not self.console.is_terminal)

    def say_numbers(self, what: str, entries: Sequence[str]) -> None:
        """Numbers in one line of the log file; on a terminal no entry is broken at the end of a line."""
        whole = "  ".join([what, *entries])
        if not self.console.is_terminal:
            self.say(whole)
            return
        self._write_log(whole)
        line = what
        for entry in entries:
            if len(line) + 2 + len(entry) > self.console.width:
                self.console.print(line, highlight=False, markup=False, soft_wrap=True)
                line = f"    {entry}"
            else:
                line = f"{line}  {entry}"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def lay_out(self, tables: Iterable[RenderableType]) -> None:
        """Tables for the person, and as plain text for the log file."""
        # in a notebook rich would show what is meant for the file, and each table would appear twice
        plain = TerminalConsole(
            file=self._log, width=LOG_WIDTH, color_system=None, force_jupyter=False, force_terminal=False, escape=True
        )
        for table in tables:
            self.console.print(table)
            with naming_file(self._log.name):
                plain.print(table)
                self._log.flush()

    def _write_log(self, text: str) -> None:
        """A line of log.txt; people read it in a terminal, so that it holds no control characters."""
        self._write(self._log, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(text)}\n")

    def _write(self, file: TextIO, text: str) -> None:
        with naming_file(file.name):
            file.write(text)
            file.flush()

    def record(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl, null where a number is none, and the same numbers for TensorBoard."""
        self._write(self._metrics, bounded.to_json({"step": step, "kind": kind, **values}) + "\n")
        if self._events is not None:
            self._events.add(kind, step, values)

    def holds(self, kind: str, step: int) -> bool:
        """Whether such a line is there already, from a start that was killed after it."""
        with Path(self._metrics.name).open("rb") as lines:
            return any((line.get("kind"), line.get("step")) == (kind, step) for line in map(bounded.row, lines))

    def start(self, step: int, total: int) -> None:
        """Begin the bar where the run begins or goes on."""
        if not self.console.is_terminal:
            return
        whole = Column(no_wrap=True)
        self._bar = _Bar(
            BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=4)),
            MofNCompleteColumn(table_column=whole),
            TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
            console=self.console,
            expand=True,
        )
        self._task = self._bar.add_task("training", total=total, completed=step, numbers="first step …", left="")
        self._bar.beneath = self._beneath
        self._bar.start()

    def watch(self, beneath: RenderableType) -> None:
        """Draw something beneath the bar as well; where there is no bar, it speaks for itself, and `show` is silent."""
        self._beneath = beneath
        if self._bar is not None:
            self._bar.beneath = beneath

    def move(self, step: int, left: float) -> None:
        """Move the bar between two lines of numbers."""
        if self._bar is not None:
            self._bar.update(self._task, completed=step, left=f"{duration(left)} left")

    def show(self, step: int, total: int, numbers: Mapping[str, str], left: float) -> None:
        """Move the bar, or print a line now and then where there is none."""
        text = "  ".join(f"{name} {value}" for name, value in numbers.items())
        if self._bar is not None:
            short = text if self.console.width >= NARROW else "  ".join(text.split("  ")[:1])
            self._bar.update(self._task, completed=step, numbers=short, left=f"{duration(left)} left")
            return
        now = time.monotonic()
        long = self._said is None and left > QUIET_SECONDS
        if self._beneath is None and (long or step == total or now - (self._said or self._since) > QUIET_SECONDS):
            self._said = now
            self.say(f"step {step}/{total}  {text}  left {duration(left)}")


class _Bar(Progress):
    """A progress bar with room for something beneath it."""

    beneath: RenderableType | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.beneath is not None:
            yield self.beneath


def duration(seconds: float) -> str:
    """Seconds as a person reads them."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
