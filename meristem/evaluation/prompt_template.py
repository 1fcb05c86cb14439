"""Prompt templates for zero-shot and few-shot evaluation: verbalized labels and in-context examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from meristem.config.errors import MeristemError, did_you_mean
from meristem.config.settings import Settings
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.tasks.components.choice_encoder import ChoiceEncoder
from meristem.utils.randomness import generator

TEMPLATE_FIELDS = {
    "text": ("text", "label"),
    "pair": ("text", "text_b", "label"),
    "choice": ("text", "question", "context", "choice"),
}
"""Template fields by sample type; the last is the answer."""


class PromptSettings(Settings):
    """Settings of zero-shot and few-shot prompting."""

    renamed: ClassVar[dict[str, str]] = {"between": "example_separator", "words": "label_words"}

    template: str
    """Fields in braces, as "{text}\\nSentiment: {label}": text, text_b, and where choices are compared {choice}."""
    label_words: dict[str, str] = {}
    """Label → its verbalization; by default the label itself."""
    shots: int = Field(0, ge=0)
    """Number of in-context examples before each question."""
    seed: int = Field(0, ge=0)
    """Seed for drawing and ordering the examples."""
    example_separator: str = "\n\n"
    """Separator between examples."""
    per_token: bool = False
    """Normalise log-probabilities by the number of tokens, so that longer answers are not less likely."""
    calibrate: bool = False
    """Divide by the probability of an answer after a content-free prompt (Zhao et al. 2021)."""
    content_free: tuple[str, ...] = Field(("N/A", "", "[MASK]"), min_length=1)
    """Calibration: content-free inputs in place of the text; their mean is used."""


@dataclass(frozen=True, kw_only=True)
class PromptTemplate:
    """A parsed template: the parts before and after the answer."""

    sample_type: str
    """text, pair or choice."""
    before: tuple[tuple[str, str | None], ...]
    """Literal text, each piece with the field that follows it."""
    after: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, text: str) -> PromptTemplate:
        """A template as it is typed; a line break may be typed as \\n."""
        try:
            parts = list(Formatter().parse(text.replace("\\n", "\n")))
        except ValueError as error:
            raise MeristemError(f"template: {error}; write a literal brace twice") from None
        names = [name for _, name, _, _ in parts if name is not None]
        if any(spec or conversion for _, _, spec, conversion in parts):
            raise MeristemError("template: a field is a plain name in braces, as {text}")
        sample_type = "choice" if "choice" in names else "pair" if "text_b" in names else "text"
        for name in names:
            if name not in TEMPLATE_FIELDS[sample_type]:
                raise MeristemError(f"template: no field {{{name}}}{did_you_mean(name, TEMPLATE_FIELDS[sample_type])}")
        answer_field = TEMPLATE_FIELDS[sample_type][-1]
        if names.count(answer_field) != 1:
            raise MeristemError(
                'template: {label} must occur exactly once, as in "{text}\\nSentiment: {label}"; or {choice}'
            )
        pieces = [(literal, name) for literal, name, _, _ in parts]
        answer_index = next(index for index, (_, name) in enumerate(pieces) if name == answer_field)
        return cls(
            sample_type=sample_type,
            before=(*pieces[:answer_index], (pieces[answer_index][0], None)),
            after=tuple(pieces[answer_index + 1 :]),
        )

    def fill(self, values: Mapping[str, Any]) -> tuple[str, str]:
        """The text before the answer and the text after it."""
        before, after = (
            "".join(literal + ("" if name is None else str(values[name])) for literal, name in pieces)
            for pieces in (self.before, self.after)
        )
        return before, after


@dataclass(frozen=True, kw_only=True)
class FewShotPrompt:
    """A prompt: examples, the question, and the possible answers."""

    examples: tuple[str, ...]
    before: str
    after: str
    answers: tuple[str, ...]

    def text(self, separator: str, answer: str = "", *, with_suffix: bool = False) -> str:
        """The prompt with an answer, and optionally the text after it."""
        examples_text = "".join(example + separator for example in self.examples)
        return examples_text + self.before + answer + (self.after if with_suffix else "")


class PromptBuilder:
    """Builds prompts from samples with a template and label words."""

    def __init__(self, template: PromptTemplate, settings: PromptSettings, task: Task) -> None:
        self.template, self.settings, self.task = template, settings, task
        labels = () if template.sample_type == "choice" else task.settings.labels
        self.label_words = tuple(settings.label_words.get(label, label) for label in labels)
        """In the order of the labels; empty if each sample has its own choices."""
        self.word_by_label = dict(zip(labels, self.label_words, strict=True))

    def build(self, inputs: Mapping[str, Any], examples: tuple[str, ...]) -> FewShotPrompt:
        """The prompt for a sample."""
        before, after = self._fill_template(inputs)
        answers = self.label_words or tuple(map(str, inputs["choices"]))
        return FewShotPrompt(examples=examples, before=before, after=after, answers=answers)

    def build_example(self, sample: Sample) -> str:
        """A sample with its answer, as an in-context example."""
        before, after = self._fill_template(sample.inputs)
        gold_answer = (
            self.word_by_label[str(sample.gold)] if self.label_words else str(sample.inputs["choices"][sample.gold])
        )
        return before + gold_answer + after

    def build_content_free(self, inputs: Mapping[str, Any], examples: tuple[str, ...]) -> list[FewShotPrompt]:
        """The same prompt with content-free inputs, for calibration."""
        return [
            self.build(
                {**inputs, **{field: content_free_text for field in ("text", "text_b") if field in inputs}}, examples
            )
            for content_free_text in self.settings.content_free
        ]

    def _fill_template(self, inputs: Mapping[str, Any]) -> tuple[str, str]:
        encoder = self.task.parts.encoder
        context = {"context": encoder.context_text(inputs)} if isinstance(encoder, ChoiceEncoder) else {}
        return self.template.fill({**inputs, **context})


def draw_examples(samples: Sequence[Sample], settings: PromptSettings, *, balanced: bool) -> list[Sample]:
    """Draw in-context examples: balanced ones cycle through the labels, in a random order."""
    if settings.shots > len(samples):
        raise MeristemError(
            f"shots: {settings.shots} examples requested, but there are only {len(samples)} to draw from"
        )
    order = [int(index) for index in generator(settings.seed, "shots", 0, 0).permutation(len(samples))]
    if balanced:
        labels = dict.fromkeys(str(samples[index].gold) for index in order)
        groups = [[index for index in order if str(samples[index].gold) == label] for label in labels]
        rounds = range(max(map(len, groups), default=0))
        order = [group[round_index] for round_index in rounds for group in groups if round_index < len(group)]
    selected = np.array(order[: settings.shots], np.int64)
    return [samples[int(index)] for index in generator(settings.seed, "shots", 0, 1).permutation(selected)]
