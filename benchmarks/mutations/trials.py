"""One trial: a base run is copied and mutated, and one operation runs on it in a monitored child process."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile.mutations import copied, mutate, mutate_tokenizer
from hostile.watching import Seen, watched

from benchmarks.mutations.base_runs import KINDS, BaseRun
from benchmarks.mutations.operations import OPERATIONS

MEMORY = 1 << 30
"""Memory limit of a child in bytes, including what it inherits from its parent."""
SECONDS = 10
"""Limit in seconds of CPU time, and of wall-clock time while a CPU is available."""
SCHEDULE = ("resume", "load", "evaluate", "generate", "serve", "resume", "studio", "start", "export", "tokenizer")
"""The operation of trial n is entry n modulo 10: of 5,000 trials 1,000 resume, and every other operation has 500."""
GOOD = ("refused", "answered", "answered with notices", "same weights")
BAD_WORDS = ("unexpected", "Traceback")


@dataclass(frozen=True)
class Plan:
    """The operation, base run and mutations of trial `number`."""

    number: int
    operation: str
    kind: str

    @classmethod
    def of(cls, number: int) -> Plan:
        """The plan of a trial, a pure function of its number."""
        rng = random.Random(f"plan of trial {number}")
        return cls(number, SCHEDULE[number % len(SCHEDULE)], KINDS[int(rng.random() * len(KINDS))])


def run_trial(plan: Plan, base: BaseRun, caches: Path, workspace: Path) -> dict[str, Any]:
    """One line of the results: mutation, outcome, time and memory."""
    folder = Path(tempfile.mkdtemp(prefix=f"trial-{plan.number}-", dir=workspace))
    try:
        said, seen = _watch(plan, base, caches, folder)
        outcome = _outcome(plan, seen, base, folder / "out")
        line = {"trial": plan.number, "operation": plan.operation, "kind": plan.kind, "mutation": said[:160],
                "outcome": outcome, "seconds": round(seen.seconds, 2), "memory": round(seen.memory)}  # fmt: skip
        if outcome not in GOOD:
            line["said"] = " ".join(seen.said.split())[-600:]
        return line
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _watch(plan: Plan, base: BaseRun, caches: Path, folder: Path) -> tuple[str, Seen]:
    run, out = copied(base.stopped if plan.operation == "resume" else base.finished, folder / "run"), folder / "out"
    out.mkdir()
    shutil.copytree(caches, folder / "cache")  # a private copy, so that trials do not affect each other
    if (recipe := base.finished.with_suffix(".yaml")).is_file():
        shutil.copyfile(recipe, folder / "recipe.yaml")
    os.environ["MERISTEM_CACHE"] = str(folder / "cache")
    os.environ["TMPDIR"], tempfile.tempdir = str(out), None
    said = _mutate(run, plan)
    held = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) << 10
    operation = OPERATIONS[plan.operation]
    seen = watched(
        lambda given, out: operation(given, out, plan.kind), run, run, out,
        memory=MEMORY - held, processor=SECONDS, patience=SECONDS,
    )  # fmt: skip
    return said, seen


def _mutate(run: Path, plan: Plan) -> str:
    if plan.operation != "tokenizer":
        return mutate(run, plan.number, resumed=plan.operation == "resume")
    path, rng = run / "tokenizer.json", random.Random(plan.number)
    content = json.loads(path.read_bytes())
    said = [mutate_tokenizer(content, rng)]
    if rng.random() < 0.3 and isinstance(content.get("model"), dict):
        # the first mutation may have removed the part
        with contextlib.suppress(KeyError, TypeError, AttributeError, IndexError):
            said.append(mutate_tokenizer(content, rng))
    path.write_text(json.dumps(content), encoding="utf-8")
    return "; ".join(said)


def _outcome(plan: Plan, seen: Seen, base: BaseRun, out: Path) -> str:
    if seen.ran:
        return f"executed: {seen.ran[0]}"[:200]
    if seen.outcome == "refused":
        explained = seen.said and not any(word in seen.said for word in BAD_WORDS)
        return "refused" if explained else "refused without a reason"
    if seen.outcome not in ("taken", "passed over"):
        return seen.outcome
    if plan.operation != "resume":
        return "answered with notices" if seen.outcome == "passed over" else "answered"
    weights = (out / "weights").read_text() if (out / "weights").is_file() else ""
    return "same weights" if weights == base.final_weights else "other weights" if weights else "ended early"
