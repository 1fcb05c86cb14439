"""The short record table of both READMEs, between two markers: for each text and budget the best recipe that hides
words and the best that predicts the next one."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.records.tracks import TRACKS
from benchmarks.side_by_side import table

ROOT = Path(__file__).parent.parent.parent
MARKED = re.compile(r"(<!-- records -->\n).*?(<!-- /records -->)", re.DOTALL)
TEXTS = {
    "baby10m": ("BabyLM sources, 9.7 M words", "BabyLM 语料，970 万词"),
    "zhwiki": ("Chinese Wikipedia, 48 MB", "中文维基百科，48 MB"),
    "wikitext-2": ("WikiText-2, 2.1 M tokens", "WikiText-2，210 万词"),
}
"""Names of the tracks in English and Chinese."""
SUITES = {"blimp": "BLiMP", "supplement": "BLiMP supplement", "zhoblimp": "ZhoBLiMP"}
HEADERS = (
    ["text", "budget", "recipe", "seeds", "held-out text", "minimal pairs"],
    ["文本", "预算", "配方", "种子数", "留出文本", "最小对立对"],
)
NOT_YET = ("*The campaign is running; the table is written by `python -m benchmarks.records page`.*",
           "*测量正在进行；表格由 `python -m benchmarks.records page` 写入。*")  # fmt: skip
Record = Mapping[str, Any]


def write_readme_tables(records: Sequence[Record], root: Path = ROOT) -> None:
    """Replace what stands between the markers of README.md and README.zh.md."""
    for language, name in enumerate(("README.md", "README.zh.md")):
        path = root / name
        text = path.read_text(encoding="utf-8")
        content = readme_table(records, language)
        replaced, count = MARKED.subn(lambda found, body=content: f"{found[1]}{body}\n{found[2]}", text)
        if count != 1:
            raise SystemExit(f"{path}: expected one <!-- records --> … <!-- /records -->, found {count}")
        path.write_text(replaced, encoding="utf-8")


def readme_table(records: Sequence[Record], language: int = 0) -> str:
    """The table in English (0) or Chinese (1); with no records a sentence that says so."""
    groups: dict[tuple[str, str, bool], dict[str, list[Record]]] = {}
    for record in records:
        key = (record["track"], record["budget"], _is_causal(record))
        groups.setdefault(key, {}).setdefault(record["label"], []).append(record)
    order = {name: number for number, name in enumerate(TRACKS)}
    rows = [
        _row(track, budget, min(labels.values(), key=_rank), language)
        for (track, budget, _), labels in sorted(
            groups.items(), key=lambda item: (order[item[0][0]], _amount(item[0][1]), item[0][2])
        )
    ]
    return table(HEADERS[language], rows) if rows else NOT_YET[language]


def _is_causal(record: Record) -> bool:
    return "bits_per_byte" in record["metrics"]


def _amount(budget: str) -> tuple[str, float]:
    kind, _, amount = budget.partition("=")
    return kind, float(amount)


def _rank(seeds: Sequence[Record]) -> float:
    """Lower is better: wrong minimal pairs of the development half, or the loss of a text without pairs."""
    suites = list(seeds[0]["pairs"]["development"])
    if not suites:
        return _mean([record["metrics"]["loss"] for record in seeds])
    return -_mean([record["pairs"]["development"][suite]["accuracy"] for record in seeds for suite in suites])


def _row(track: str, budget: str, seeds: Sequence[Record], language: int) -> list[str]:
    kind, amount = _amount(budget)
    units = {"minutes": ("minutes", "分钟"), "flops": ("FLOPs", "FLOPs")}[kind]
    measured = "bits_per_byte" if _is_causal(seeds[0]) else "loss"
    unit = {"bits_per_byte": ("bits per byte", "比特/字节"), "loss": ("loss", "损失")}[measured][language]
    held_out = _spread([record["metrics"][measured] for record in seeds], 3)
    return [TEXTS[track][language], f"{amount:g} {units[language]}", f"`{seeds[0]['label']}`", str(len(seeds)),
            f"{held_out} {unit}", _pairs(seeds)]  # fmt: skip


def _pairs(seeds: Sequence[Record]) -> str:
    """Accuracy by suite: on the test half if every seed was measured on it, else on the development half."""
    half = "test" if all("test" in record["pairs"] for record in seeds) else "development"
    suites = seeds[0]["pairs"][half]
    cells = [
        f"{SUITES.get(suite, suite)} {_spread([100 * record['pairs'][half][suite]['accuracy'] for record in seeds], 1)}"
        for suite in suites
    ]
    return ", ".join(cells) + ("" if half == "test" or not cells else " (dev)") if cells else "–"


def _spread(values: Sequence[float], digits: int) -> str:
    """Mean, and lowest and highest of several seeds."""
    mean = f"{_mean(values):.{digits}f}"
    return f"{mean} ({min(values):.{digits}f}–{max(values):.{digits}f})" if len(values) > 1 else mean


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)
