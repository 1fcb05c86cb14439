"""Files of an exposure measurement: exposure.json, exposure.html, and a section of the run's model card."""

from __future__ import annotations

from pathlib import Path

from meristem.checkpoint import disk
from meristem.checkpoint.run_folder import RunFolder, explain_write_errors
from meristem.config.errors import RecipeError
from meristem.training.report.model_card import insert_section, read_card
from meristem.trust.exposure.exposure_advice import times_phrase
from meristem.trust.exposure.exposure_page import render_exposure
from meristem.trust.exposure.exposure_report import ExposureReport
from meristem.utils import untrusted_files

JSON_FILE, PAGE_FILE = "exposure.json", "exposure.html"
CARD_TITLE, NEXT_TITLE = "Exposure", "Use"


def check_out(out: Path) -> None:
    """Raise before the measurement if its files could not be written."""
    if out.exists() and not out.is_dir():
        raise RecipeError(f"--out {out}: is a file; name a folder")


def write_exposure(report: ExposureReport, run: RunFolder, out: Path | None = None) -> Path:
    """Write the files into the run's folder, and the section into its card; or only the files into `out`."""
    folder = out or run.path
    if out is None:
        run.refuse_links()
        run.refuse_non_files()
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        disk.atomic_write(folder / JSON_FILE, [f"{untrusted_files.to_json(report.to_dict(), indent=1)}\n".encode()])
        disk.atomic_write(folder / PAGE_FILE, [render_exposure(report).encode("utf-8", "replace")])
        if out is None:
            card = insert_section(read_card(run.path, run.path.name), CARD_TITLE, card_lines(report), before=NEXT_TITLE)
            disk.atomic_write(run.path / "README.md", [card.encode()])
    return folder / PAGE_FILE


def card_lines(report: ExposureReport) -> list[str]:
    """The section of the model card in Markdown."""
    lines = [f"Measured at step {report.step:,} by `meristem exposure`; `{PAGE_FILE}` has the details.", ""]
    if report.levels:
        lines += ["| planted | texts | exposure, bits | 95 % interval | extracted |", "| --- | --- | --- | --- | --- |"]
        levels = [*([report.control] if report.control else []), *report.levels]
        lines += [
            f"| {times_phrase(level.repeats)} | {level.canaries} | "
            f"{level.mean_bits:.1f} | {level.interval[0]:.1f}–{level.interval[1]:.1f} | "
            f"{f'{level.extracted} of {level.tried}' if level.tried else '–'} |"
            for level in levels
        ]
        lines.append("")
    for item in report.extraction:
        for rate in item.rates:
            lines.append(
                f"- Verbatim extraction ({item.source}, {rate.split} prefixes, {rate.mode}): "
                f"{rate.in_training_text} of {rate.prefixes} continuations of {item.continuation_tokens} tokens stand "
                "in the training text."
            )
    for membership in report.membership:
        attack = membership.by_reference or membership.by_loss
        lines.append(
            f"- Membership inference ({membership.source}): AUC {attack.auc:.3f} ({attack.auc_interval[0]:.3f}–"
            f"{attack.auc_interval[1]:.3f}), {100 * attack.tpr:.1f} % found at 0.1 % false positives."
        )
    lines += [f"- Not measured: {note}." for note in report.notes]
    lines += [f"- Advice: {advice.finding}: `{advice.setting}` ({advice.effect})." for advice in report.advice]
    return [*lines, ""]
