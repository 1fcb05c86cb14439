"""Commands: an utterance → what is wanted (intent) and its details (slots), two heads on one encoding (SPEC C14)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from meristem.batch import Batch, Hidden, Model, Outcome
from meristem.blocks.correct import is_correct
from meristem.blocks.precision import wide
from meristem.errors import MeristemError
from meristem.metrics import entities as metrics
from meristem.metrics import labels
from meristem.task import Confusion, Indices, Metrics, Mistake, Piece, Sample
from meristem.tasks import _tagged
from meristem.tasks._reader import Framed
from meristem.tasks._reading import Pooling
from meristem.tasks._tagged import Found, Tagged
from meristem.tasks._tags import Tags, TagSettings
from meristem.tokenizers.tokenizer import Tokenizer


class CommandsSettings(TagSettings):
    """What commands can be told."""

    name: Literal["commands"] = "commands"
    """The task's name."""
    intents: tuple[str, ...] = ()
    """In the order of their scores; those of the training data."""
    intent_weight: float = Field(1.0, gt=0)
    """How much the intent counts in the loss."""
    slot_weight: float = Field(1.0, gt=0)
    """How much the slots count in the loss."""
    pooling: Pooling | None = None
    """The state that the intent is read from: the one that stands for the whole unless set; mean or max of all."""


@dataclass(frozen=True, kw_only=True)
class Understood:
    """An intent, how probable it is, and a slot tag for each word."""

    intent: str
    score: float
    slots: Tagged


class Commands(Tags):
    """p(intent | words) and p(slot | word in its text)."""

    Settings = CommandsSettings
    name = "commands"
    shape = "command"
    metric = "exact"

    def __init__(self, settings: CommandsSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        if not settings.intents:
            raise MeristemError("task commands: its intents are not known yet; they come from training data")
        self.intent_number = {intent: number for number, intent in enumerate(settings.intents)}
        kind = "scores" if settings.way == "causal" else "pooled"
        self.heads = {
            **self.reading_heads(),
            **self.tag_heads(),
            "intent": self.sized(kind, len(settings.intents)),
        }
        language = {"lm": settings.lm} if settings.lm else {}
        self.weights = {"intent": settings.intent_weight, "slots": settings.slot_weight, **language}

    @property
    def term(self) -> str:
        """Of the two terms the one of the tags."""
        return "slots"

    # ------------------------------------------------------------ what data tell

    @staticmethod
    def tags_of(sample: Sample) -> Sequence[str] | None:
        """The gold is an intent and tags."""
        return None if sample.gold is None else sample.gold[1]

    @classmethod
    def learn(cls, settings: CommandsSettings, samples: Sequence[Sample]) -> Any:
        """The intents, by name, and the tags."""
        found = Counter(str(sample.gold[0]) for sample in samples if sample.gold is not None)
        if len(found) < 2:
            raise MeristemError(f"data.intent: every training sample has the intent {next(iter(found), None)!r}")
        told = super().learn(settings, samples)
        return told.model_copy(update={"intents": settings.intents or tuple(sorted(found))})

    def strange(self, samples: Sequence[Sample]) -> list[str]:
        """Intents and tags that training data do not have."""
        where: dict[str, list[str]] = {}
        for sample in samples:
            if sample.gold is not None and sample.gold[0] not in self.intent_number:
                where.setdefault(str(sample.gold[0]), []).append(sample.place)
        return [
            *(
                f"{found[0]}: the intent {intent!r} does not occur in training data; "
                f"its {len(found)} samples can only be got wrong"
                for intent, found in where.items()
            ),
            *super().strange(samples),
        ]

    # ------------------------------------------------------------ learning

    def whole(self, sample: Sample, *, first: bool) -> dict[str, Any]:
        """The number of the intent, which the first window tells."""
        known = first and sample.gold is not None
        return {"intent": self.intent_number.get(sample.gold[0]) if known else None}

    def beside(self, framed: Framed, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Where the intent is read, and what it is."""
        at = np.array([framed.summary])
        told = {} if parts["intent"] is None else {"intent": {"at": at, "values": np.array([parts["intent"]])}}
        return {"whole": {"at": at}, **told}

    def _intents(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        rows = self.pooled(hidden, batch, self.settings.pooling, batch.goals["whole"]["at"])
        return wide(model.heads["intent"](rows))

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the intent, and −log p of the slots."""
        scores, goal = self._intents(model, hidden, batch), batch.goals.get("intent")
        slots, _ = self.tags_lost(model, hidden, batch)
        outcome = Outcome(sums={"intent": scores.sum() * 0.0, "slots": slots})
        none = torch.tensor(0.0, device=scores.device)
        outcome.metrics["intent_accuracy"] = (none, none)  # of every process, also of one with later windows alone
        if goal is not None:
            scores = scores[goal["at"] // batch.inputs["tokens"].shape[1]]
            outcome.sums["intent"] = F.cross_entropy(scores, goal["values"], reduction="sum")
            right = is_correct(scores, goal["values"]).sum().float()
            outcome.metrics["intent_accuracy"] = (right, torch.tensor(float(len(scores)), device=right.device))
        return self.with_lm(model, hidden, batch, outcome)

    # ------------------------------------------------------------ answers

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[tuple[int, float, Found]]:
        """An intent and tags for each window."""
        chances, best = self._intents(model, hidden, batch).softmax(1).max(1)
        return list(zip(best.tolist(), chances.tolist(), self.tags_found(model, hidden, batch), strict=True))

    def gather(self, samples: Sequence[Sample], pieces: Sequence[Piece], candidates: Sequence[Any]) -> list[Understood]:
        """The intent of a sample's first window, and the tags of all."""
        slots = self.tagged(samples, pieces, [found for _, _, found in candidates])
        firsts = {
            piece.sample: (self.settings.intents[intent], score)
            for piece, (intent, score, _) in zip(pieces, candidates, strict=True)
            if piece.parts["first"]
        }
        return [
            Understood(intent=firsts[number][0], score=firsts[number][1], slots=tags)
            for number, tags in enumerate(slots)
        ]

    def score(self, answers: Sequence[Understood], samples: Sequence[Sample]) -> Metrics:
        """Intents right, F1 of slots by seqeval (accuracy of plain tags), and samples of which all is right."""
        return self.resampled(answers, samples)(np.arange(len(samples)))

    def resampled(self, answers: Sequence[Understood], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """The same from each sample's counts."""
        golds, said = _tagged.judged([one.slots.tags for one in answers], [sample.gold[1] for sample in samples])
        intents = np.array([one.intent == sample.gold[0] for one, sample in zip(answers, samples, strict=True)], float)
        whole = intents * np.array([gold == answer for gold, answer in zip(golds, said, strict=True)], float)
        slots, name = metrics.resampled(golds, said, entities=self.entities), "f1" if self.entities else "accuracy"

        def measure(at: Indices) -> Metrics:
            return {
                "intent_accuracy": float(intents[at].mean()),
                f"slot_{name}": slots(at)[name],
                "exact": float(whole[at].mean()),
            }

        return measure

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Samples that hold a slot."""
        return {"slot_f1": metrics.support([sample.gold[1] for sample in samples])["f1"]} if self.entities else {}

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The commonest intent, and each word's own commonest tag."""
        intents = labels.baselines("single", [one.gold[0] for one in train], [one.gold[0] for one in samples], ())
        known, golds = ([(one.given["words"], one.gold[1]) for one in some] for some in (train, samples))
        slots, name = _tagged.baselines(known, golds, entities=self.entities), "f1" if self.entities else "accuracy"
        found = {said: {"intent_accuracy": one["accuracy"]} for said, one in intents.items()}
        return found | {said: {f"slot_{name}": one[name]} for said, one in slots.items()}

    def confusion(self, answers: Sequence[Understood], samples: Sequence[Sample]) -> Confusion | None:
        """Intent by intent."""
        return _tagged.confusion([[one.intent] for one in answers], [[one.gold[0]] for one in samples], entities=False)

    def mistakes(self, answers: Sequence[Understood], samples: Sequence[Sample]) -> list[Mistake]:
        """Wrong intents and wrong slots, the surest first."""
        wrong = [
            Mistake(
                place=sample.place,
                given=str(sample.given["text"]),
                gold=str(sample.gold[0]),
                said=one.intent,
                confidence=one.score,
            )
            for one, sample in zip(answers, samples, strict=True)
            if one.intent != sample.gold[0]
        ]
        slots = _tagged.mistakes([one.slots for one in answers], samples, [sample.gold[1] for sample in samples])
        return sorted([*wrong, *slots], key=lambda one: -one.confidence)

    def shown(self, answer: Understood, sample: Sample) -> dict[str, Any]:
        """{intent, score, slots}; slots as tagging shows them."""
        slots = _tagged.shown(answer.slots, sample, entities=self.entities)
        return {"intent": answer.intent, "score": answer.score, "slots": slots}

    def told(self, sample: Sample) -> str:
        """The intent, then each word with its tag."""
        return f"{sample.gold[0] if sample.gold is not None else ''}: {super().told(sample)}"
