"""The compare command: recipes at equal budget, over seeds and measures, with verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from meristem.cli import options
from meristem.cli.output import print_json, print_message, stderr_console
from meristem.utils.terminal import emit

if TYPE_CHECKING:
    from meristem.compare.comparison_settings import ComparisonSettings

CompareWords = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE | RECIPE… [SOURCE] [key=value …]", help="A comparison file, recipes, or claims."),
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
Claims = Annotated[
    bool,
    typer.Option("--claims", help="Test published claims: list, or names of claims (all if none are given)."),
]
Parallel = Annotated[
    int | None,
    typer.Option("--parallel", min=1, help="Runs trained at once, one thread each; as many as cores if not given."),
]
ReportLanguage = Annotated[
    Literal["en", "zh"],
    typer.Option("--language", help="Language that report.html opens in; it has both."),
]
CompareOut = Annotated[
    Path | None,
    typer.Option("--out", help="Folder of the runs and the report; runs/comparison, with --claims runs/claims."),
]


def compare(
    words: CompareWords = None,
    seeds: Seeds = 3,
    tasks: Tasks = None,
    pairs: Pairs = None,
    claims: Claims = False,
    quick: Quick = False,
    parallel: Parallel = None,
    language: ReportLanguage = "en",
    out: CompareOut = None,
    json_: options.Json = False,
) -> None:
    """Compare recipes at equal budget: same text, same order, paired seeds, and a verdict with its interval.

    meristem compare bert-mini electra-mini                          on built-in text and tasks
    meristem compare bert-mini gpt2-mini my-texts/ train.flops=1e14 --tasks sst2.tsv,ner.conll --pairs blimp/
    meristem compare comparison.yaml --out runs/masking              arms with settings of their own
    meristem compare --claims list                                   published claims that can be tested
    meristem compare --claims mask_rate my-texts/ data.sentiment=reviews.tsv

    The same command resumes an interrupted comparison; a changed file adds runs and repeats none. The folder holds
    report.html, report.json, report.csv and report.md. docs/compare.md explains the checks and the verdicts.
    """
    from meristem.compare.cell_jobs import default_parallel
    from meristem.compare.next_steps import next_steps
    from meristem.compare.run_comparison import run_comparison
    from meristem.utils.console import TerminalConsole

    words, num_parallel = words or [], parallel or default_parallel()
    if claims:
        _compare_claims(words, out or Path("runs/claims"), seeds=seeds, quick=quick, parallel=num_parallel, json_=json_)
        return
    out = out or Path("runs/comparison")
    comparison = _read_comparison(words, seeds, tasks, pairs, quick)
    report = run_comparison(comparison, out, stderr_console(), parallel=num_parallel, language=language)
    if json_:
        print_json(report.to_dict())
    else:
        TerminalConsole().print(report.to_table())
        for problem in report.problems:
            print_message(f"{problem.check}: {problem.message}: {problem.remedy}")
        for english, _ in next_steps(report):
            print_message(english)
        print_message(f"wrote {out / 'report.html'}")
    if any(problem.check == "unfinished runs" for problem in report.problems):
        raise typer.Exit(1)


def _read_comparison(
    words: list[str], seeds: int, tasks: str | None, pairs: list[str] | None, quick: bool
) -> ComparisonSettings:
    """The comparison of a file, or of recipes with a source and settings."""
    from meristem.compare.comparison_settings import comparison_of_recipes, read_comparison, split_words

    if len(words) == 1 and Path(words[0]).suffix in {".yaml", ".yml"}:
        return read_comparison(Path(words[0]))
    recipes, source, settings = split_words(words)
    task_files = tasks.split(",") if tasks else []
    return comparison_of_recipes(
        recipes, settings, source=source, seeds=seeds, tasks=task_files, pairs=pairs or [], quick=quick
    )


def _compare_claims(words: list[str], out: Path, *, seeds: int, quick: bool, parallel: int, json_: bool) -> None:
    """List claims, or run them and print their verdicts."""
    from meristem.compare.claim_settings import claim_files, read_claim, split_claim_words
    from meristem.compare.run_claims import run_claims
    from meristem.utils.console import TerminalConsole

    if words == ["list"]:
        listed = {name: read_claim(str(file)) for name, file in claim_files().items()}
        if json_:
            print_json({name: claim.model_dump(mode="json") for name, claim in listed.items()})
            return
        for name, claim in listed.items():
            emit(f"{name:<28}{claim.title} ({claim.paper})")
        return
    names, data, settings = split_claim_words(words)
    report = run_claims(
        names, out, stderr_console(), data=data, overrides=settings, seeds=seeds, quick=quick, parallel=parallel
    )
    if json_:
        print_json(report.to_dict())
        return
    TerminalConsole().print(report.to_table())
    print_message(f"wrote {out / 'claims.md'}")
