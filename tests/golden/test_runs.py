"""The golden runs, each interrupted in the middle, load, predict and resume to the recorded results.

On a machine with the recorded numerics, every bit is compared; elsewhere numbers within a tolerance, and random draws
(batches, masks, dropout seeds, sampled texts) still exactly. The test id says which of the two applies.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden import frozen, internals, measures
from golden.specs import STOP
from rich.console import Console

import meristem

HERE = Path(__file__).resolve().parent
RUNS = HERE / "runs"
EXPECTED: dict[str, Any] = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))
FROZEN: dict[str, Any] = json.loads(frozen.FROZEN.read_text(encoding="utf-8"))["runs"]
EXACT = measures.numerics() == EXPECTED["numerics"]
COMPARISON = "bit for bit" if EXACT else "within tolerance"
TOLERANCE = {"rel": 1e-4, "abs": 1e-5}


@pytest.fixture(scope="module", autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One shard cache for all the runs, and no user settings."""
    folder = tmp_path_factory.mktemp("golden")
    with pytest.MonkeyPatch.context() as patch, internals.quick_runs():
        patch.setenv("MERISTEM_CACHE", str(folder / "cache"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        yield


@pytest.mark.parametrize("name", EXPECTED["runs"], ids=lambda name: f"{name}, {COMPARISON}")
def test_an_interrupted_run_loads_and_resumes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = EXPECTED["runs"][name]
    for run in filter(None, (name, expected["start"])):
        shutil.copytree(RUNS / run, tmp_path / run)
    monkeypatch.chdir(tmp_path)  # a recipe names the run it started from by a relative path
    run = Path(name)
    assert measures.files_digest(measures.checkpoint(run)) == expected["saved"]
    loaded = meristem.load(name)
    assert measures.tensors_digest(loaded.model.state_dict()) == expected["loaded"]
    compare(measures.answers(loaded, expected["answers"]), expected["answers"])
    shards = (run / "data.json").read_bytes() if (run / "data.json").exists() else b""
    with internals.watched_steps() as draws:
        resume = getattr(meristem, expected["command"])
        run_result = resume(run / "recipe.yaml", out=run, console=Console(quiet=True))
    assert draws == expected["draws"][-len(draws) :] and draws[0]["step"] == 4, "the resumed half draws other numbers"
    assert not shards or (run / "data.json").read_bytes() == shards
    compare(measures.metrics_lines(run), expected["metrics"])
    assert all(keys >= measures.CLOCKS for keys in resumed_train_lines(run)), "a clock is missing in metrics.jsonl"
    names = measures.saved_names(run)
    removed, _ = frozen.changes(names, {key: FROZEN[name][key] for key in names})
    assert not removed, "a checkpoint lacks names that earlier ones have"
    compare(
        {"validation": run_result.metrics, "test": run_result.test},
        {key: expected[key] for key in ("validation", "test")},
    )
    compare(measures.files_norms(measures.checkpoint(run)), expected["norms"])
    if EXACT:
        assert measures.files_digest(measures.checkpoint(run)) == expected["final"]


def resumed_train_lines(run: Path) -> list[set[str]]:
    """The keys of each training line written after resuming."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    keys = [set(line) for line in lines if line["kind"] == "train" and line["step"] > STOP]
    assert keys, "no line of training was written"
    return keys


def compare(actual: Any, expected: Any, location: str = "") -> None:
    """Assert equality, with a tolerance for floats unless EXACT."""
    actual = json.loads(json.dumps(actual))
    if EXACT:
        assert actual == expected, location
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys(), location
        for key, value in expected.items():
            compare(actual[key], value, f"{location}.{key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), location
        for number, (actual_item, other) in enumerate(zip(actual, expected, strict=True)):
            compare(actual_item, other, f"{location}[{number}]")
    else:
        assert actual == (pytest.approx(expected, **TOLERANCE) if type(expected) is float else expected), location


ABSOLUTE_PATH = re.compile(rb"""(?:^|[\s"'=:,(\[])(?:/[A-Za-z][\w.-]*/[\w.-]|[A-Za-z]:\\+\w)""")
"""An absolute path: a slash or a drive at the start of a word, and at least two names."""


def test_the_golden_runs_contain_no_absolute_path() -> None:
    absolute_examples = [rb'{"a": "/srv/runs/a"}', rb"out: /srv/a", rb'"C:\\\\runs"', rb"--out=/srv/runs"]
    assert all(ABSOLUTE_PATH.search(text) for text in absolute_examples)
    assert not any(map(ABSOLUTE_PATH.search, (b"https://example.org/a/b", b"runs/a/b", b"and/or/not", b"</s> / a/b")))
    files = [path for path in RUNS.rglob("*") if path.is_file()]
    assert len(files) > 100 and sum(path.stat().st_size for path in files) < 3 << 20
    for path in files:
        content = path.read_bytes()
        if path.suffix == ".safetensors":  # after its header there are only numbers
            content = content[8 : 8 + int.from_bytes(content[:8], "little")]
        assert ABSOLUTE_PATH.search(content) is None, path
