"""The exposure command: what a run has memorised of its training text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meristem.cli import options
from meristem.cli.output import print_json, print_message, stderr_console
from meristem.utils.terminal import emit

if TYPE_CHECKING:
    from meristem.trust.exposure.exposure_report import ExposureReport

ReferenceRun = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="RUN",
        show_default=False,
        help="A run trained on other text, whose loss is subtracted in membership inference.",
    ),
]
CanaryFile = Annotated[
    Path | None,
    typer.Option(
        "--canaries",
        show_default=False,
        help="Measure the canaries in this file, such as another run's canaries.json, instead of the run's own.",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="About a tenth of the work, with wider intervals.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same numbers.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        show_default=False,
        help="Write exposure.json and exposure.html into this folder. Default: the run's folder, and a section of its "
        "model card.",
    ),
]


def exposure(
    run: options.RunPath,
    reference: ReferenceRun = None,
    canaries: CanaryFile = None,
    quick: Quick = False,
    seed: Seed = 0,
    out: Out = None,
    trust_paths: options.TrustPaths = False,
    which: options.WhichCheckpoint = None,
    json_: options.Json = False,
) -> None:
    """What a pretrained model gives away of its text: canaries, verbatim extraction, membership inference.

    meristem pretrain gpt2-mini my-texts/ corpus.canaries=true
    meristem exposure runs/gpt2-mini
    meristem exposure runs/gpt2-mini --reference runs/other-half --quick --json

    corpus.canaries plants random texts into the training split, some of them often. Exposure is log2 of how much sooner
    than by chance such a text is guessed with the model's help: 1.44 bits on average for a text it never saw.
    docs/trust.md says what each number means.
    """
    from meristem import api

    report = api.exposure(
        run,
        reference=reference,
        canaries=canaries,
        quick=quick,
        seed=seed,
        out=out,
        which=which,
        trust_paths=trust_paths,
        console=stderr_console(),
    )
    if json_:
        print_json(report.to_dict())
    else:
        for line in _lines(report):
            emit(line)
    print_message(f"wrote {(out or Path(report.run)) / 'exposure.html'}")


def _lines(report: ExposureReport) -> list[str]:
    """The result in the terminal."""
    lines = []
    if report.levels:
        lines.append("planted    texts  exposure (95 % interval), bits    extracted")
        for level in [*([report.control] if report.control else []), *report.levels]:
            name = f"{level.repeats:,}×" if level.repeats else "never"
            interval = f"{level.mean_bits:5.1f}  ({level.interval[0]:.1f} to {level.interval[1]:.1f})"
            extracted = f"{level.extracted} of {level.tried}" if level.tried else "–"
            lines.append(f"{name:<9} {level.canaries:6,}  {interval:<33} {extracted}")
    for item in report.extraction:
        lines += [
            f"extraction, {item.source}, {rate.split} prefixes, {rate.mode}: {rate.in_training_text} of "
            f"{rate.prefixes} continuations stand in the training text, {rate.reproduced} exactly as the document "
            "goes on"
            for rate in item.rates
        ]
    for membership in report.membership:
        attacks = [("loss", membership.by_loss)]
        attacks += [("loss and reference", membership.by_reference)] if membership.by_reference else []
        lines += [
            f"membership, {membership.source}, by {name}: AUC {attack.auc:.3f} ({attack.auc_interval[0]:.3f} to "
            f"{attack.auc_interval[1]:.3f}), {100 * attack.tpr:.1f} % found at 0.1 % false positives "
            f"({100 * attack.tpr_interval[0]:.1f} to {100 * attack.tpr_interval[1]:.1f} %)"
            for name, attack in attacks
        ]
    lines += [f"not measured: {note}" for note in report.notes]
    return [*lines, *(f"advice: {item.finding}; {item.setting}: {item.effect}" for item in report.advice)]
