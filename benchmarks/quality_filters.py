"""Speed of the quality filters on one core, and what they drop of good text.

    python -m benchmarks.quality_filters ../shared/data [--megabytes 2] [--repeats 9]

Documents of about 3 kB from novels and WikiText (already split into tokens, which some rules reject). The best time of
each document counts, so that a busy machine changes little; compared with the time of splitting into words, which
every rule needs.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.side_by_side import table
from meristem.corpus.clean.boilerplate import remove_boilerplate
from meristem.corpus.clean.language_id import language_step
from meristem.corpus.clean.quality_filters import QualitySettings, quality_step
from meristem.corpus.document import CleaningStep, Document, Drop
from meristem.corpus.privacy.pii import PLACEHOLDERS, pii_step

SIZE = 3000
FILES = ("english_novels/train.txt", "wikitext-2/train.txt")


def documents(path: Path, megabytes: float) -> list[Document]:
    """Documents of about 3 kB made of consecutive lines."""
    document_list, waiting, size = [], list[str](), 0
    with path.open(encoding="utf-8") as file:
        for line in file.read(int(megabytes * 1e6)).split("\n"):
            waiting.append(line)
            size += len(line)
            if size >= SIZE:
                document_list.append(
                    Document("\n".join(waiting).strip(), f"{path.name}:{len(document_list) + 1}", language="en")
                )
                waiting, size = [], 0
    return document_list


def best(step: Callable[[Document], object], document_list: list[Document], repeats: int) -> float:
    """Sum over documents of the best time in seconds."""
    total = 0
    for document in document_list:
        times = []
        for _ in range(repeats):
            start = time.perf_counter_ns()
            step(document)
            times.append(time.perf_counter_ns() - start)
        total += min(times)
    return total / 1e9


def main() -> None:
    """Print MB/s of each filter and the reasons for dropping."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--megabytes", type=float, default=2)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    steps: dict[str, CleaningStep] = {
        "boilerplate": remove_boilerplate,
        "languages": language_step(None),
        "quality": quality_step(QualitySettings()),
        "pii": pii_step(tuple(PLACEHOLDERS)),
    }
    rows = []
    for name in FILES:
        document_list = documents(args.data / name, args.megabytes)
        size = sum(len(document.text.encode()) for document in document_list) / 1e6
        words = best(lambda document: document.text.split(), document_list, args.repeats)
        rows.append([name, "splitting into words", f"{size / words:.1f}", "1.0"])
        for filter_name, step in steps.items():
            seconds = best(step, document_list, args.repeats)
            rows.append([name, filter_name, f"{size / seconds:.1f}", f"{seconds / words:.1f}"])
        after = [quality_step(QualitySettings())(document) for document in document_list]
        reasons = Counter(item.reason for item in after if isinstance(item, Drop))
        print(f"{name}: {len(document_list):,} documents, dropped: {dict(reasons.most_common())}")
    print(table(["text", "step", "MB/s", "times splitting"], rows))


if __name__ == "__main__":
    main()
