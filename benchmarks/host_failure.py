"""Failure of a host: two hosts in network namespaces train one run, one is disconnected, and the other continues.

    sudo python -m benchmarks.host_failure [--timeout 15]

Needs iproute2 and permission to create network namespaces. Prints the time until the failure is detected and until
training continues, and the difference of the losses from those of an undisturbed process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HOSTS = {"meristem-a": ("mer-a", "10.77.0.1"), "meristem-b": ("mer-b", "10.77.0.2")}
PORT = 29577
STEPS = 400
RECIPE = [
    "pretrain", "bert-mini-prenorm", "builtin:microworld-en?size=400", "model.layers=2", "model.hidden_size=64",
    "model.heads=2", "model.max_length=64",
    "model.dropout=0", "tokenizer.vocab_size=1000", "train.batch_tokens=640", f"train.steps={STEPS}",
    "train.log_every=1", "train.save_every=10", "train.evaluate_tokens=2048", "train.threads=1",
]  # fmt: skip


def ip(*words: str) -> None:
    """Run a command of iproute2."""
    subprocess.run(["ip", *words], check=True)


@contextmanager
def network() -> Iterator[None]:
    """Two network namespaces with a virtual Ethernet link."""
    for name in HOSTS:
        ip("netns", "add", name)
    try:
        (a, (end_a, at_a)), (b, (end_b, at_b)) = HOSTS.items()
        ip("link", "add", end_a, "netns", a, "type", "veth", "peer", "name", end_b, "netns", b)
        for name, end, address in ((a, end_a, at_a), (b, end_b, at_b)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            for device in ("lo", end):
                ip("-n", name, "link", "set", device, "up")
        yield
    finally:
        for name in HOSTS:
            ip("netns", "del", name)


def start(host: str, out: Path, timeout: float, log: Path) -> subprocess.Popen[bytes]:
    """Start torchrun on one host (--nnodes 1:2, so that a single host can continue)."""
    end, _ = HOSTS[host]
    first = HOSTS["meristem-a"][1]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": end, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    run = [
        "ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2",
        "--nproc-per-node", "1", "--max-restarts", "5", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{first}:{PORT}",
        "--rdzv-id", "hosts", "--rdzv-conf", f"last_call_timeout=5,is_host={int(host == 'meristem-a')}",
        "--local-addr", HOSTS[host][1], "-m", "meristem",
        *RECIPE, f"train.distributed_timeout={timeout:g}", "--out", str(out),
    ]  # fmt: skip
    return subprocess.Popen(run, env=env, stdout=log.open("wb"), stderr=subprocess.STDOUT, start_new_session=True)


def losses(out: Path) -> dict[int, float]:
    """Step → loss from metrics.jsonl; the last line may be incomplete."""
    losses_by_step = {}
    file = out / "metrics.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry["kind"] == "train":
            losses_by_step[entry["step"]] = entry["loss"]
    return losses_by_step


def wait(until: float, condition_name: str, is_done: Callable[[], bool]) -> None:
    """Poll every 0.1 s until done, or exit."""
    while not is_done():
        if time.monotonic() > until:
            raise SystemExit(f"gave up waiting until {condition_name}")
        time.sleep(0.1)


def main() -> None:
    """Train on two hosts, disconnect one, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timeout", type=float, default=15.0, help="train.distributed_timeout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        reference_folder, out = folder / "alone", folder / "two"
        command = [sys.executable, "-m", "meristem", *RECIPE, "--out", str(reference_folder)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        with network():
            logs = {host: folder / f"{host}.log" for host in HOSTS}
            runs = {host: start(host, out, options.timeout, logs[host]) for host in HOSTS}
            try:
                _watch(out, reference_folder, logs)
            finally:
                for run in runs.values():
                    run.kill()


def _watch(out: Path, reference_folder: Path, logs: dict[str, Path]) -> None:
    patience = time.monotonic() + 240
    wait(patience, "sixty steps were taken", lambda: len(losses(out)) >= 60)
    text = logs["meristem-a"].read_text(errors="replace")
    if "with 2 processes" not in text:
        raise SystemExit("the hosts did not find each other")
    ip("-n", "meristem-b", "link", "set", HOSTS["meristem-b"][0], "down")
    cut, before = time.monotonic(), max(losses(out))
    lost_process_message = "another process of this run is gone"
    wait(
        patience, "the cut was noticed", lambda: lost_process_message in logs["meristem-a"].read_text(errors="replace")
    )
    print(f"disconnected at step {before}; detected after {time.monotonic() - cut:.1f} s")
    wait(patience, "training went on", lambda: max(losses(out), default=0) > before + 1)
    print(f"training again after {time.monotonic() - cut:.1f} s")
    wait(patience + 120, "the run ended", lambda: (out / "finished.json").is_file())
    reference_losses, losses_after_cut = losses(reference_folder), losses(out)
    worst = max(
        abs(losses_after_cut[step] - reference_losses[step]) / reference_losses[step] for step in reference_losses
    )
    print(
        f"{len(losses_after_cut)} of {STEPS} steps, each once: {sorted(losses_after_cut) == sorted(reference_losses)}"
    )
    print(f"losses within {worst:.1e} of those of one process")


if __name__ == "__main__":
    main()
