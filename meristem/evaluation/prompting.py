"""A question put into words for a model that was never taught it: a template, label words, examples in context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

import numpy as np
from pydantic import Field

from meristem.errors import MeristemError, did_you_mean
from meristem.randomness import generator
from meristem.settings import Settings
from meristem.task import Sample

FIELDS = {
    "text": ("text", "label"),
    "pair": ("text", "text_b", "label"),
    "choice": ("text", "question", "context", "choice"),
}
"""What a template may name, by the shape of samples; the last is what the model is asked for."""


class PromptSettings(Settings):
    """How a model is asked."""

    template: str
    """Fields in braces, as "{text}\\nSentiment: {label}": text, text_b, and where choices are compared {choice}."""
    words: dict[str, str] = {}
    """Label → the word that stands for it; labels stand for themselves unless set."""
    shots: int = Field(0, ge=0)
    """Examples in front of each question."""
    seed: int = Field(0, ge=0)
    """Which examples are drawn, and their order."""
    between: str = "\n\n"
    """What stands between examples."""
    per_token: bool = False
    """A word's log-probability per token, so that longer ones are not less likely."""
    calibrate: bool = False
    """Divide by what a word gets where there is nothing to judge (Zhao et al. 2021)."""
    content_free: tuple[str, ...] = Field(("N/A", "", "[MASK]"), min_length=1)
    """Calibration: what then stands in place of the text; the mean over all of them counts."""


@dataclass(frozen=True, kw_only=True)
class Template:
    """What stands before and after the words that are asked for."""

    shape: str
    """Of the samples: text, pair or choice."""
    before: tuple[tuple[str, str | None], ...]
    """Literal text, each piece with the field that follows it."""
    after: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, text: str) -> Template:
        """A template as it is typed; a line break may be typed as \\n."""
        try:
            parts = list(Formatter().parse(text.replace("\\n", "\n")))
        except ValueError as error:
            raise MeristemError(f"template: {error}; a brace that is meant as one is typed twice") from None
        names = [name for _, name, _, _ in parts if name is not None]
        if any(spec or conversion for _, _, spec, conversion in parts):
            raise MeristemError("template: a field is a plain name in braces, as {text}")
        shape = "choice" if "choice" in names else "pair" if "text_b" in names else "text"
        for name in names:
            if name not in FIELDS[shape]:
                raise MeristemError(f"template: no field {{{name}}}{did_you_mean(name, FIELDS[shape])}")
        wanted = FIELDS[shape][-1]
        if names.count(wanted) != 1:
            raise MeristemError(
                'template: {label} must stand in it once, as in "{text}\\nSentiment: {label}"; or {choice}'
            )
        pieces = [(literal, name) for literal, name, _, _ in parts]
        at = next(number for number, (_, name) in enumerate(pieces) if name == wanted)
        return cls(shape=shape, before=(*pieces[:at], (pieces[at][0], None)), after=tuple(pieces[at + 1 :]))

    def filled(self, given: Mapping[str, Any]) -> tuple[str, str]:
        """The text before the answer and the text after it."""
        before, after = (
            "".join(literal + ("" if name is None else str(given[name])) for literal, name in part)
            for part in (self.before, self.after)
        )
        return before, after


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A question: examples, its own text, and what may be the answer."""

    examples: tuple[str, ...]
    before: str
    after: str
    answers: tuple[str, ...]

    def text(self, between: str, answer: str = "", *, after: bool = False) -> str:
        """As it is read with an answer, and with what stands behind that."""
        shown = "".join(example + between for example in self.examples)
        return shown + self.before + answer + (self.after if after else "")


class Asking:
    """A template with its words: samples become prompts."""

    def __init__(self, template: Template, settings: PromptSettings, task: Any) -> None:
        self.template, self.settings, self.task = template, settings, task
        labels = () if template.shape == "choice" else task.settings.labels
        self.words = tuple(settings.words.get(label, label) for label in labels)
        """In the order of the labels; none where each sample has choices of its own."""
        self.word = dict(zip(labels, self.words, strict=True))

    def prompt(self, given: Mapping[str, Any], shots: tuple[str, ...]) -> Prompt:
        """The question about a sample."""
        before, after = self._filled(given)
        answers = self.words or tuple(map(str, given["choices"]))
        return Prompt(examples=shots, before=before, after=after, answers=answers)

    def example(self, sample: Sample) -> str:
        """A sample with its answer."""
        before, after = self._filled(sample.given)
        right = self.word[str(sample.gold)] if self.words else str(sample.given["choices"][sample.gold])
        return before + right + after

    def empty(self, given: Mapping[str, Any], shots: tuple[str, ...]) -> list[Prompt]:
        """The same question about nothing."""
        return [
            self.prompt({**given, **{part: nothing for part in ("text", "text_b") if part in given}}, shots)
            for nothing in self.settings.content_free
        ]

    def _filled(self, given: Mapping[str, Any]) -> tuple[str, str]:
        context = {"context": self.task.context(given)} if self.template.shape == "choice" else {}
        return self.template.filled({**given, **context})


def drawn(samples: Sequence[Sample], settings: PromptSettings, *, balanced: bool) -> list[Sample]:
    """The examples: by turns one of each label where they are to be balanced, in an order of their own."""
    if settings.shots > len(samples):
        raise MeristemError(
            f"shots: {settings.shots} examples are asked for, and there are {len(samples)} to draw from"
        )
    order = [int(n) for n in generator(settings.seed, "shots", 0, 0).permutation(len(samples))]
    if balanced:
        golds = dict.fromkeys(str(samples[n].gold) for n in order)
        groups = [[n for n in order if str(samples[n].gold) == gold] for gold in golds]
        rounds = range(max(map(len, groups), default=0))
        order = [group[turn] for turn in rounds for group in groups if turn < len(group)]
    chosen = np.array(order[: settings.shots], np.int64)
    return [samples[int(n)] for n in generator(settings.seed, "shots", 0, 1).permutation(chosen)]
