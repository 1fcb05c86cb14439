"""Fuzzing of load, evaluate, generate, serve, studio, start, export and resume with mutated runs and tokenizers.

    python -m benchmarks.mutations [--trials 5000] [--workers 2] [--results FILE]     whatever is not in FILE yet
    python -m benchmarks.mutations --only 17 [--only 42]                              these again, in words
    python -m benchmarks.mutations --summary                                          the page of what FILE holds

Each trial is one operation on one run with one mutation, in its own process: at most 1 GB and 10 s, no signal, no error
but a MeristemError, no code executed; a run that resumes must end with the weights of the unmutated run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")

from hostile.mutations import copied

from benchmarks.mutations import summary
from benchmarks.mutations.base_runs import BaseRun, train_base_runs
from benchmarks.mutations.operations import OPERATIONS
from benchmarks.mutations.trials import GOOD, Plan, run_trial
from benchmarks.side_by_side import RESULTS
from meristem.config.errors import MeristemError


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, action="append")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS / "reliability" / "mutations.jsonl")
    options = parser.parse_args()
    if options.only:
        for line in run_trials([Plan.of(number) for number in options.only], options.workers):
            print(json.dumps(line, ensure_ascii=False, indent=1))
        return
    if not options.summary:
        campaign(options.trials, options.workers, options.results)
    summary.write(options.results)


def campaign(trials: int, workers: int, results: Path) -> None:
    """Run every trial without a line, and write a line for each."""
    results.parent.mkdir(parents=True, exist_ok=True)
    finished_trials = {line["trial"] for line in summary.read(results)}
    plans = [Plan.of(number) for number in range(trials) if number not in finished_trials]
    if not plans:
        return
    failed, started_at = 0, 0.0
    with results.open("a", encoding="utf-8") as lines:
        for number, line in enumerate(run_trials(plans, workers), 1):
            lines.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
            lines.flush()
            started_at = started_at or time.monotonic()
            if line["outcome"] not in GOOD:
                failed += 1
                print("\nFAILED", json.dumps(line, ensure_ascii=False), flush=True)
            seconds_left = (time.monotonic() - started_at) / max(1, number - 1) * (len(plans) - number)
            if number % 10 == 0 or number == len(plans):
                progress = f"{number:,} of {len(plans):,} trials, {failed} failed, {seconds_left / 60:.0f} min left"
                print(f"\r{progress}  ", end="", flush=True)
    print()


def run_trials(plans: list[Plan], workers: int) -> Iterator[dict[str, Any]]:
    """The result of each trial, in order of completion."""
    with tempfile.TemporaryDirectory(prefix="mutations-") as directory:
        folder, caches = Path(directory), Path(directory) / "cache"
        os.environ.update(MERISTEM_CACHE=str(caches), XDG_CONFIG_HOME=str(folder / "config"))
        kinds = tuple(dict.fromkeys(plan.kind for plan in plans))
        print(f"training {len(kinds)} base runs: {', '.join(kinds)}", flush=True)
        bases = train_base_runs(folder, kinds)
        _warm(bases, {plan.operation for plan in plans}, folder)
        os.environ["MERISTEM_CACHE"] = str(caches)
        trial = partial(_trial, bases, caches, folder)
        with multiprocessing.get_context("fork").Pool(max(1, min(workers, len(plans)))) as workers_pool:
            yield from workers_pool.imap_unordered(trial, plans)


def _trial(bases: dict[str, BaseRun], caches: Path, folder: Path, plan: Plan) -> dict[str, Any]:
    return run_trial(plan, bases[plan.kind], caches, folder)


def _warm(bases: dict[str, BaseRun], operations: set[str], folder: Path) -> None:
    """Run every operation on every base run once, so that its imports are in memory before forking."""
    for kind, base in bases.items():
        for name in sorted(operations - {"resume"}):
            warm_folder = folder / f"warm-{kind}-{name}"
            out = warm_folder / "out"
            out.mkdir(parents=True)
            (warm_folder / "recipe.yaml").write_bytes(base.finished.with_suffix(".yaml").read_bytes())
            with contextlib.suppress(MeristemError):  # not every kind supports every operation
                OPERATIONS[name](copied(base.finished, warm_folder / "run"), out, kind)


if __name__ == "__main__":
    main()
