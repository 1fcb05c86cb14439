"""Probe: what each layer of a frozen model knows of words or texts, by a linear classifier on each (SPEC C11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from meristem.batch import Batch, Head, Hidden, Model, Outcome, State
from meristem.blocks.precision import wide
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.metrics.bootstrap import totals
from meristem.task import Confusion, Indices, Metrics, Mistake, Piece, Sample
from meristem.tasks import _tagged
from meristem.tasks._tagged import UNTOLD, Found, Tagged
from meristem.tasks._word_rows import Words, WordSettings
from meristem.tokenizers.tokenizer import Tokenizer


class ProbeSettings(WordSettings):
    """What probe can be told."""

    needs: ClassVar[Dependences] = {
        "read": (when("on", "words"),),
        "stride": (when("on", "words"),),
    }

    name: Literal["probe"] = "probe"
    """The task's name."""
    on: Literal["words", "text"] = "words"
    """What has a label: each word (those tagged `_` are left out), or the text, read as the mean of its states."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the states that is dropped before the classifiers."""

    @model_validator(mode="after")
    def _bare(self) -> Self:
        if self.lm or self.mix or self.mix_again or self.network != "none" or self.word_embedding_size:
            raise ValueError(
                "a probe looks at layers as they are: lm, mix, mix_again, network and word_embedding_size have no "
                "place here"
            )
        return self


@dataclass(frozen=True, kw_only=True)
class Probed:
    """What each layer says of a sample's words, embeddings first."""

    layers: tuple[Tagged, ...]


class Probe(Words):
    """p(label | one layer's state), every layer with a classifier of its own; the model itself learns nothing."""

    Settings = ProbeSettings
    name = "probe"
    metric = "accuracy"

    def __init__(self, settings: ProbeSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        self.shape = self.shaped(settings)
        self.heads = {self.name: Head("probes", (("classes", len(settings.labels)),))}
        self.weights = {self.name: 1.0}

    # ------------------------------------------------------------ what data tell

    @classmethod
    def shaped(cls, settings: Any) -> str:
        """Words with tags, or texts with a label."""
        return str(settings.on)

    @staticmethod
    def tags_of(sample: Sample) -> Sequence[str] | None:
        """The tags of the words, or the one label of the text."""
        if sample.gold is None or "words" in sample.given:
            return Words.tags_of(sample)
        if isinstance(sample.gold, list | tuple):
            raise MeristemError(f"{sample.place}: a probe tells one label from others, and this text has several")
        return (str(sample.gold),)

    def pieces(self, samples: Sequence[Sample]) -> list[Piece]:
        """Windows of words; of a text its beginning, as far as it fits."""
        return super().pieces([_worded(sample) for sample in samples])

    # ------------------------------------------------------------ learning

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Every layer of the resting backbone; no gradient reaches it."""
        backbone, told = model.backbone, {"causal": True} if self.settings.way == "causal" else {}
        training = backbone.training
        backbone.eval()
        with torch.no_grad():
            hidden: Hidden = backbone(**batch.inputs, **told, want=("layers",))
        backbone.train(training)
        hidden.layers = hidden.extra.get("encoder_layers", hidden.layers)  # what was read, not what is written
        return hidden

    def _scores(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """[layers, n, labels] for all that is read."""
        at, time = batch.goals["read"]["at"], batch.inputs["tokens"].shape[1]
        if self.settings.on == "words":
            states = [layer.flatten(0, 1)[at] for layer in hidden.layers]
        else:
            present = batch.inputs.get("present")
            there = torch.ones_like(batch.inputs["tokens"]) if present is None else present
            share = (there / there.sum(1, keepdim=True))[..., None].to(hidden.layers[0].dtype)
            states = [(layer * share).sum(1)[at // time] for layer in hidden.layers]
        return wide(model.heads[self.name]([self._dropped(state) for state in states]))

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy, the mean over layers."""
        scores, values = self._scores(model, hidden, batch), batch.goals["read"]["values"]
        every = values.repeat(len(scores))
        lost = F.cross_entropy(scores.flatten(0, 1), every, ignore_index=-1, reduction="sum")
        return Outcome(sums={self.name: lost / len(scores)})

    # ------------------------------------------------------------ answers

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Found]:
        """[layers, words] of each window: numbers of labels, and their probabilities."""
        chances, best = self._scores(model, hidden, batch).softmax(2).max(2)
        return list(zip(*(self.split(batch, part.cpu().numpy()) for part in (best, chances)), strict=True))

    def gather(self, samples: Sequence[Sample], pieces: Sequence[Piece], candidates: Sequence[Any]) -> list[Probed]:
        """Windows made one, layer by layer."""
        worded, depth = [_worded(sample) for sample in samples], len(candidates[0][0]) if candidates else 0
        layers = [
            self.tagged(worded, pieces, [(best[layer], chances[layer]) for best, chances in candidates])
            for layer in range(depth)
        ]
        return [Probed(layers=tuple(layer[number] for layer in layers)) for number in range(len(samples))]

    def score(self, answers: Sequence[Probed], samples: Sequence[Sample]) -> Metrics:
        """Accuracy of each layer, embeddings being layer 0; which is the best, and how good that is."""
        return self.resampled(answers, samples)(np.arange(len(samples)))

    def resampled(self, answers: Sequence[Probed], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """The same from how many words of each sample each layer has right."""
        counts = np.array([self._right(one, sample) for one, sample in zip(answers, samples, strict=True)], float)

        def measure(at: Indices) -> Metrics:
            *right, words = totals(counts, at)
            found = [float(number / words) if words else 0.0 for number in right]
            named = {f"layer_{number}_accuracy": accuracy for number, accuracy in enumerate(found)}
            return {"accuracy": max(found), "best_layer": float(np.argmax(found)), **named}

        return measure

    def _right(self, answer: Probed, sample: Sample) -> list[int]:
        """Per layer how many words are right, and how many there are."""
        golds = self.tags_of(sample) or ()
        told = [at for at, gold in enumerate(golds) if gold != UNTOLD]
        return [*(sum(layer.tags[at] == golds[at] for at in told) for layer in answer.layers), len(told)]

    def _best(self, answers: Sequence[Probed], samples: Sequence[Sample]) -> tuple[list[Tagged], list[Sequence[str]]]:
        """What the best layer says, and what is right."""
        best = int(self.score(answers, samples)["best_layer"])
        return [one.layers[best] for one in answers], [self.tags_of(sample) or () for sample in samples]

    def confusion(self, answers: Sequence[Probed], samples: Sequence[Sample]) -> Confusion | None:
        """What the best layer takes for what."""
        said, golds = self._best(answers, samples)
        return _tagged.confusion([one.tags for one in said], golds, entities=False)

    def mistakes(self, answers: Sequence[Probed], samples: Sequence[Sample]) -> list[Mistake]:
        """Those of the best layer."""
        said, golds = self._best(answers, samples)
        return _tagged.mistakes(said, [_worded(sample) for sample in samples], golds)

    def shown(self, answer: Probed, sample: Sample) -> Any:
        """What each layer says, [{layer, label, score}]: of the text, or of each word [{word, start, end, layers}]."""
        sample = _worded(sample)
        said = [
            [
                {"layer": number, "label": one.tags[at], "score": one.scores[at]}
                for number, one in enumerate(answer.layers)
            ]
            for at in range(len(sample.given["words"]))
        ]
        if self.settings.on == "text":
            return said[0]
        return [
            {"word": word, "start": start, "end": end, "layers": layers}
            for word, (start, end), layers in zip(sample.given["words"], sample.given["offsets"], said, strict=True)
        ]

    def told(self, sample: Sample) -> str:
        """Each word with its tag, or the text with its label."""
        if self.settings.on == "words":
            return super().told(sample)
        return f"{sample.given['text']}  →  {sample.gold}"

    def asked(self, given: str | Mapping[str, Any]) -> Sample:
        """A text, which is cut into words where words are probed."""
        sample = super().asked(given)
        return sample if self.settings.on == "words" else Sample(given={"text": sample.given["text"]})


def _worded(sample: Sample) -> Sample:
    """A text as the one word of itself."""
    if "words" in sample.given:
        return sample
    text = str(sample.given["text"])
    return replace(sample, given={"words": (text,), "text": text, "offsets": ((0, len(text)),)})
