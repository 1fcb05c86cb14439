"""Comparisons through the Python API: recipes at equal budget, published claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from meristem.compare.comparison_report import ComparisonReport
from meristem.compare.comparison_settings import comparison_of_recipes, read_comparison
from meristem.compare.run_claims import ClaimsReport, run_claims
from meristem.compare.run_comparison import run_comparison
from meristem.config.overrides import parse_overrides
from meristem.recipe_resolution import Overrides
from meristem.utils.console import TerminalConsole


def compare(
    recipes: str | Path | Sequence[str],
    overrides: Overrides = (),
    *,
    source: str | Path | None = None,
    seeds: int = 3,
    tasks: Sequence[str] = (),
    pairs: Sequence[str] = (),
    quick: bool = False,
    out: str | Path = "runs/comparison",
    parallel: int = 1,
    console: Console | None = None,
) -> ComparisonReport:
    """Compare recipes at equal budget, or the arms of a YAML file; the same call again resumes.

    Args:
        recipes: Two recipes or more, of which the first is the baseline, or a comparison's YAML file.
        overrides: Settings of all arms, among them the budget, {"train.flops": 1e13}.
        source: The text that all arms read: a file, folder, glob or builtin:NAME.
        seeds: Runs of each arm; fewer than three decide nothing.
        tasks: Labelled files that each model is fine-tuned on.
        pairs: Files or folders of minimal pairs.
        quick: Little of everything, to see that it works.
        out: The folder of runs and report.
        parallel: Processes that train runs at once; above one, a script needs `if __name__ == "__main__":`.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    if isinstance(recipes, str | Path):
        comparison = read_comparison(Path(recipes))
    else:
        comparison = comparison_of_recipes(
            recipes,
            parse_overrides(overrides),
            source=None if source is None else str(source),
            seeds=seeds,
            tasks=tasks,
            pairs=pairs,
            quick=quick,
        )
    return run_comparison(comparison, Path(out), console or TerminalConsole(stderr=True), parallel=parallel)


def compare_claims(
    names: Sequence[str] = (),
    overrides: Overrides = (),
    *,
    data: Mapping[str, Any] | None = None,
    seeds: int = 3,
    quick: bool = False,
    out: str | Path = "runs/claims",
    parallel: int = 1,
    console: Console | None = None,
) -> ClaimsReport:
    """Test published claims at small scale; the same call again resumes.

    Args:
        names: Names or files of claims; all if none are given.
        overrides: Settings of all arms.
        data: Data in place of the built-in ones: `{"text": "my-texts/", "sentiment": {"train": …, "test": …}}`.
        seeds: Runs of each arm.
        quick: Little of everything, to see that it works.
        out: The folder of runs and report.
        parallel: Processes that train runs at once.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    terminal = console or TerminalConsole(stderr=True)
    return run_claims(
        names, Path(out), terminal, data=data, overrides=overrides, seeds=seeds, quick=quick, parallel=parallel
    )
