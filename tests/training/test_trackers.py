"""Trackers: a broken one is left out after one warning, and the ids of tracked runs are kept in the run's folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from run_factory import RunFactory

from meristem.config.errors import RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.training.tracker import TRACKERS
from meristem.training.trackers.mlflow import flatten

BROKEN_LIBRARY = """
import sys

class Settings:
    def __init__(self, **settings): pass

class Run:
    def __init__(self): self.calls = 0
    def log(self, values, step):
        self.calls += 1
        assert all("/" in name for name in values)
        if self.calls > 2: {failure}
    def finish(self): open("finished.txt", "a").write("finished")

def init(**options):
    print("a line on standard output")
    values = tuple(options[name] for name in ("id", "name", "project", "resume"))
    open("options.txt", "a").write(repr(values) + "\\n")
    return Run()
"""
SMALL = ("train.steps=6", "train.log_every=1", "train.evaluate_every=none")


@pytest.mark.parametrize("failure", ["raise RuntimeError('the connection was lost')", "sys.exit('no key')"])
def test_a_tracker_that_fails_is_left_out_after_one_warning(
    failure: str, run_factory: RunFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb.py").write_text(BROKEN_LIBRARY.replace("{failure}", failure), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.chdir(tmp_path)
    run_factory.train(*SMALL, "train.trackers=[]", run="plain")
    run_factory.train(*SMALL, "train.trackers=[wandb]", "train.tracker_project=novels")
    sys.modules.pop("wandb", None)
    assert run_factory.losses() == run_factory.losses("plain")
    log = (run_factory.root / "run/log.txt").read_text(encoding="utf-8")
    assert log.count("wandb failed and is no longer used") == 1
    assert "wandb: a line on standard output" in log
    run_id = json.loads((run_factory.root / "run/trackers.json").read_text())["wandb"]
    assert Path("options.txt").read_text() == f"('{run_id}', 'run', 'novels', 'allow')\n"
    assert not Path("finished.txt").exists()


def test_a_tracker_that_is_not_installed_is_named_with_the_command(
    run_factory: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TRACKERS["mlflow"], "library", "mlflow_that_is_not_there")
    run_factory.train(*SMALL, "train.trackers=[mlflow]")
    log = (run_factory.root / "run/log.txt").read_text(encoding="utf-8")
    assert "mlflow failed and is no longer used: it is not installed: pip install mlflow_that_is_not_there" in log
    assert run_factory.steps()[-1] == 6


def test_settings_become_dotted_parameters() -> None:
    recipe = {
        "model": {"layers": 2},
        "objective": [{"name": "mlm"}, {"name": "nsp"}],
        "train": {"trackers": ["mlflow"]},
    }
    assert dict(flatten(recipe)) == {
        "model.layers": 2,
        "objective.0.name": "mlm",
        "objective.1.name": "nsp",
        "train.trackers": ["mlflow"],
    }


@pytest.mark.parametrize("name", ["track", "train.report_to"])
def test_other_names_of_the_setting_are_answered_with_it(name: str) -> None:
    with pytest.raises(RecipeError, match=r"train\.trackers"):
        resolve_recipe("test", {"model": {"family": "gpt2"}, "objective": "clm"}, [f"{name}=[tensorboard]"])
