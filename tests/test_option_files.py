"""Files of lines that the command line is given: any encoding, pipes, and the nearest name of one that is missing."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from meristem.cli import options
from meristem.config.errors import MeristemError, RecipeError

LINES = ["the café", "", "  ", "naïve words"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_lines_are_read_whatever_their_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes("\r\n".join(LINES).encode(encoding))
    assert options.read_lines(tmp_path / "a.txt") == [LINES[0], LINES[3]]
    assert list(options.read_numbered_lines(tmp_path / "a.txt")) == [(1, LINES[0]), (4, LINES[3])]


def test_a_pipe_is_read_as_it_comes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("\n".join(LINES),))
    writer.start()
    assert options.read_lines(tmp_path / "pipe") == [LINES[0], LINES[3]]
    writer.join()


def test_a_missing_file_is_named_with_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prompts.txt").write_text("x")
    with pytest.raises(MeristemError, match=r"no such file or folder: .*promts\.txt .*did you mean prompts\.txt"):
        options.read_lines(tmp_path / "promts.txt")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "novel").write_text("x")
    with pytest.raises(RecipeError, match="'novl' is neither a recipe nor a file, did you mean novel"):
        options.parse_pretrain_arguments(["novl"])
