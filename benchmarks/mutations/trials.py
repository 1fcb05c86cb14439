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
from hostile.sandboxed_trial import TrialResult, run_sandboxed

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
        mutation, trial_result = _watch(plan, base, caches, folder)
        outcome = _outcome(plan, trial_result, base, folder / "out")
        line = {"trial": plan.number, "operation": plan.operation, "kind": plan.kind, "mutation": mutation[:160],
                "outcome": outcome,
                "seconds": round(trial_result.seconds, 2), "memory": round(trial_result.memory)}  # fmt: skip
        if outcome not in GOOD:
            line["message"] = " ".join(trial_result.message.split())[-600:]
        return line
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _watch(plan: Plan, base: BaseRun, caches: Path, folder: Path) -> tuple[str, TrialResult]:
    run, out = copied(base.stopped if plan.operation == "resume" else base.finished, folder / "run"), folder / "out"
    out.mkdir()
    shutil.copytree(caches, folder / "cache")  # a private copy, so that trials do not affect each other
    if (recipe := base.finished.with_suffix(".yaml")).is_file():
        shutil.copyfile(recipe, folder / "recipe.yaml")
    os.environ["MERISTEM_CACHE"] = str(folder / "cache")
    os.environ["TMPDIR"], tempfile.tempdir = str(out), None
    mutation = _mutate(run, plan)
    data_size = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) << 10
    operation = OPERATIONS[plan.operation]
    trial_result = run_sandboxed(
        lambda run_path, out: operation(run_path, out, plan.kind), run, run, out,
        memory=MEMORY - data_size, processor=SECONDS, patience=SECONDS,
    )  # fmt: skip
    return mutation, trial_result


def _mutate(run: Path, plan: Plan) -> str:
    if plan.operation != "tokenizer":
        return mutate(run, plan.number, resumed=plan.operation == "resume")
    path, rng = run / "tokenizer.json", random.Random(plan.number)
    content = json.loads(path.read_bytes())
    mutation = [mutate_tokenizer(content, rng)]
    if rng.random() < 0.3 and isinstance(content.get("model"), dict):
        # the first mutation may have removed the part
        with contextlib.suppress(KeyError, TypeError, AttributeError, IndexError):
            mutation.append(mutate_tokenizer(content, rng))
    path.write_text(json.dumps(content), encoding="utf-8")
    return "; ".join(mutation)


def _outcome(plan: Plan, trial_result: TrialResult, base: BaseRun, out: Path) -> str:
    if trial_result.ran:
        return f"executed: {trial_result.ran[0]}"[:200]
    if trial_result.outcome == "refused":
        explained = trial_result.message and not any(word in trial_result.message for word in BAD_WORDS)
        return "refused" if explained else "refused without a reason"
    if trial_result.outcome not in ("taken", "passed over"):
        return trial_result.outcome
    if plan.operation != "resume":
        return "answered with notices" if trial_result.outcome == "passed over" else "answered"
    weights = (out / "weights").read_text() if (out / "weights").is_file() else ""
    return "same weights" if weights == base.final_weights else "other weights" if weights else "ended early"
