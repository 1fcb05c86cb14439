"""The robustness command: metrics under noise, tests of one's own, hostile input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from meristem.cli import options
from meristem.cli.output import load_model, print_message
from meristem.utils.terminal import emit

RobustnessData = Annotated[
    str | None, Option("--data", help="A labelled file in the format of the run's data. Default: its held-out samples.")
]
Severity = Annotated[
    str, Option("--severity", help="Shares of the words that are changed, above 0 up to 1, separated by commas.")
]
Only = Annotated[str | None, Option("--only", metavar="NAME,…", help="Perturbations to measure; all if not given.")]
BehaviourTests = Annotated[
    Path | None,
    Option("--tests", metavar="FILE", help="Tests of one's own (.jsonl or .yaml), as docs/trust.md describes them."),
]
NoiseSeed = Annotated[int, Option("--seed", min=0, help="Seed of the perturbations.")]
SampleLimit = Annotated[int | None, Option("--limit", help="Maximum number of samples, the first ones.")]
Dictionary = Annotated[
    Path | None, Option("--dictionary", help="Words for code switching: one word TAB translation per line.")
]
RobustnessOut = Annotated[
    Path | None, Option("--out", help="Folder for robustness.html and robustness.json. Default: the run's folder.")
]


def robustness(
    run: options.RunPath,
    data: RobustnessData = None,
    severity: Severity = "0.1,0.3",
    only: Only = None,
    tests: BehaviourTests = None,
    seed: NoiseSeed = 0,
    limit: SampleLimit = None,
    dictionary: Dictionary = None,
    columns: options.Columns = None,
    out: RobustnessOut = None,
    which: options.WhichCheckpoint = None,
    json_: options.Json = False,
) -> None:
    """How a fine-tuned run fails on noisy, unusual and hostile input.

    meristem robustness runs/reviews                                  all perturbations, on its held-out samples
    meristem robustness runs/reviews --data test.tsv --severity 0.1,0.2,0.4
    meristem robustness runs/ner --only keyboard_typos,casing --json
    meristem robustness runs/reviews --tests my-tests.jsonl --out report/

    Typos, casing, missing spaces and punctuation, word order, unseen words, truncation, doubled text, OCR errors,
    look-alike characters, homophones, code switching and hostile characters: the metric under each with its interval,
    the worst drop, samples that flipped, calibration, accuracy against coverage. Labels stay as they are, tags and
    answers stay at their words. Fine-tuning with data.augment wins a part of the drop back (docs/trust.md).
    """
    from meristem.trust.robustness.robustness_report import report_json
    from meristem.trust.robustness.robustness_terminal import robustness_tables
    from meristem.trust.robustness.run_robustness import RobustnessOptions, measure_robustness
    from meristem.trust.robustness.write_robustness import write_robustness
    from meristem.utils.console import TerminalConsole

    robustness_options = RobustnessOptions(
        severities=_parse_numbers(severity),
        only=_split(only),
        seed=seed,
        limit=limit,
        dictionary=dictionary,
        tests=tests,
    )
    robustness_options.check()
    loaded = load_model(run, which)
    report = measure_robustness(
        loaded.loaded_run,
        data=data,
        columns=options.parse_key_values("--columns", columns),
        options=robustness_options,
        log=print_message,
    )
    if json_:
        emit(report_json(report), end="")
    else:
        for notice in report.notices:
            print_message(notice)
        for table in robustness_tables(report):
            TerminalConsole().print(table)
    for path in write_robustness(report, out or run):
        print_message(f"wrote {path}")


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _parse_numbers(text: str) -> tuple[float, ...]:
    from meristem.config.errors import RecipeError

    try:
        return tuple(map(float, _split(text)))
    except ValueError:
        raise RecipeError(f"--severity {text}: expected numbers separated by commas, such as 0.1,0.3") from None
