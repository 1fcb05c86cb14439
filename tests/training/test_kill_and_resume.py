"""Kill and resume: runs killed with SIGKILL at any moment end bit for bit like an uninterrupted run.

Over ten seconds by design: runs are killed, some of them twice, and each is then trained to its end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from meristem.checkpoint import disk
from meristem.checkpoint.folder_layout import REPLACED_PREFIX, RETIRED_PREFIX, WRITING_PREFIX
from meristem.config.recipe import Recipe, resolve_recipe
from meristem.training.pretraining import pretrain

pytestmark = pytest.mark.usefixtures("one_thread")

CHANGES = ("make_folder", "create", "write", "sync", "close", "sync_folder", "rename", "unlink", "remove_folder")
"""Every function through which a run changes the disk."""
STEPS = 30
CLOCKS = ("seconds", "tokens_per_second", "mfu", "memory")
PATIENCE = 60.0  # seconds after which a child counts as hanging
AT_RANDOM, TWICE, IN_A_SAVE = 3, 1, 3  # benchmarks/interruptions interrupts a thousand

SMALL = {"layers": 1, "hidden_size": 32, "heads": 2, "max_length": 32, "dropout": 0.1}
KINDS: dict[str, dict[str, Any]] = {
    "bert": {
        "tokenizer": {"kind": "wordpiece", "vocab_size": 200},
        "model": {"family": "bert", **SMALL},
        "objective": ["mlm", "nsp"],
        "train": {"optimizer": "muon"},
    },
    "gpt2": {
        "tokenizer": {"kind": "bpe", "vocab_size": 300},
        "model": {"family": "gpt2", **SMALL, "layers": 2},
        "objective": ["clm"],
        "train": {"optimizer": "adamw", "micro_batch_tokens": 64},
    },
    "modern": {
        "tokenizer": {"kind": "bpe", "vocab_size": 300},
        "model": {"family": "modern", **SMALL, "ffn_size": 64},
        "mix": [{"weight": 2, "objective": "clm"}, {"weight": 1, "objective": "mlm"}],
        "train": {"optimizer": "muon"},
    },
    "phases": {
        "tokenizer": {"kind": "bpe", "vocab_size": 300},
        "model": {"family": "modern", **SMALL, "ffn_size": 64},
        "phases": [{"share": 1, "objective": "clm"}, {"share": 1, "objective": "mlm"}],
        "train": {"optimizer": "muon", "ema_decay": 0.9, "batch_ramp": 0.3, "length_ramp": 0.4},
    },
}


def recipe_of(kind: str) -> Recipe:
    plain = KINDS[kind]
    corpus = {"source": "builtin:microworld-en?size=40", "processes": 1, "validation": 0.1, "test": 0.1}
    train = {
        "steps": STEPS,
        "batch_tokens": 128,
        "save_every": 3,
        "log_every": 1,
        "evaluate_every": 10,
        "threads": 1,
        "evaluate_tokens": 256,
        **plain["train"],
    }
    return resolve_recipe(kind, {**plain, "corpus": corpus, "train": train})


@dataclass
class Child:
    """A forked process that trains one run; it counts its changes to the disk, and may kill itself at one of them."""

    recipe: Recipe
    out: Path
    kill_at: int | None = None
    pid: int = field(default=0, init=False)

    def start(self) -> Child:
        self.pid = os.fork()
        if self.pid == 0:
            self._train()
        return self

    def _train(self) -> None:
        """Never returns: what surrounds the fork belongs to the parent."""
        try:
            with Path(f"{self.out}.said").open("a", encoding="utf-8") as log_file:
                changes = self._watch_the_disk()
                pretrain(self.recipe, self.out, fresh=False, console=Console(file=log_file))
                Path(f"{self.out}.changes").write_text(str(changes()), encoding="utf-8")
            os._exit(0)
        except BaseException:
            Path(f"{self.out}.error").write_text(traceback.format_exc(), encoding="utf-8")
            os._exit(1)

    def _watch_the_disk(self) -> Callable[[], int]:
        count = 0

        def watched(change: Callable[..., Any]) -> Callable[..., Any]:
            def watching(*arguments: Any) -> Any:
                nonlocal count
                count += 1
                if count == self.kill_at:
                    if change.__name__ == "write":  # half of it arrives
                        change(arguments[0], memoryview(arguments[1])[: len(arguments[1]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                return change(*arguments)

            return watching

        for name in CHANGES:
            setattr(disk, name, watched(getattr(disk, name)))
        return lambda: count

    def wait(self) -> int:
        """How it ended: 0, or minus the signal that killed it; an error of its own is shown."""
        end = time.monotonic() + PATIENCE
        while not (wait_result := os.waitpid(self.pid, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                pytest.fail(f"{self.out} hangs")
            time.sleep(0.002)
        code = os.waitstatus_to_exitcode(wait_result[1])
        assert code != 1, Path(f"{self.out}.error").read_text(encoding="utf-8")
        return code

    def kill_after(self, seconds: float) -> bool:
        """Kill it after a while; False where it was quicker."""
        time.sleep(seconds)
        os.kill(self.pid, signal.SIGKILL)
        return self.wait() == -signal.SIGKILL


@dataclass(frozen=True)
class Trace:
    """All that a run leaves, but for what its clocks said."""

    measured: list[dict[str, Any]]
    files: dict[str, bytes]
    state: dict[str, Any]
    facts: dict[str, Any]


def trace_of(run: Path) -> Trace:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = run / "checkpoints" / (run / "checkpoints" / "latest").read_text(encoding="ascii").strip()
    state = json.loads((last / "state.json").read_bytes())
    facts = json.loads((run / "finished.json").read_bytes())
    files = {name: (last / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")}
    return Trace(
        [_timeless(line) for line in lines],
        files,
        _timeless(state),
        {"step": facts["step"], "validation": facts["validation"], "test": facts["test"]},
    )


def _timeless(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in CLOCKS}


@dataclass(frozen=True)
class Unbroken:
    """The run that nobody killed."""

    trace: Trace
    seconds: float
    changes: int


def train_uninterrupted(recipe: Recipe, out: Path) -> Unbroken:
    """Once here, which also makes the shards and imports all that is imported late, and once in a child."""
    own_process, child_process = out.with_name("unbroken-here"), out.with_name("unbroken-there")
    pretrain(recipe, own_process, fresh=False, console=Console(quiet=True))
    start = time.monotonic()
    assert Child(recipe, child_process).start().wait() == 0
    duration = time.monotonic() - start
    own_trace, child_trace = trace_of(own_process), trace_of(child_process)
    assert own_trace == child_trace
    assert [line["step"] for line in child_trace.measured if line["kind"] == "train"] == list(range(1, STEPS + 1))
    assert sum(line["kind"] == "test" for line in child_trace.measured) == 1
    return Unbroken(child_trace, duration, int(Path(f"{child_process}.changes").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "kind", ["gpt2", *(pytest.param(k, marks=pytest.mark.slow) for k in ("bert", "modern", "phases"))]
)
def test_killed_runs_end_where_the_unbroken_one_does(kind: str, tmp_path: Path) -> None:
    recipe, chance = recipe_of(kind), random.Random(kind)
    uninterrupted = train_uninterrupted(recipe, tmp_path / "unbroken")
    begun_anew = 0
    for number in range(AT_RANDOM + TWICE + IN_A_SAVE):
        out = tmp_path / f"run-{number}"
        if number < AT_RANDOM + TWICE:
            kills = 1 if number < AT_RANDOM else 2
            _kill_at_random(recipe, out, chance, uninterrupted.seconds, kills)
        else:
            assert (
                Child(recipe, out, kill_at=chance.randint(1, uninterrupted.changes)).start().wait() == -signal.SIGKILL
            )
        begun_anew += not list((out / "checkpoints").glob("step-*"))
        assert Child(recipe, out).start().wait() == 0
        assert trace_of(out) == uninterrupted.trace, f"{out.name} of {kind} differs from the unbroken run"
        folder_names = [path.name for path in (out / "checkpoints").iterdir()]
        assert not [name for name in folder_names if name.startswith((WRITING_PREFIX, REPLACED_PREFIX, RETIRED_PREFIX))]
    assert begun_anew < number, "no run was killed after a save: the kills came too early to say anything"


def _kill_at_random(recipe: Recipe, out: Path, chance: random.Random, seconds: float, kills: int) -> None:
    """Kills spread over the run; one that came too late is tried again on a run of its own, and earlier."""
    for _ in range(kills):
        longest = seconds
        while not Child(recipe, out).start().kill_after(chance.uniform(0.05, longest / kills)):
            longest *= 0.8
            if out.exists():
                out.rename(out.with_name(f"{out.name}.ended-{longest:.3f}"))


def test_killed_at_every_change_of_its_first_moments(tmp_path: Path) -> None:
    """Before the first checkpoint a folder is in the making; what a kill leaves is not in the way of the next start."""
    recipe = recipe_of("bert")
    for kill_at in range(1, 12):
        out = tmp_path / f"run-{kill_at}"
        assert Child(recipe, out, kill_at=kill_at).start().wait() == -signal.SIGKILL
    out = tmp_path / "again"
    for kill_at in (3, 5, 8):
        assert Child(recipe, out, kill_at=kill_at).start().wait() == -signal.SIGKILL
    assert Child(recipe, out).start().wait() == 0
    assert json.loads((out / "finished.json").read_bytes())["step"] == STEPS
