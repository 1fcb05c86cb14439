"""What tasks share whose answer is a text: the pretraining loss over labelled samples, and beam search."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from meristem.batch import Array, Batch, Draws, Head, Hidden, Model, Outcome, Row, State, collate
from meristem.blocks.vocabulary import VocabularyHead
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.generation.laid import Laid, OneLine, TwoSides
from meristem.generation.sampling import SamplingSettings
from meristem.generation.write import write_from
from meristem.learning.ragged import groups
from meristem.metrics import writing as metrics
from meristem.objectives.clm import CLM, CLMSettings
from meristem.objectives.seq2seq import Seq2Seq, Seq2SeqSettings
from meristem.randomness import Draw
from meristem.settings import Settings
from meristem.task import Indices, Metrics, Mistake, Piece, Sample, Task
from meristem.tasks._reader import MARKS, marked
from meristem.tokenizers.tokenizer import Tokenizer

TOKENS = 8192
"""Read at once where targets are measured."""


class WritingSettings(Settings):
    """What every task that writes can be told."""

    needs: ClassVar[Dependences] = {
        "begin": (when("way", None, "encoder_decoder"),),
        "lm": (when("way", None, "causal"),),
        "length_penalty": (when("beams", above=1),),
    }

    way: Literal["encoder_decoder", "causal"] | None = None
    """From source to target, or both in one line; what the family does unless set."""
    length: int | None = Field(None, ge=4)
    """Tokens of a source, and of a target (causal: of both in one line), at the most; the model's length unless set."""
    begin: tuple[int, ...] = ()
    """Tokens that targets begin after; as it was pretrained unless set."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of probability spread over the whole vocabulary while it learns (ε in Szegedy et al. 2016)."""
    lm: float = Field(0.0, ge=0)
    """λ in task + λ · language model over source and target, for causal models (Radford et al. 2018: 0.5)."""
    beams: int = Field(4, ge=1)
    """Texts followed side by side when an answer is written; 1 takes the likeliest token each time."""
    length_penalty: float = Field(1.0, ge=0)
    """Beams are ranked by log-probability / tokens ** this; 0 favours short texts."""
    max_tokens: int = Field(128, ge=1)
    """Tokens of an answer at the most; a causal model keeps half of its length for the source."""
    min_tokens: int = Field(0, ge=0)
    """An answer does not end before it has this many tokens."""
    no_repeat: int | None = Field(None, ge=1)
    """No run of so many tokens stands twice in an answer: 3 means no trigram."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """What was written for one sample: the texts of all beams, the best first."""

    texts: tuple[str, ...]
    logprobs: tuple[float, ...]
    """Of each text, its end included."""
    tokens: tuple[int, ...]
    """How many each text has, its end included."""
    loss: float = 0.0
    """−log p(gold | given), summed over its tokens, where it was asked for."""
    gold_tokens: int = 0

    @property
    def text(self) -> str:
        """The best one."""
        return self.texts[0]

    @property
    def confidence(self) -> float:
        """The geometric mean of its tokens' probabilities."""
        return math.exp(self.logprobs[0] / max(1, self.tokens[0]))


class Writing(Task):
    """p(target | source), learned from the first gold of each sample and answered by beam search."""

    shape = "written"
    ways = frozenset({"encoder_decoder", "causal"})
    metric = "loss"
    shows: ClassVar[str] = "generated_text"
    """What transformers' pipelines call such an answer."""

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        if settings.way is None or settings.length is None:
            raise MeristemError(f"task {settings.name}: how the model reads is not known yet; it comes from its family")
        if settings.lm and settings.way != "causal":
            raise MeristemError(
                f"task.lm: only causal models predict the words of a source; this one is {settings.way}"
            )
        self.settings, self.tokenizer = settings, tokenizer
        self.laid: Laid = self._layout(settings, tokenizer)
        objective = self.laid.objective
        self.heads: Mapping[str, Head] = objective.heads
        self.weights = {**objective.weights, **({"lm": settings.lm} if settings.lm else {})}
        self.begin_ids = objective.begin_ids
        self.source_kinds = objective.source_kinds
        told = {name: getattr(settings, name) for name in ("beams", "length_penalty", "min_tokens", "no_repeat")}
        self.sampling = SamplingSettings.model_validate(
            {**told, "greedy": settings.beams == 1, "early": True, "max_tokens": self.laid.most}
        )

    def _layout(self, s: Any, tokenizer: Tokenizer) -> Laid:
        if s.way == "causal":
            clm = CLMSettings.model_validate({"label_smoothing": s.label_smoothing})
            return OneLine(CLM(clm, tokenizer), tokenizer, s.length, s.max_tokens)
        written = Seq2SeqSettings.model_validate({"label_smoothing": s.label_smoothing, "begin": s.begin or ("start",)})
        return TwoSides(Seq2Seq(written, tokenizer), tokenizer, s.length, s.max_tokens)

    @classmethod
    def marks(cls, settings: Any, tokenizer: Tokenizer) -> Tokenizer:
        """Start, delimiter and extract for causal models; a run that has them keeps them."""
        known = tokenizer.id(MARKS[-1]) is not None
        return marked(tokenizer) if settings.way == "causal" and not known else tokenizer

    @classmethod
    def texts(cls, sample: Sample) -> list[str]:
        """Both sides."""
        return [*super().texts(sample), *(sample.gold or ())]

    # ------------------------------------------------------------ pieces and rows

    def given(self, sample: Sample) -> Sequence[str]:
        """The texts of a source, in order."""
        return [sample.given["source"]]

    def kept(self, parts: Sequence[Array], room: int) -> tuple[Array, int]:
        """As much of a source as fits, and how many tokens are lost: all but its beginning."""
        return parts[0][:room], max(0, len(parts[0]) - room)

    def pieces(self, samples: Sequence[Sample]) -> list[Piece]:
        """Each source and its first gold, as far as they fit."""
        each = [self.given(sample) for sample in samples]
        ids = iter(self.tokenizer.ids_many([text for some in each for text in some]))
        sources = [[next(ids).astype(np.int64) for _ in some] for some in each]
        out = []
        for number, (parts, target) in enumerate(zip(sources, self.targets(samples), strict=True)):
            source, lost = self.kept(parts, self.laid.room)
            piece = self.laid.piece(number, source, target)
            out.append(replace(piece, cut=piece.cut + lost))
        return out

    def targets(self, samples: Sequence[Sample]) -> list[Array | None]:
        """The first gold of each sample as ids, where it has one."""
        golds = [sample.gold[0] if sample.gold else None for sample in samples]
        ids = iter(self.tokenizer.ids_many([gold for gold in golds if gold is not None]))
        return [None if gold is None else next(ids).astype(np.int64) for gold in golds]

    def prepare(self, row: Row, draw: Draws) -> Row:
        """A row as in pretraining; source and target stand where the backbone wants them."""
        made = self.laid.row(row, draw)
        every = made.goals.pop("every", None)
        if self.settings.lm and every is not None:
            made.goals["lm"] = every
        return made

    # ------------------------------------------------------------ learning

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """The backbone; a causal one's last layer only where targets are predicted."""
        if self.settings.way != "causal":
            return self.laid.objective.encode(model, batch)
        goal = batch.goals.get(self.laid.term)
        only = model.backbone.picks and goal is not None and not self.settings.lm
        told = {"wanted": goal["at"]} if only and goal is not None else {}
        return model.backbone(causal=True, **batch.inputs, **told)  # type: ignore[no-any-return]  # nn.Module.__call__

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the targets; no memory goes on from one batch of samples to the next."""
        outcome = replace(self.laid.objective.loss(model, hidden, batch), state={})
        if self.settings.lm:
            goal = batch.goals["lm"]
            outcome.sums["lm"] = self._head(model).judge(hidden.at(goal["at"]), goal["values"]).total
        return outcome

    def _head(self, model: Model) -> VocabularyHead:
        head = model.heads[next(iter(self.heads))]
        assert isinstance(head, VocabularyHead)
        return head

    # ------------------------------------------------------------ answers

    def write(self, model: Model, samples: Sequence[Sample]) -> list[Said]:
        """The texts of a beam search, sources of like lengths side by side."""
        starts = [self.laid.start(piece) for piece in self.pieces(samples)]
        found = write_from(model, self.tokenizer, starts, self.sampling, count=self.settings.beams, end=self.laid.end)
        return [
            Said(
                texts=tuple(self.tokenizer.decode(one.tokens).strip() for one in some),
                logprobs=tuple(one.score for one in some),
                tokens=tuple(len(one.tokens) + (one.finished == "end") for one in some),
            )
            for some in found
        ]

    def measured(self, model: Model, samples: Sequence[Sample]) -> Iterator[tuple[float, int]]:
        """Per sample −log p(gold | given) and over how many tokens, in one pass."""
        pieces = self.pieces(samples)
        found = np.zeros((len(pieces), 2))
        for some in groups(pieces, TOKENS):
            rows = [self.prepare(Row(inputs={}, notes={"piece": pieces[n]}), Draw(0, 0, n)) for n in some]
            batch = collate(rows, self, {}).to(model.device)
            goal = batch.goals.get(self.laid.term)
            if goal is not None:
                hidden = self.encode(model, batch)
                each = self._head(model).judge(hidden.at(goal["at"]), goal["values"]).each_N.double().cpu().numpy()
                row = (goal["at"] // batch.inputs["tokens"].shape[1]).cpu().numpy()
                np.add.at(found, np.array(some)[row], np.stack([each, np.ones_like(each)], 1))
        return ((loss, int(number)) for loss, number in found.tolist())

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Any]:
        """Nothing is read off: `write` answers."""
        return [None] * len(batch.ids)

    def score(self, answers: Sequence[Said], samples: Sequence[Sample]) -> Metrics:
        """What people cite of the best texts."""
        return self.resampled(answers, samples)(np.arange(len(answers)))

    def resampled(self, answers: Sequence[Said], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """BLEU and chrF."""
        return metrics.translation_resampled([sample.gold for sample in samples], [one.text for one in answers])

    def signature(self, samples: Sequence[Sample]) -> str:
        """sacrebleu's."""
        return metrics.signature([sample.gold for sample in samples])

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The text that training has most often, whatever is given."""
        often = Counter(gold for sample in train for gold in sample.gold or ()).most_common(1)[0][0]
        golds = [sample.gold for sample in samples]
        return {"always the commonest text": metrics.translation(golds, [often] * len(golds))}

    def mistakes(self, answers: Sequence[Said], samples: Sequence[Sample]) -> list[Mistake]:
        """Texts that are none of the golds, the likeliest first."""
        found = [
            Mistake(
                place=sample.place,
                given=" | ".join(self.given(sample)),
                gold=" | ".join(sample.gold),
                said=answer.text,
                confidence=answer.confidence,
            )
            for answer, sample in zip(answers, samples, strict=True)
            if answer.text not in [gold.strip() for gold in sample.gold]
        ]
        return sorted(found, key=lambda one: -one.confidence)

    def shown(self, answer: Said, sample: Sample) -> Any:
        """{"translation_text": …}, as pipelines have it."""
        return {self.shows: answer.text}

    def ranked(self, answer: Said, sample: Sample, top: int) -> list[Any]:
        """The texts of all beams, each with its log-probability."""
        pairs = zip(answer.texts, answer.logprobs, strict=True)
        return [{self.shows: text, "logprob": logprob} for text, logprob in pairs][:top]

    def told(self, sample: Sample) -> str:
        """Source and first gold."""
        return f"{' | '.join(self.given(sample))}  →  {(sample.gold or ('?',))[0]}"

    def asked(self, given: str | Mapping[str, Any]) -> Sample:
        """A text, or a mapping with `source` (`text` will do)."""
        if isinstance(given, str):
            return Sample(given={"source": given})
        source = given.get("source", given.get("text"))
        if not isinstance(source, str):
            raise MeristemError(f"{self.name} writes from one text: give it as such, or as source=…, not {given!r}")
        return Sample(given={"source": source})
