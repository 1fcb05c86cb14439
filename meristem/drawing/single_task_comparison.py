"""Comparison of multi-task training with single-task training: tables for HTML, terminal and model card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from meristem.drawing.html_page import render_page
from meristem.drawing.task_report import format_metric
from meristem.utils import untrusted_files

COLUMN_HEADINGS = ("task", "steps", "samples", "loss in the mix", "loss alone", "difference",
            "accuracy in the mix", "accuracy alone", "difference")  # fmt: skip
IN_TERMINAL = (0, 1, 3, 4, 6, 7)
"""Places of the headings that a terminal of 80 columns has room for."""


@dataclass(frozen=True, kw_only=True)
class TaskComparison:
    """One loss term of one source: held-out metrics of the mixed run and of the run trained on that source alone."""

    source: str
    term: str
    steps: int
    """Optimizer steps on this source, the same in both runs."""
    samples: int
    loss_mixed: float
    loss_alone: float
    accuracy: str = ""
    """The name of the accuracy, where the term has one: mlm.top1, nsp.accuracy."""
    accuracy_mixed: float | None = None
    accuracy_alone: float | None = None

    @property
    def loss_difference(self) -> float:
        """Mixed minus alone: below zero the mix helps."""
        return self.loss_mixed - self.loss_alone

    @property
    def accuracy_difference(self) -> float | None:
        """Mixed minus alone: above zero the mix helps."""
        if self.accuracy_mixed is None or self.accuracy_alone is None:
            return None
        return self.accuracy_mixed - self.accuracy_alone

    @property
    def name(self) -> str:
        """The source, and the term where the source has another name."""
        return self.source if self.source == self.term else f"{self.source}: {self.term}"

    def row_cells(self) -> tuple[str, ...]:
        """One row of the table."""
        values = (self.accuracy_mixed, self.accuracy_alone)
        accuracies = ["–" if value is None else f"{value:.1%}" for value in values]
        difference = self.accuracy_difference
        points = "–" if difference is None else f"{100 * difference:+.1f} points"
        losses = (format_metric(self.loss_mixed), format_metric(self.loss_alone), f"{self.loss_difference:+.4f}")
        return (self.name, f"{self.steps:,}", f"{self.samples:,}", *losses, *accuracies, points)


@dataclass(frozen=True, kw_only=True)
class SingleTaskComparison:
    """Every task of a mixed run, compared with the same task trained alone."""

    run: str
    model: str
    """Short description of the model."""
    split: str
    """The held-out split that both were evaluated on."""
    seed: int
    tasks: Sequence[TaskComparison]

    @property
    def summary(self) -> str:
        """Which tasks gained, in one sentence, with a caution about single seeds."""
        gained = [task.name for task in self.tasks if task.loss_difference < 0]
        not_gained = [task.name for task in self.tasks if task.loss_difference >= 0]
        parts = [f"{_join_names(gained)} gained from the mix"] if gained else []
        parts += [f"{_join_names(not_gained)} did not gain"] if not_gained else []
        return (
            f"{'; '.join(parts)}. Every run was trained once (seed {self.seed}), so each difference is one sample: "
            "repeat with other values of train.seed before drawing a conclusion from it."
        )

    @property
    def method_description(self) -> str:
        """How the comparison was made."""
        return (
            "Alone: the same initial weights, the same samples in the same order and as many steps as the task had in "
            f"the mix, with its own learning rate schedule. Metrics are of the {self.split} split. A difference is "
            "mix minus alone: the mix helps where the loss is lower or the accuracy higher."
        )

    def to_html(self) -> str:
        """The report as one HTML file."""
        return render_page(
            "task_comparison.html",
            title=f"{self.run}: tasks together and alone",
            report=self,
            headings=COLUMN_HEADINGS,
            rows=[task.row_cells() for task in self.tasks],
        )

    def to_json(self) -> str:
        """The report as JSON."""
        tasks = [
            {**asdict(task), "loss_difference": task.loss_difference, "accuracy_difference": task.accuracy_difference}
            for task in self.tasks
        ]
        facts = {"run": self.run, "model": self.model, "split": self.split, "seed": self.seed, "tasks": tasks,
                 "summary": self.summary, "about": self.method_description}  # fmt: skip
        return untrusted_files.to_json(facts, indent=1)

    def to_table(self) -> Table:
        """The report in a terminal, within 80 columns: without samples and differences."""
        table = Table(title="Each task in the mix and trained alone", title_justify="left")
        for column in IN_TERMINAL:
            table.add_column(COLUMN_HEADINGS[column], justify="right" if column else "left", no_wrap=not column)
        for task in self.tasks:
            cells = task.row_cells()
            table.add_row(*(cells[column] for column in IN_TERMINAL))
        return table

    def markdown_lines(self) -> list[str]:
        """The report as lines of a Markdown model card."""
        rows = [COLUMN_HEADINGS, ("---",) * len(COLUMN_HEADINGS), *(task.row_cells() for task in self.tasks)]
        lines = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
        return [self.summary, "", *lines, "", self.method_description, ""]


def _join_names(names: Sequence[str]) -> str:
    """a, b and c."""
    *leading, last = names
    return f"{', '.join(leading)} and {last}" if leading else last
