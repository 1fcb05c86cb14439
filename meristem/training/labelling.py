"""Labelled samples as material: what a task learns from, is measured on, and reports about."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from meristem.batch import Model
from meristem.checkpoint.run import Run
from meristem.drawing.report_screen import tables
from meristem.evaluation.answering import NaNError, answer, judge
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.recipe import Recipe
from meristem.shell_commands import shell_path
from meristem.store.unknown import notice_of, unknown_share_of
from meristem.task import Piece, Sample, Task
from meristem.training.journal import Journal
from meristem.training.material import Evaluate
from meristem.training.pieced import Pieced
from meristem.training.reporting import card_lines, report_of, write


@dataclass(frozen=True, kw_only=True)
class Labelled(Pieced):
    """Samples that a task learns from."""

    task: Task
    _answers: dict[str, list[Any]] = field(default_factory=dict)

    def cut(self, samples: Sequence[Sample]) -> list[Piece]:
        """As the task reads them."""
        return self.task.pieces(samples)

    def evaluator(self, recipe: Recipe, learner: Learner, split: str, say: Callable[[str], None]) -> Evaluate | None:
        """The loss and the task's numbers over the whole split; answers that take long only at the end."""
        samples, task = self.samples.get(split), self.task
        if not samples:
            return None
        quick = split == "validation" and task.metric == "loss"

        def evaluate() -> dict[str, float]:
            try:
                found = answer(learner, samples, self.pieces(split), answers=not quick)
            except NaNError as error:
                say(f"{split}: {error}")
                return dict.fromkeys(("loss", task.metric), math.nan)
            if split == "test":  # measured once, with the weights the run ends with: the report reads the same answers
                self._answers[split] = found.answers
            if quick:
                return found.losses
            scores = task.score(found.answers, samples)  # those with a dot, of each entity type, are for the report
            return {**found.losses, **{name: value for name, value in scores.items() if "." not in name}}

        return evaluate

    @property
    def judged_by(self) -> str:
        """The task's own number."""
        return self.task.metric

    def passages(self) -> Iterator[str]:
        """The texts of all training samples."""
        return (text for sample in self.samples["train"] for text in self.task.texts(sample))

    def about(self, recipe: Recipe) -> list[str]:
        """How many samples there are, what was strange about them, and three as they were understood."""
        sizes = ", ".join(f"{len(some):,} {split}" for split, some in self.samples.items())
        said = [f"{sizes} samples", *self.strange(recipe)]
        return [*said, "As understood:", *(f"  {self.task.told(sample)[:300]}" for sample in self.samples["train"][:3])]

    def strange(self, recipe: Recipe) -> list[str]:
        """What was met while reading, unknown tokens, and how many samples are longer than what is read of them."""
        unknown = notice_of(unknown_share_of(islice(self.passages(), SAMPLED), self.tokenizer), _from(recipe, "train"))
        said = [*self.notices, *([unknown] if unknown else [])]
        for split in self.samples:
            cut = [piece for piece in self.pieces(split) if piece.cut]
            if cut:
                said.append(
                    f"{split}: {len({piece.sample for piece in cut}):,} of {len(self.samples[split]):,} samples are "
                    f"longer than {recipe.task.length} tokens and were cut (task.length)"
                )
        return said

    def texts(self, feed: Feed, ids: Sequence[int]) -> list[str]:
        """Where samples stand, and how they begin."""
        found = []
        for number in ids:
            note = feed.at(number, 1).notes[0]["piece"]
            sample = self.samples["train"][note.sample]
            found.append(f"{sample.place} {self.task.told(sample)}"[:120])
        return found

    def tries(self, place: str, model: Model) -> list[str]:
        """The task on a sample that it has seen."""
        return [*self.task.commands(place, self.samples["train"][0]), f"meristem evaluate {place}"]

    def sources(self, recipe: Recipe) -> list[str]:
        """The files of each split."""
        return [f"{split}: {_from(recipe, split)}, {len(some):,} samples" for split, some in self.samples.items()]

    def leave(self, run: Run, recipe: Recipe, learner: Learner, journal: Journal) -> list[str]:
        """A report on the last split there is: numbers with their intervals, what was taken for what, mistakes."""
        split = next((name for name in ("test", "validation") if self.samples.get(name)), None)
        if split is None:
            return []
        samples = self.samples[split]
        answers = self._answers.get(split) or answer(learner, samples, self.pieces(split)).answers
        report = report_of(
            run,
            recipe,
            learner,
            self.task,
            self.samples,
            split=split,
            judged=judge(self.task, answers, samples),
            notices=self.strange(recipe),
            sources=self.sources(recipe),
            commands=self.tries(shell_path(run.path), learner.model),
        )
        write(report, run.path)
        journal.lay_out(tables(report))
        journal.say(f"The report: {run.path / 'report.html'}")
        return card_lines(report, recipe.task.model_dump().get("labels") or ())


SAMPLED = 2000
"""Training texts in which unknown tokens are counted."""


def _from(recipe: Recipe, split: str) -> str:
    """The files of a split, or that it was held out of the training files."""
    own = getattr(recipe.data, split)
    files = ", ".join(f"`{one}`" for one in _several(own or recipe.data.train))
    return files if own is not None else f"held out of {files}"


def _several(files: str | Sequence[str]) -> Sequence[str]:
    return (files,) if isinstance(files, str) else files
