"""The compare command: recipes at equal budget, over seeds and measures, with verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meristem.cli import options
from meristem.cli.output import print_json, print_message, stderr_console

CompareWords = Annotated[
    list[str],
    typer.Argument(metavar="FILE | RECIPE… [SOURCE] [key=value …]", help="A comparison file, or recipes."),
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Runs of each recipe; a verdict takes at least three.")]
Tasks = Annotated[
    str | None,
    typer.Option("--tasks", metavar="F,…", help="Labelled files to fine-tune each model on, separated by commas."),
]
Pairs = Annotated[
    list[str] | None, typer.Option("--pairs", metavar="DIR", help="Minimal pairs (BLiMP form); may be repeated.")
]
Quick = Annotated[bool, typer.Option("--quick", help="A small budget, to see that everything works.")]
CompareOut = Annotated[Path, typer.Option("--out", help="Folder of the runs and the report.")]


def compare(
    words: CompareWords,
    seeds: Seeds = 3,
    tasks: Tasks = None,
    pairs: Pairs = None,
    quick: Quick = False,
    out: CompareOut = Path("runs/comparison"),
    json_: options.Json = False,
) -> None:
    """Compare recipes at equal budget: same text, same order, paired seeds, and a verdict with its interval.

    meristem compare bert-mini electra-mini                          on built-in text and tasks
    meristem compare bert-mini gpt2-mini my-texts/ train.flops=1e14 --tasks sst2.tsv,ner.conll --pairs blimp/
    meristem compare comparison.yaml --out runs/masking              arms with settings of their own

    The same command resumes an interrupted comparison; a changed file adds runs and repeats none. The folder holds
    report.html, report.json, report.csv and report.md. docs/compare.md explains the checks and the verdicts.
    """
    from meristem.compare.comparison_settings import comparison_of_recipes, read_comparison, split_words
    from meristem.compare.run_comparison import run_comparison
    from meristem.utils.console import TerminalConsole

    if len(words) == 1 and Path(words[0]).suffix in {".yaml", ".yml"}:
        comparison = read_comparison(Path(words[0]))
    else:
        recipes, source, settings = split_words(words)
        task_files = tasks.split(",") if tasks else []
        comparison = comparison_of_recipes(
            recipes, settings, source=source, seeds=seeds, tasks=task_files, pairs=pairs or [], quick=quick
        )
    report = run_comparison(comparison, out, stderr_console())
    if json_:
        print_json(report.to_dict())
        return
    TerminalConsole().print(report.to_table())
    for problem in report.problems:
        print_message(f"{problem.check}: {problem.message}: {problem.remedy}")
    print_message(f"wrote {out / 'report.html'}")
