"""Hyperparameter grids: every combination is trained once, resumed after a stop, and the best run is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from finetune_factory import FinetuneFactory, finetune_factory

from meristem import api
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.finetune import grid
from meristem.training import loop
from meristem.training.run_result import RunResult
from meristem.training.stop_signals import TrainingStopped

__all__ = ["finetune_factory"]

GRID: dict[str, Any] = {
    "grid.learning_rate": [1e-9, 0.01],
    "grid.seeds": 2,
    "train.steps": 30,
    "train.evaluate_every": 30,
}
NAMES = ["rate1e-09-1", "rate1e-09-2", "rate0.01-1", "rate0.01-2"]


def members(out: Path) -> list[str]:
    return [name for name in NAMES if RunFolder(out / name).exists()]


def stamps(out: Path) -> dict[str, int]:
    """When each run was finished, to the nanosecond."""
    return {name: (out / name / "finished.json").stat().st_mtime_ns for name in members(out)}


def test_every_combination_once_and_the_best_is_what_the_folder_opens(finetune_factory: FinetuneFactory) -> None:
    result = finetune_factory.learn(GRID)
    out = finetune_factory.root / "run"
    assert sorted(path.name for path in out.iterdir()) == sorted([*NAMES, "best", "grid.json", "grid.md"])
    facts = json.loads((out / "grid.json").read_bytes())
    assert facts["best"]["cell"] == "rate0.01", "a rate of nothing cannot be the best"
    assert (out / "best").read_text().strip() == facts["best"]["run"] == RunFolder.open(out).path.name
    seeds = {name: api.load(out / name).recipe.train.seed for name in NAMES}
    assert seeds == {"rate1e-09-1": 0, "rate1e-09-2": 1, "rate0.01-1": 0, "rate0.01-2": 1}
    cell = facts["cells"][1]
    values = [run["metrics"]["accuracy"] for run in cell["runs"]]
    assert cell["validation"]["accuracy"]["mean"] == pytest.approx(sum(values) / 2)
    assert cell["validation"]["accuracy"]["spread"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert result.run == out and facts["judged_by"] == "accuracy"
    assert str(out) in result.example_commands[0] and facts["best"]["run"] not in result.example_commands[0]
    assert api.load(out).predict("the boat was warm")["label"] in ("good", "bad")
    _assert_shown(finetune_factory, out)
    before, content = stamps(out), (out / "grid.json").read_bytes()
    second_result = finetune_factory.learn(GRID)
    assert stamps(out) == before and second_result.metrics == result.metrics
    assert (out / "grid.json").read_bytes() == content  # whether its runs were trained now or found finished
    three_seeds = finetune_factory.learn({**GRID, "grid.seeds": 3})
    assert {name: stamp for name, stamp in stamps(out).items() if name in before} == before
    assert RunFolder(out / "rate0.01-3").exists() and three_seeds.judged_by == "accuracy"


def _assert_shown(finetune_factory: FinetuneFactory, out: Path) -> None:
    page, output = (out / "grid.md").read_text(encoding="utf-8"), finetune_factory.output.getvalue()
    assert "| learning_rate | seeds | loss | accuracy |" in page and "| 0.01 | 2 |" in page
    assert page.count("| best |") == 1 and "± " in page
    assert "Test, mean over 2 seeds: loss" in page
    assert "Best on validation by accuracy: rate0.01" in output and "Run 4 of 4" in output
    assert "rate1e-09 (" in output.replace("\n", " ") and "significant difference" in output


def test_a_grid_that_was_stopped_resumes(finetune_factory: FinetuneFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    save, saved = loop.TrainingLoop.save, list[Path]()

    def stopping(self: loop.TrainingLoop) -> Path:
        saved.append(save(self))
        if len(saved) == 3:  # in the middle of the third run
            raise TrainingStopped(2, "stopped")
        return saved[-1]

    monkeypatch.setattr(loop.TrainingLoop, "save", stopping)
    with pytest.raises(TrainingStopped):
        finetune_factory.learn({**GRID, "train.save_every": 30})
    out = finetune_factory.root / "run"
    assert members(out) == NAMES[:3] and not (out / "best").exists()
    before = {name: (out / name / "finished.json").stat().st_mtime_ns for name in NAMES[:2]}
    finetune_factory.learn({**GRID, "train.save_every": 30})
    assert {name: stamps(out)[name] for name in NAMES[:2]} == before
    assert RunFolder.open(out).path.parent == out


def test_epochs_replace_the_budget_of_the_recipe() -> None:
    recipe_sections = {
        "task": "classification",
        "model": {"family": "bert"},
        "train": {"steps": 9, "learning_rate": 0.5},
    }
    recipe = resolve_recipe(
        "tiny", recipe_sections, ["grid.epochs=[1, 2.5]", "grid.learning_rate=1e-4", "grid.seeds=3"]
    )
    grid_cells = list(grid._iter_cells(recipe))
    assert [cell.name for cell, _ in grid_cells] == ["rate0.0001-epochs1", "rate0.0001-epochs2.5"]
    assert [cell_recipe.train.budget for _, cell_recipe in grid_cells] == [("epochs", 1.0), ("epochs", 2.5)]
    assert {cell_recipe.train.learning_rate for _, cell_recipe in grid_cells} == {1e-4} and all(
        not cell_recipe.grid.has_several_runs for _, cell_recipe in grid_cells
    )


@pytest.mark.parametrize(("override", "message"), [
    ("grid.learning_rate=[0]", r"grid\.learning_rate: expected numbers above 0"), ("grid.seeds=0", r"grid\.seeds"),
    ("grid.learning_rate=[1, 1]", "twice"), ("grid.learning_rates=[1]", "did you mean learning_rate"),
])  # fmt: skip
def test_a_grid_that_cannot_be_is_refused(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        api.resolve_task_recipe("classification", [override])


def test_a_grid_is_for_tasks() -> None:
    with pytest.raises(RecipeError, match="grid: only allowed with a task"):
        api.resolve_pretrain_recipe("bert-mini", ["grid.seeds=2"])


def test_without_validation_there_is_nothing_to_choose_by(finetune_factory: FinetuneFactory) -> None:
    with pytest.raises(RecipeError, match=r"grid: the best run is chosen on validation samples"):
        finetune_factory.learn({**GRID, "data.validation": None, "data.held_out": 0.0})


def test_other_things_in_the_folder_are_left_alone(finetune_factory: FinetuneFactory) -> None:
    (finetune_factory.root / "run").mkdir()
    (finetune_factory.root / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(MeristemError, match="is a folder that holds other files"):
        finetune_factory.learn(GRID)


@pytest.mark.parametrize("name", ["../elsewhere", "missing", "", "."])
def test_a_best_file_that_names_no_run_beside_it_is_not_followed(name: str, tmp_path: Path) -> None:
    for folder_name in ("elsewhere", "runs"):
        (tmp_path / folder_name / "checkpoints").mkdir(parents=True)
    (tmp_path / "elsewhere" / "recipe.yaml").write_text("{}")
    (tmp_path / "runs" / "best").write_text(name)
    with pytest.raises(MeristemError, match="is not a run"):
        RunFolder.open(tmp_path / "runs")


def test_the_best_is_called_better_only_if_the_difference_is_significant() -> None:
    def cell(name: str, *values: float) -> grid.GridCell:
        metrics = [{"accuracy": value, "loss": 1.0} for value in values]
        runs = [RunResult(run=Path(name), step=1, metrics=metric, test={}, used={}, example_commands=[],
                          judged_by="accuracy") for metric in metrics]  # fmt: skip
        return grid.GridCell(settings={"learning_rate": 1.0}, name=name, runs=runs)

    def summary_of(best: grid.GridCell, other: grid.GridCell) -> str:
        return grid._summary_lines([other, best], best, best.runs[0], Path("out"))[1]

    assert summary_of(cell("a", 0.8, 0.9, 0.7), cell("b", 0.79, 0.88, 0.7)).startswith("No significant difference from")
    assert "a significant difference with 3 seeds" in summary_of(cell("a", 0.9, 0.91, 0.9), cell("b", 0.5, 0.51, 0.52))
    assert summary_of(cell("a", 0.9), cell("b", 0.1)).endswith(
        "cannot show whether the difference is chance: set grid.seeds=3"
    )
