"""Runs killed with SIGKILL wherever they are, and gone on with: do they end bit for bit where the unbroken one ends?

    python -m benchmarks.kills [--trials 300] [--results FILE]     every objective, fine-tuning; 1 and 2 processes
    python -m benchmarks.kills --team [--trials 20]                one of three processes is killed under torchrun

Each trial is a line of the results file, and the next start goes on after the last one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.side_by_side import RESULTS
from meristem.checkpoint import load
from meristem.recipe import Recipe, resolve
from meristem.training import budget
from meristem.training.finetuning import finetune
from meristem.training.pretraining import pretrain

STEPS = 24
SMALL = {"layers": 1, "width": 32, "heads": 2, "length": 32, "dropout": 0.1}
TEXT = "builtin:microworld-en?size=40"
PAIRS = "builtin:microworld-pairs?size=60"
PICTURES = "builtin:microworld-pictures?size=40"
CLOCKS = ("seconds", "tokens_per_second", "mfu", "memory")
KINDS: dict[str, dict[str, Any]] = {
    "clm": {"model": {"family": "gpt2", **SMALL}, "objective": ["clm"]},
    "mlm + nsp": {"model": {"family": "bert", **SMALL}, "objective": ["mlm", "nsp"], "train": {"optimizer": "muon"}},
    "rtd": {"model": {"family": "electra", **SMALL}, "objective": ["rtd"]},
    "plm": {"model": {"family": "xlnet", **SMALL, "memory": 16}, "objective": ["plm"]},
    "bilm": {"model": {"family": "elmo", "layers": 1, "width": 16, "cells": 32, "length": 32, "letter_width": 8,
                       "filters": [[1, 8], [2, 8]], "highways": 1},
             "objective": ["bilm"], "tokenizer": {"kind": "words", "size": 300}},
    "seq2seq": {"model": {"family": "transformer", **SMALL}, "objective": ["seq2seq"], "corpus": {"source": PAIRS}},
    "seq2seq, recurrent": {"model": {"family": "rnn", "layers": 1, "width": 32, "length": 32},
                           "objective": ["seq2seq"], "corpus": {"source": PAIRS}},
    "denoising": {"model": {"family": "transformer", **SMALL}, "objective": ["denoising"]},
    "caption": {"model": {"family": "captioner", **SMALL}, "objective": ["caption"], "corpus": {"source": PICTURES}},
    "clm with memory": {"model": {"family": "transformer_xl", **SMALL, "memory": 16}, "objective": ["clm"]},
    "mixed": {"model": {"family": "modern", **SMALL, "inner": 64},
              "mix": [{"weight": 2, "objective": "clm"}, {"weight": 1, "objective": "mlm"}]},
    "classification": {"task": {"name": "classification"}, "data": "sentiment", "model": {"family": "bert", **SMALL}},
    "tagging": {"task": {"name": "tagging", "crf": True}, "data": "entities", "model": {"family": "bert", **SMALL}},
    "translation": {"task": {"name": "translation"}, "data": "pairs",
                    "model": {"family": "transformer", **SMALL}},
}  # fmt: skip


def recipe_of(kind: str) -> Recipe:
    """A small run of its kind."""
    plain = {"tokenizer": {"kind": "bpe", "size": 300}, **KINDS[kind]}
    train = {"steps": STEPS, "batch_tokens": 160, "batch_samples": 6, "save_every": 3, "log_every": 1, "threads": 1,
             "evaluate_every": 8, "evaluate_tokens": 256, **plain.get("train", {})}  # fmt: skip
    if "task" in plain:
        sizes = {"train": (40, 1), "validation": (12, 2), "test": (12, 3)}
        name = plain["data"]
        plain["data"] = {split: f"builtin:microworld-{name}?size={size}&seed={seed}"
                         for split, (size, seed) in sizes.items()}  # fmt: skip
    else:
        corpus = {"source": TEXT, "processes": 1, "validation": 0.1, "test": 0.1, **plain.get("corpus", {})}
        plain["corpus"] = corpus
    return resolve("killed", {**plain, "train": train})


# ------------------------------------------------------------ processes


def start(recipe: Recipe, out: Path, processes: int) -> list[int]:
    """Forked processes that train one run together; their numbers."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    return [os.fork() or _train(recipe, out, rank, processes, port) for rank in range(processes)]


def _train(recipe: Recipe, out: Path, rank: int, processes: int, port: int) -> int:
    """Never returns: what surrounds the fork belongs to the parent."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in told.items()} | {"GLOO_SOCKET_IFNAME": "lo"})
    code = 1
    try:
        with Path(f"{out}.said-{rank}").open("a", encoding="utf-8") as said:
            learn = finetune if recipe.task is not None else pretrain
            learn(recipe, out, fresh=False, console=Console(file=said))
        code = 0
    finally:
        os._exit(code)


def ended(children: list[int], *, kill_after: float | None = None) -> bool:
    """Wait for all; True if they ended well, False if they were killed, which happens to all of them at once."""
    begun, left = time.monotonic(), set(children)
    killed = False
    while left:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                left.discard(pid)
                if status and not killed:
                    raise RuntimeError(f"a process ended with {os.waitstatus_to_exitcode(status)}")
        if kill_after is not None and left and time.monotonic() - begun > kill_after and not killed:
            killed = True
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() - begun > 300:
            raise RuntimeError("a run hangs")
        time.sleep(0.005)
    return not killed


def trace(out: Path) -> str:
    """A digest of all that a run is: weights, optimizer, memory, counters, and every number it measured."""
    found = load.load(out / "checkpoints")
    assert found is not None
    digest = hashlib.sha256()
    snapshot = found.snapshot
    for tensors in (snapshot.model, snapshot.optimizer, snapshot.memory):
        for name in sorted(tensors):
            digest.update(name.encode() + tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    digest.update(json.dumps(_timeless(snapshot.state), sort_keys=True).encode())
    for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        digest.update(json.dumps(_timeless(json.loads(line)), sort_keys=True).encode())
    return digest.hexdigest()


def _timeless(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in CLOCKS}


# ------------------------------------------------------------ the campaign


def campaign(trials: int, results: Path) -> None:
    """Trial after trial, each kind and number of processes in turn."""
    torch.set_num_threads(1)
    budget.PEAK_SIZE = 64
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.is_file() else []
    cases = [(kind, processes) for kind in KINDS for processes in (1, 2)]
    whole: dict[tuple[str, int], tuple[str, float]] = {}
    with tempfile.TemporaryDirectory() as place, results.open("a") as lines:
        os.environ["MERISTEM_CACHE"] = f"{place}/cache"
        for number in range(len(done), trials):
            kind, processes = cases[number % len(cases)]
            folder = Path(place) / str(number)
            folder.mkdir()
            if (kind, processes) not in whole:
                whole[kind, processes] = _unbroken(kind, processes, folder)
            expected, seconds = whole[kind, processes]
            kills = _killed(kind, processes, folder / "killed", random.Random(f"{number}"), seconds)
            same = trace(folder / "killed") == expected
            line = {"trial": number, "kind": kind, "processes": processes, "kills": kills, "same": same}
            lines.write(json.dumps(line) + "\n")
            lines.flush()
            print(line, flush=True)
            subprocess.run(["rm", "-rf", str(folder)], check=True)
    told = [json.loads(line) for line in results.read_text().splitlines()]
    kills = sum(line["kills"] for line in told)
    print(f"{sum(line['same'] for line in told)} of {len(told)} bit-identical, {kills} kills")


def _unbroken(kind: str, processes: int, folder: Path) -> tuple[str, float]:
    """What a run ends with, and how long it takes; made here once too, so that nothing is imported later."""
    recipe = recipe_of(kind)
    if processes == 1:
        learn = finetune if recipe.task is not None else pretrain
        learn(recipe, folder / "here", fresh=False, console=Console(quiet=True))
    begun = time.monotonic()
    ended(start(recipe, folder / "unbroken", processes))
    return trace(folder / "unbroken"), time.monotonic() - begun


def _killed(kind: str, processes: int, out: Path, chance: random.Random, seconds: float) -> int:
    """Kill it at one or two moments and let it end; how often it was killed: a run that ends too soon is begun anew."""
    kills = 0
    while not kills:
        subprocess.run(["rm", "-rf", str(out)], check=True)
        for _ in range(chance.choice((1, 1, 2))):
            kills += not ended(start(recipe_of(kind), out, processes), kill_after=chance.uniform(0.05, 0.9 * seconds))
    ended(start(recipe_of(kind), out, processes))
    return kills


# ------------------------------------------------------------ one of a team


TEAM = [
    "pretrain", "bert-mini-prenorm", "builtin:microworld-en?size=400", "model.layers=2", "model.width=64",
    "model.heads=2", "model.length=64",
    "tokenizer.size=1000", "train.batch_tokens=640", "train.steps=300", "train.log_every=1",
    "train.save_every=20", "train.evaluate_tokens=2048", "train.threads=1", "--processes", "3",
]  # fmt: skip


def team(trials: int) -> None:
    """Kill one of three processes under torchrun's agent: when it is noticed, when training goes on, what comes out."""
    noticed, again, same = [], [], 0
    with tempfile.TemporaryDirectory() as place:
        env = {**os.environ, "MERISTEM_CACHE": f"{place}/cache", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "meristem", *TEAM, "--out"]
        subprocess.run([*command, f"{place}/whole"], check=True, env=env, stderr=subprocess.DEVNULL)
        expected = trace(Path(place) / "whole")
        for number in range(trials):
            chance, out, log = random.Random(number), Path(place) / f"run-{number}", Path(place) / f"log-{number}"
            with log.open("wb") as said:
                run = subprocess.Popen([*command, str(out)], env=env, stderr=said)
            moment = chance.randint(20, 200)
            _until(lambda out=out, moment=moment: _steps(out) >= moment)
            os.kill(chance.choice(_children(run.pid)), signal.SIGKILL)
            killed, before = time.monotonic(), _steps(out)
            _until(lambda log=log: b"is gone" in log.read_bytes())
            noticed.append(time.monotonic() - killed)
            _until(lambda log=log: b"Going on at step" in log.read_bytes())
            _until(lambda out=out, before=before: _steps(out) > before or _finished(out))
            again.append(time.monotonic() - killed)
            code = run.wait(300)
            same += code == 0 and trace(out) == expected
            print(
                number,
                f"noticed {noticed[-1]:.1f} s, again {again[-1]:.1f} s, exit {code}, same so far {same}",
                flush=True,
            )
    for name, values in (("noticed", noticed), ("training again", again)):
        print(f"{name}: median {statistics.median(values):.1f} s, at most {max(values):.1f} s")
    print(f"{same} of {trials} ended bit for bit where the unbroken run ends")


def _steps(out: Path) -> int:
    file = out / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    steps = [json.loads(line)["step"] for line in lines if line.endswith("}") and '"train"' in line]
    return max(steps, default=0)


def _finished(out: Path) -> bool:
    return (out / "finished.json").is_file()


def _children(parent: int) -> list[int]:
    return [int(word) for word in subprocess.check_output(["pgrep", "-P", str(parent)]).split()]


def _until(done: Any) -> None:
    begun = time.monotonic()
    while not done():
        if time.monotonic() - begun > 180:
            raise SystemExit("a run hangs")
        time.sleep(0.02)


def main() -> None:
    """One of the two campaigns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--team", action="store_true")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--results", type=Path, default=RESULTS / "kills.jsonl")
    options = parser.parse_args()
    if options.team:
        team(options.trials or 20)
    else:
        campaign(options.trials or 300, options.results)


if __name__ == "__main__":
    main()
