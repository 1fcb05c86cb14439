"""The server under load, compared with the same weights behind transformers in plain FastAPI routes.

    python -m benchmarks.serving                                  # all of it → docs/results/serving.md
    python -m benchmarks.serving --only beside overload           # the parts that need an idle machine
    python -m benchmarks.serving --results /tmp/try --seconds 5 --overload 10 --disconnects 40 --examples 10

The load comes from a second process on loopback. Ratios are of alternated measurements. Each part's rows are stored in
a file; the page is generated from all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.serving_attacks import bombs, disconnects, schemas, send_request
from benchmarks.serving_load import Loaded, load
from benchmarks.serving_runs import BESIDE, OTHERS, make
from benchmarks.side_by_side import RESULTS, table
from meristem.serving.middleware.admission import RESERVED_SHARE

COMMAND = [sys.executable, "-m", "meristem"]
SENTENCE = "the old harbour and a garden were red when it rained on every boat that had come home before night"
WORDS = tuple(SENTENCE.split())
CLASSIFY = [{"text": " ".join(WORDS[n % 5 : 6 + n])} for n in range(13)]
FILL = [{"text": " ".join([*WORDS[n % 5 : 4 + n], "[MASK]", "."])} for n in range(13)]
GENERATE = [{"prompt": " ".join(WORDS[: 3 + n]), "max_tokens": 32, "temperature": 0, "min_tokens": 32}
            for n in range(8)]  # fmt: skip
CLIENTS, WRITERS, PLACES = 32, 16, 64
"""Clients of /classify, clients of /generate, and requests admitted under overload (the server's default)."""
FULL = PLACES - PLACES // RESERVED_SHARE
"""Requests of one client that are admitted at once: more are refused, and sent again thousands of times a second."""
LARGER = (12, 512)
"""Layers and width of a second, larger model for the overload: with a small one, most of the work is HTTP."""


@contextmanager
def process(*command: str, port: int = 0) -> Iterator[tuple[int, psutil.Process]]:
    """(port, process) of a server once it is ready; the port is read from its output unless it is given."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not port:
        line = process.stderr.readline()
        if not line:
            raise RuntimeError(f"{' '.join(command)} did not start")
        port = int(match[1]) if (match := re.search(r"http://127\.0\.0\.1:(\d+)", line)) else 0
    threading.Thread(target=lambda: sys.stderr.writelines(process.stderr or ()), daemon=True).start()
    until = time.monotonic() + 120
    while send_request(port, "GET", "/health/ready")[0] != 200 and time.monotonic() < until:
        time.sleep(0.2)
    try:
        yield port, psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def ours(runs: Path, *serve_options: str, names: Iterable[str] = BESIDE) -> Any:
    """Our server."""
    return process(*COMMAND, "serve", *(str(runs / name) for name in names), "--port", "0", *serve_options)


def theirs(folder: Path) -> Any:
    """The plain FastAPI server."""
    return process(sys.executable, str(Path(__file__).with_name("serving_plain.py")), str(folder), "18321", port=18321)


def named(bodies: list[dict[str, Any]], model: str) -> list[dict[str, Any]]:
    """The request bodies with the name of a model."""
    return [{**body, "model": model} for body in bodies]


def side_by_side(runs: Path, folder: Path, seconds: float, repeats: int, threads: int) -> Iterator[list[str]]:
    """Rows: measurement, ours, theirs, ratio, target."""
    with ours(runs, "--threads", str(threads)) as (port, server), theirs(folder) as (plain, other):
        for route, bodies, model in (("/classify", CLASSIFY, "reviews"), ("/fill", FILL, "bert")):
            loads: list[tuple[Loaded, Loaded]] = []
            single: list[tuple[Loaded, Loaded]] = []
            before = _busy(server), _busy(other)
            for _ in range(repeats):
                loads.append(_both(port, plain, route, bodies, model, CLIENTS, seconds))
            used = _busy(server) - before[0], _busy(other) - before[1]
            for _ in range(repeats):
                single.append(_both(port, plain, route, bodies, model, 1, seconds / 2))
            rates = [a.rate() / max(b.rate(), 1e-9) for a, b in loads]
            yield [f"{route}, {CLIENTS} clients, requests/s", f"{_middle(a.rate() for a, _ in loads):.0f}",
                   f"{_middle(b.rate() for _, b in loads):.0f}", f"{statistics.median(rates):.1f}×",
                   "≥ 3×"]  # fmt: skip
            cost = [1000 * spent / max(1, sum(len(pair[side].latencies.get(200, ())) for pair in loads))
                    for side, spent in enumerate(used)]  # fmt: skip
            yield [f"{route}, processor time, ms per request", f"{cost[0]:.1f}", f"{cost[1]:.1f}",
                   f"{cost[1] / cost[0]:.1f}×", ""]  # fmt: skip
            yield [f"{route}, one client, p50 ms", f"{_middle(a.median for a, _ in single):.1f}",
                   f"{_middle(b.median for _, b in single):.1f}",
                   f"{_middle(b.median / a.median for a, b in single):.1f}×", "≥ 1×"]  # fmt: skip
        generate_loads = [_both(port, plain, "/generate", GENERATE, "gpt2", WRITERS, seconds) for _ in range(repeats)]
        speeds = [(a.tokens / a.seconds, b.tokens / b.seconds) for a, b in generate_loads]
        yield [f"/generate, {WRITERS} clients, tokens/s", f"{_middle(a for a, _ in speeds):.0f}",
               f"{_middle(b for _, b in speeds):.0f}", f"{_middle(a / max(b, 1e-9) for a, b in speeds):.1f}×",
               "≥ 3×"]  # fmt: skip


def processes(server: psutil.Process) -> list[psutil.Process]:
    """The process that computes, and the HTTP process if it has one."""
    return [server, *server.children()]


def resident_bytes(server: psutil.Process) -> int:
    """Memory of all processes of a server."""
    return sum(process.memory_info().rss for process in processes(server))


def _busy(server: psutil.Process) -> float:
    """CPU seconds of all its processes so far; on a shared machine more reliable than wall-clock time."""
    return float(sum(sum(process.cpu_times()[:2]) for process in processes(server)))


def _middle(values: Any) -> float:
    return statistics.median(values)


def _both(port: int, plain: int, route: str, bodies: Any, model: str, clients: int, seconds: float) -> Any:
    our_load = load(port, route, named(bodies, model), clients=clients, seconds=seconds)
    return our_load, load(plain, route, bodies, clients=clients, seconds=seconds)


def overload(runs: Path, seconds: float, overloaded: float, threads: int) -> Iterator[list[str]]:
    """Four times the capacity: rows of measurement, value, target."""
    with ours(runs, "--max-requests", str(PLACES), "--threads", str(threads)) as (port, server):
        bodies = named(CLASSIFY, "reviews")
        load(port, "/classify", bodies, clients=FULL, seconds=3)
        full = load(port, "/classify", bodies, clients=FULL, seconds=seconds)
        before = resident_bytes(server)
        load_options: dict[str, Any] = {"clients": 4 * PLACES, "seconds": overloaded, "rate": 4 * full.rate()}
        over = load(port, "/classify", bodies, **load_options)
        memory_growth = resident_bytes(server) / before - 1
        time.sleep(1)
        later_load = load(port, "/classify", bodies, clients=FULL, seconds=4)
        later = load(port, "/classify", bodies, clients=FULL, seconds=seconds)
        capacity = (full.rate() + later.rate()) / 2
        yield ["at capacity: requests/s, p99 ms", f"{full.rate():.0f}, {full.quantile(0.99):.0f}", ""]
        p99 = over.quantile(0.99)
        yield ["4× overload: p99 ms of those admitted", f"{p99:.0f} ({p99 / full.quantile(0.99):.2f}×)", "≤ 2×"]
        yield ["answered 429: p99 ms", f"{over.quantile(0.99, 429):.0f} ({over.rate(429):.0f}/s)", "≤ 100"]
        share = f"{over.rate() / capacity:.0%} of capacity before and after, {over.rate() / full.rate():.0%} of before"
        yield ["goodput", share, "≥ 95 %"]
        cores = os.cpu_count() or 1
        left = (cores - over.busy) / (cores - (full.busy + later.busy) / 2)
        yield ["goodput of the cores that the load generator leaves", f"{over.rate() / capacity / left:.0%}", ""]
        yield ["cores used by the load generator: at capacity, overloaded", f"{full.busy:.2f}, {over.busy:.2f}", ""]
        yield ["memory growth", f"{memory_growth:.1%}", "≤ 10 %"]
        yield [
            "1–5 s later: requests/s, p99 ms",
            f"{later_load.rate():.0f}, {later_load.quantile(0.99):.0f}",
            "as at capacity",
        ]
        yield ["after that: requests/s, p99 ms", f"{later.rate():.0f}, {later.quantile(0.99):.0f}", "as at capacity"]


def attacks(runs: Path, number: int) -> Iterator[list[str]]:
    """Disconnecting clients and malicious requests: rows of measurement, value, target."""
    with ours(runs) as (port, _):
        disconnect_counts = disconnects(port, number)
        remaining = f"{disconnect_counts['inside']:.0f}, {disconnect_counts['writing']:.0f}"
        yield [f"{number} disconnects: requests, sequences left", remaining, "0, 0"]
        yield [
            "tokens generated one second after all disconnected",
            f"{disconnect_counts['tokens written after']:.0f}",
            "0",
        ]
        healthy = load(port, "/classify", named(CLASSIFY, "reviews"), clients=4, seconds=15)
        attack_results: dict[str, int] = {}
        thread = threading.Thread(target=lambda: attack_results.update(bombs(port)))
        thread.start()
        during = load(port, "/classify", named(CLASSIFY, "reviews"), clients=4, seconds=15)
        thread.join()
        for name, status in attack_results.items():
            yield [f"malicious request: {name}", str(status) if status else "closed", "4xx or closed"]
        worse = during.quantile(0.99) / healthy.quantile(0.99)
        yield ["p99 of other clients meanwhile", f"{during.quantile(0.99):.0f} ms ({worse:.2f}×)", "≤ 1.5×"]


def described(runs: Path, examples: int, saved_path: Path) -> Iterator[list[str]]:
    """Schema-based fuzzing of each route (valid and invalid requests): rows of measurement, value, target."""
    with ours(runs, "--request-timeout", "0.5", names=BESIDE | OTHERS) as (port, server):
        for route, statuses in schemas(port, examples, saved_path).items():
            bad = sum(count for status, count in statuses.items() if status.startswith("5") and status != "503")
            status_counts = ", ".join(f"{status}: {count:,}" for status, count in statuses.items())
            yield [f"{route}, up to {examples:,} + {examples:,} examples", f"{bad} failures ({status_counts})", "0"]
        is_ready = server.is_running() and send_request(port, "GET", "/health/ready")[0] == 200
        yield ["the process has not restarted", str(is_ready), "True"]


def _sized(options: argparse.Namespace, layers: int, width: int) -> tuple[Path, Path]:
    """Runs of a size, and the same exported for transformers."""
    return make(options.place / f"{layers}-{width}", layers=layers, width=width, vocabulary=options.vocabulary)


Parts = Iterator[tuple[list[str], Iterator[list[str]]]]
SIDES = ["meristem serve", "transformers in a plain route", "ratio", "target"]


def _beside(options: argparse.Namespace) -> Parts:
    runs, folder = _sized(options, options.layers, options.width)
    size = f"{options.layers} layers, hidden size {options.width}; {options.repeats} loads of {options.seconds:g} s"
    yield [size, *SIDES], side_by_side(runs, folder, options.seconds, options.repeats, options.threads)


def _overload(options: argparse.Namespace) -> Parts:
    for layers, width in ((options.layers, options.width), LARGER):
        rows = overload(_sized(options, layers, width)[0], options.seconds, options.overload, options.threads)
        yield [f"overload for {options.overload:g} s, {layers} layers, hidden size {width}", "measured", "target"], rows


def _attacks(options: argparse.Namespace) -> Parts:
    runs, _ = _sized(options, options.layers, options.width)
    yield ["attacks", "measured", "target"], attacks(runs, options.disconnects)


def _described(options: argparse.Namespace) -> Parts:
    saved_path = options.results / "serving" / "routes.json"
    rows = described(_sized(options, options.layers, options.width)[0], options.examples, saved_path)
    heading = "schemathesis requests, by status; 503: not finished within half a second"
    yield [heading, "measured", "target"], rows


PARTS = {"beside": _beside, "overload": _overload, "attacks": _attacks, "described": _described}


def page(cells: Path) -> str:
    """The text of docs/results/serving.md."""
    intro = f"`python -m benchmarks.serving`, {os.cpu_count()} cores, loopback; random weights, 8,192 tokens."
    saved_parts = [
        json.loads(path.read_text("utf-8")) for part in PARTS for path in sorted(cells.glob(f"{part}-*.json"))
    ]
    return (
        "\n\n".join(
            ["# Serving", intro, *(table(saved_part["header"], saved_part["rows"]) for saved_part in saved_parts)]
        )
        + "\n"
    )


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()) / "meristem-serving")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--overload", type=float, default=120.0)
    parser.add_argument("--disconnects", type=int, default=500)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    cells = options.results / "serving"
    cells.mkdir(parents=True, exist_ok=True)
    for part in options.only:
        for number, (header, rows) in enumerate(PARTS[part](options)):
            cell = cells / f"{part}-{number}.json"
            cell.write_text(json.dumps({"header": header, "rows": list(rows)}, indent=1, ensure_ascii=False) + "\n")
    (options.results / "serving.md").write_text(page(cells), encoding="utf-8")
    print(page(cells))


if __name__ == "__main__":
    main()
