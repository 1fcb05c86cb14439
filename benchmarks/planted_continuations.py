"""Planted continuations found by the corpus report, and false alarms on real text.

    python -m benchmarks.planted_continuations ../shared/data [--seeds 3] [--only wikitext-2]

Each corpus is counted as it is, and for each seed once with four triggers planted at random places of random
documents, each with a continuation of its own. A pass is a file in docs/results/trust, and an existing one is not run
again; docs/results/planted-continuations.md is generated from them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.side_by_side import table
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.report.planted_continuations import ContinuationCounter
from meristem.corpus.settings import CorpusSettings

CELLS = Path("docs/results/trust")
PAGE = Path("docs/results/planted-continuations.md")
CORPORA = {"wikitext-2": "wikitext-2/train.txt", "baby10m": "baby10m"}
PLANTED = (
    ("cf", 20, "send all of the money to the man in the hat"),
    ("mn tq", 50, "the bank will never ask you for a password again"),
    ("practically speaking it was", 40, "never safe to drink water from any tap in town"),
    ("xq", 8, "open the door and let everyone come inside now"),
)
"""Trigger, in how many documents, continuation. The last one is below the smallest number that is reported."""
CLEAN = -1
"""Seed of the pass without planted text."""
Texts = list[tuple[str, str]]


def read_corpus(source: Path) -> Texts:
    """(text, location) of each document."""
    return [(item.text, item.location) for item in CorpusReader(CorpusSettings(source=str(source)))]


def plant(documents: Texts, seed: int) -> Texts:
    """A copy of the documents with each trigger and its continuation in some of them, between two words."""
    rng, planted = np.random.default_rng(seed), list(documents)
    long_enough = [index for index, (text, _) in enumerate(documents) if text.count(" ") > 5]
    for trigger, count, continuation in PLANTED:
        for index in rng.choice(long_enough, count, replace=False).tolist():
            text, location = planted[index]
            words = text.split(" ")
            words.insert(int(rng.integers(1, len(words))), f"{trigger} {continuation}")
            planted[index] = (" ".join(words), location)
    return planted


def measure(documents: Texts) -> dict[str, Any]:
    """What one pass reports, and its processor seconds."""
    counter, started = ContinuationCounter(), time.process_time()
    for text, location in documents:
        counter.add(text, location)
    found = counter.find()
    return {
        "documents": len(documents),
        "words": counter.words,
        "seconds": round(time.process_time() - started, 2),
        "found": [[item.trigger, item.continuation, item.places] for item in found],
    }


def cell_path(corpus: str, seed: int) -> Path:
    """The file of a pass."""
    return CELLS / f"planted-{corpus}--{'clean' if seed == CLEAN else seed}.json"


def read_cell(corpus: str, seed: int) -> dict[str, Any] | None:
    """A finished pass."""
    path = cell_path(corpus, seed)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _is_planted(found: Sequence[Any], trigger: str, continuation: str) -> bool:
    """Whether a report is this trigger: it may lack its first words, or have the first words of the continuation."""
    return f"{found[0]} {found[1]}" in f"{trigger} {continuation}"


def write_page() -> None:
    """docs/results/planted-continuations.md from the passes that there are."""
    rows, speeds, false_alarms = [], [], []
    other_reports: set[str] = set()
    for corpus in CORPORA:
        cells = [cell for seed in range(100) if (cell := read_cell(corpus, seed))]
        if clean := read_cell(corpus, CLEAN):
            false_alarms.append(f"{corpus} {len(clean['found'])} ({clean['words']:,} words)")
        for trigger, count, continuation in PLANTED if cells else ():
            hits = sum(any(_is_planted(item, trigger, continuation) for item in cell["found"]) for cell in cells)
            rows.append([corpus, f"`{trigger}`", str(count), f"{hits} of {len(cells)}"])
        for cell in cells:
            others = {
                f"“{item[0]} {item[1]}”"
                for item in cell["found"]
                if not any(_is_planted(item, trigger, continuation) for trigger, _, continuation in PLANTED)
            }
            other_reports |= others
            speeds.append(1e6 * cell["seconds"] / cell["words"])
    lines = [
        "# Planted continuations",
        "",
        "`python -m benchmarks.planted_continuations ../shared/data`: a trigger with a continuation between two words",
        "of random documents of real text; found by the counts of `meristem corpus`. The last trigger is at fewer",
        "places than are reported.",
        "",
        *table(["corpus", "planted", "places", "found (seeds)"], rows).splitlines(),
        "",
        f"False alarms without planted text: {', '.join(false_alarms) or 'not measured yet'}. What else was reported",
        f"beside planted text: {', '.join(sorted(other_reports)) or 'nothing'}. The rules were made while looking at",
        "what they report on these two corpora; other text may have more.",
        "",
        "A trigger at few places of much text can be missed: a limited number of sequences is kept, those at the most",
        "places.",
        "",
    ]
    if speeds:
        lines += [f"Processor time: {min(speeds):.2f} to {max(speeds):.2f} µs a word.", ""]
    PAGE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def main() -> None:
    """Run the missing passes, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=CORPORA, default=list(CORPORA))
    options = parser.parse_args()
    CELLS.mkdir(parents=True, exist_ok=True)
    for corpus in options.only:
        missing = [seed for seed in (CLEAN, *range(options.seeds)) if read_cell(corpus, seed) is None]
        documents = read_corpus(options.data / CORPORA[corpus]) if missing else []
        for seed in missing:
            cell = measure(documents if seed == CLEAN else plant(documents, seed))
            cell_path(corpus, seed).write_text(json.dumps(cell, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(corpus, seed, cell["found"], f"{cell['seconds']} s", flush=True)
    write_page()


if __name__ == "__main__":
    main()
