"""Code lines per layer: what counts as code, and the table."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.code_lines import added_files, layer_of, lines_by_layer, markdown

SOURCE = '''"""Docstring
of two lines."""

import os  # a comment beside code

# a comment

class A:
    """Docstring."""

    limit: int = 3
    """Docstring of an attribute."""

    def text(self) -> str:
        return (
            """a string
            that is code"""
        )
'''


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    # import, class, limit, def, and the four lines of the return statement
    assert lines_by_layer(iter([("meristem/blocks/a.py", SOURCE), ("meristem/api.py", "x = 1\n")])) == {
        "blocks/": 8,
        "meristem/*.py": 1,
    }
    assert layer_of("meristem/blocks/attention/rotary.py") == "blocks/"


def test_layers_that_are_new_or_gone_are_in_the_table() -> None:
    table = markdown({"a/": 1200, "new/": 5}, {"a/": 1300, "gone/": 7}, {"a/": 90, "new/": 5}, "abc")
    assert table.splitlines() == [
        "| layer | abc | now | change | in added files |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| a/ | 1,300 | 1,200 | -100 | 90 |",
        "| new/ | 0 | 5 | +5 | 5 |",
        "| gone/ | 7 | 0 | -7 | 0 |",
        "| **all** | 1,307 | 1,205 | -102 | 95 |",
    ]
    assert "change" not in markdown({"a/": 1})


def test_a_renamed_file_is_not_an_added_one(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "meristem").mkdir()
    (tmp_path / "meristem" / "old.py").write_text(SOURCE)
    git("add", ".")
    git("commit", "-qm", "first")
    git("mv", "meristem/old.py", "meristem/renamed.py")
    (tmp_path / "meristem" / "new.py").write_text("x = 1\n")
    git("add", ".")
    assert added_files(tmp_path, "HEAD") == {"meristem/new.py"}
