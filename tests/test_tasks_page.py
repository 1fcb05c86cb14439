"""docs/tasks.md has every task and every built-in set, and its recipes resolve; tests/test_docs.py runs them."""

from __future__ import annotations

import shlex

import documented_commands
import pytest

from meristem import api, samples
from meristem.describe.task_table import render_table
from meristem.interfaces.task import TASKS

PAGE = "docs/tasks.md"


def commands() -> list[str]:
    """What the page says to type."""
    return [command.line for command in documented_commands.commands(PAGE) if command.line.startswith("meristem")]


def test_the_page_has_every_task_and_every_set() -> None:
    text = (documented_commands.ROOT / PAGE).read_text(encoding="utf-8")
    documented_tasks = {shlex.split(line)[2] for line in commands() if line.startswith("meristem finetune")}
    assert set(TASKS) <= documented_tasks
    for name in samples.list_labelled_sets():
        assert f"| `{name.removeprefix('microworld-')}` |" in text


def test_the_table_of_inputs_and_outputs_is_current() -> None:
    text = (documented_commands.ROOT / PAGE).read_text(encoding="utf-8")
    assert render_table() in text, "run: python -m meristem.describe.task_table"


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith("meristem finetune")])
def test_the_recipes_on_the_page_resolve(command: str) -> None:
    words = shlex.split(command)
    end = words.index("--out") if "--out" in words else len(words)
    has_start = any(
        word.startswith("from=runs/") for word in words
    )  # there is no such run here, nor what is taken of it
    settings = [word for word in words[3:end] if not (has_start and word.startswith(("from=", "from.")))]
    assert api.resolve_task_recipe(words[2], settings).task is not None
