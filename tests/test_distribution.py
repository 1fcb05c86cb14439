"""What is installed besides code: the files of the wheel, the paths of the Dockerfile, completion in the shell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import zipfile
from pathlib import Path

import pytest
from cli_runner import COMMAND
from documented_commands import ROOT

DATA_FILES = {
    "recipes": ("recipes/*.yaml", 30),
    "recipes for tasks": ("recipes/tasks/*.yaml", 10),
    "recipes for rewards": ("recipes/rewards/*.yaml", 3),
    "budgets": ("recipes/budgets/*", 5),
    "claims": ("claims/*.yaml", 10),
    "the page": ("serving/studio/page/*.js", 15),
    "its markup and style": ("serving/studio/page/*.html", 1),
    "style": ("serving/studio/page/*.css", 1),
    "style of reports": ("drawing/*.css", 3),
    "templates of reports": ("drawing/templates/*", 5),
    "templates of cards": ("interop/templates/*.jinja", 3),
    "words of samples": ("samples/**/words/*", 10),
    "the mark of typed packages": ("py.typed", 1),
}
"""Files that are read at run time, and at least how many there are."""


def test_the_wheel_has_every_file_that_is_read_at_run_time(tmp_path: Path) -> None:
    wheel_builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    builder = wheel_builder.WheelBuilder(str(ROOT))
    (wheel,) = builder.build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        assert "meristem = meristem.cli:main" in archive.read(entry_points).decode()
    package = ROOT / "meristem"
    for what, (pattern, at_least) in DATA_FILES.items():
        files = {path.relative_to(ROOT).as_posix() for path in package.glob(pattern) if path.is_file()}
        assert len(files) >= at_least, what
        assert files <= names, f"{what}: {sorted(files - names)[:3]}"
    assert {path.relative_to(ROOT).as_posix() for path in package.rglob("*.py")} <= names
    assert not [name for name in names if not name.startswith(("meristem/", "meristem_lm-"))]


def test_the_dockerfile_copies_what_is_there_and_runs_a_command() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        for path in line.split()[:-1]:
            assert (ROOT / path).exists() and f"!{path}" in kept, path
    (words,) = re.findall(r"^CMD \[(.+)\]$", text, re.MULTILINE)
    arguments = [word.strip(' "') for word in words.split(",")]
    completed = subprocess.run([*COMMAND, arguments[1], "--help"], capture_output=True, text=True)
    options = [word for word in arguments if word.startswith("--")]
    assert arguments[:2] == ["meristem", "studio"] and all(option in completed.stdout for option in options)
    assert f"EXPOSE {arguments[arguments.index('--port') + 1]}" in text


@pytest.mark.parametrize(
    ("typed", "offered"), [("meristem pre", "pretrain"), ("meristem generate --temp", "--temperature")]
)
def test_the_shell_completes_commands_and_options(typed: str, offered: str) -> None:
    words = shlex.split(typed)
    environment = os.environ | {
        "_MERISTEM_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
    }
    completed = subprocess.run(COMMAND, env=environment, capture_output=True, text=True)
    assert offered in completed.stdout.splitlines(), completed.stdout + completed.stderr


def test_there_is_no_lock_file_and_no_address_of_an_index() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert not [name for name in listed if name.endswith((".lock", "requirements-lock.txt"))]
    assert "://" not in (ROOT / "constraints.txt").read_text(encoding="utf-8")
