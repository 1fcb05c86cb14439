"""Files of a robustness report: robustness.html and robustness.json in a folder."""

from __future__ import annotations

from pathlib import Path

from meristem.checkpoint import disk
from meristem.trust.robustness.robustness_html import render_robustness
from meristem.trust.robustness.robustness_report import RobustnessReport, report_json


def write_robustness(report: RobustnessReport, folder: Path) -> list[Path]:
    """Write both files; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"robustness.html": render_robustness(report), "robustness.json": report_json(report)}
    for name, content in contents.items():
        disk.atomic_write(folder / name, [content.encode("utf-8", "replace")])
    return [folder / name for name in contents]
