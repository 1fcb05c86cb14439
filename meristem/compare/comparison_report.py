"""Report of a comparison: table with verdicts, problems, curves, differences; as HTML, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from meristem.checkpoint import disk
from meristem.compare.comparison_settings import ComparisonSettings
from meristem.compare.measures import Measure
from meristem.compare.next_steps import next_steps
from meristem.compare.report_page import (
    COST_HEADINGS,
    Language,
    format_difference,
    render_comparison,
    summary_sentences,
    verdict_texts,
)
from meristem.compare.statistics import PairedComparison
from meristem.compare.validity import Problem
from meristem.utils import untrusted_files
from meristem.utils.result_tables import Record, Tabular

TABLE_HEADINGS = ("measure", "arm", "mean (lowest–highest seed)", "difference [95 % interval]", "verdict")
TIMED = ("minutes", "tokens_per_second", "memory")
"""Costs that differ when a comparison is repeated."""


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """What one arm gave in one measure."""

    arm: str
    values: Mapping[int, float]
    """Seed → value."""
    comparison: PairedComparison | None
    """Against the first arm; None for the first arm and where values cannot be compared."""

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return float(np.mean(list(self.values.values()))) if self.values else None

    def format(self) -> str:
        """Mean and the lowest and highest seed."""
        if self.mean is None:
            return "–"
        low, high = min(self.values.values()), max(self.values.values())
        return f"{self.mean:.4g}" + (f" ({low:.4g}–{high:.4g})" if len(self.values) > 1 else "")

    def verdict(self) -> str:
        """The verdict in words."""
        return verdict_texts(self.comparison)[0]


@dataclass(frozen=True, kw_only=True)
class MeasureResult:
    """One measure of all arms."""

    measure: Measure
    arms: Sequence[ArmResult]


@dataclass(frozen=True, kw_only=True)
class ComparisonReport(Tabular):
    """All results of a comparison: a table with a row per measure and arm in a notebook and in pandas."""

    settings: ComparisonSettings
    problems: Sequence[Problem]
    measures: Sequence[MeasureResult]
    costs: Mapping[str, Mapping[str, float]]
    """Arm → mean steps, tokens, FLOPs, minutes, tokens per second and peak memory of its runs."""
    curves: Mapping[str, Sequence[Mapping[str, float]]]
    """Arm → validation loss of seed 0 over training."""
    tokenizers: Mapping[str, str]
    """Arm → why its tokenizer is its own; empty where it shares the first arm's."""
    learning_rates: Mapping[str, float]
    """Arm → multiple of its recipe's learning rate, where it was tuned."""
    differences: Mapping[str, Mapping[str, Any]]
    """Arm → the settings in which it differs from the first arm."""

    @property
    def is_valid(self) -> bool:
        """Whether no check failed."""
        return not self.problems

    def summary(self) -> str:
        """One sentence for the top of the page."""
        return summary_sentences(self)[0]

    def __repr__(self) -> str:
        return f"ComparisonReport({self.summary()})"

    def records(self) -> list[Record]:
        """One row per measure and arm: the values of its seeds, and the difference from the first arm."""
        return [
            {
                "measure": of_measure.measure.name,
                "arm": result.arm,
                "mean": result.mean,
                "lowest": min(result.values.values(), default=None),
                "highest": max(result.values.values(), default=None),
                **_difference_record(result.comparison),
            }
            for of_measure in self.measures
            for result in of_measure.arms
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; what depends on the clock stands under `costs` only."""
        return {
            "summary": self.summary(),
            "valid": self.is_valid,
            "problems": [asdict(problem) for problem in self.problems],
            "metrics": {
                f"{of_measure.measure.name}.{result.arm}": result.mean
                for of_measure in self.measures
                for result in of_measure.arms
                if result.mean is not None
            },
            "measures": [
                {
                    **asdict(of_measure.measure),
                    "arms": [
                        {
                            "arm": result.arm,
                            "values": {str(seed): value for seed, value in result.values.items()},
                            "mean": result.mean,
                            "comparison": None if result.comparison is None else asdict(result.comparison),
                        }
                        for result in of_measure.arms
                    ],
                }
                for of_measure in self.measures
            ],
            "curves": {
                arm: [{key: value for key, value in point.items() if key not in TIMED} for point in points]
                for arm, points in self.curves.items()
            },
            "tokenizers": dict(self.tokenizers),
            "learning_rates": dict(self.learning_rates),
            "differences": {arm: dict(changed) for arm, changed in self.differences.items()},
            "settings": self.settings.model_dump(mode="json"),
            "costs": {arm: dict(cost) for arm, cost in self.costs.items()},
        }

    def rows(self) -> list[list[str]]:
        """Rows of the table: measure, arm, values, difference with its interval, verdict."""
        rows = []
        for of_measure in self.measures:
            arrow = "↓" if of_measure.measure.lower_is_better else "↑"
            for result in of_measure.arms:
                name = f"{of_measure.measure.name} {arrow}"
                rows.append([name, result.arm, result.format(), format_difference(result.comparison), result.verdict()])
        return rows

    def to_markdown(self) -> str:
        """The report as Markdown."""
        lines = ["# Comparison", "", self.summary(), ""]
        lines += [f"- **{problem.check}**: {problem.message}: {problem.remedy}." for problem in self.problems]
        if steps := next_steps(self):
            lines += ["What to do next:", "", *(f"- {english}" for english, _ in steps)]
        lines += [
            "",
            markdown_table(TABLE_HEADINGS, self.rows()),
            "",
            markdown_table([english for english, _ in COST_HEADINGS], self.cost_rows()),
            "",
        ]
        return "\n".join(lines)

    def to_csv(self) -> str:
        """One line per measure, arm and seed."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["measure", "metric", "arm", "seed", "value"])
        for of_measure in self.measures:
            for result in of_measure.arms:
                for seed, value in result.values.items():
                    writer.writerow([of_measure.measure.name, of_measure.measure.metric, result.arm, seed, value])
        return text.getvalue()

    def cost_rows(self) -> list[list[str]]:
        """What each arm used."""
        return [
            [arm, f"{cost['steps']:,.0f}", f"{cost['tokens']:,.0f}", f"{cost['flops']:.3g}", f"{cost['minutes']:.2f}",
             f"{cost['tokens_per_second']:,.0f}", f"{cost['memory'] / 1e6:,.0f} MB"]
            for arm, cost in self.costs.items()
        ]  # fmt: skip

    def to_table(self) -> Table:
        """The table for a terminal, without the range of the seeds."""
        table = Table(title=self.summary(), title_justify="left")
        for heading in ("measure", "arm", "mean", "difference [95 %]", "verdict"):
            table.add_column(heading)
        for measure, arm, values, difference, verdict in self.rows():
            table.add_row(measure, arm, values.partition(" (")[0], difference, verdict)
        return table

    def to_html(self, language: Language = "en") -> str:
        """The report as one HTML file in both languages, which opens in this one."""
        return render_comparison(self, language)

    def write(self, out: Path, language: Language = "en") -> None:
        """Write report.html, report.json, report.csv and report.md."""
        contents = {
            "report.html": self.to_html(language),
            "report.json": untrusted_files.to_json(self.to_dict(), indent=1),
            "report.csv": self.to_csv(),
            "report.md": self.to_markdown(),
        }
        for name, text in contents.items():
            disk.atomic_write(out / name, [text.encode()])


def _difference_record(comparison: PairedComparison | None) -> Record:
    low, high = (None, None) if comparison is None or comparison.interval is None else comparison.interval
    mean = None if comparison is None else comparison.mean_difference
    return {"difference": mean, "low": low, "high": high, "verdict": verdict_texts(comparison)[0]}


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)
