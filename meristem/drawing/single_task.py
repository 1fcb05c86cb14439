"""Tables that compare the tasks of a mixed run with the same tasks trained alone: page, terminal and model card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from meristem import bounded
from meristem.drawing.page import escaped, framed, own
from meristem.drawing.report import number

HEADINGS = ("task", "steps", "samples", "loss in the mix", "loss alone", "difference",
            "accuracy in the mix", "accuracy alone", "difference")  # fmt: skip
IN_TERMINAL = (0, 1, 3, 4, 6, 7)
"""Places of the headings that a terminal of 80 columns has room for."""


@dataclass(frozen=True, kw_only=True)
class TaskComparison:
    """One loss term of one source: held-out numbers of the mixed run and of the run trained on that source alone."""

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
        """Mixed minus alone: below zero the mix helped."""
        return self.loss_mixed - self.loss_alone

    @property
    def accuracy_difference(self) -> float | None:
        """Mixed minus alone: above zero the mix helped."""
        if self.accuracy_mixed is None or self.accuracy_alone is None:
            return None
        return self.accuracy_mixed - self.accuracy_alone

    @property
    def name(self) -> str:
        """The source, and the term where the source has another name."""
        return self.source if self.source == self.term else f"{self.source}: {self.term}"

    def cells(self) -> tuple[str, ...]:
        """One row of the table."""
        values = (self.accuracy_mixed, self.accuracy_alone)
        accuracies = ["–" if value is None else f"{value:.1%}" for value in values]
        gain = self.accuracy_difference
        points = "–" if gain is None else f"{100 * gain:+.1f} points"
        losses = (number(self.loss_mixed), number(self.loss_alone), f"{self.loss_difference:+.4f}")
        return (self.name, f"{self.steps:,}", f"{self.samples:,}", *losses, *accuracies, points)


@dataclass(frozen=True, kw_only=True)
class ComparisonReport:
    """Every task of a mixed run beside itself trained alone."""

    run: str
    model: str
    """The model in a few words."""
    split: str
    """The held-out split both were measured on."""
    seed: int
    tasks: Sequence[TaskComparison]

    @property
    def summary(self) -> str:
        """Which tasks gained, in one sentence, and how little one seed says."""
        gained = [one.name for one in self.tasks if one.loss_difference < 0]
        lost = [one.name for one in self.tasks if one.loss_difference >= 0]
        parts = [f"{_listed(gained)} gained from the mix"] if gained else []
        parts += [f"{_listed(lost)} did not gain"] if lost else []
        return (
            f"{'; '.join(parts)}. Every run was trained once (seed {self.seed}), so each difference is one sample: "
            "repeat with other values of train.seed before drawing a conclusion from it."
        )

    @property
    def about(self) -> str:
        """How the comparison was made."""
        return (
            "Alone: the same initial weights, the same samples in the same order and as many steps as the task had in "
            f"the mix, with its own learning rate schedule. Numbers are of the {self.split} split. A difference is "
            "mix minus alone: the mix helps where the loss is lower or the accuracy higher."
        )

    def page(self) -> str:
        """The report as one HTML file."""
        return framed(f"{self.run}: tasks together and alone", self._parts())

    def _parts(self) -> Iterator[str]:
        yield f"<h1>{escaped(self.run)}</h1>"
        yield f'<p class="soft">{escaped(self.model)}</p>'
        yield "<h2>Each task in the mix and trained alone</h2>"
        yield f"<p>{escaped(self.summary)}</p>"
        heads = "".join(f'<th scope="col">{escaped(name)}</th>' for name in HEADINGS)
        yield f'<div class="wide"><table class="numbers"><thead><tr>{heads}</tr></thead><tbody>'
        for one in self.tasks:
            name, *cells = one.cells()
            yield f'<tr><th scope="row" class="name">{own(name, 80)}</th>' + "".join(
                f"<td>{escaped(cell)}</td>" for cell in cells
            ) + "</tr>"
        yield f'</tbody></table></div>\n<p class="soft">{escaped(self.about)}</p>'

    def plain(self) -> str:
        """The report as JSON."""
        tasks = [
            {**asdict(one), "loss_difference": one.loss_difference, "accuracy_difference": one.accuracy_difference}
            for one in self.tasks
        ]
        facts = {"run": self.run, "model": self.model, "split": self.split, "seed": self.seed, "tasks": tasks,
                 "summary": self.summary, "about": self.about}  # fmt: skip
        return bounded.to_json(facts, indent=1)

    def table(self) -> Table:
        """The report in a terminal, within 80 columns: without samples and differences."""
        table = Table(title="Each task in the mix and trained alone", title_justify="left")
        for place in IN_TERMINAL:
            table.add_column(HEADINGS[place], justify="right" if place else "left", no_wrap=not place)
        for one in self.tasks:
            cells = one.cells()
            table.add_row(*(cells[place] for place in IN_TERMINAL))
        return table

    def card(self) -> list[str]:
        """The report as lines of a Markdown model card."""
        rows = [HEADINGS, ("---",) * len(HEADINGS), *(one.cells() for one in self.tasks)]
        lines = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
        return [self.summary, "", *lines, "", self.about, ""]


def _listed(names: Sequence[str]) -> str:
    """a, b and c."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
