"""Training inside Ray, Slurm's submitit and a plain torchrun: the same losses as with one process."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

submitit = pytest.importorskip("submitit", reason="submitit is not installed: make test-integrations")

RECIPE = """
model: {family: gpt2, layers: 1, hidden_size: 16, heads: 2, max_length: 16, dropout: 0.0}
objective: clm
tokenizer: {kind: bpe, vocab_size: 300}
corpus: {source: "builtin:microworld-en?size=40", processes: 1}
train: {steps: 6, batch_tokens: 112, log_every: 1, evaluate_every: none, threads: 1, precision: float32, trackers: []}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe, and a run of it with one process."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    run = [sys.executable, "-m", "meristem", "pretrain", "recipe.yaml", "--out", "single"]
    completed = subprocess.run(run, cwd=folder, env=environment(folder), capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    package = str(Path(__file__).parents[2])
    return os.environ | {"MERISTEM_CACHE": str(folder / "cache"), "PYTHONPATH": package, "OMP_NUM_THREADS": "1"} | more


def losses(run: Path) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if line["kind"] == "train"]


def assert_same_losses(run: Path, folder: Path) -> None:
    expected = losses(folder / "single")
    assert len(expected) == 6 and losses(run) == pytest.approx(expected, rel=1e-5)


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_torchrun_with_kubeflows_variables(folder: Path) -> None:
    variables = {
        "PET_NNODES": "1", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    torchrun = [sys.executable, "-m", "torch.distributed.run", "-m", "meristem"]
    completed = subprocess.run(
        [*torchrun, "pretrain", "recipe.yaml", "--out", "kubeflow"],
        cwd=folder, env=environment(folder, **variables), capture_output=True, text=True,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    assert json.loads((folder / "kubeflow/finished.json").read_text())["step"] == 6
    assert_same_losses(folder / "kubeflow", folder)


def pretrain_here(folder: str, out: str) -> dict[str, Any]:
    """What a Ray worker or a Slurm task runs."""
    import torch.distributed as dist

    import meristem

    result = meristem.pretrain(f"{folder}/recipe.yaml", out=f"{folder}/{out}")
    return {"step": result.step, "group_is_left": dist.is_initialized()}


RAY_STARTS = 4
"""A node has 30 seconds, fixed in Ray's code, until its two agents, Python programs, have said their ports."""
RAY_LIMITS = {
    "RAY_worker_niceness": "0",  # 15 by default: beside other work on a small machine they hardly run at all
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
}


def start_ray(ray: Any, variables: dict[str, str]) -> None:
    """Start a local cluster; on a machine that is busy with other work the agents need a second try."""
    for attempt in range(1, RAY_STARTS + 1):
        try:
            ray.init(
                num_cpus=2,
                include_dashboard=False,
                object_store_memory=100 * 2**20,
                runtime_env={"env_vars": variables},
            )
            return
        except Exception as error:
            ray.shutdown()
            if "timed out during startup" not in str(error) or attempt == RAY_STARTS:
                raise


@pytest.mark.timeout(900)
def test_ray_train_lends_its_process_group(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: make test-integrations")
    pytest.importorskip("ray.train.torch", reason="Ray Train is not installed: make test-integrations")
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    def train_loop() -> None:
        import torch.distributed as dist

        assert dist.get_world_size() == 2
        outcome = pretrain_here(str(folder), "ray")
        assert outcome == {"step": 6, "group_is_left": True}

    for name, value in RAY_LIMITS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(folder / "ray-token"))  # not in the user's home
    (folder / "ray-token").write_text(secrets.token_hex(32), encoding="utf-8")
    variables = {name: environment(folder)[name] for name in ("MERISTEM_CACHE", "PYTHONPATH", "OMP_NUM_THREADS")}
    variables["PYTHONPATH"] += f":{Path(__file__).parent}"
    start_ray(ray, variables)
    try:
        TorchTrainer(
            train_loop,
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(storage_path=str(folder / "ray-results")),
        ).fit()
    finally:
        ray.shutdown()
    assert_same_losses(folder / "ray", folder)


def test_submitits_local_executor(folder: Path) -> None:
    words = ["pretrain", "recipe.yaml", "--out", "submitit"]
    command = submitit.helpers.CommandFunction([sys.executable, "-m", "meristem", *words], cwd=folder,
                                               env=environment(folder))  # fmt: skip
    executor = submitit.AutoExecutor(folder=folder / "jobs", cluster="local")
    executor.update_parameters(timeout_min=5, tasks_per_node=1)
    job = executor.submit(command)
    job.result()
    assert job.state == "FINISHED"
    assert losses(folder / "submitit") == losses(folder / "single")
