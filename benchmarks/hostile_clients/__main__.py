"""Mixed hostile and honest clients of one server: latency and responses of the honest ones, memory of the server.

    python -m benchmarks.hostile_clients [--minutes 30] [--kinds KIND …] [--results FILE]

Trains two small runs for a few steps in a temporary folder, serves them in a separate process, measures the honest
clients alone for a tenth of the time, as long beside a process that keeps one core busy, and then together with hostile
ones. The page with the tables is written next to
the results file, with the ending .md. Exit code 1 if a bound does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.hostile_clients import report
from benchmarks.hostile_clients.honest import Measurement, answers_alone, measure, requests
from benchmarks.hostile_clients.hostile import KINDS
from benchmarks.serving import COMMAND, process, resident_bytes
from benchmarks.side_by_side import RESULTS

HONEST, HOSTILE = 4, 4
"""API keys of the honest and of the hostile clients."""
RUNS = {"causal": "gpt2-mini", "masked": "bert-mini-prenorm"}
SIZE = (
    "model.layers=2", "model.hidden_size=64", "model.heads=2", "model.max_length=128", "model.dropout=0",
    "tokenizer.vocab_size=500",
    "train.batch_tokens=640", "train.steps=5", "train.threads=1",
)  # fmt: skip
WARM_UP = 60.0
"""Seconds of the mixed phase after which memory should no longer grow; a sixth of a short phase."""
SAMPLES = 60
"""Readings of the server's memory in the mixed phase."""


def train(folder: Path) -> list[Path]:
    """Train the two runs to serve; returns their folders."""
    for name, recipe in RUNS.items():
        arguments = ["pretrain", recipe, "builtin:microworld-en?size=400", *SIZE, "--out", str(folder / name)]
        completed = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
        if completed.returncode:
            raise SystemExit(f"meristem {' '.join(arguments)}: {completed.stderr.strip()[-500:]}")
    return [folder / name for name in RUNS]


def campaign(minutes: float, kinds: Sequence[str]) -> dict[str, Any]:
    """Run both phases on one server; returns the results."""
    keys = [secrets.token_hex(24) for _ in range(HONEST + HOSTILE)]
    load_average = os.getloadavg()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = train(folder)
        key_file = folder / "keys.txt"
        key_file.touch(mode=0o600)
        key_file.write_text("\n".join(keys) + "\n", encoding="utf-8")
        command = [*COMMAND, "serve", *map(str, runs), "--port", "0", "--key-file", str(key_file)]
        with process(*command) as (port, server):
            expected = answers_alone(port, keys[0])
            unloaded = measure(port, keys[:HONEST], expected, 6 * minutes)
            print(f"alone: {json.dumps(unloaded.summary()['statuses'])}", flush=True)
            with busy_process():
                busy = measure(port, keys[:HONEST], expected, 6 * minutes)
            mixed, hostile, memory = mix(port, server, keys, expected, 48 * minutes, kinds)
            after = answers_alone(port, keys[0])
    return {
        "minutes": minutes,
        "processor": processor(),
        "load average before": [round(load_value, 2) for load_value in load_average],
        "honest clients": HONEST,
        "honest requests": len(requests()),
        "alone": unloaded.summary(),
        "beside a busy process": busy.summary(),
        "mixed": mixed.summary(),
        "p99 ratio": ratio(mixed, unloaded),
        "memory": memory,
        "hostile": hostile,
        "answers after the campaign equal": after == expected,
    }


@contextmanager
def busy_process() -> Iterator[None]:
    """A process that keeps one core busy: what any second program on the machine costs the honest clients."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def mix(
    port: int, server: psutil.Process, keys: Sequence[str], expected: Sequence[bytes], seconds: float,
    kinds: Sequence[str],
) -> tuple[Measurement, dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Measurement of the honest clients, counts of the hostile ones, and memory of the server in the mixed phase."""
    hostile = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.hostile_clients.hostile", str(port), str(seconds),
         *(["--kinds", *kinds] if kinds else [])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    resident: list[tuple[float, float]] = []
    sampler = threading.Thread(target=sample_memory, args=(server, seconds, resident))
    sampler.start()
    collector_result: list[str] = []
    collector = threading.Thread(
        target=lambda: collector_result.append(hostile.communicate("\n".join(keys[HONEST:]))[0])
    )
    collector.start()
    try:
        measurement = measure(port, keys[:HONEST], expected, seconds)
    finally:
        sampler.join()
        collector.join()
    if hostile.returncode:
        raise SystemExit("the hostile clients failed: see the lines above")
    counted = json.loads(collector_result[0])
    counted["cores"] = round(counted.pop("processor seconds") / seconds, 2)
    return measurement, counted, growth(resident, min(WARM_UP, seconds / 6))


def sample_memory(server: psutil.Process, seconds: float, resident: list[tuple[float, float]]) -> None:
    """Append (seconds since the start, MiB resident) readings of the server until the phase ends."""
    start = time.monotonic()
    for number in range(SAMPLES + 1):
        time.sleep(max(0.0, start + number * seconds / SAMPLES - time.monotonic()))
        resident.append((round(time.monotonic() - start, 1), round(resident_bytes(server) / 2**20, 1)))


def growth(resident: Sequence[tuple[float, float]], warm_up: float) -> dict[str, Any]:
    """Memory after the warm-up, at the end and at its peak; growth in percent of that after the warm-up."""
    warm = next(size for elapsed, size in resident if elapsed >= warm_up)
    end = resident[-1][1]
    return {
        "warm-up seconds": warm_up,
        "MiB at the start": resident[0][1],
        "MiB after warm-up": warm,
        "MiB at the end": end,
        "MiB at the peak": max(size for _, size in resident),
        "growth %": round(100 * (end / warm - 1), 2),
        "readings": resident,
    }


def ratio(mixed: Measurement, unloaded: Measurement) -> float | None:
    """Honest p99 in the mixed phase divided by that alone."""
    above, below = mixed.summary()["p99 ms"], unloaded.summary()["p99 ms"]
    return round(above / below, 3) if above and below else None


def processor() -> dict[str, Any]:
    """The CPU, and the vector instructions that torch uses on it."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines() if Path("/proc/cpuinfo").is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "name": names[0] if names else "unknown",
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
    }


def main() -> None:
    """Measure, write the results and the page, and exit with 1 if a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--results", type=Path, default=RESULTS / "reliability" / "hostile_clients.json")
    parser.add_argument("--kinds", nargs="+", default=[], choices=[kind.__name__ for kind in KINDS],
                        help="only these kinds of hostile clients, to measure the effect of each")  # fmt: skip
    options = parser.parse_args()
    if not options.minutes >= 0.1:
        parser.error("--minutes: at least 0.1")
    results = campaign(options.minutes, options.kinds)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    options.results.with_suffix(".md").write_text(report.page(results), encoding="utf-8")
    print(report.page(results))
    raise SystemExit(0 if all(bound.holds for bound in report.bounds(results)) else 1)


if __name__ == "__main__":
    main()
