"""Base of text generation tasks (translation, summarization, …): sequence-to-sequence loss and beam search."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.dataset.length_buckets import length_batches
from meristem.generation.generate import generate_from_inputs
from meristem.generation.sampling import SamplingSettings
from meristem.generation.source_target_layout import CausalLayout, EncoderDecoderLayout, SourceTargetLayout
from meristem.inputs.batch import Array, Batch, RngFactory, Row, collate
from meristem.inputs.template import InputTemplate, add_task_tokens
from meristem.interfaces.backbone import Head, Hidden, Model, State
from meristem.interfaces.objective import Outcome
from meristem.interfaces.task import Indices, Metrics, Mistake, Sample, SamplePiece, Task
from meristem.metrics import bleu_rouge as metrics
from meristem.objectives.clm import CLMObjective, CLMObjectiveSettings
from meristem.objectives.seq2seq import Seq2SeqObjective, Seq2SeqObjectiveSettings
from meristem.tasks.settings import TaskSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

MAX_TOKENS_PER_PASS = 8192
"""Tokens of one forward pass when the loss of the references is computed."""


class GenerationTaskSettings(TaskSettings):
    """Settings of every text generation task."""

    renamed: ClassVar[dict[str, str]] = {
        "way": "backbone_mode",
        "length": "max_length",
        "begin": "decoder_start_ids",
        "lm": "lm_weight",
        "no_repeat": "no_repeat_ngram_size",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "num_beams": "beams",
        "max_new_tokens": "max_tokens",
        "min_new_tokens": "min_tokens",
    }

    needs: ClassVar[SettingConditions] = {
        "decoder_start_ids": (when("backbone_mode", None, "encoder_decoder"),),
        "lm_weight": (when("backbone_mode", None, "causal"),),
        "length_penalty": (when("beams", above=1),),
    }

    backbone_mode: Literal["encoder_decoder", "causal"] | None = None
    """Encoder-decoder, or source and target in one causal sequence; that of the model family if not set."""
    max_length: int | None = Field(None, ge=4)
    """Maximum tokens of a source and of a target (causal: of both); the model's maximum length if not set."""
    decoder_start_ids: tuple[int, ...] = ()
    """Decoder start tokens; as in pretraining if not set."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Label smoothing ε (Szegedy et al. 2016)."""
    lm_weight: float = Field(0.0, ge=0)
    """Weight λ of the auxiliary LM loss over source and target, for causal models (Radford et al. 2018: 0.5)."""
    beams: int = Field(4, ge=1)
    """Beam size; 1 is greedy decoding."""
    length_penalty: float = Field(1.0, ge=0)
    """Beams are ranked by log-probability / tokens ** length_penalty; 0 favours short texts."""
    max_tokens: int = Field(128, ge=1)
    """Maximum tokens of a generated text; a causal model keeps half of its length for the source."""
    min_tokens: int = Field(0, ge=0)
    """Minimum tokens of a generated text."""
    no_repeat_ngram_size: int | None = Field(None, ge=1)
    """Size of n-grams that may not repeat in a generated text: 3 forbids repeated trigrams."""


@dataclass(frozen=True, kw_only=True)
class GeneratedAnswer:
    """The generated texts of one sample, one for each beam, best first."""

    texts: tuple[str, ...]
    logprobs: tuple[float, ...]
    """Log-probability of each text, end token included."""
    tokens: tuple[int, ...]
    """Number of tokens of each text, end token included."""
    loss: float = 0.0
    """−log p(gold | source), summed over its tokens, if it was computed."""
    gold_tokens: int = 0

    @property
    def text(self) -> str:
        """The best text."""
        return self.texts[0]

    @property
    def confidence(self) -> float:
        """The geometric mean of the token probabilities of the best text."""
        return math.exp(self.logprobs[0] / max(1, self.tokens[0]))


class GenerationTask(Task):
    """p(target | source), trained on the first gold of each sample and decoded by beam search."""

    sample_type = "source_target"
    requires_any = frozenset({"encoder_decoder", "causal"})
    metric = "loss"
    output_key: ClassVar[str] = "generated_text"
    """The key of the text in transformers' pipelines."""

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        if settings.backbone_mode is None or settings.max_length is None:
            raise MeristemError(
                f"task {settings.name}: task.backbone_mode and task.max_length are not set; they come from the model"
            )
        if settings.lm_weight and settings.backbone_mode != "causal":
            raise MeristemError(
                "task.lm_weight: only causal models have a language-model loss over the source; this one is "
                f"{settings.backbone_mode}"
            )
        self.settings, self.tokenizer = settings, tokenizer
        if self.sample_type != "picture":
            self.template = InputTemplate(
                tokenizer,
                settings.backbone_mode,
                settings.max_length,
                decoder_start_ids=settings.decoder_start_ids,
                closes_cut_texts=settings.backbone_mode == "causal",
            )
        self.layout: SourceTargetLayout = self._build_layout(settings, tokenizer)
        objective = self.layout.objective
        self.heads: Mapping[str, Head] = objective.heads
        self.loss_weights = {**objective.loss_weights, **({"lm": settings.lm_weight} if settings.lm_weight else {})}
        self.decoder_start_ids = objective.decoder_start_ids
        self.source_kinds = objective.source_kinds
        sampling = {
            name: getattr(settings, name) for name in ("beams", "length_penalty", "min_tokens", "no_repeat_ngram_size")
        }
        self.sampling = SamplingSettings.model_validate(
            {
                **sampling,
                "greedy": settings.beams == 1,
                "early_stopping": True,
                "max_tokens": self.layout.max_target_tokens,
            }
        )

    def _build_layout(self, settings: Any, tokenizer: Tokenizer) -> SourceTargetLayout:
        if settings.backbone_mode == "causal":
            clm = CLMObjectiveSettings.model_validate({"label_smoothing": settings.label_smoothing})
            return CausalLayout(CLMObjective(clm, tokenizer), tokenizer, settings.max_length, settings.max_tokens)
        written = Seq2SeqObjectiveSettings.model_validate(
            {"label_smoothing": settings.label_smoothing, "start_tokens": settings.decoder_start_ids or ("start",)}
        )
        return EncoderDecoderLayout(
            Seq2SeqObjective(written, tokenizer), tokenizer, settings.max_length, settings.max_tokens
        )

    @classmethod
    def extend_tokenizer(cls, settings: Any, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with start, delimiter and extract tokens for causal models, unless it has them already."""
        return add_task_tokens(tokenizer) if settings.backbone_mode == "causal" else tokenizer

    @classmethod
    def sample_texts(cls, sample: Sample) -> list[str]:
        """Sources and targets."""
        return [*super().sample_texts(sample), *(sample.gold or ())]

    # ------------------------------------------------------------ pieces and rows

    def source_texts(self, sample: Sample) -> Sequence[str]:
        """The texts of a source, in order."""
        return [sample.inputs["source"]]

    def truncate_source(self, parts: Sequence[Array], max_tokens: int) -> tuple[Array, int]:
        """The beginning of a source that fits, and the number of tokens truncated."""
        return parts[0][:max_tokens], max(0, len(parts[0]) - max_tokens)

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Each source and its first gold, truncated."""
        each = [self.source_texts(sample) for sample in samples]
        ids = iter(self.tokenizer.encode_ids([text for some in each for text in some]))
        sources = [[next(ids).astype(np.int64) for _ in some] for some in each]
        out = []
        for number, (parts, target) in enumerate(zip(sources, self.target_ids(samples), strict=True)):
            source, lost = self.truncate_source(parts, self.layout.max_source_tokens)
            piece = self.layout.build_piece(number, source, target)
            out.append(replace(piece, num_truncated=piece.num_truncated + lost))
        return out

    def target_ids(self, samples: Sequence[Sample]) -> list[Array | None]:
        """The ids of each sample's first gold; None where it has none."""
        golds = [sample.gold[0] if sample.gold else None for sample in samples]
        ids = iter(self.tokenizer.encode_ids([gold for gold in golds if gold is not None]))
        return [None if gold is None else next(ids).astype(np.int64) for gold in golds]

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """A model input row, laid out as in pretraining."""
        made = self.layout.build_row(row, draw)
        every = made.targets.pop("every", None)
        if self.settings.lm_weight and every is not None:
            made.targets["lm"] = every
        return made

    # ------------------------------------------------------------ training

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Backbone states; a causal backbone computes the last layer only at target positions."""
        if self.settings.backbone_mode != "causal":
            return self.layout.objective.encode(model, batch)
        goal = batch.targets.get(self.layout.term)
        only = model.backbone.supports_output_positions and goal is not None and not self.settings.lm_weight
        extra_inputs = {"output_positions": goal["at"]} if only and goal is not None else {}
        return model.backbone(causal=True, **batch.inputs, **extra_inputs)  # type: ignore[no-any-return]  # nn.Module.__call__

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the targets; no segment memory is carried between batches of samples."""
        outcome = replace(self.layout.objective.loss(model, hidden, batch), state={})
        if self.settings.lm_weight:
            goal = batch.targets["lm"]
            outcome.loss_sums["lm"] = (
                self._vocabulary_head(model).compute_loss(hidden.select(goal["at"]), goal["values"]).total
            )
        return outcome

    def _vocabulary_head(self, model: Model) -> VocabularyHead:
        head = model.heads[next(iter(self.heads))]
        assert isinstance(head, VocabularyHead)
        return head

    # ------------------------------------------------------------ predictions

    def generate(self, model: Model, samples: Sequence[Sample]) -> list[GeneratedAnswer]:
        """The texts found by beam search, with sources batched by length."""
        starts = [self.layout.generation_inputs(piece) for piece in self.encode_samples(samples)]
        found = generate_from_inputs(
            model, self.tokenizer, starts, self.sampling, count=self.settings.beams, end_id=self.layout.end_id
        )
        return [
            GeneratedAnswer(
                texts=tuple(self.tokenizer.decode(one.tokens).strip() for one in some),
                logprobs=tuple(one.score for one in some),
                tokens=tuple(len(one.tokens) + (one.finished == "end") for one in some),
            )
            for some in found
        ]

    def gold_losses(self, model: Model, samples: Sequence[Sample]) -> Iterator[tuple[float, int]]:
        """−log p(gold | source) of each sample, and its number of tokens."""
        pieces = self.encode_samples(samples)
        found = np.zeros((len(pieces), 2))
        for some in length_batches([piece.num_tokens for piece in pieces], max_tokens=MAX_TOKENS_PER_PASS):
            rows = [self.prepare(Row(inputs={}, metadata={"piece": pieces[n]}), SampleRng(0, 0, n)) for n in some]
            batch = collate(rows, self, {}).to(model.device)
            goal = batch.targets.get(self.layout.term)
            if goal is not None:
                hidden = self.encode(model, batch)
                each = (
                    self._vocabulary_head(model)
                    .compute_loss(hidden.select(goal["at"]), goal["values"])
                    .losses_N.double()
                    .cpu()
                    .numpy()
                )
                row = (goal["at"] // batch.inputs["tokens"].shape[1]).cpu().numpy()
                np.add.at(found, np.array(some)[row], np.stack([each, np.ones_like(each)], 1))
        return ((loss, int(number)) for loss, number in found.tolist())

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Any]:
        """None for each sample: predictions come from `generate`."""
        return [None] * len(batch.sample_ids)

    def compute_metrics(self, predictions: Sequence[GeneratedAnswer], samples: Sequence[Sample]) -> Metrics:
        """Metrics of the best texts."""
        return self.bootstrap_metrics(predictions, samples)(np.arange(len(predictions)))

    def bootstrap_metrics(
        self, predictions: Sequence[GeneratedAnswer], samples: Sequence[Sample]
    ) -> Callable[[Indices], Metrics]:
        """BLEU and chrF."""
        return metrics.translation_resampler([sample.gold for sample in samples], [one.text for one in predictions])

    def metric_signature(self, samples: Sequence[Sample]) -> str:
        """The sacrebleu signature."""
        return metrics.sacrebleu_signature([sample.gold for sample in samples])

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The most frequent training target for every source."""
        often = Counter(gold for sample in train for gold in sample.gold or ()).most_common(1)[0][0]
        golds = [sample.gold for sample in samples]
        return {"always the commonest text": metrics.translation_metrics(golds, [often] * len(golds))}

    def mistakes(self, predictions: Sequence[GeneratedAnswer], samples: Sequence[Sample]) -> list[Mistake]:
        """Texts that equal none of the golds, most confident first."""
        found = [
            Mistake(
                location=sample.location,
                input_text=" | ".join(self.source_texts(sample)),
                gold=" | ".join(sample.gold),
                prediction=answer.text,
                confidence=answer.confidence,
            )
            for answer, sample in zip(predictions, samples, strict=True)
            if answer.text not in [gold.strip() for gold in sample.gold]
        ]
        return sorted(found, key=lambda one: -one.confidence)

    def format_output(self, prediction: GeneratedAnswer, sample: Sample) -> Any:
        """{"translation_text": …}, as in transformers' pipelines."""
        return {self.output_key: prediction.text}

    def format_top_outputs(self, prediction: GeneratedAnswer, sample: Sample, top: int) -> list[Any]:
        """The texts of all beams, each with its log-probability."""
        pairs = zip(prediction.texts, prediction.logprobs, strict=True)
        return [{self.output_key: text, "logprob": logprob} for text, logprob in pairs][:top]

    def describe_sample(self, sample: Sample) -> str:
        """Source and first gold."""
        return f"{' | '.join(self.source_texts(sample))}  →  {(sample.gold or ('?',))[0]}"

    def parse_input(self, value: str | Mapping[str, Any]) -> Sample:
        """A text, or a mapping with `source` (or `text`)."""
        if isinstance(value, str):
            return Sample(inputs={"source": value})
        source = value.get("source", value.get("text"))
        if not isinstance(source, str):
            raise MeristemError(f"{self.name} takes one text: give it as a string or as source=…, not {value!r}")
        return Sample(inputs={"source": source})
