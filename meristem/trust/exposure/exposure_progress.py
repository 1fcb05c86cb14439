"""Progress of an exposure measurement: a bar in a terminal, otherwise one line per stage."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class ExposureProgress(Progress):
    """The stages of a measurement, one bar each."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def start_stage(self, name: str, total: int) -> Callable[[int], None]:
        """Announce a stage of `total` texts; returns the function that counts finished ones."""
        if not self.console.is_terminal:
            self.console.print(f"{name}: {total:,} texts", highlight=False, markup=False, soft_wrap=True)
        task: TaskID = self.add_task(name, total=total)
        return lambda finished: self.advance(task, finished)
