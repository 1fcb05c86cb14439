"""The real wandb, trackio, swanlab and mlflow: what they recorded of a resumed run equals metrics.jsonl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

for library in ("wandb", "trackio", "swanlab", "mlflow"):
    pytest.importorskip(library, reason=f"{library} is not installed: make test-integrations")

RECIPE = """
model: {family: gpt2, layers: 1, hidden_size: 16, heads: 2, max_length: 64}
objective: clm
tokenizer: {vocab_size: 300}
train: {batch_tokens: 256, log_every: 1, evaluate_every: 2, save_every: 2, precision: float32, threads: 1,
        trackers: [wandb, trackio, swanlab, mlflow], tracker_project: novels}
"""
Numbers = set[tuple[str, int, float]]
"""(kind/name, step, value)"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps, resumed for two more."""
    folder = tmp_path_factory.mktemp("tracked")
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    for steps in (4, 6):
        words = ["pretrain", "recipe.yaml", "builtin:microworld-en?size=60", f"train.steps={steps}", "--out", "run"]
        meristem(folder, *words)
    return folder / "run"


def environment(folder: Path) -> dict[str, str]:
    offline = {"WANDB_MODE": "offline", "SWANLAB_MODE": "offline", "HF_HUB_OFFLINE": "1"}
    places = {
        "TRACKIO_DIR": str(folder / "trackio"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "MERISTEM_CACHE": str(folder / "cache"),
    }
    return os.environ | offline | places


def meristem(folder: Path, *words: str) -> str:
    completed = subprocess.run(
        [sys.executable, "-m", "meristem", *words], cwd=folder, env=environment(folder), capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_standard_output_is_that_of_the_command(run: Path) -> None:
    printed = meristem(run.parent, "pretrain", "recipe.yaml", "builtin:microworld-en?size=60",
                       "train.steps=1", "--out", "other")  # fmt: skip
    assert "failed and is no longer used" not in printed
    assert not [line for line in printed.splitlines() if "trackio" in line.lower() or "swanlab" in line.lower()]


def expected(run: Path) -> Numbers:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        (f"{line['kind']}/{name}", line["step"], round(float(value), 6))
        for line in lines
        for name, value in line.items()
        if name not in ("step", "kind") and isinstance(value, int | float)
    }


def ids(run: Path) -> dict[str, str]:
    return dict(json.loads((run / "trackers.json").read_text()))


def numbers(values: dict[str, Any], step: int) -> Numbers:
    return {(name, step, round(float(value), 6)) for name, value in values.items() if "/" in name}


def test_mlflow_continues_one_run_with_every_number(run: Path) -> None:
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{run.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("novels")
    tracked = client.get_run(ids(run)["mlflow"])
    assert tracked.info.experiment_id == experiment.experiment_id
    assert (tracked.info.run_name, tracked.info.status) == ("run", "FINISHED")
    assert tracked.data.params["model.hidden_size"] == "16"
    recorded = [
        (name, metric.step, round(metric.value, 6))
        for name in tracked.data.metrics
        for metric in client.get_metric_history(tracked.info.run_id, name)
    ]
    assert set(recorded) >= expected(run)
    losses = [step for name, step, _ in recorded if name == "train/loss"]
    assert sorted(losses) == [1, 2, 3, 4, 5, 6]


def test_trackio_continues_one_run_with_every_number(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import json, sys; from trackio.sqlite_storage import SQLiteStorage as S\n"
        "print(json.dumps([S.get_runs('novels'), S.get_logs('novels', sys.argv[1])]))"
    )
    name = f"run-{ids(run)['trackio']}"
    completed = subprocess.run(
        [sys.executable, "-c", script, name], env=environment(run.parent), capture_output=True, text=True, check=True
    )
    names, logs = json.loads(completed.stdout.splitlines()[-1])
    assert names.count(name) == 1
    assert set().union(*(numbers(only_metrics(log), log["step"]) for log in logs)) >= expected(run)


def only_metrics(log: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in log.items() if isinstance(value, int | float)}


def test_wandb_files_of_both_parts_have_one_id_and_every_number(run: Path) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    files = sorted((run / "wandb").glob("offline-run-*/*.wandb"))
    assert [file.name for file in files] == [f"run-{ids(run)['wandb']}.wandb"] * 2
    recorded: Numbers = set()
    for file in files:
        for content in wandb_records(file):
            record = Record.FromString(content)
            if record.HasField("run"):
                assert (record.run.project, record.run.display_name) == ("novels", "run")
            if record.HasField("history"):
                items = {item.key or "/".join(item.nested_key): json.loads(item.value_json)
                         for item in record.history.item}  # fmt: skip
                recorded |= numbers(only_metrics(items), int(items["_step"]))
    assert recorded >= expected(run)


def wandb_records(file: Path) -> Iterator[bytes]:
    from swanlab.converter.wb.wbdatastore import WBDataStoreReader  # wandb's own reader is not written in Python

    reader = WBDataStoreReader()
    reader.open(file)
    yield from iter(reader.scan, None)


def test_swanlab_files_of_both_parts_have_one_id_and_every_number(run: Path) -> None:
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    files = sorted((run / "swanlog").glob("run-*/*.swanlab"))
    assert [file.name for file in files] == [f"run-{ids(run)['swanlab']}.swanlab"] * 2
    recorded: Numbers = set()
    for file in files:
        reader = DataStoreReader()
        reader.open(file)
        for content in iter(reader.scan, None):
            record = Record.FromString(content)
            if record.HasField("start"):
                assert (record.start.project, record.start.name) == ("novels", "run")
            if record.HasField("scalar"):
                scalar = record.scalar
                recorded.add((scalar.key, scalar.step, round(scalar.value.number, 6)))
    assert recorded >= expected(run)
