"""Choice: of several answers the one that fits a context, each scored beside it (SPEC C5)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from meristem.batch import Batch, Draws, Hidden, Model, Outcome, Row
from meristem.blocks.correct import is_correct
from meristem.blocks.precision import wide
from meristem.errors import MeristemError
from meristem.task import Indices, Metrics, Mistake, Piece, Sample
from meristem.tasks._reading import Pooling, Reading, ReadingSettings
from meristem.tasks._sharing import shares
from meristem.tokenizers.tokenizer import Tokenizer

Answer = NDArray[np.float32]
"""A probability for each choice of the sample."""
JOINED = {"cause": "{text} because", "effect": "{text} so"}


class ChoiceSettings(ReadingSettings):
    """What a choice can be told."""

    name: Literal["choice"] = "choice"
    """The task's name."""
    choices: int = Field(2, ge=1)
    """How many a training sample has at the most."""
    joined: dict[str, str] = JOINED
    """By question, how it is put into words behind its context; COPA's causes and effects unless set."""
    pooling: Pooling | None = None
    """The state that is read: the one that stands for the whole unless set; mean or max of all."""


class Choice(Reading):
    """softmax over the choices of a sample, each scored in a row of its own."""

    Settings = ChoiceSettings
    name = "choice"
    shape = "choice"
    metric = "accuracy"

    def __init__(self, settings: ChoiceSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        kind = "scores" if settings.way == "causal" else "pooled"
        self.heads = {**self.reading_heads(), self.name: self.sized(kind, 1)}
        self.weights = self.weights_with_lm
        self.rows_per_sample = settings.choices

    @classmethod
    def learn(cls, settings: ChoiceSettings, samples: Sequence[Sample]) -> ChoiceSettings:
        """How many choices there are."""
        return settings.model_copy(update={"choices": max(len(sample.given["choices"]) for sample in samples)})

    # ------------------------------------------------------------ rows

    def context(self, given: Mapping[str, Any]) -> str:
        """What every choice stands beside: the text, and the question in words."""
        text, question = str(given["text"]), str(given.get("question") or "")
        if question not in self.settings.joined:
            return f"{text} {question}" if question else text
        template: str = self.settings.joined[question]
        return template.replace("{text}", text.rstrip().removesuffix("."))

    def pieces(self, samples: Sequence[Sample]) -> list[Piece]:
        """Each choice beside its context; what does not fit goes from the longer one, of a context its beginning."""
        for sample in samples:
            _check(sample)
        contexts = self.reader.encode([self.context(sample.given) for sample in samples], placed=False)
        every = [choice for sample in samples for choice in sample.given["choices"]]
        choices = iter(self.reader.encode(every, placed=False))
        room, out = self.reader.room(2), []
        for number, (sample, context) in enumerate(zip(samples, contexts, strict=True)):
            pairs, longest, cut = [], 0, 0
            for _ in sample.given["choices"]:
                choice = next(choices)
                sizes = len(context.ids), len(choice.ids)
                kept = shares(*sizes, room)
                pairs.append((context.cut(sizes[0] - kept[0], sizes[0]), choice.cut(0, kept[1])))
                longest, cut = max(longest, sum(kept)), max(cut, sum(sizes) - sum(kept))
            parts = {"pairs": tuple(pairs), "gold": sample.gold}
            out.append(Piece(sample=number, size=longest + self.reader.length - room, parts=parts, cut=cut))
        return out

    def prepare(self, row: Row, draw: Draws) -> list[Row]:
        """A row for each choice; the first has the gold."""
        parts: dict[str, Any] = row.notes["piece"].parts
        rows: list[Row] = []
        for number, (context, choice) in enumerate(parts["pairs"]):
            framed = self.reader.frame(context, choice)
            at = np.array([framed.summary])
            goals = {"read": {"at": at, "choice": np.array([number])}, **self.lm_goal(framed)}
            if parts["gold"] is not None and not rows:
                goals[self.name] = {"at": at, "values": np.array([parts["gold"]], np.int64)}
            notes = {**row.notes, "choice": number}
            rows.append(Row(inputs=framed.inputs, goals=goals, notes=notes, sample=row.sample))
        return rows

    # ------------------------------------------------------------ learning

    def scores(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """[samples, most choices]: one number for each row, −∞ where a sample has fewer."""
        read = batch.goals["read"]
        each: Tensor = wide(model.heads[self.name](self.pooled(hidden, batch, self.settings.pooling, read["at"])))
        table = each.new_full((len(batch.ids), max(_numbers(batch))), float("-inf"))
        return table.index_put((batch.owner, read["choice"]), each[:, 0])

    def wanted(self, batch: Batch) -> Tensor | None:
        """The positions that stand for the whole, where nothing else is read."""
        return batch.goals["read"]["at"] if self.settings.pooling is None and not self.settings.lm else None

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the right choice among those of its sample."""
        scores, goal = self.scores(model, hidden, batch), batch.goals.get(self.name)
        if goal is None:
            nothing = scores.masked_fill(scores.isinf(), 0.0).sum() * 0.0
            return self.with_lm(model, hidden, batch, Outcome(sums={self.name: nothing}))
        scores, values = scores[batch.owner[goal["at"] // batch.inputs["tokens"].shape[1]]], goal["values"]
        outcome = Outcome(sums={self.name: F.cross_entropy(scores, values, reduction="sum")})
        right = is_correct(scores, values).sum().float()
        outcome.metrics["accuracy"] = (right, torch.tensor(float(len(values)), device=right.device))
        return self.with_lm(model, hidden, batch, outcome)

    # ------------------------------------------------------------ answers

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Answer]:
        """A probability for each choice there is."""
        chances = self.scores(model, hidden, batch).softmax(1).cpu().numpy()
        return [row[:size] for row, size in zip(chances, _numbers(batch), strict=True)]

    def score(self, answers: Sequence[Answer], samples: Sequence[Sample]) -> Metrics:
        """How often the right one was chosen."""
        return {"accuracy": float(_right(answers, samples).mean())}

    def resampled(self, answers: Sequence[Answer], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """The same from what was right."""
        right = _right(answers, samples)
        return lambda at: {"accuracy": float(right[at].mean())}

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """Guessing."""
        return {"guessing": {"accuracy": float(np.mean([1 / len(sample.given["choices"]) for sample in samples]))}}

    def mistakes(self, answers: Sequence[Answer], samples: Sequence[Sample]) -> list[Mistake]:
        """Wrong choices by their probability."""
        found = [
            Mistake(
                place=sample.place,
                given=self.context(sample.given),
                gold=sample.given["choices"][sample.gold],
                said=sample.given["choices"][int(answer.argmax())],
                confidence=float(answer.max()),
            )
            for answer, sample in zip(answers, samples, strict=True)
            if int(answer.argmax()) != sample.gold
        ]
        return sorted(found, key=lambda one: -one.confidence)

    def shown(self, answer: Answer, sample: Sample) -> Any:
        """{label, choice, score}: its number, counted from 0, and its text."""
        return self.ranked(answer, sample, 1)[0]

    def ranked(self, answer: Answer, sample: Sample, top: int) -> list[Any]:
        """The likeliest choices."""
        choices, best = sample.given["choices"], np.argsort(-answer, kind="stable")[:top].tolist()
        return [{"label": number, "choice": choices[number], "score": float(answer[number])} for number in best]

    def told(self, sample: Sample) -> str:
        """The context as it is read, and the choices with the right one marked."""
        choices = (f"[{c}]" if number == sample.gold else c for number, c in enumerate(sample.given["choices"]))
        return f"{self.context(sample.given)}  →  {' | '.join(choices)}"

    def asked(self, given: str | Mapping[str, Any]) -> Sample:
        """A text and its choices by their names; a question may stand beside them."""
        named = {} if isinstance(given, str) else given
        choices = named.get("choices")
        if not isinstance(named.get("text"), str) or not isinstance(choices, list | tuple):
            raise MeristemError(
                'task choice reads a text and its choices: give {"text": "…", "choices": ["…", "…"]} '
                '(--choices "…" --choices "…")'
            )
        sample = Sample(
            given={
                "text": named["text"],
                "question": str(named.get("question") or ""),
                "choices": tuple(map(str, choices)),
            }
        )
        _check(sample)
        return sample

    def commands(self, place: str, sample: Sample) -> list[str]:
        """The choice as it would be typed."""
        choices = " ".join(f"--choices {shlex.quote(choice)}" for choice in sample.given["choices"])
        question = f" --question {shlex.quote(sample.given['question'])}" if sample.given.get("question") else ""
        return [f"meristem predict {place} {shlex.quote(sample.given['text'])}{question} {choices}"]


def _check(sample: Sample) -> None:
    """Refuse what cannot be chosen from."""
    where, number = f"{sample.place}: " if sample.place else "", len(sample.given["choices"])
    if not number:
        raise MeristemError(f"{where}there are no choices")
    if sample.gold is not None and not 0 <= sample.gold < number:
        raise MeristemError(f"{where}the right choice is number {sample.gold}, and there are 0 to {number - 1}")


def _numbers(batch: Batch) -> list[int]:
    """How many choices each sample has."""
    return [len(note["piece"].parts["pairs"]) for note in batch.notes if note["choice"] == 0]


def _right(answers: Sequence[Answer], samples: Sequence[Sample]) -> NDArray[np.bool_]:
    return np.array([int(a.argmax()) == s.gold for a, s in zip(answers, samples, strict=True)])
