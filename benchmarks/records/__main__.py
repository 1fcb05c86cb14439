"""Train, measure and compare recipes at a fixed budget.

    python -m benchmarks.records train TRACK RECIPE [key=value …] (--minutes 30 | --flops 1e15) [--seed 0] [--label NAME] --data DATA
    python -m benchmarks.records compare LABEL LABEL --budget minutes=30 [--measure loss|blimp|…]
    python -m benchmarks.records final CELL … --data DATA     the test halves, once, at the end
    python -m benchmarks.records page

Tracks: baby10m, zhwiki, wikitext-2. A cell is a run folder below --work: an interrupted one resumes, a finished one is
not repeated. Results: one file per cell in docs/results/records, docs/results/records.md, the short table of both
READMEs, and the points of the loss curves of `meristem describe --hours` (meristem/describe/record_points.json).
"""  # noqa: E501

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from benchmarks.records.cells import CELLS, Cell, measure_final, train_cell
from benchmarks.records.page import paired_test, read_records, write_page
from benchmarks.records.points import write_points
from benchmarks.records.readme_table import write_readme_tables
from benchmarks.records.tracks import TRACKS
from meristem.config.overrides import parse_overrides


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.records", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="train or resume one cell, and measure it")
    train.add_argument("track", choices=TRACKS)
    train.add_argument("recipe", help="a recipe's name or YAML file")
    train.add_argument("overrides", nargs="*", help="settings that differ, key=value")
    budget = train.add_mutually_exclusive_group(required=True)
    budget.add_argument("--minutes", type=float)
    budget.add_argument("--flops", type=float)
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--label", help="name in the table; the recipe's unless given")
    train.add_argument("--pairs-limit", type=int, help="pairs of each paradigm; all unless given")
    final = commands.add_parser("final", help="measure finished cells on the test halves")
    final.add_argument("cells", nargs="+", help="names of cells, as the files in docs/results/records")
    for command in (train, final):
        command.add_argument("--data", type=Path, required=True, help="folder with baby10m, zhwiki, blimp, …")
        command.add_argument("--work", type=Path, default=Path("runs/records"), help="folder of the runs")
    compare = commands.add_parser("compare", help="paired t-test of two labels over their common seeds")
    compare.add_argument("first")
    compare.add_argument("second")
    compare.add_argument("--budget", required=True, help="minutes=30 or flops=1e+15")
    compare.add_argument("--measure", default="loss")
    commands.add_parser("page", help="write docs/results/records.md and the table of both READMEs")
    return parser


def main() -> None:
    """Run one command."""
    options = _parser().parse_args()
    console = Console(stderr=True)
    match options.command:
        case "train":
            if options.overrides and not options.label:
                raise SystemExit("--label: give a recipe with overrides a name of its own")
            cell = Cell(
                track=options.track,
                label=options.label or Path(options.recipe).stem,
                recipe=options.recipe,
                overrides=parse_overrides(options.overrides),
                budget=f"minutes={options.minutes:g}" if options.minutes else f"flops={options.flops:g}",
                seed=options.seed,
            )
            train_cell(cell, options.data, options.work, options.pairs_limit, console)
        case "final":
            for name in options.cells:
                measure_final(CELLS / f"{name}.json", options.data, options.work)
        case "compare":
            print(paired_test(read_records(), options.first, options.second, options.measure, options.budget))
            return
    records = read_records()
    write_points(records)
    write_readme_tables(records)
    print(write_page(records))


if __name__ == "__main__":
    main()
