"""What a run is judged by, and what it leaves behind when it ends: numbers, a model card, a picture."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

from meristem.checkpoint import disk, load
from meristem.checkpoint.run import Run
from meristem.drawing.curves import can_draw, draw
from meristem.learning.learner import Learner
from meristem.recipe import Recipe
from meristem.shell_commands import shell_path
from meristem.tables import Record, Tabular
from meristem.training import card
from meristem.training.budget import evaluation_tokens
from meristem.training.journal import Journal, duration
from meristem.training.loop import told
from meristem.training.material import Material
from meristem.training.settings import OFF
from meristem.training.standing import Standing


@dataclass(kw_only=True)
class Work:
    """A run being worked on."""

    recipe: Recipe
    run: Run
    material: Material
    learner: Learner
    standing: Standing
    journal: Journal
    planned_tokens: float = math.inf
    """What the whole budget reads."""

    @property
    def evaluated(self) -> Recipe:
        """The recipe with as many validation tokens as suit the budget."""
        train = self.recipe.train
        tokens = evaluation_tokens(train, self.planned_tokens)
        return replace(self.recipe, train=train.model_copy(update={"evaluate_tokens": tokens}))


@dataclass(frozen=True, kw_only=True)
class Ended(Tabular):
    """A run at the end of its budget."""

    run: Path
    step: int
    metrics: dict[str, float]
    """The numbers on validation text of the weights the run ends with: the best where it stops early."""
    test: dict[str, float]
    used: dict[str, float]
    tries: list[str]
    """Commands that show what the model can do."""
    judged_by: str = "loss"
    """Which of the numbers the best is chosen by."""

    def records(self) -> list[Record]:
        """A row for each metric, on validation and on test samples."""
        names = dict.fromkeys([*self.metrics, *self.test])
        return [{"metric": name, "validation": self.metrics.get(name), "test": self.test.get(name)} for name in names]

    def __repr__(self) -> str:
        found = ", ".join(f"{name}={value:.4g}" for name, value in self.metrics.items())
        return f"Ended({self.run}, step {self.step:,}: {found or 'nothing was measured'})"


def _evaluated(work: Work, split: str) -> dict[str, float]:
    if split == "validation" and work.recipe.train.evaluate_every == OFF:
        return {}
    evaluate = work.material.evaluator(work.evaluated, work.learner, split, work.journal.say)
    return {} if evaluate is None else evaluate()


def used(standing: Standing) -> dict[str, float]:
    """What a run has spent, in every kind of budget."""
    minutes = standing.seconds / 60
    return {"steps": standing.step, "tokens": standing.tokens, "flops": standing.flops, "minutes": minutes}


def finish(work: Work, found: dict[str, float] | None) -> Ended:
    """The test split, once; the model card; and last the word that the run is finished."""
    recipe, run, standing, journal = work.recipe, work.run, work.standing, work.journal
    if recipe.ends_best and standing.best_step not in (0, standing.step):
        best = load.load(run.checkpoints, which="best")
        if best is not None:
            work.learner.model.load_state_dict(best.snapshot.model)
            found = None
            journal.say(f"The run ends with the best on validation, step {standing.best_step} of {standing.step}")
    if found is None:
        found = _evaluated(work, "validation")
    test = _evaluated(work, "test")
    material, model = work.material, work.learner.model
    ended = Ended(
        run=run.path,
        step=standing.step,
        metrics=found,
        test=test,
        used=used(standing),
        tries=material.tries(shell_path(run.path), model),
        judged_by=material.judged_by,
    )
    if not material.team.first:
        return ended
    if test and not journal.holds("test", standing.step):
        journal.record("test", standing.step, test)
        journal.say(f"test  {told(test)}")
    if can_draw():
        title = f"{recipe.name}: {standing.step:,} steps, {standing.tokens:,} tokens"
        draw(run.metrics_path, run.path / "curves.png", title=title)
    left = material.leave(run, recipe, work.learner, journal)
    about, tries = material.sources(recipe), material.tries(".", model)
    text = card.text(recipe, work.learner, about, standing, found, test, tries, left)
    disk.replace(run.path / "README.md", [text.encode()])
    facts = {
        "step": standing.step,
        "best_step": standing.best_step,
        "judged_by": material.judged_by,
        "validation": found,
        "test": test,
        "used": used(standing),
    }
    run.finish({**facts, "finished": time.strftime("%Y-%m-%d %H:%M:%S")})
    journal.say(
        f"Done: {standing.step:,} steps, {standing.tokens:,} tokens, {standing.flops:.2e} FLOPs in "
        f"{duration(standing.seconds)}; {run.path} holds the model"
    )
    return ended
