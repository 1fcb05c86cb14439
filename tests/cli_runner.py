"""Command-line runner: runs `meristem` commands in this process and returns exit code, stdout and stderr."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from meristem.cli import main
from meristem.training import budget

COMMAND = [sys.executable, "-c", "from meristem.cli import main; main()"]


@dataclass(frozen=True)
class CommandResult:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def answers(self) -> list[Any]:
        """The JSON lines of its output."""
        return [json.loads(line) for line in self.out.splitlines()]


Meristem = Callable[..., CommandResult]


@pytest.fixture(scope="module")
def small_peak() -> Iterator[None]:
    """The machine's peak is measured on a small product: it is nobody's question here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        yield


@pytest.fixture
def meristem(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Meristem:
    """The command inside an empty folder, perhaps with a pipe; it may never show a traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words: object, pipe: bytes = b"") -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["meristem", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pipe)))
        with pytest.raises(SystemExit) as error:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        assert "an unexpected" not in captured.err, captured.err
        return CommandResult(int(error.value.code or 0), captured.out, captured.err)

    return run
