"""Frozen names, on which other programs, older runs and random streams depend: collecting and comparing them.

They must not change when code is renamed: purposes of random draws, names of tensors and optimizer states,
keys of metrics.jsonl, HTTP routes and fields, Prometheus metrics, cache keys of shards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from golden import internals, measures, purposes

import meristem

HERE = Path(__file__).resolve().parent
RUNS, FROZEN, EXPECTED = HERE / "runs", HERE / "frozen.json", HERE / "expected.json"
SERVED = ("bert", "captioner", "electra", "elmo", "gpt2", "tagging", "transformer")
SHARDED = ("bert", "captioner", "elmo", "rnn")
"""Golden runs on plain text, images, whole words and pairs."""
COMMAND = "python tests/golden/make_frozen.py"


def purpose_strings(work_folder: Path) -> list[str]:
    """Purposes of all random draws, and the templates of functions with their own hash."""
    folder = Path(str(meristem.__file__)).parent
    purposes_used = purposes.purposes(folder, internals.PURPOSE_FUNCTIONS, internals.PURPOSE_DRAWS)
    return sorted(purposes_used.union(*(purposes.templates_in(function) for function in internals.HASHED_TEMPLATES)))


def run_names(work_folder: Path) -> dict[str, Any]:
    """Names in the checkpoint and the metrics of every golden run."""
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))["runs"]
    names = {}
    for run in sorted(path for path in RUNS.iterdir() if path.is_dir()):
        metrics = {kind: set(keys) for kind, keys in measures.metrics_keys(run).items()}
        for line in expected[run.name]["metrics"]:  # the resumed half, without its clocks
            metrics.setdefault(line["kind"], set()).update(line)
        in_metrics = {kind: sorted(keys) for kind, keys in metrics.items()}
        names[run.name] = {**measures.saved_names(run), "metrics": in_metrics}
    return names


def http_names(work_folder: Path) -> dict[str, Any]:
    """Request fields, response fields and metrics of the server."""
    from golden import http_fields  # here, because the other names need no server's packages
    from starlette.testclient import TestClient

    app = internals.server_app([RUNS / name for name in SERVED], work_folder)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answers = http_fields.answer_fields(client)
        prometheus = http_fields.prometheus_names(client.get("/metrics").text)
    requests = http_fields.request_fields(app.openapi())
    listed = {"request": requests, "answer": answers}
    by_route = {
        kind: {route: sorted(names) for route, names in field_names.items()} for kind, field_names in listed.items()
    }
    return {**by_route, "prometheus": sorted(prometheus)}


def shard_keys(work_folder: Path) -> dict[str, Any]:
    """Cache keys of shards of built-in data, which are the same on every machine."""
    return {name: internals.shard_keys(RUNS / name) for name in SHARDED}


SECTIONS: dict[str, Callable[[Path], Any]] = {
    "purposes": purpose_strings,
    "runs": run_names,
    "http": http_names,
    "shards": shard_keys,
}


def entries(value: Any, prefix: str = "") -> Iterator[str]:
    """Nested names, one per line."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from entries(inner, f"{prefix}{key} > ")
    elif isinstance(value, list):
        yield from (f"{prefix}{item!r}" for item in value)
    else:
        yield f"{prefix}{value!r}"


def differences(actual: Any, expected: Any) -> str:
    """A report of removed and new names, and what to do; empty if nothing changed."""
    removed, new = changes(actual, expected)
    lines = [*(f"  gone: {name}" for name in removed), *(f"  new:  {name}" for name in new)]
    if removed:
        lines.append(
            "Names that are gone break older runs, random streams or other programs: bring them back. Only where that "
            f"is intended, {COMMAND} --drop accepts it; docs/decisions/0010-golden-runs.md says what it breaks."
        )
    elif new:
        lines.append(f"Names that are meant to be new are accepted, and frozen from now on, with: {COMMAND}")
    return "\n".join(lines)


def changes(actual: Any, expected: Any) -> tuple[list[str], list[str]]:
    """Removed and new names."""
    current, before = set(entries(actual)), set(entries(expected))
    return sorted(before - current), sorted(current - before)
