"""Bounds of the hostile-client benchmark, and its documentation page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.hostile_clients.honest import ROUNDING

RATIO = 2.0
"""Maximum ratio of the honest p99 with hostile clients to that alone."""
GROWTH = 10.0
"""Maximum growth of the server's memory after the warm-up, in percent."""
PHASES = ("alone", "beside a busy process", "mixed")


@dataclass(frozen=True)
class Bound:
    """A bound, the measured value, and whether it holds."""

    name: str
    limit: str
    measured: str
    holds: bool


def bounds(results: Mapping[str, Any]) -> list[Bound]:
    """All bounds."""
    mixed, unloaded = results["mixed"], results["alone"]
    p99_ratio, memory_growth = results["p99 ratio"] or float("inf"), results["memory"]["growth %"]
    different = mixed["answers different beyond rounding"] + unloaded["answers different beyond rounding"]
    not_identical = mixed["answers not identical"] + unloaded["answers not identical"]
    return [
        Bound("honest p99, mixed / alone", f"≤ {RATIO:g}", f"{p99_ratio:g}", p99_ratio <= RATIO),
        Bound("memory growth after the warm-up", f"≤ {GROWTH:g} %", f"{memory_growth} %", memory_growth <= GROWTH),
        Bound("honest answers with another text, token or order than alone, or a number further off than "
              f"{ROUNDING:g}", "0", str(different), not different),
        Bound("honest answers not identical to the answer alone, byte for byte", "0", str(not_identical),
              not not_identical),
        Bound("honest requests without an answer 200", "0", str(mixed["errors"]), not mixed["errors"]),
        Bound("answers after the campaign equal those before", "yes",
              "yes" if results["answers after the campaign equal"] else "no",
              results["answers after the campaign equal"]),
    ]  # fmt: skip


def page(results: Mapping[str, Any]) -> str:
    """The text of docs/results/reliability/hostile_clients.md."""
    processor, memory = results["processor"], results["memory"]
    load = ", ".join(str(load_value) for load_value in results["load average before"])
    return "\n".join([
        "# Hostile and honest clients of one server", "",
        f"`python -m benchmarks.hostile_clients --minutes {results['minutes']:g}` writes this page. "
        f"{results['honest clients']} honest clients, each with its own key, send a list of "
        f"{results['honest requests']} requests at a fixed rate: a tenth of the time alone, as long beside "
        "one process that only computes, then beside hostile clients. "
        "A latency counts from when the request was due.", "",
        f"{processor['name']}, {processor['cores']} cores, {processor['vector instructions']}, "
        f"torch {processor['torch']}; load average before: {load}. The hostile clients themselves took "
        f"{results['hostile']['cores']} cores of the same machine.", "",
        *_table(["bound", "limit", "measured", "holds"],
                [[bound.name, bound.limit, bound.measured, "yes" if bound.holds else "**no**"]
                 for bound in bounds(results)]), "",
        "## Honest clients", "",
        *_table(["phase", "route", "answers", "p50 ms", "p99 ms"],
                [row for phase in PHASES if phase in results for row in _latencies(phase, results[phase])]), "",
        *(f"- {phase}: {_statuses(results[phase]['statuses'])}; numbers differ from the answer alone by at most "
          f"{results[phase]['largest number difference']:.1e}" for phase in PHASES if phase in results), "",
        "## Memory of the server", "",
        f"{memory['MiB at the start']} MiB when the hostile clients began, {memory['MiB after warm-up']} MiB "
        f"{memory['warm-up seconds']:g} s later, {memory['MiB at the end']} MiB at the end, "
        f"{memory['MiB at the peak']} MiB at the peak.", "",
        "## Hostile clients", "",
        *_table(["kind", "requests", "answers"],
                [[kind.replace("_", " "), f"{sum(counts.values()):,}", _statuses(counts)]
                 for kind, counts in results["hostile"]["kinds"].items()]), "",
    ])  # fmt: skip


def _latencies(phase: str, measured: Mapping[str, Any]) -> list[list[str]]:
    answered = measured["statuses"].get("200", 0)
    rows = [[phase, "all", f"{answered:,}", str(measured["p50 ms"]), str(measured["p99 ms"])]]
    return rows + [
        [
            phase,
            f"`{route}`",
            f"{route_latency['requests']:,}",
            str(route_latency["p50 ms"]),
            str(route_latency["p99 ms"]),
        ]
        for route, route_latency in measured["routes"].items()
    ]


def _statuses(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{status}: {count:,}" for status, count in counts.items())


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in [heading, ["---"] * len(heading), *rows]]
