"""Advice on exposure: each piece follows from a measured number and names the setting to change."""

from __future__ import annotations

from collections.abc import Iterator

from meristem.corpus.report.advice import Advice
from meristem.trust.exposure.canary_exposure import ExposureLevel
from meristem.trust.exposure.exposure_report import ExposureReport

MIN_EPOCHS = 1.5
"""From so many passes over the text, fewer of them are advised."""
PRIVATE_TRAINING = "train.privacy={epsilon: 8}"


def make_advice(report: ExposureReport) -> list[Advice]:
    """Advice for the owner of the text."""
    return [*_canary_advice(report), *_extraction_advice(report), *_membership_advice(report)]


def exposed_level(report: ExposureReport) -> ExposureLevel | None:
    """The fewest repeats from which on every canary level lies above the never-planted one, intervals apart."""
    exposed = None
    for level in reversed(report.levels):
        if report.control is None or level.interval[0] <= report.control.interval[1]:
            break
        exposed = level
    return exposed


def _canary_advice(report: ExposureReport) -> Iterator[Advice]:
    level = exposed_level(report)
    if level is None or report.control is None:
        return
    finding = (
        f"texts that stand in the training text {times_phrase(level.repeats)} have an exposure of "
        f"{level.mean_bits:.1f} bits, and texts that do not stand there {report.control.mean_bits:.1f}"
    )
    if level.repeats > 1:
        yield Advice(
            finding=finding,
            setting="corpus.deduplicate=true corpus.near_dedup=true",
            effect="keep one copy of each document; a repeated sentence inside different documents stays",
        )
    else:
        yield Advice(
            finding=f"{finding}: one copy is enough, so removing duplicates does not help",
            setting=PRIVATE_TRAINING,
            effect="differentially private training bounds what one sample can leave behind",
        )
    if report.epochs > MIN_EPOCHS:
        yield Advice(
            finding=f"the model read its text {report.epochs:.1f} times, and each pass is a repetition of everything",
            setting=f"train.epochs={max(1, int(report.epochs / 2))}",
            effect="fewer passes; or more text at the same budget",
        )
    extracted = sum(item.extracted for item in report.levels)
    if extracted:
        tried = sum(item.tried for item in report.levels)
        yield Advice(
            finding=f"greedy decoding gives away the secret of {extracted} of {tried} canaries",
            setting="corpus.pii=true",
            effect="replace personal data before training, and keep this model as private as its text",
        )


def _extraction_advice(report: ExposureReport) -> Iterator[Advice]:
    for item in report.extraction:
        rates = {(rate.split, rate.mode): rate for rate in item.rates}
        trained, unseen = rates["train", "greedy"], rates.get(("held-out", "greedy"))
        unseen_high = 0.0 if unseen is None else unseen.interval[1]
        if trained.interval[0] > unseen_high:
            compared = "" if unseen is None else f", and {100 * unseen.rate:.1f} % of held-out ones"
            yield Advice(
                finding=f"{100 * trained.rate:.1f} % of training passages are continued with training text{compared}",
                setting="corpus.near_dedup=true",
                effect="remove near duplicates, and read the text fewer times",
            )


def _membership_advice(report: ExposureReport) -> Iterator[Advice]:
    for item in report.membership:
        attack = item.by_reference or item.by_loss
        if attack.auc_interval[0] > 0.5:
            yield Advice(
                finding=f"the loss tells training text from held-out text (AUC {attack.auc:.3f}, 0.5 is chance)",
                setting="train.patience=3",
                effect="stop when validation no longer improves, use more text, or train privately",
            )


def times_phrase(repeats: int) -> str:
    """How often a text was planted, in words."""
    return {0: "never", 1: "once"}.get(repeats, f"{repeats:,} times")
