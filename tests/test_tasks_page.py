"""docs/tasks.md: its commands and its Python, run as they stand there, only smaller."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import test_readme as readme

from meristem import api, samples
from meristem.settings import names

PAGE = "docs/tasks.md"


def commands() -> list[str]:
    """What the page says to type."""
    return [line for block in readme.blocks(PAGE, "bash") for line in block.splitlines() if line.startswith("meristem")]


def test_the_page_has_every_task_and_every_set() -> None:
    text = (readme.ROOT / PAGE).read_text(encoding="utf-8")
    asked = {shlex.split(line)[2] for line in commands() if line.startswith("meristem finetune")}
    assert set(names("tasks")) <= asked
    for name in samples.known_sets():
        assert f"| `{name.removeprefix('microworld-')}` |" in text


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith("meristem finetune")])
def test_the_recipes_on_the_page_resolve(command: str) -> None:
    words = shlex.split(command)
    settings = [word for word in words[3 : words.index("--out")] if not word.startswith("from=runs/")]
    assert api.task_recipe(words[2], settings).task is not None


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_commands_work_in_their_order(tmp_path: Path) -> None:
    # minutes: forty commands in processes of their own, each of which imports torch
    env = {
        **os.environ,
        "MERISTEM_CACHE": str(tmp_path / "cache"),
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    assert len(commands()) >= 35
    for command in commands():
        done = subprocess.run(
            readme.smaller(command), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip() or done.stderr.strip(), f"{command} said nothing"


@pytest.mark.slow
def test_the_python_works(tmp_path: Path) -> None:
    (code,) = readme.blocks(PAGE, "python")
    told = [word.split("=") for word in (*readme.SHORT, *readme.SHAPE, "data.limit=40")]
    settings = ", ".join(f"{key!r}: {value!r}" for key, value in told)
    code = code.replace('{"train.epochs": 8}', "{" + settings + "}")
    assert "train.epochs" not in code
    env = {**os.environ, "MERISTEM_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "intent" in done.stdout
