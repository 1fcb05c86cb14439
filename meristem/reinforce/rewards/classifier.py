"""Classifier: how sure a fine-tuned run is that a text has a label."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from meristem.batch import Row, collate
from meristem.checkpoint.revive import recipe_of
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError, did_you_mean
from meristem.learning.assemble import WORDS
from meristem.learning.ragged import groups
from meristem.randomness import Draw
from meristem.recipe import Recipe
from meristem.reinforce.judging import opened
from meristem.reinforce.reward import Attempt, Desk, Judgement, Reward, RewardSettings
from meristem.task import Piece, Sample, Task

TOKENS = 4096
"""Read at once, padding counted."""
SHOWN = 3
"""Labels that are told beside the one that counts."""


class ClassifierSettings(RewardSettings):
    """Who classifies, and which label is wanted."""

    name: Literal["classifier"] = "classifier"
    """The reward's name."""
    run: str
    """A run that `meristem finetune classification` made."""
    label: str | None = None
    """The label whose probability is the reward; none where the run gives a number, which then is the reward."""
    prompted: bool = False
    """Whether the prompt is read before the text."""


def _classifies_nothing(run: str, trained: Sequence[str]) -> MeristemError:
    return MeristemError(
        f"reward classifier: {run} classifies nothing (it was trained for {', '.join(trained)}): "
        f"meristem finetune classification {shlex.quote(f'from={run}')} data.train=FILE teaches it to"
    )


def labels_of(settings: ClassifierSettings, task: Any) -> tuple[str, ...]:
    """The labels of a run's task; the wanted one is among them."""
    s, labels = settings, tuple(map(str, task.labels))
    if task.problem == "regression":
        if s.label is not None:
            raise MeristemError(f"reward classifier: {s.run} gives a number, no labels; leave label={s.label} out")
        return ("number",)
    if s.label is None:
        raise MeristemError(f"reward classifier: which label of {s.run} is wanted? label={' or '.join(labels)}")
    if s.label not in labels:
        raise MeristemError(f"reward classifier: {s.run} has no label {s.label!r}{did_you_mean(s.label, labels)}")
    return labels


class Classifier(Reward):
    """p(label | text), or the number that the run gives."""

    Settings = ClassifierSettings
    name = "classifier"

    @classmethod
    def check_settings(cls, settings: ClassifierSettings, runs: Mapping[str, Recipe]) -> None:
        """The run classifies, and has the label."""
        recipe = recipe_of(Run.open(Path(settings.run).expanduser()))
        if recipe.task is None or recipe.task.name != "classification":
            trained = [part.name for source in recipe.sources() for part in source.objective]
            raise _classifies_nothing(settings.run, trained)
        labels_of(settings, recipe.task)

    def __init__(self, settings: ClassifierSettings, desk: Desk) -> None:
        self.settings = settings
        learner = opened(settings.run, desk.say).learner
        tasks = [one for one in learner.objectives.values() if isinstance(one, Task) and one.name == "classification"]
        if not tasks:
            raise _classifies_nothing(settings.run, [one.name for one in learner.objectives.values()])
        self._task, self._model = tasks[0], learner.model
        self._labels = labels_of(settings, self._task.settings)

    def judge(self, attempts: Sequence[Attempt]) -> list[Judgement]:
        """All texts, those of like lengths together."""
        texts = [one.prompt + one.text if self.settings.prompted else one.text for one in attempts]
        return [self._judged(answer) for answer in self._answers(texts)]

    def _judged(self, answer: np.ndarray[Any, Any]) -> Judgement:
        wanted = self.settings.label or "number"
        scores = dict(zip(self._labels, answer.astype(np.float64).tolist(), strict=True))
        others = sorted((name for name in scores if name != wanted), key=lambda name: -scores[name])
        return Judgement(value=scores[wanted], why={name: scores[name] for name in (wanted, *others[:SHOWN])})

    @torch.inference_mode()
    def _answers(self, texts: Sequence[str]) -> list[np.ndarray[Any, Any]]:
        """A probability for each label, or one number."""
        pieces = self._task.pieces([Sample(given={"text": text}) for text in texts])
        out: list[Any] = [None] * len(texts)
        for some in groups(pieces, TOKENS):
            rows = [self._row(pieces[number], number) for number in some]
            batch = collate(rows, self._task, dict.fromkeys(WORDS, 0)).to(self._model.device)
            hidden = self._task.encode(self._model, batch)
            for number, answer in zip(batch.ids, self._task.decode(self._model, hidden, batch), strict=True):
                out[number] = answer
        return out

    def _row(self, piece: Piece, number: int) -> Row:
        row = self._task.prepare(Row(inputs={}, notes={"piece": piece}), Draw(0, 0, number))
        assert isinstance(row, Row)  # a text is one row
        row.sample = number
        return row
