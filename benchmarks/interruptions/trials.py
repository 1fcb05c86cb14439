"""One trial: a run is interrupted, resumed with the same command, and compared with the uninterrupted run."""

from __future__ import annotations

import errno
import math
import os
import random
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.interruptions.fingerprint import fingerprint
from benchmarks.interruptions.kinds import Case, write_recipe
from benchmarks.interruptions.processes import Command, Outcome
from benchmarks.interruptions.system_calls import Fault

SIGNALS: dict[str, tuple[signal.Signals, ...]] = {
    "SIGKILL": (signal.SIGKILL,),
    "SIGKILL, twice": (signal.SIGKILL,),
    "SIGTERM": (signal.SIGTERM,),
    "SIGTERM SIGTERM": (signal.SIGTERM, signal.SIGTERM),
    "SIGINT": (signal.SIGINT,),
    "SIGINT SIGINT": (signal.SIGINT, signal.SIGINT),
    "SIGSTOP SIGCONT": (signal.SIGSTOP, signal.SIGCONT),
    "SIGSTOP SIGKILL": (signal.SIGSTOP, signal.SIGKILL),
}
FAULTS: dict[str, tuple[str, int, bool]] = {
    "full disk": ("write", errno.ENOSPC, True),
    "ENOSPC at a write": ("write", errno.ENOSPC, False),
    "EIO at a write": ("write", errno.EIO, False),
    "EIO at an fsync": ("fsync", errno.EIO, False),
    "EIO at a rename, mkdir or unlink": ("directory", errno.EIO, False),
    "EIO at an open": ("open", errno.EIO, False),
}
"""(failing system call, error number, whether all later ones fail too)."""
LIMIT = "file size limit"
INTERRUPTIONS = (*SIGNALS, *FAULTS, LIMIT)
OWN_CACHE = 3
"""One in this many trials starts with an empty cache, so that building shards and importing are interrupted too."""
ATTEMPTS = 12
"""Restarts of a trial whose run ended before the interruption."""
UNCLEAR = ("Traceback", "unexpected", "Exception ignored")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Result and cost of the uninterrupted run."""

    parts: Mapping[str, str]
    seconds: float
    counts: Mapping[str, int]
    largest_file: int


@dataclass(frozen=True, kw_only=True)
class Place:
    """The working folder of a benchmark."""

    folder: Path
    starts: Mapping[str, Path]

    @property
    def cache(self) -> Path:
        """The cache of this worker: runs that start at the same time do not build the same data set."""
        folder = self.folder / f"cache-{os.getpid()}"
        folder.mkdir(exist_ok=True)
        return folder

    def command(self, case: Case, folder: Path, cache: Path, **options: Any) -> Command:
        """The command that trains a run of this kind, or resumes it."""
        arguments = [*write_recipe(case.kind, folder / "run.yaml", self.starts), "--out", str(folder / "out")]
        return Command(arguments=arguments, folder=folder, cache=cache, processes=case.processes, **options)


def reference(work_place: Place, case: Case, folder: Path) -> Reference:
    """Train without interruption."""
    folder.mkdir(parents=True)
    outcome = work_place.command(case, folder, work_place.cache).run()
    if not outcome.completed:
        raise RuntimeError(f"{case.name} fails without any interruption: {_last_words(outcome)}")
    largest = max(path.stat().st_size for path in (folder / "out").rglob("*") if path.is_file())
    reference = Reference(
        parts=fingerprint(folder / "out", work_place.cache),
        seconds=outcome.seconds,
        counts=outcome.counts,
        largest_file=largest,
    )
    shutil.rmtree(folder)
    return reference


@dataclass(kw_only=True)
class Moment:
    """When signals are sent: at the `call`-th file-changing system call, or after `seconds`."""

    signals: tuple[signal.Signals, ...]
    call: int | None = None
    seconds: float | None = None
    pause: float = 0.0
    """Seconds between the first signal and the second."""
    sent: list[float] = field(default_factory=list)

    def on_call(self, command: Command, number: int) -> None:
        """Send the first signal at its system call."""
        if self.call is not None and number >= self.call and not self.sent:
            self._send(command, 0.0)

    def on_time(self, command: Command, elapsed: float) -> None:
        """Send the first signal at its time, and the second after a pause."""
        if self.seconds is not None and elapsed >= self.seconds and not self.sent:
            self._send(command, elapsed)
        elif len(self.sent) == 1 and self.sent[0] == 0.0:
            self.sent[0] = elapsed
        elif len(self.sent) < len(self.signals) and self.sent and elapsed - self.sent[0] >= self.pause:
            self._send(command, elapsed)

    def _send(self, command: Command, elapsed: float) -> None:
        command.send(self.signals[len(self.sent)])
        self.sent.append(elapsed)


@dataclass(kw_only=True)
class Trial:
    """A case, an interruption, and the outcome."""

    number: int
    case: Case
    interruption: str
    moments: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def line(self) -> dict[str, Any]:
        """The trial as a line of the results file."""
        return {
            "trial": self.number,
            "kind": self.case.kind,
            "processes": self.case.processes,
            "interruption": self.interruption,
            "moments": self.moments,
            "identical": not self.problems,
            **({"problems": self.problems} if self.problems else {}),
        }


def run_trial(trial: Trial, work_place: Place, expected: Reference) -> None:
    """Interrupt, resume, compare; problems are added to `trial.problems`."""
    chance = random.Random(f"interruptions {trial.number}")
    folder = work_place.folder / f"trial-{trial.number}"
    uses_own_cache = chance.randrange(OWN_CACHE) == 0
    try:
        for attempt in range(ATTEMPTS):
            shutil.rmtree(folder, ignore_errors=True)
            (folder / "cache").mkdir(parents=True)
            cache = folder / "cache" if uses_own_cache else work_place.cache
            if _interrupt(trial, work_place, folder, cache, expected, chance, sooner=0.85**attempt):
                break
            trial.moments.clear()
        else:
            trial.problems.append(f"was not interrupted in {ATTEMPTS} starts")
            return
        if trial.problems:
            return
        outcome = work_place.command(trial.case, folder, cache).run()
        if not outcome.completed:
            trial.problems.append(f"could not be resumed, exit codes {outcome.codes}: {_last_words(outcome)}")
            return
        parts = fingerprint(folder / "out", cache)
        different = [name for name in {**expected.parts, **parts} if parts.get(name) != expected.parts.get(name)]
        if different:
            trial.problems.append(f"differs: {', '.join(different)}" + (f" ({parts['left over']})"))
    except Exception as error:
        trial.problems.append(f"{type(error).__name__}: {error}")
    finally:
        if not trial.problems:
            shutil.rmtree(folder, ignore_errors=True)


def _interrupt(
    trial: Trial,
    work_place: Place,
    folder: Path,
    cache: Path,
    expected: Reference,
    chance: random.Random,
    sooner: float,
) -> bool:
    """Start the run and interrupt it; False if it ended before."""
    if trial.interruption in SIGNALS:
        hit = False
        for _ in range(2 if "twice" in trial.interruption else 1):
            hit |= _send_signals(trial, work_place, folder, cache, expected, chance, sooner)
        return hit
    if trial.interruption == LIMIT:
        limit = int(math.exp(chance.uniform(math.log(64), math.log(expected.largest_file))) * sooner)
        trial.moments.append(f"no file beyond {limit} bytes")
        outcome = work_place.command(trial.case, folder, cache, largest_file=limit).run()
        _check_fault(trial, outcome)
        return not outcome.completed
    kind, code, lasting = FAULTS[trial.interruption]
    call_number = max(1, int(chance.randint(1, expected.counts[kind]) * sooner))
    fault = Fault(kind=kind, at=call_number, error=code, lasting=lasting)
    outcome = work_place.command(trial.case, folder, cache, fault=fault).run()
    trial.moments += [f"{kind} {call_number}: {call}".replace(f"{folder}/", "") for call in outcome.failed[:1]]
    _check_fault(trial, outcome)
    return bool(outcome.failed)


def _send_signals(
    trial: Trial,
    work_place: Place,
    folder: Path,
    cache: Path,
    expected: Reference,
    chance: random.Random,
    sooner: float,
) -> bool:
    by_call = chance.random() < 0.5
    moment = Moment(
        signals=SIGNALS[trial.interruption],
        call=max(1, int(chance.randint(1, expected.counts["all"]) * sooner)) if by_call else None,
        seconds=None if by_call else chance.uniform(0.03, 0.95) * expected.seconds * sooner,
        pause=chance.uniform(0.05, 0.4) if "SIGSTOP" in trial.interruption else chance.uniform(0.0, 0.05),
    )
    outcome = work_place.command(trial.case, folder, cache, on_call=moment.on_call, on_time=moment.on_time).run()
    trial.moments.append(f"system call {moment.call}" if by_call else f"{moment.seconds:.2f} s")
    continued = trial.interruption == "SIGSTOP SIGCONT"
    if continued and moment.sent and not outcome.completed:
        trial.problems.append(f"did not go on after SIGCONT: {outcome.codes}: {_last_words(outcome)}")
    if not continued and not outcome.completed:
        _check_signalled(trial, outcome, moment.signals[-1])
    return bool(moment.sent) if continued else not outcome.completed


def _check_signalled(trial: Trial, outcome: Outcome, last: signal.Signals) -> None:
    """Expect exit code 130 or 143, or death by the signal; a process may instead report that a peer is gone."""
    for code, output in zip(outcome.codes, outcome.output, strict=True):
        stopped = code in (-last, 128 + last, 0)
        lost = outcome.codes != (code,) and code == 1 and "is gone" in output
        if not (stopped or lost) or any(word in output for word in UNCLEAR):
            trial.problems.append(f"ended with {outcome.codes} after {last.name}: {_last_words(outcome)}")
            return


def _check_fault(trial: Trial, outcome: Outcome) -> None:
    """A run survives a harmless fault; otherwise its first process must report in one sentence what failed."""
    first, output = outcome.codes[0], outcome.output[0]
    unclear = any(word in output for word in UNCLEAR for output in outcome.output)
    if unclear or first not in (0, 1) or (first == 1 and "meristem: " not in output):
        trial.problems.append(f"ended with {outcome.codes} after {trial.moments}: {_last_words(outcome)}")


def _last_words(outcome: Outcome) -> str:
    return " | ".join(output.strip()[-600:] for output in outcome.output)
