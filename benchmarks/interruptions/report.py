"""Results by kind and interruption as a table and as a documentation page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.interruptions.kinds import KINDS
from benchmarks.interruptions.trials import INTERRUPTIONS

TrialRecord = Mapping[str, Any]


def read(results: Path) -> dict[int, TrialRecord]:
    """Trial → its last line; incomplete lines are skipped."""
    records: dict[int, TrialRecord] = {}
    for text in results.read_text(encoding="utf-8").splitlines() if results.is_file() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        records[line["trial"]] = line
    return records


def table(lines: Sequence[TrialRecord]) -> list[str]:
    """Rows of Markdown: identical of trials, by kind and interruption."""
    heading = ["kind", *INTERRUPTIONS, "all"]
    rows = [heading, ["---"] * len(heading)]
    for kind in KINDS:
        of_kind = [line for line in lines if line["kind"] == kind]
        if of_kind:
            rows.append([kind, *_cells(of_kind), _share(of_kind)])
    rows.append(["**all**", *_cells(lines), f"**{_share(lines)}**"])
    return [f"| {' | '.join(row)} |" for row in rows]


def _cells(lines: Sequence[TrialRecord]) -> list[str]:
    return [_share([line for line in lines if line["interruption"] == name]) for name in INTERRUPTIONS]


def _share(lines: Sequence[TrialRecord]) -> str:
    return f"{sum(line['identical'] for line in lines)} / {len(lines)}" if lines else "–"


def failures(lines: Sequence[TrialRecord]) -> list[str]:
    """One line for each trial that was not identical, with how to repeat it."""
    return [
        f"trial {line['trial']} (--only {line['trial']}): {line['kind']}, {line['processes']} process(es), "
        f"{line['interruption']} at {'; '.join(line['moments'])}: {'; '.join(line['problems'])}"
        for line in lines
        if not line["identical"]
    ]


def page(lines: Sequence[TrialRecord]) -> str:
    """The text of docs/results/reliability/interruptions.md."""
    identical, hits = sum(line["identical"] for line in lines), sum(len(line["moments"]) for line in lines)
    num_two_process = sum(line["processes"] > 1 for line in lines)
    wrong = failures(lines)
    text = [
        "# Interruptions",
        "",
        "Written by `python -m benchmarks.interruptions`; one line per trial is in `interruptions.jsonl`.",
        "",
        f"**{identical:,} of {len(lines):,} interrupted runs ended bit for bit where the uninterrupted run ends**: "
        "weights, optimizer state, memory, train state, and every metric but clocks. "
        f"{hits:,} interruptions, {num_two_process:,} of the trials with two processes.",
        "",
        "A trial runs a `meristem` command, interrupts it at a random moment, gives the same command again, and "
        "compares. Half of the signals are sent at a chosen file-changing system call, half after a chosen time, to "
        "all processes of the run. I/O errors are real ones of the kernel: seccomp answers the chosen system call of "
        "any file below the run and its cache with the error, in whatever code it is made; a full disk refuses every "
        "write and new file from that call on; the file size limit is RLIMIT_FSIZE. After an I/O error the command "
        "must survive, or end with exit code 1 and a sentence that says what failed. "
        "In a third of the trials the cache is empty, so that shards, tokenizers and imports are interrupted, too.",
        "",
        *table(lines),
        "",
    ]
    if wrong:
        text += ["## Failures", "", *(f"- {line}" for line in wrong), ""]
    return "\n".join(text)
