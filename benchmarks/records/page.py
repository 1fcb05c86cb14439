"""Page of the record table, and the paired t-test that decides whether a change enters a shipped recipe."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from benchmarks.records.cells import CELLS, read_cell
from benchmarks.side_by_side import RESULTS, table

PAGE = RESULTS / "records.md"
SIGNIFICANCE = 0.05
MIN_SEEDS = 3
Record = Mapping[str, Any]


def read_records() -> list[dict[str, Any]]:
    """All finished cells."""
    return [read_cell(path) for path in sorted(CELLS.glob("*.json"))]


def measure_of(record: Record, measure: str) -> float:
    """A validation metric such as `loss`, or `SUITE` for its development accuracy."""
    suites = record["pairs"]["development"]
    return float(suites[measure]["accuracy"] if measure in suites else record["metrics"][measure])


def paired_test(records: Sequence[Record], first: str, second: str, measure: str, budget: str) -> str:
    """Verdict of a paired t-test over the seeds that two labels share."""
    values = {
        label: {
            record["seed"]: measure_of(record, measure)
            for record in records
            if record["label"] == label and record["budget"] == budget
        }
        for label in (first, second)
    }
    seeds = sorted(values[first].keys() & values[second].keys())
    if len(seeds) < MIN_SEEDS:
        return f"{first} against {second}: {len(seeds)} common seeds; at least {MIN_SEEDS} are needed"
    columns = [[values[label][seed] for seed in seeds] for label in (first, second)]
    difference = statistics.mean(b - a for a, b in zip(*columns, strict=True))
    p_value = float(stats.ttest_rel(columns[1], columns[0]).pvalue)
    verdict = "differ" if p_value < SIGNIFICANCE else "cannot be told apart"
    return (
        f"{measure} at {budget}, {len(seeds)} seeds: {first} {statistics.mean(columns[0]):.4f}, "
        f"{second} {statistics.mean(columns[1]):.4f}; difference {difference:+.4f}, p = {p_value:.3f}: {verdict}"
    )


def write_page(records: Sequence[Record]) -> str:
    """Write docs/results/records.md: one row per track, label and budget, with the spread over seeds."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["track"], record["budget"], record["label"]), []).append(record)
    sections = []
    for track in dict.fromkeys(key[0] for key in groups):
        rows = [_row(key, group) for key, group in groups.items() if key[0] == track]
        sections.append(f"## {track}\n\n{table(_header(records, track), rows)}")
    text = f"""# Record table

`python -m benchmarks.records train TRACK RECIPE --minutes 30 --seed 0 --data ../shared/data`: fixed text and order, a
fixed budget (minutes of two cores, or FLOPs), then held-out loss (1 % of the documents) and minimal pairs. Accuracies
are means over the paradigms of a suite, ties wrong / ties half, on the development half of every paradigm; "test" is
the other half, read once at the end. With several seeds: mean (lowest–highest). Each cell is a file in
[records](records), with its commit, processor and settings.

{(chr(10) * 2).join(section.strip() for section in sections)}
"""
    PAGE.write_text(text, encoding="utf-8")
    return text


def _suites(records: Sequence[Record], track: str) -> list[str]:
    suites = [suite for record in records if record["track"] == track for suite in record["pairs"]["development"]]
    return list(dict.fromkeys(suites))


def _header(records: Sequence[Record], track: str) -> list[str]:
    return ["recipe", "budget", "seeds", "steps", "tokens", "loss", "bits per byte", *_suites(records, track), "test",
            "processor"]  # fmt: skip


def _row(key: tuple[str, str, str], group: Sequence[Record]) -> list[str]:
    _, budget, label = key
    suites = group[0]["pairs"]["development"]
    tests = [record["pairs"]["test"] for record in group if "test" in record["pairs"]]
    test_cells = [f"{suite} {_spread([test[suite]['accuracy'] for test in tests], 100)}" for suite in suites if tests]
    return [
        label,
        budget,
        str(len(group)),
        f"{statistics.mean(record['used']['steps'] for record in group):,.0f}",
        f"{statistics.mean(record['used']['tokens'] for record in group) / 1e6:.1f} M",
        _spread([record["metrics"]["loss"] for record in group]),
        _spread([value for record in group if (value := record["metrics"].get("bits_per_byte")) is not None]),
        *(_accuracies([record["pairs"]["development"][suite] for record in group]) for suite in suites),
        "; ".join(test_cells) or "–",
        group[0]["processor"] + (" (" + ", ".join(group[0]["bfloat16"]) + ")" if group[0]["bfloat16"] else ""),
    ]


def _accuracies(suites: Sequence[Mapping[str, float]]) -> str:
    strict, half = ([suite[name] for suite in suites] for name in ("accuracy", "accuracy_ties_half"))
    return f"{_spread(strict, 100)} / {100 * statistics.mean(half):.1f}"


def _spread(values: Sequence[float], scale: float = 1) -> str:
    if not values:
        return "–"
    digits = 1 if scale == 100 else 3
    mean = f"{scale * statistics.mean(values):.{digits}f}"
    spread = f" ({scale * min(values):.{digits}f}–{scale * max(values):.{digits}f})"
    return mean + (spread if len(values) > 1 else "")
