"""The walks through the code in docs/architecture.md are short, and each of their files runs in the command."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from cli_runner import Meristem
from while_serving import while_serving

ROOT = Path(__file__).parent.parent
PACKAGE = f"{ROOT / 'meristem'}/"
LIMITS = {"Pretraining": 60, "Fine-tuning": 45, "One HTTP request": 30}
"""Files to open at most, to follow a walk."""
IS_FUNCTION = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
TEXTS = [f"{who} sold boat {number} in the harbour. It rained." for who in ("Ada", "Mei") for number in range(16)]

PRETRAINING = [
    "corpus.document=line", "corpus.validation=0.2", "corpus.processes=1", "tokenizer.vocab_size=200",
    "model.layers=1", "model.hidden_size=16", "model.heads=2", "model.max_length=32", "train.minutes=none",
    "train.steps=1", "train.batch_tokens=64", "train.evaluate_tokens=64",
]  # fmt: skip
FINETUNING = [
    "from=run", "train.epochs=none", "train.steps=1", "train.batch_samples=4",
    *(f"data.{split}=a.csv" for split in ("train", "validation", "test")),
]  # fmt: skip

TRACE_HTTP_PROCESS = """
import atexit, json, os, sys, threading
names = set()
def trace(frame, event, argument):
    if frame.f_code.co_name != "<module>":
        names.add(frame.f_code.co_filename)
sys.settrace(trace)
atexit.register(lambda: json.dump(sorted(names), open(os.environ["VISITED_MODULES"], "w")))
"""
"""Writes the files of all functions that ran in the main thread of a process, at its end."""


def walks() -> dict[str, list[str]]:
    """Name of each walk → its files in order."""
    section = (
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## Three walks")[1].split("\n## ")[0]
    )
    _, *parts = re.split(r"^\*\*(.+?)\*\*", section, flags=re.MULTILINE)
    return {name: re.findall(r"`([\w/]+\.py)`", text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


@contextmanager
def visited_modules() -> Iterator[set[str]]:
    """The files of the package with a function that runs meanwhile, in any thread."""
    visited: set[str] = set()

    known: set[CodeType] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code  # only calls of Python functions are traced: no lines, no C functions
        if code in known:
            return
        known.add(code)
        if code.co_flags & IS_FUNCTION == IS_FUNCTION and code.co_filename.startswith(PACKAGE):
            visited.add(code.co_filename.removeprefix(PACKAGE))

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield visited
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]  # None removes it


def unvisited(walk: str, visited: set[str]) -> list[str]:
    return [file for file in walks()[walk] if file not in visited]


def test_walks_are_short_and_name_no_file_twice() -> None:
    assert walks().keys() == LIMITS.keys()
    for name, files in walks().items():
        assert 10 < len(files) <= LIMITS[name], name
        assert len(set(files)) == len(files) and all((Path(PACKAGE) / file).is_file() for file in files)


@pytest.mark.usefixtures("small_peak")
def test_every_file_of_a_walk_runs(meristem: Meristem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus is pretrained on; the run is fine-tuned, and served."""
    (tmp_path / "stories.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    with visited_modules() as visited:
        result = meristem("pretrain", "bert-mini", "stories.txt", *PRETRAINING, "--out", "run")
    assert result.code == 0, result.err
    assert unvisited("Pretraining", visited) == []
    rows = [f"{text},{number % 2}" for number, text in enumerate(TEXTS)]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    with visited_modules() as visited:
        result = meristem("finetune", "classification", *FINETUNING, "--out", "task")
    assert result.code == 0, result.err
    assert unvisited("Fine-tuning", visited) == []
    in_http_process = tmp_path / "visited.json"
    monkeypatch.setenv("VISITED_MODULES", str(in_http_process))
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(TRACE_HTTP_PROCESS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "hook"), os.environ.get("PYTHONPATH", "")]))
    with visited_modules() as visited:
        answers = ask_server(meristem, "/fill", {"text": "Ada [MASK] the boat."})
    visited |= {name.removeprefix(PACKAGE) for name in json.loads(in_http_process.read_text("utf-8"))}
    assert "[MASK]" not in json.dumps(answers), answers
    assert unvisited("One HTTP request", visited) == []


def ask_server(meristem: Meristem, path: str, fields: Any) -> list[Any]:
    """What a server of the run answers to one request."""
    answers = list[Any]()

    def ask(address: str) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{address}{path}", data=json.dumps(fields).encode(), headers=headers)
        answers.append(json.load(urllib.request.urlopen(request)))

    while_serving(meristem, ["serve", "run"], ask)
    return answers
