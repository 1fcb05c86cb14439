"""A small grid: a task learned with every rate and number of epochs, several seeds each, and the best one chosen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meristem import bounded
from meristem.checkpoint import disk
from meristem.checkpoint.revive import recipe_of
from meristem.checkpoint.run import BEST, Run, aside
from meristem.errors import MeristemError
from meristem.recipe import Recipe
from meristem.shell_commands import shell_path
from meristem.training.ending import Ended
from meristem.training.material import regret
from meristem.training.settings import BUDGETS

FACTS, PAGE = "grid.json", "grid.md"

Each = Callable[[Recipe, Path], Ended]
"""Trains one run, or goes on with it, or finds it finished."""

T_QUANTILES = {2: 4.30, 4: 2.78, 6: 2.45, 8: 2.31, 10: 2.23, 12: 2.18, 14: 2.14, 16: 2.12, 18: 2.10}
"""Degrees of freedom → how many standard errors of a difference hold 95 % of what chance does (Student's t)."""


@dataclass(kw_only=True)
class Cell:
    """One combination of settings, and what its runs gave."""

    settings: dict[str, float]
    name: str
    runs: list[Ended] = field(default_factory=list)

    def numbers(self, split: str) -> dict[str, tuple[float, float]]:
        """Mean and spread over the seeds of every number on a split."""
        found = [run.metrics if split == "validation" else run.test for run in self.runs]
        shared = [name for name in (found[0] if found else {}) if all(name in one for one in found)]
        return {name: _spread([one[name] for one in found]) for name in shared}

    @property
    def regret(self) -> tuple[float, float]:
        """The mean over the seeds of what is compared, and of the loss between equals; the lowest is the best."""
        both = [_regret(run) for run in self.runs]
        return statistics.fmean(one for one, _ in both), statistics.fmean(loss for _, loss in both)


def run_grid(recipe: Recipe, out: Path, each: Each, *, fresh: bool, console: Console) -> Ended:
    """Train every run that is not finished yet, choose the best on validation, and say what was found."""
    if fresh and out.exists():
        console.print(f"The old runs are kept as {aside(out)}", highlight=False, markup=False, soft_wrap=True)
    _refuse_other_things(out)
    out.mkdir(parents=True, exist_ok=True)
    cells = [cell for cell, _ in _cells(recipe)]
    total = len(cells) * recipe.grid.seeds
    _write(out, recipe, cells)
    done = 0
    for cell, (_, base) in zip(cells, _cells(recipe), strict=True):
        for seed in range(recipe.grid.seeds):
            one = replace(base, train=base.train.model_copy(update={"seed": base.train.seed + seed}))
            place, done = out / f"{cell.name}-{seed + 1}", done + 1
            console.print(f"Run {done} of {total}: {place}", highlight=False, markup=False)
            cell.runs.append(_finished(one, place) or each(one, place))
            _write(out, recipe, cells)
    best = min(cells, key=lambda cell: cell.regret)
    chosen = min(best.runs, key=_regret)
    disk.replace(out / BEST, [f"{chosen.run.name}\n".encode()])
    _write(out, recipe, cells, best, chosen)
    disk.replace(out / PAGE, [page(recipe, cells, best, chosen).encode()])
    console.print(_table(cells, best))
    for line in _last_words(cells, best, chosen, out):
        console.print(line, highlight=False, markup=False)
    tries = [line.replace(shell_path(chosen.run), shell_path(out)) for line in chosen.tries]
    return replace(chosen, run=out, tries=tries)


def _cells(recipe: Recipe) -> Iterator[tuple[Cell, Recipe]]:
    """Every combination, and the recipe of its first seed."""
    axes = {name: getattr(recipe.grid, name) for name in ("rate", "epochs") if getattr(recipe.grid, name)}
    for values in product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        update: dict[str, Any] = dict(settings)
        if "epochs" in settings:
            update |= {name: None for name in BUDGETS if name != "epochs"}
        name = "-".join(f"{axis}{value:g}" for axis, value in settings.items()) or recipe.name
        train = recipe.train.model_copy(update=update)
        yield Cell(settings=settings, name=name), replace(recipe, train=train, grid=None, name=name)


def _finished(recipe: Recipe, place: Path) -> Ended | None:
    """A run of this very recipe that has nothing left to do."""
    run = Run(place)
    facts = run.finished if run.exists() else None
    if facts is None or "judged_by" not in facts or recipe_of(run).plain() != recipe.plain():
        return None
    return Ended(
        run=place,
        step=facts["step"],
        metrics=facts["validation"],
        test=facts["test"],
        used=facts["used"],
        tries=[f"meristem evaluate {shell_path(place)}"],
        judged_by=facts["judged_by"],
    )


def _refuse_other_things(out: Path) -> None:
    if Run(out).exists():
        raise MeristemError(f"{out} is a run, and a grid needs a folder for several: choose another --out")
    if out.is_file() or (out.exists() and any(out.iterdir()) and not (out / FACTS).is_file()):
        what = "a file" if out.is_file() else "a folder of something else"
        raise MeristemError(f"{out} is {what}: choose another place with --out")


# ------------------------------------------------------------ what was found


def _regret(run: Ended) -> tuple[float, float]:
    """How far a run is from the best there could be; what cannot be compared is the farthest."""
    value, loss = regret(run.judged_by, run.metrics), run.metrics["loss"]
    return value if math.isfinite(value) else math.inf, loss if math.isfinite(loss) else math.inf


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the standard deviation of a sample."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _write(
    out: Path, recipe: Recipe, cells: Sequence[Cell], best: Cell | None = None, chosen: Ended | None = None
) -> None:
    facts: dict[str, Any] = {
        "grid": recipe.grid.model_dump(mode="json"),
        "cells": [
            {
                "name": cell.name,
                "settings": cell.settings,
                "validation": _plain(cell.numbers("validation")),
                "runs": [_run_facts(run) for run in cell.runs],
            }
            for cell in cells
        ],
    }
    if best is not None and chosen is not None:
        facts |= {
            "judged_by": chosen.judged_by,
            "best": {"cell": best.name, "run": chosen.run.name, "test": _plain(best.numbers("test"))},
        }
    disk.replace(out / FACTS, [bounded.to_json(facts, indent=1).encode()])


def _run_facts(run: Ended) -> dict[str, Any]:
    """A run as grid.json holds it: without the commands to try, which are fewer for one that was found finished."""
    return {name: value for name, value in asdict(run).items() if name != "tries"} | {"run": run.run.name}


def _plain(numbers: Mapping[str, tuple[float, float]]) -> dict[str, dict[str, float]]:
    return {name: {"mean": mean, "spread": spread} for name, (mean, spread) in numbers.items()}


def _rows(cells: Sequence[Cell], best: Cell, names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The headings, and a row of every combination with the best marked."""
    axes = list(cells[0].settings)
    rows = [
        [
            *(f"{cell.settings[axis]:g}" for axis in axes),
            str(len(cell.runs)),
            *(_number(cell.numbers("validation")[name], len(cell.runs)) for name in names),
            "best" if cell is best else "",
        ]
        for cell in cells
    ]
    return [*axes, "seeds", *names, ""], rows


def _number(value: tuple[float, float], runs: int) -> str:
    return f"{value[0]:.4g} ± {value[1]:.2g}" if runs > 1 else f"{value[0]:.4g}"


def _last_words(cells: Sequence[Cell], best: Cell, chosen: Ended, out: Path) -> list[str]:
    """The best and where it is, whether the next differs from it by more than chance, and its test."""
    test = "  ".join(f"{name} {_number(value, len(best.runs))}" for name, value in best.numbers("test").items())
    lines = [f"Best on validation by {chosen.judged_by}: {best.name}; of its runs {chosen.run.name}, which {out} opens"]
    if len(cells) > 1:
        lines.append(_beside_the_next(cells, best, chosen.judged_by))
    return lines + ([f"Its test, mean over {len(best.runs)} seeds: {test}"] if test else [])


def _beside_the_next(cells: Sequence[Cell], best: Cell, judged_by: str) -> str:
    """How sure the choice is: the best two are compared with the spread over their seeds (t, 95 %)."""
    other = min((cell for cell in cells if cell is not best), key=lambda cell: cell.regret)
    (mean, spread), (next_mean, next_spread) = (one.numbers("validation")[judged_by] for one in (best, other))
    seeds = min(len(best.runs), len(other.runs))
    next_told = f"{other.name} ({_number((next_mean, next_spread), len(other.runs))})"
    if seeds < 2:
        return f"Next is {next_told}; with one seed each nothing tells that difference from chance: grid.seeds=3 does"
    error = math.sqrt(spread**2 / len(best.runs) + next_spread**2 / len(other.runs))
    reach = T_QUANTILES.get(2 * seeds - 2, 2.0) * error
    if abs(mean - next_mean) <= reach:
        return f"No difference beyond chance from the next, {next_told}, with {seeds} seeds each"
    return f"Next is {next_told}, a difference beyond the spread of {seeds} seeds each"


def _table(cells: Sequence[Cell], best: Cell) -> Table:
    judged_by = best.runs[0].judged_by
    headings, rows = _rows(cells, best, list(dict.fromkeys([judged_by, "loss"])))
    table = Table(title="Validation, mean ± spread over seeds")
    for heading in headings:
        table.add_column(Text(heading), justify="right")
    for cell, row in zip(cells, rows, strict=True):
        table.add_row(*map(Text, row), style="bold" if cell is best else None)
    return table


def page(recipe: Recipe, cells: Sequence[Cell], best: Cell, chosen: Ended) -> str:
    """The same as Markdown."""
    headings, rows = _rows(cells, best, list(best.numbers("validation")))
    lines = [
        f"# {recipe.name}: {len(cells)} combinations, {recipe.grid.seeds} seeds each",
        "",
        "Validation, mean ± standard deviation over seeds.",
        "",
        *(f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)),
        "",
        *_last_words(cells, best, chosen, chosen.run.parent),
        "",
    ]
    return "\n".join(lines)
