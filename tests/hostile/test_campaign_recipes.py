"""The recipes of the campaigns in benchmarks/ are valid: a setting that was renamed or is ignored would stop them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.interruptions import kinds
from benchmarks.mutations import base_runs
from meristem import api


def starts_from_nothing(parts: object) -> bool:
    """Whether a recipe needs no other run."""
    return "{" not in yaml.safe_dump(parts, default_flow_style=False)


@pytest.mark.parametrize("kind", base_runs.PRETRAINED)
def test_mutations(kind: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(base_runs._recipe(kind, tmp_path)))
    assert api.resolve_pretrain_recipe(tmp_path / "run.yaml").train.steps == base_runs.STEPS


@pytest.mark.parametrize("kind", [kind for kind, parts in kinds.PRETRAINING.items() if starts_from_nothing(parts)])
def test_interruptions_of_pretraining(kind: str, tmp_path: Path) -> None:
    _, path = kinds.write_recipe(kind, tmp_path / "run.yaml", {})
    assert api.resolve_pretrain_recipe(path).train.steps == kinds.STEPS


@pytest.mark.parametrize("kind", [kind for kind, parts in kinds.TASKS.items() if starts_from_nothing(parts)])
def test_interruptions_of_tasks(kind: str, tmp_path: Path) -> None:
    _, path = kinds.write_recipe(kind, tmp_path / "run.yaml", {"data": tmp_path})
    assert api.resolve_task_recipe(path).train.steps == kinds.STEPS
