"""Phases in a run: objectives one after the other, exact resume inside a phase, budgets, evaluation, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_factory import RunFactory

from meristem.config.errors import RecipeError
from meristem.config.recipe import Recipe, resolve_recipe
from meristem.describe.describe_recipe import describe_recipe
from meristem.training.train_state import TrainState

PHASES = [{"share": 1, "objective": "clm"}, {"share": 2, "objective": {"name": "mlm", "mask_rate": 0.3}}]


class PhasedRuns(RunFactory):
    """Runs of a small model that is trained causally, then on masked tokens."""

    def recipe(self, family: str, *overrides: str) -> Recipe:
        """A tiny recipe with phases."""
        return resolve_recipe(
            "phased",
            {
                "corpus": {"source": "builtin:microworld-en?size=40", "processes": 1, "validation": 0.1, "test": 0.1},
                "tokenizer": {"kind": "bpe", "vocab_size": 300},
                "model": {"family": "modern", "layers": 1, "hidden_size": 32, "heads": 2, "max_length": 32},
                "phases": PHASES,
                "train": {"steps": 9, "batch_tokens": 128, "log_every": 1, "threads": 1, "evaluate_tokens": 512},
            },
            overrides,
        )


@pytest.fixture
def phased(run_factory: RunFactory) -> PhasedRuns:
    return PhasedRuns(run_factory.root)


def objective_losses(runs: RunFactory, run: str = "run") -> list[str]:
    return [next(key for key in line if key in ("clm.loss", "mlm.loss")) for line in runs.lines("train", run)]


def test_an_interrupted_run_resumes_bit_for_bit_inside_each_phase(phased: PhasedRuns) -> None:
    overrides = ("train.batch_ramp=2", "train.ema_decay=0.9", "train.evaluate_every=2", "model.dropout=0.1")
    phased.train(*overrides, run="whole")
    for at in (2, 3, 6):
        phased.interrupt(*overrides, at=at)
    phased.train(*overrides)
    phased.assert_equal_runs("whole", "run")
    assert objective_losses(phased) == ["clm.loss"] * 3 + ["mlm.loss"] * 6
    evaluation = phased.lines("evaluation")[-1]
    assert evaluation["loss"] == evaluation["mlm.loss"] != evaluation["clm.loss"]
    assert phased.state()["phase_starts"] == [0, 3]


def test_a_larger_budget_moves_no_phase_that_has_begun(phased: PhasedRuns) -> None:
    phased.train("train.steps=6")
    phased.train("train.steps=12")
    assert objective_losses(phased) == ["clm.loss"] * 2 + ["mlm.loss"] * 10


def test_describe_and_the_recipe_of_a_run_show_the_phases(phased: PhasedRuns) -> None:
    phased.train()
    saved = (phased.root / "run" / "recipe.yaml").read_text(encoding="utf-8")
    assert "phases:\n- name: clm\n  share: 1" in saved
    description = describe_recipe(phased.recipe("modern"), vocab_size=300)
    assert description.objective == "clm (33 %), then mlm (67 %)"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("objective=clm",), "objective and phases: a recipe has one or the other; each entry of phases"),
        (("phases.0.share=0",), r"phases.0.share: 0 is not a positive number"),
        (("phases=[{objective: clm, weight: 1}]",), r"phases.0.weight: unknown setting"),
        (("phases=[{share: 1}]",), r"phases.0: expected \{share, objective\}"),
        (("phases=clm",), r"phases: expected a list of \{share, objective\}"),
        (("train.batch_ramp=0.5",), "train.batch_ramp: it lasts 4 steps, and must end within the first phase"),
        (("train.steps=1",), "phases: 2 phases need as many steps, and the budget is 1"),
        (("model.family=bert",), "clm"),
    ],
)
def test_what_cannot_work_is_refused(phased: PhasedRuns, overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        phased.train(*overrides)


@pytest.mark.parametrize("starts", [[1, 3], [0, 3, 3], [0, "3"], "0"])
def test_a_changed_state_is_refused(phased: PhasedRuns, starts: Any) -> None:
    state: dict[str, Any] = json.loads(json.dumps(TrainState(total=9).to_dict()))
    with pytest.raises(Exception, match="phase_starts has an invalid value"):
        TrainState.from_dict({**state, "phase_starts": starts})


def test_steps_of_minutes_that_are_planned_again_keep_the_shares(phased: PhasedRuns, tmp_path: Path) -> None:
    phased.train("train.steps=null", "train.minutes=0.03", "train.evaluate_every=none")
    state = phased.state()
    assert state["phase_starts"][1] == pytest.approx(state["total"] / 3, rel=0.7, abs=3)
    counts = [objective_losses(phased).count(name) for name in ("clm.loss", "mlm.loss")]
    assert all(counts)
