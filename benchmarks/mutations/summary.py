"""The results as a page: outcomes by operation, time and memory, and every failed trial."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.mutations.trials import GOOD

HEADING = """\
# Mutated run folders and tokenizers

Written by `python -m benchmarks.mutations`; each line of `mutations.jsonl` is a trial. One thing of a small run (a
byte, a tensor, a header, a JSON or YAML value, a part of the tokenizer, a file) is changed, and one operation meets the
run in a process of its own with at most 1 GB of memory and 10 s. It holds if the operation answers, or refuses in a
sentence, without a signal or any other error, and an audit hook sees nothing executed and nothing written elsewhere; a
run that resumes must be refused or end with exactly the weights of the run that nobody changed. Memory is what the
process took beside that of the warm process it was forked from.
"""


def read(results: Path) -> list[dict[str, Any]]:
    """All complete lines of a results file, by trial number."""
    text = results.read_text(encoding="utf-8") if results.is_file() else ""
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return sorted({line["trial"]: line for line in lines}.values(), key=lambda line: line["trial"])


def write(results: Path) -> None:
    """Print the table, and write the page next to the results."""
    text = page(read(results))
    results.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text.partition("\n\n")[2].partition("\n\n")[2])


def page(lines: list[dict[str, Any]]) -> str:
    """The text of the page."""
    failed = [line for line in lines if line["outcome"] not in GOOD]
    parts = [HEADING, f"{len(lines):,} trials, {len(lines) - len(failed):,} held, {len(failed)} failed.\n",
             _table(lines), _by_kind(lines)]  # fmt: skip
    if failed:
        rows = [f"- {line['trial']}, {line['operation']}, {line['kind']}: {line['mutation']} → {line['outcome']}"
                for line in failed]  # fmt: skip
        parts.append("Failed (again with `python -m benchmarks.mutations --only NUMBER`):\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _table(lines: list[dict[str, Any]]) -> str:
    columns = [*GOOD, "failed"]
    rows = [f"| operation | trials | {' | '.join(columns)} | processor s, mean | most | memory MiB, most |",
            f"| --- |{' --: |' * (len(columns) + 4)}"]  # fmt: skip
    for operation in dict.fromkeys(sorted(line["operation"] for line in lines)):
        records = [line for line in lines if line["operation"] == operation]
        counts = Counter(line["outcome"] if line["outcome"] in GOOD else "failed" for line in records)
        seconds = [line["seconds"] for line in records]
        rows.append(
            f"| {operation} | {len(records):,} | {' | '.join(f'{counts[name]:,}' for name in columns)} | "
            f"{sum(seconds) / len(seconds):.2f} | {max(seconds):.1f} | {max(line['memory'] for line in records):,} |"
        )
    return "\n".join(rows) + "\n"


def _by_kind(lines: list[dict[str, Any]]) -> str:
    counts = Counter(line["kind"] for line in lines)
    return f"Base runs: {', '.join(f'{kind} {count:,}' for kind, count in sorted(counts.items()))}.\n"
