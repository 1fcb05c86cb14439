"""One of three processes killed under torchrun's agent: time to detection, time to recovery, and the result."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.interruptions.fingerprint import fingerprint

TEAM = [
    "pretrain", "bert-mini-prenorm", "builtin:microworld-en?size=400", "model.layers=2", "model.hidden_size=64",
    "model.heads=2", "model.max_length=64",
    "tokenizer.vocab_size=1000", "train.batch_tokens=640", "train.steps=300", "train.log_every=1",
    "train.save_every=20", "train.evaluate_tokens=2048", "train.threads=1", "--processes", "3",
]  # fmt: skip


def campaign(trials: int) -> None:
    """Kill one of three processes under torchrun's agent; print time to detection, time to recovery, and the result."""
    noticed, delays, num_identical = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "MERISTEM_CACHE": f"{folder}/cache", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "meristem", *TEAM, "--out"]
        subprocess.run([*command, f"{folder}/whole"], check=True, env=env, stderr=subprocess.DEVNULL)
        expected = fingerprint(Path(folder) / "whole", Path(folder) / "cache")
        for number in range(trials):
            chance, out, log = random.Random(number), Path(folder) / f"run-{number}", Path(folder) / f"log-{number}"
            with log.open("wb") as log_file:
                run = subprocess.Popen([*command, str(out)], env=env, stderr=log_file)
            moment = chance.randint(20, 200)
            _until(lambda out=out, moment=moment: _steps(out) >= moment)
            os.kill(chance.choice(_children(run.pid)), signal.SIGKILL)
            killed, before = time.monotonic(), _steps(out)
            _until(lambda log=log: b"is gone" in log.read_bytes())
            noticed.append(time.monotonic() - killed)
            _until(lambda log=log: b"Resuming from step" in log.read_bytes())
            _until(lambda out=out, before=before: _steps(out) > before or _finished(out))
            delays.append(time.monotonic() - killed)
            code = run.wait(300)
            num_identical += code == 0 and fingerprint(out, Path(folder) / "cache") == expected
            print(
                number,
                f"noticed {noticed[-1]:.1f} s, again {delays[-1]:.1f} s, exit {code}, same so far {num_identical}",
                flush=True,
            )
    for name, values in (("noticed", noticed), ("training again", delays)):
        print(f"{name}: median {statistics.median(values):.1f} s, at most {max(values):.1f} s")
    print(f"{num_identical} of {trials} ended bit for bit where the unbroken run ends")


def _steps(out: Path) -> int:
    file = out / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    steps = [json.loads(line)["step"] for line in lines if line.endswith("}") and '"train"' in line]
    return max(steps, default=0)


def _finished(out: Path) -> bool:
    return (out / "finished.json").is_file()


def _children(parent: int) -> list[int]:
    return [int(word) for word in subprocess.check_output(["pgrep", "-P", str(parent)]).split()]


def _until(is_done: Any) -> None:
    start = time.monotonic()
    while not is_done():
        if time.monotonic() - start > 180:
            raise SystemExit("a run hangs")
        time.sleep(0.02)
