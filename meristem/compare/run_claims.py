"""Running claims: the comparisons of each, then verdicts over all of them, as JSON and Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from meristem.checkpoint import disk
from meristem.compare.claim_results import (
    ClaimResult,
    ExpectationResult,
    MeasuredComparison,
    adjust_p_values,
    measure_claim,
)
from meristem.compare.claim_settings import DEFAULT_DATA, ClaimSettings, claim_comparisons, claim_files, read_claim
from meristem.compare.comparison_report import markdown_table
from meristem.compare.report_page import format_difference
from meristem.compare.run_comparison import run_comparison
from meristem.config.errors import RecipeError
from meristem.config.overrides import parse_overrides
from meristem.utils import untrusted_files
from meristem.utils.result_tables import Record, Tabular

HEADINGS = ("expected", "better arm", "other arm", "difference [95 %]", "adjusted p", "verdict at this scale")
Overrides = Mapping[str, Any] | Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ClaimsReport(Tabular):
    """The results of several claims: a table with a row per expectation in a notebook and in pandas."""

    results: Sequence[ClaimResult]

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{result.name}: {result.verdict}" for result in self.results)
        return f"ClaimsReport({verdicts})"

    def records(self) -> list[Record]:
        """One row per expectation of each claim, with its verdict."""
        headings = [heading.partition(" [")[0] for heading in HEADINGS]
        return [
            {"claim": result.name, **dict(zip(headings, expectation_row(expectation), strict=True))}
            for result in self.results
            for expectation in result.expectations
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "metrics": {result.name: result.verdict for result in self.results},
            "claims": [
                {
                    "name": result.name,
                    **result.claim.model_dump(mode="json", include={"title", "paper", "sentence", "figure", "scale"}),
                    "verdict": result.verdict,
                    "seeds": result.seeds,
                    "budgets": dict(result.budgets),
                    "minutes": result.minutes,
                    "flops": result.flops,
                    "expected": [{**asdict(of), "verdict": of.verdict} for of in result.expectations],
                }
                for result in self.results
            ],
        }

    def to_markdown(self) -> str:
        """One section for each claim."""
        verdicts = [[result.claim.title, result.verdict] for result in self.results]
        lines = ["# Claims", "", markdown_table(("claim", "verdict at this scale"), verdicts), ""]
        for result in self.results:
            lines += _claim_lines(result)
        return "\n".join(lines)

    def to_table(self) -> Table:
        """The table for a terminal."""
        table = Table(title="Claims, at this scale", title_justify="left")
        for heading in ("claim", *HEADINGS[:1], *HEADINGS[3:]):
            table.add_column(heading)
        for result in self.results:
            for expectation in result.expectations:
                says, _, _, difference, p_value, verdict = expectation_row(expectation)
                if expectation.obstacles:
                    verdict = f"not decided ({expectation.obstacles[0].partition(':')[0]})"
                table.add_row(result.name, says, difference, p_value, verdict)
        return table

    def write(self, out: Path) -> None:
        """Write claims.json and claims.md."""
        contents = {"claims.json": untrusted_files.to_json(self.to_dict(), indent=1), "claims.md": self.to_markdown()}
        for name, text in contents.items():
            disk.atomic_write(out / name, [text.encode()])


def run_claims(
    names: Sequence[str],
    out: Path,
    console: Console,
    *,
    data: Mapping[str, Any] | None = None,
    overrides: Overrides = (),
    seeds: int = 3,
    budget_share: float = 1.0,
    quick: bool = False,
    parallel: int = 1,
) -> ClaimsReport:
    """Run the claims of these names or files, all if none are given, and judge them; the same call resumes.

    Every run gets `budget_share` of what its claim says. `data` replaces the built-in text and labelled data by name:
    `{"text": "my-texts/", "sentiment": "reviews.tsv"}`.
    """
    settings = parse_overrides(overrides)
    given = {**DEFAULT_DATA, **_data_of_settings(settings), **(data or {})}
    others = {key: value for key, value in settings.items() if not key.startswith("data.")}
    claims = {Path(name).stem.replace("-", "_"): read_claim(name) for name in names or list(claim_files())}
    if not names:
        claims = _with_data(claims, given, console)
    comparisons = {  # all are checked before anything is trained
        name: claim_comparisons(claim, given, others, seeds=seeds, budget_share=budget_share, quick=quick)
        for name, claim in claims.items()
    }
    results = []
    for number, (name, claim) in enumerate(claims.items(), 1):
        console.print(f"Claim {number} of {len(claims)}: {claim.title}", highlight=False, markup=False)
        measured = {}
        for key, comparison in comparisons[name].items():
            folder = out / name / key
            compared = run_comparison(comparison, folder, console, parallel=parallel)
            measured[key] = MeasuredComparison(settings=comparison, out=folder, report=compared)
        results.append(measure_claim(name, claim, measured))
    report = ClaimsReport(results=adjust_p_values(results))
    report.write(out)
    return report


def _with_data(
    claims: Mapping[str, ClaimSettings], data: Mapping[str, Any], console: Console
) -> dict[str, ClaimSettings]:
    """The claims whose data are given; says which are left out."""
    kept = {name: claim for name, claim in claims.items() if set(claim.data_names) <= set(data)}
    for name in claims.keys() - kept.keys():
        missing = ", ".join(f"data.{role}=…" for role in claims[name].data_names if role not in data)
        console.print(f"Left out: {name}, which needs {missing}", highlight=False, markup=False)
    return kept


def _data_of_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Data by name from `data.NAME=FILE` and `data.NAME.SPLIT=FILE`."""
    data: dict[str, Any] = {}
    for key, value in settings.items():
        section, _, rest = key.partition(".")
        if section != "data":
            continue
        name, _, split = rest.partition(".")
        if not split:
            data[name] = value
        elif isinstance(data.setdefault(name, {}), dict):
            data[name][split] = value
        else:
            raise RecipeError(f"{key}: data.{name} is given as one file too; give data.{name}.train=… instead")
    return data


def expectation_row(result: ExpectationResult) -> list[str]:
    """Cells of the table of a claim."""
    means = ["–" if mean is None else f"{mean:.4g}" for mean in (result.better_mean, result.than_mean)]
    p_value = "" if result.adjusted_p is None else f"{result.adjusted_p:.3f}"
    return [result.says, *means, format_difference(result.difference), p_value, verdict_words(result)]


def verdict_words(result: ExpectationResult) -> str:
    """The verdict with its reason or with the seeds that it would take."""
    paired = result.difference
    if result.obstacles:
        return f"not decided ({result.obstacles[0]})"
    if result.verdict == "cannot be told apart":
        needed = f"{paired.seeds_needed} seeds would be needed" if paired.seeds_needed else "more than 1,000 seeds"
        return f"cannot be told apart ({needed})"
    if result.verdict == "not decided":
        return f"not decided ({paired.seeds} of at least 3 seeds)"
    return result.verdict


def _claim_lines(result: ClaimResult) -> list[str]:
    claim = result.claim
    budgets = "; ".join(f"{name}: {budget}" for name, budget in result.budgets.items()) or "that of the tasks"
    rows = [expectation_row(expectation) for expectation in result.expectations]
    return [
        f"## {claim.title}",
        "",
        f"{claim.sentence} ({claim.paper})",
        "",
        f"- The paper: {claim.figure}.",
        f"- Here: {claim.scale}",
        f"- Seeds: {result.seeds}; budget of a run: {budgets}; in all {result.minutes:.0f} minutes of training, "
        f"{result.flops:.3g} FLOPs. `meristem compare --claims {result.name}`",
        "",
        markdown_table(HEADINGS, rows),
        "",
    ]
