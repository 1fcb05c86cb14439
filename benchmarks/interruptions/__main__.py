"""Runs interrupted at random moments and resumed: is the result bit-identical to the uninterrupted run?

    python -m benchmarks.interruptions [--trials 1000] [--workers 2] [--results FILE]     every kind, every interruption
    python -m benchmarks.interruptions --only 17 [--keep FOLDER]                     one trial again, its files kept
    python -m benchmarks.interruptions --team [--trials 20]          one of three processes is killed under torchrun

Each trial is a line of the results file; a restart continues with the missing trials. A page with the table is written
next to that file, with the ending .md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import pkgutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

import meristem
from benchmarks.interruptions import multi_process, report
from benchmarks.interruptions.kinds import Case, cases, start_commands, write_data
from benchmarks.interruptions.processes import Command
from benchmarks.interruptions.system_calls import supported
from benchmarks.interruptions.trials import INTERRUPTIONS, Place, Reference, Trial, reference, run_trial
from benchmarks.side_by_side import RESULTS
from meristem.training import budget


def plan(number: int) -> Trial:
    """Trial `number`: each round has every case once, with another interruption in every round."""
    every = cases()
    completed_rounds, case_index = divmod(number, len(every))
    interruption = INTERRUPTIONS[(case_index + completed_rounds) % len(INTERRUPTIONS)]
    return Trial(number=number, case=every[case_index], interruption=interruption)


def campaign(trials: Sequence[Trial], results: Path | None, workers: int, keep: Path | None) -> None:
    """Run trials in forked workers and write one line each; without a results file they are only printed."""
    _import_everything()
    with _folder(keep) as folder:
        work_place = _prepared(folder)
        with multiprocessing.get_context("fork").Pool(workers) as workers_pool:
            cases_needed = list(dict.fromkeys(trial.case for trial in trials))
            print(f"{len(cases_needed)} uninterrupted runs to compare with", flush=True)
            references = dict(workers_pool.imap_unordered(partial(_reference, work_place), cases_needed))
            _collect(workers_pool.imap_unordered(partial(_trial, work_place, references), trials), len(trials), results)


def _collect(lines: Iterable[Mapping[str, Any]], total: int, results: Path | None) -> None:
    start = time.monotonic()
    for index, line in enumerate(lines, 1):
        if results is not None:
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        pace = (time.monotonic() - start) / index
        outcome = "identical" if line["identical"] else "; ".join(line["problems"])
        print(
            f"{index}/{total}  {pace:.2f} s per trial, {pace * (total - index) / 60:.1f} min left  "
            f"trial {line['trial']}: "
            f"{line['kind']}, {line['processes']} process(es), {line['interruption']} at "
            f"{'; '.join(line['moments'])}: {outcome}",
            flush=True,
        )


def _import_everything() -> None:
    """Import what commands import, so that forked processes have it in memory."""
    for module in pkgutil.walk_packages(meristem.__path__, "meristem."):
        if not module.name.endswith("__main__"):
            importlib.import_module(f"meristem.{module.name.removeprefix('meristem.')}")
    importlib.import_module("torch._dynamo")  # imported lazily by a run
    importlib.import_module("torch.utils.tensorboard")
    importlib.import_module("torch.distributed.fsdp")
    importlib.import_module("matplotlib.pyplot")
    importlib.import_module("sklearn.metrics")
    torch.set_num_threads(1)
    os.environ.update({"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"})
    budget.PEAK_SIZE = 64


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The working folder; removed afterwards unless `keep`."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name).resolve()


def _prepared(folder: Path) -> Place:
    """The folder with a cache, the data, and the runs that other kinds start from."""
    starts = {"data": folder / "data"}
    write_data(starts["data"])
    for name, arguments in start_commands(folder).items():
        outcome = Command(arguments=arguments, folder=folder, cache=folder / "cache").run()
        if not outcome.completed:
            raise SystemExit(f"meristem {' '.join(arguments)}: {outcome.output[0]}")
        starts[name] = folder / name
    return Place(folder=folder, starts=starts)


def _reference(work_place: Place, case: Case) -> tuple[Case, Reference]:
    return case, reference(work_place, case, work_place.folder / "references" / case.name)


def _trial(work_place: Place, references: Mapping[Case, Reference], trial: Trial) -> dict[str, Any]:
    run_trial(trial, work_place, references[trial.case])
    return trial.line()


def main() -> None:
    """Run one of the two benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--team", action="store_true", help="kill one of three processes under torchrun's agent")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, help="repeat this trial, and write nothing")
    parser.add_argument("--keep", type=Path, help="a new working folder, which is kept")
    parser.add_argument("--results", type=Path, default=RESULTS / "reliability" / "interruptions.jsonl")
    options = parser.parse_args()
    if options.team:
        multi_process.campaign(options.trials or 20)
        return
    if not supported():
        raise SystemExit("interruptions: system calls are made to fail by seccomp, which needs Linux on x86-64")
    if options.only is not None:
        campaign([plan(options.only)], None, 1, options.keep)
        return
    options.results.parent.mkdir(parents=True, exist_ok=True)
    finished_trials = report.read(options.results)
    remaining_trials = [plan(number) for number in range(options.trials or 1000) if number not in finished_trials]
    if remaining_trials:
        campaign(remaining_trials, options.results, options.workers, options.keep)
    lines = [line for _, line in sorted(report.read(options.results).items())]
    options.results.with_suffix(".md").write_text(report.page(lines), encoding="utf-8")
    print("\n".join([*report.table(lines), *report.failures(lines)]))
    print(f"{sum(line['identical'] for line in lines)} of {len(lines)} bit-identical")
    sys.exit(any(not line["identical"] for line in lines))


if __name__ == "__main__":
    main()
