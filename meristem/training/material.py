"""What a run is made from, and the folder it lives in: the contract that text and labelled samples both keep."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from meristem import bounded
from meristem.batch import Model, Objective
from meristem.checkpoint import disk, origin
from meristem.checkpoint.layout import steps as steps_in
from meristem.checkpoint.run import OWN, Run
from meristem.errors import MeristemError
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.learning.team import Team
from meristem.recipe import Recipe
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.journal import Journal

Evaluate = Callable[[], dict[str, float]]
Watch = Callable[[int, Mapping[str, float], float], None]
"""Called with a step, its numbers and the seconds left, whenever a line of metrics is written."""

BEGUN = ".begun"
"""Without a recipe beside it, it tells a start that was killed from a folder of something else."""


class Material(ABC):
    """Words and samples: what the loop is fed with, judged by, and said to be about."""

    tokenizer: Tokenizer
    team: Team
    """Who reads it together."""

    @property
    def shards(self) -> Mapping[str, str]:
        """Which shards each source reads, so that a run keeps the ones it began with."""
        return {}

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Tokens there are to train on."""

    @abstractmethod
    def feeds(self, recipe: Recipe, objectives: Mapping[str, Objective], *, split: str, seed: int) -> dict[str, Feed]:
        """Per source the batches of one split; sources without that split are left out."""

    @abstractmethod
    def evaluator(self, recipe: Recipe, learner: Learner, split: str, say: Callable[[str], None]) -> Evaluate | None:
        """A function that measures the model on a split; none where there is too little of it."""

    def step_tokens(self, feed: Feed) -> float:
        """Tokens in one step of it, on the average."""
        return feed.rows * feed.tokens_per_sample

    def evaluations(self, recipe: Recipe, planned: float) -> int:
        """How often a run of so many tokens is evaluated, where its recipe does not say."""
        return 10

    @property
    def judged_by(self) -> str:
        """The number evaluations are compared by: of the loss the lowest is the best, of all others the highest."""
        return "loss"

    def regret(self, found: Mapping[str, float]) -> float:
        """What an evaluation is judged by; the lowest is the best."""
        return regret(self.judged_by, found)

    def passages(self) -> Iterator[str]:
        """Training texts, as many as it takes to know how often words are used."""
        return iter(())

    @abstractmethod
    def about(self, recipe: Recipe) -> list[str]:
        """What there is to say before training begins: the size of it first."""

    @abstractmethod
    def texts(self, feed: Feed, ids: Sequence[int]) -> list[str]:
        """The beginnings of samples, for a person to recognise them."""

    @abstractmethod
    def tries(self, place: str, model: Model) -> list[str]:
        """Commands for a person who wants to see what the model can do; `place` is the run, quoted for a shell."""

    @abstractmethod
    def sources(self, recipe: Recipe) -> list[str]:
        """What it was trained on, a line each, for the model card."""

    def watcher(self, learner: Learner, journal: Journal, total: int) -> Watch | None:
        """What shows more of a run than the bar does, while it trains."""
        return None

    def leave(self, run: Run, recipe: Recipe, learner: Learner, journal: Journal) -> list[str]:
        """Whatever else a finished run leaves behind, reports; and lines about it for the model card."""
        return []


def regret(judged_by: str, found: Mapping[str, float]) -> float:
    """How far numbers are from as good as they get; the lowest is the best."""
    return found["loss"] if judged_by == "loss" else -found[judged_by]


def refuse_other_things(out: Path) -> None:
    """A run is never begun in a folder that holds something else."""
    if out.is_file() or (out.exists() and any(out.iterdir()) and not (out / BEGUN).exists()):
        what = "a file" if out.is_file() else "a folder of something else"
        raise MeristemError(f"{out} is {what}: choose another place with --out")


def forget_unstarted(run: Run) -> bool:
    """Whether a run never took a step, so that there is nothing to go on with; its files are then cleared away."""
    if steps_in(run.checkpoints) or (run.metrics_path.is_file() and run.metrics_path.stat().st_size):
        return False
    if any(run.checkpoints.iterdir()):  # something that is no checkpoint of ours
        return False
    with run.locked():
        (run.path / BEGUN).touch()
        for name in OWN:
            if name != run.lock_path.name:
                (run.path / name).unlink(missing_ok=True)
        run.checkpoints.rmdir()
        shutil.rmtree(run.path / "tensorboard", ignore_errors=True)
    return True


def create(out: Path, recipe: Recipe, material: Material) -> Run:
    """The run's folder, with everything it needs to go on."""
    out.mkdir(parents=True, exist_ok=True)
    (out / BEGUN).touch()
    run = Run(out)
    material.tokenizer.save(run.tokenizer_path)
    disk.replace(run.shards_path, [bounded.to_json(dict(material.shards), indent=1, ascii_only=True).encode()])
    origin.sign(run, recipe)
    run = Run.create(out, recipe_text(recipe), run.tokenizer_path)
    (out / BEGUN).unlink(missing_ok=True)
    return run


def recipe_text(recipe: Recipe) -> str:
    """The resolved recipe as its run keeps it."""
    title = f"# {recipe.name} — resolved: every default written out\n"
    return title + yaml.safe_dump(recipe.plain(), sort_keys=False, allow_unicode=True)
