"""Prompts as material: what texts are written for, what judges them, and the model that the run started as."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meristem.batch import Model, Objective
from meristem.checkpoint.run import Run
from meristem.corpus.pictures import is_builtin
from meristem.drawing.rewards import Attempted, moment
from meristem.drawing.rewards_screen import LiveRewards, tables
from meristem.errors import MeristemError
from meristem.evaluation.held_out import SEED, resting
from meristem.evaluation.reported import described
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.recipe import Recipe
from meristem.shell_commands import shell_path
from meristem.task import Piece, Sample
from meristem.training.journal import Journal, duration
from meristem.training.material import Evaluate, Watch
from meristem.training.pieced import Pieced
from meristem.training.rewards_report import BEST_OF, card_lines, report_of, write, wrote

SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Prompts(Pieced):
    """Prompts by split, with rewards and judges, and where the run began."""

    policy: Any
    """How prompts are cut and written for; the run's own objective is another one like it."""
    rewards: Any
    judge: Any
    """Rewards that nothing is learned from; none where the recipe names none."""
    reference: Model
    began: str
    """Which weights the run began with."""
    task: str | None = None
    """What the run was taught before its rewards, where that was a task."""

    @property
    def shards(self) -> Mapping[str, str]:
        """The start, so that going on with another is refused."""
        return {"start": self.began}

    def cut(self, samples: Sequence[Sample]) -> list[Piece]:
        """As the policy reads them."""
        found: list[Piece] = self.policy.pieces(samples)
        return found

    @property
    def grows(self) -> int:
        """What is written for a prompt."""
        most: int = self.policy.laid.most
        return most

    def feeds(self, recipe: Recipe, objectives: Mapping[str, Objective], *, split: str, seed: int) -> dict[str, Feed]:
        """Prompts of like lengths; the objective is given its judges with them."""
        objective: Any = next(iter(objectives.values()))
        objective.attach(self.rewards, self.reference)
        return super().feeds(recipe, objectives, split=split, seed=seed)

    def tried(self, model: Model, split: str, *, texts: int = 1) -> Any:
        """What a model writes for a split's first prompts, and what the rewards make of it."""
        pieces = self.pieces(split)[: self.policy.settings.prompts]
        with resting(model):
            return self.policy.tried(model, self.rewards, pieces, texts=texts, seed=SEED)

    def evaluator(self, recipe: Recipe, learner: Learner, split: str, say: Callable[[str], None]) -> Evaluate | None:
        """Rewards, distance and variety of one text for each prompt; the same numbers are drawn at every time."""
        if not self.samples.get(split):
            return None
        policy: Any = next(iter(learner.objectives.values()))
        self.policy.attach(self.rewards, self.reference)

        def evaluate() -> dict[str, float]:
            found = self.tried(learner.model, split)
            numbers: dict[str, float] = found.numbers()
            if self.judge is not None:
                parts = self.judge.judge(found.attempts).parts
                numbers |= {f"judge.{name}": float(values.mean()) for name, values in parts.items()}
            over = max(0.0, numbers["kl"] / policy.settings.kl.target - 1) if policy.settings.kl.coefficient else 0.0
            return {"leashed": numbers["reward"] - over * float(found.reward.std()), **numbers}

        return evaluate

    @property
    def judged_by(self) -> str:
        """The reward, less a deviation of it for every time that the distance exceeds its target."""
        return "leashed"

    def about(self, recipe: Recipe) -> list[str]:
        """How many prompts there are, what judges them, and some as they were understood."""
        sizes = ", ".join(f"{len(some):,} {split}" for split, some in self.samples.items())
        names = ", ".join(f"{one.name} × {one.weight:g}" for one in recipe.rewards)
        shown = [f"  {_told(piece)}" for piece in self.pieces("train")[:SHOWN]]
        return [f"{sizes} prompts", f"Rewards: {names}", *self.notices, "As understood:", *shown]

    def texts(self, feed: Feed, ids: Sequence[int]) -> list[str]:
        """Where prompts stand, and how they begin."""
        pieces = [feed.at(number, 1).notes[0]["piece"] for number in ids]
        return [f"{piece.parts['attempt'].place} {_told(piece)}"[:120] for piece in pieces]

    def tries(self, place: str, model: Model) -> list[str]:
        """A prompt it has seen."""
        first = self.pieces("train")[0].parts["attempt"]
        if first.picture:
            asks = "predict" if self.task is not None else "generate"
            file = "picture.png" if is_builtin(first.picture) else shlex.quote(first.picture)
            return [f"meristem {asks} {place} --image {file}"]
        prompt = shlex.quote(first.prompt)
        if self.policy.settings.framed:
            return [f"meristem predict {place} {prompt}"]
        return [f"meristem generate {place} --prompt {prompt} --count 3"]

    def watcher(self, learner: Learner, journal: Journal, total: int) -> Watch:
        """A table of rewards, and the newest texts, beneath the bar."""
        policy: Any = next(iter(learner.objectives.values()))
        leash = policy.settings.kl
        held = leash.target if leash.coefficient else None
        live = LiveRewards(journal.console, journal.say, total=total, kl_target=held)
        journal.watch(live)

        def see(step: int, means: Mapping[str, float], left: float) -> None:
            newest = [(one.shown, Attempted(text=one.text, reward=reward)) for one, reward in policy.newest]
            live.update(moment(step, means), newest=newest, left=duration(left))

        return see

    def leave(self, run: Run, recipe: Recipe, learner: Learner, journal: Journal) -> list[str]:
        """A report on prompts that nothing was learned from: the start beside what became of it."""
        split = next((name for name in ("test", "validation") if self.samples.get(name)), None)
        if split is None:
            return []
        self.policy.attach(self.rewards, self.reference)
        before, after = (
            wrote(self.tried(model, split, texts=BEST_OF[-1]), self.judge) for model in (self.reference, learner.model)
        )
        report = report_of(
            run,
            recipe,
            before,
            after,
            model=described(recipe, learner),
            split=split,
            sources=self.sources(recipe),
            commands=self.tries(shell_path(run.path), learner.model),
        )
        write(report, run.path)
        journal.lay_out(tables(report))
        journal.say(f"The report: {run.path / 'report.html'}")
        return card_lines(report)

    def sources(self, recipe: Recipe) -> list[str]:
        """The prompts' files, and the rewards."""
        files = [f"{split}: {len(some):,} prompts" for split, some in self.samples.items()]
        return [*files, *(f"reward {one.name}, weight {one.weight:g}" for one in recipe.rewards)]


def _told(piece: Piece) -> str:
    attempt = piece.parts["attempt"]
    known = f"  ({len(attempt.references)} references)" if attempt.references else ""
    return f"{attempt.shown[:200]} → …{known}"


def same_start(before: Mapping[str, str], began: str, path: str) -> None:
    """Refuse to go on with a run whose start has changed: its distance would be measured from elsewhere."""
    if before.get("start", began) != began:
        raise MeristemError(f"from: {path} has other weights now than when this run began; begin anew with --fresh")
