"""Metrics and output of multiple choice: accuracy against guessing, {label, choice, score}."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.interfaces.sample import Sample
from meristem.interfaces.task_evaluation import Metrics, Mistake, Resampler
from meristem.interfaces.task_parts import OutputFormat, TaskMetrics
from meristem.tasks.components.choice_encoder import ChoiceProbs

ContextText = Callable[[Mapping[str, Any]], str]
"""Inputs → the context with its question."""


class ChoiceMetrics(TaskMetrics):
    """Accuracy of the most probable choice."""

    main = "accuracy"

    def __init__(self, context_text: ContextText) -> None:
        self.context_text = context_text

    def resampler(self, predictions: Sequence[ChoiceProbs], samples: Sequence[Sample]) -> Resampler:
        """Accuracy for resampled indices."""
        correct: NDArray[np.bool_] = np.array(
            [int(probs.argmax()) == sample.gold for probs, sample in zip(predictions, samples, strict=True)]
        )
        return lambda indices: {"accuracy": float(correct[indices].mean())}

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The expected accuracy of random guessing."""
        return {"guessing": {"accuracy": float(np.mean([1 / len(sample.inputs["choices"]) for sample in samples]))}}

    def mistakes(self, predictions: Sequence[ChoiceProbs], samples: Sequence[Sample]) -> list[Mistake]:
        """Wrong choices, most confident first."""
        mistakes = [
            Mistake(
                location=sample.location,
                input_text=self.context_text(sample.inputs),
                gold=sample.inputs["choices"][sample.gold],
                prediction=sample.inputs["choices"][int(probs.argmax())],
                confidence=float(probs.max()),
            )
            for probs, sample in zip(predictions, samples, strict=True)
            if int(probs.argmax()) != sample.gold
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.confidence)


class ChoiceOutput(OutputFormat):
    """{label, choice, score}: index from 0, text and probability."""

    kind = "choice"

    def __init__(self, context_text: ContextText) -> None:
        self.context_text = context_text

    def format(self, prediction: ChoiceProbs, sample: Sample) -> Any:
        """The most probable choice."""
        return self.format_top(prediction, sample, 1)[0]

    def format_top(self, prediction: ChoiceProbs, sample: Sample, top: int) -> list[Any]:
        """The most probable choices."""
        choices, best = sample.inputs["choices"], np.argsort(-prediction, kind="stable")[:top].tolist()
        return [{"label": index, "choice": choices[index], "score": float(prediction[index])} for index in best]

    def describe(self, sample: Sample) -> str:
        """The context with its question, and the choices with the correct one in brackets."""
        choices = (
            f"[{choice}]" if index == sample.gold else choice for index, choice in enumerate(sample.inputs["choices"])
        )
        return f"{self.context_text(sample.inputs)}  →  {' | '.join(choices)}"
