"""Classifier reward: the probability that a fine-tuned classifier gives to a label, or its regression output."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from meristem.checkpoint.load_run import load_recipe
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, did_you_mean
from meristem.config.recipe import Recipe
from meristem.evaluation.task_predictions import predict
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.reinforce.judge_model import load_for_inference
from meristem.reinforce.reward_base import PromptCompletion, Reward, RewardContext, RewardScore
from meristem.reinforce.settings import RewardSettings

MAX_OTHER_LABELS = 3
"""Other labels whose probabilities are reported."""


class ClassifierRewardSettings(RewardSettings):
    """The classifier, and the label to reward."""

    renamed: ClassVar[dict[str, str]] = {"prompted": "include_prompt"}

    name: Literal["classifier"] = "classifier"
    """The reward's name."""
    run: str
    """A run trained with `meristem finetune classification`."""
    label: str | None = None
    """The label whose probability is the reward; leave it out for a regression run, whose output is the reward."""
    include_prompt: bool = False
    """Whether the prompt is part of the classified text."""


def _not_a_classifier(run: str, objectives: Sequence[str]) -> MeristemError:
    return MeristemError(
        f"reward classifier: {run} is not a classifier (it was trained for {', '.join(objectives)}): train one with "
        f"meristem finetune classification {shlex.quote(f'from={run}')} data.train=FILE"
    )


def classifier_labels(settings: ClassifierRewardSettings, task: Any) -> tuple[str, ...]:
    """The labels of a run's task; raises unless the rewarded one is among them."""
    reward, labels = settings, tuple(map(str, task.labels))
    if task.problem_type == "regression":
        if reward.label is not None:
            raise MeristemError(
                f"reward classifier: {reward.run} is a regression run without labels; leave label={reward.label} out"
            )
        return ("number",)
    if reward.label is None:
        raise MeristemError(f"reward classifier: choose a label of {reward.run}: label={' or '.join(labels)}")
    if reward.label not in labels:
        raise MeristemError(
            f"reward classifier: {reward.run} has no label {reward.label!r}{did_you_mean(reward.label, labels)}"
        )
    return labels


class ClassifierReward(Reward[ClassifierRewardSettings]):
    """p(label | text), or the output of a regression run."""

    Settings = ClassifierRewardSettings
    name = "classifier"

    @classmethod
    def check_settings(cls, settings: ClassifierRewardSettings, runs: Mapping[str, Recipe]) -> None:
        """Refuse a run that is not a classifier or does not have the label."""
        recipe = load_recipe(RunFolder.open(Path(settings.run).expanduser()))
        if recipe.tuned_task is None or recipe.tuned_task.name != "classification":
            objectives = [part.name for source in recipe.objectives.values() for part in source]
            raise _not_a_classifier(settings.run, objectives)
        classifier_labels(settings, recipe.tuned_task)

    def __init__(self, settings: ClassifierRewardSettings, context: RewardContext) -> None:
        self.settings = settings
        self._learner = load_for_inference(settings.run, context.say).learner
        objectives = {objective.name: objective for objective in self._learner.objectives.values()}
        task = objectives.get("classification")
        if not isinstance(task, Task):
            raise _not_a_classifier(settings.run, list(objectives))
        self._task = task
        self._labels = classifier_labels(settings, self._task.settings)

    def score(self, completions: Sequence[PromptCompletion]) -> list[RewardScore]:
        """Score all texts, batched by length."""
        texts = [
            completion.prompt + completion.text if self.settings.include_prompt else completion.text
            for completion in completions
        ]
        samples = [Sample(inputs={"text": text}) for text in texts]
        predictions = predict(self._learner, samples, task=self._task).predictions
        return [self._score_one(prediction) for prediction in predictions]

    def _score_one(self, prediction: np.ndarray[Any, Any]) -> RewardScore:
        target_label = self.settings.label or "number"
        scores = dict(zip(self._labels, prediction.astype(np.float64).tolist(), strict=True))
        others = sorted((name for name in scores if name != target_label), key=lambda name: -scores[name])
        return RewardScore(
            value=scores[target_label], why={name: scores[name] for name in (target_label, *others[:MAX_OTHER_LABELS])}
        )
