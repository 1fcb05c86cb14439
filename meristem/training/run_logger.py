"""Run logger: metrics.jsonl, log.txt, trackers such as TensorBoard, and the progress bar."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
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

from meristem.config.errors import MeristemError
from meristem.training.tracker import TRACKERS, Tracker
from meristem.utils import untrusted_files
from meristem.utils.console import TerminalConsole
from meristem.utils.system_errors import name_file_in_errors
from meristem.utils.terminal import printable

LINE_INTERVAL_SECONDS = 10.0  # between progress lines where there is no terminal
NARROW_WIDTH = 80  # a terminal of fewer columns shows only the loss
LOG_WIDTH = 120


class RunLogger:
    """Writes the metrics and log of one run; without a folder (ranks other than 0) nothing is written."""

    def __init__(
        self,
        folder: Path | None,
        console: Console,
        *,
        last_step: int = 0,
        trackers: Sequence[str] = ("tensorboard",),
    ) -> None:
        self.console = console
        metrics, log = (Path(os.devnull) if folder is None else folder / name for name in ("metrics.jsonl", "log.txt"))
        self._metrics: TextIO = metrics.open("a", encoding="utf-8")
        self._log: TextIO = log.open("a", encoding="utf-8")
        self._trackers: dict[str, Tracker] = {}
        for name in trackers if folder is not None else ():
            self._open_tracker(name, Path(folder or ""), last_step)
        self._bar: _ProgressBar | None = None
        self._below: RenderableType | None = None
        self._task = TaskID(0)
        self._start_time = time.monotonic()
        self._last_line_time: float | None = None
        """Time of the last progress line."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        with suppress(OSError) if error is not None else nullcontext():  # the first error is the one to report
            for name, tracker in list(self._trackers.items()):
                self._drop_on_error(name, tracker.close)
            for file in (self._metrics, self._log):
                with name_file_in_errors(file.name):
                    file.close()

    def log(self, text: str, *, file_only: bool = False) -> None:
        """Print a line and append it to log.txt; with `file_only` it is not printed."""
        self._write_log(text)
        if not file_only:  # only terminal output is wrapped
            self.console.print(text, highlight=False, markup=False, soft_wrap=not self.console.is_terminal)

    def log_metrics(self, label: str, entries: Sequence[str]) -> None:
        """Log metrics as one line; on a terminal it is wrapped between entries only."""
        full_line = "  ".join([label, *entries])
        if not self.console.is_terminal:
            self.log(full_line)
            return
        self._write_log(full_line)
        line = label
        for entry in entries:
            if len(line) + 2 + len(entry) > self.console.width:
                self.console.print(line, highlight=False, markup=False, soft_wrap=True)
                line = f"    {entry}"
            else:
                line = f"{line}  {entry}"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def log_tables(self, tables: Iterable[RenderableType]) -> None:
        """Print tables, and append them to log.txt as plain text."""
        # force_jupyter: in a notebook rich would also display what is written to the file
        log_console = TerminalConsole(
            file=self._log, width=LOG_WIDTH, color_system=None, force_jupyter=False, force_terminal=False, escape=True
        )
        for table in tables:
            self.console.print(table)
            with name_file_in_errors(self._log.name):
                log_console.print(table)
                self._log.flush()

    def _write_log(self, text: str) -> None:
        """Append a line to log.txt, without control characters since it is read in terminals."""
        self._write(self._log, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(text)}\n")

    def _write(self, file: TextIO, text: str) -> None:
        with name_file_in_errors(file.name):
            file.write(text)
            file.flush()

    def write_metrics(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Append a line to metrics.jsonl (null for NaN), and give its numbers to the trackers."""
        self._write(self._metrics, untrusted_files.to_json({"step": step, "kind": kind, **values}) + "\n")
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        for name, tracker in list(self._trackers.items()):
            self._drop_on_error(name, partial(tracker.add_scalars, kind, step, numbers))

    def _open_tracker(self, name: str, folder: Path, last_step: int) -> None:
        def open_tracker() -> None:
            log = partial(self.log, file_only=True)
            self._trackers[name] = TRACKERS[name](folder, last_step=last_step, log=log)

        self._drop_on_error(name, open_tracker)

    def _drop_on_error(self, name: str, action: Callable[[], None]) -> None:
        """Run an action of a tracker; one that fails is left out from then on, and the run continues."""
        try:
            action()
        except (Exception, SystemExit) as error:  # third-party code can raise anything
            self._trackers.pop(name, None)
            reason = str(error) if isinstance(error, MeristemError) else f"{type(error).__name__}: {error}"
            self.log(f"train.trackers: {name} failed and is no longer used: {reason}")

    def has_metrics(self, kind: str, step: int) -> bool:
        """Whether metrics.jsonl already has such a line, written before the process was killed."""
        with Path(self._metrics.name).open("rb") as lines:
            return any(
                (line.get("kind"), line.get("step")) == (kind, step)
                for line in map(untrusted_files.parse_json_line, lines)
            )

    def start_progress(self, step: int, total: int) -> None:
        """Start the progress bar at the current step."""
        if not self.console.is_terminal:
            return
        no_wrap_column = Column(no_wrap=True)
        self._bar = _ProgressBar(
            BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=4)),
            MofNCompleteColumn(table_column=no_wrap_column),
            TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
            console=self.console,
            expand=True,
        )
        self._task = self._bar.add_task("training", total=total, completed=step, numbers="first step …", left="")
        self._bar.below = self._below
        self._bar.start()

    def set_total(self, total: int) -> None:
        """Set another number of steps as the end of the progress bar."""
        if self._bar is not None:
            self._bar.update(self._task, total=total)

    def show_below(self, below: RenderableType) -> None:
        """Show something below the progress bar; without a bar it prints itself, and `show_metrics` prints nothing."""
        self._below = below
        if self._bar is not None:
            self._bar.below = below

    def update_progress(self, step: int, seconds_left: float) -> None:
        """Move the progress bar between two updates of its metrics."""
        if self._bar is not None:
            self._bar.update(self._task, completed=step, left=f"{format_duration(seconds_left)} left")

    def show_metrics(self, step: int, total: int, metrics: Mapping[str, str], seconds_left: float) -> None:
        """Update the progress bar, or print a line every ten seconds without a terminal."""
        text = "  ".join(f"{name} {value}" for name, value in metrics.items())
        if self._bar is not None:
            short = text if self.console.width >= NARROW_WIDTH else "  ".join(text.split("  ")[:1])
            self._bar.update(self._task, completed=step, numbers=short, left=f"{format_duration(seconds_left)} left")
            return
        now = time.monotonic()
        is_first_of_long_run = self._last_line_time is None and seconds_left > LINE_INTERVAL_SECONDS
        if self._below is None and (
            is_first_of_long_run
            or step == total
            or now - (self._last_line_time or self._start_time) > LINE_INTERVAL_SECONDS
        ):
            self._last_line_time = now
            self.log(f"step {step}/{total}  {text}  left {format_duration(seconds_left)}")


class _ProgressBar(Progress):
    """A progress bar with something else shown below it."""

    below: RenderableType | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.below is not None:
            yield self.below


def format_duration(seconds: float) -> str:
    """A duration such as `42 s`, `3.1 min` or `2.5 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
