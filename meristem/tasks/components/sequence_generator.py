"""Sequence-to-sequence loss and beam search of text generation tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.dataset.length_buckets import length_batches
from meristem.generation.generate import generate_from_inputs
from meristem.generation.settings import SamplingSettings
from meristem.generation.source_target_layout import CausalLayout, SourceTargetLayout
from meristem.inputs.batch import Batch, Row, collate
from meristem.interfaces.backbone import Hidden, Model, State
from meristem.interfaces.objective import Outcome
from meristem.interfaces.sample import SamplePiece
from meristem.interfaces.task import Task
from meristem.interfaces.task_parts import StateReader, TaskHead
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

MAX_TOKENS_PER_PASS = 8192
"""Tokens of one forward pass when the loss of the references is computed."""


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


class SequenceStates(StateReader):
    """Decoder states, or those of a causal backbone; a causal one computes the last layer only where it is used."""

    def __init__(self, layout: SourceTargetLayout) -> None:
        self.layout, self.is_causal = layout, isinstance(layout, CausalLayout)
        self.heads = {}

    def encode(self, model: Model, batch: Batch, state: State | None = None, positions: Tensor | None = None) -> Hidden:
        """States of the targets, as in pretraining."""
        if not self.is_causal:
            return self.layout.objective.encode(model, batch)
        use_positions = model.backbone.supports_output_positions and positions is not None
        extra_inputs = {"output_positions": positions} if use_positions else {}
        return model.backbone(causal=True, **batch.inputs, **extra_inputs)  # type: ignore[no-any-return]  # nn.Module.__call__


class SequenceGenerator(TaskHead):
    """p(target | source): the pretraining objective's loss, predictions by beam search."""

    def __init__(
        self,
        states: SequenceStates,
        tokenizer: Tokenizer,
        sampling: SamplingSettings,
        *,
        count: int,
        with_gold_loss: bool = False,
    ) -> None:
        """`count` texts are generated for each sample; `with_gold_loss` also computes the loss of its reference."""
        self.states, self.layout, self.tokenizer, self.sampling = states, states.layout, tokenizer, sampling
        self.count, self.with_gold_loss = count, with_gold_loss
        objective = self.layout.objective
        self.heads, self.loss_weights = objective.heads, objective.loss_weights
        self.decoder_start_ids, self.source_kinds = objective.decoder_start_ids, objective.source_kinds
        self.head_name = next(iter(objective.heads))

    def output_positions(self, batch: Batch) -> Tensor | None:
        """The target positions of a causal model."""
        target = batch.targets.get(self.layout.term)
        return target["at"] if self.states.is_causal and target is not None else None

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the targets; no segment memory is carried between batches of samples."""
        return replace(self.layout.objective.loss(model, hidden, batch), state={})

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Any]:
        """None for each sample: predictions come from `generate`."""
        return [None] * len(batch.sample_ids)

    def generate(self, model: Model, pieces: Sequence[SamplePiece]) -> list[GeneratedAnswer]:
        """The texts found by beam search, with sources batched by length."""
        inputs = [self.layout.generation_inputs(piece) for piece in pieces]
        generated = generate_from_inputs(
            model, self.tokenizer, inputs, self.sampling, count=self.count, end_id=self.layout.end_id
        )
        answers = [
            GeneratedAnswer(
                texts=tuple(self.tokenizer.decode(item.tokens).strip() for item in beams),
                logprobs=tuple(item.score for item in beams),
                tokens=tuple(len(item.tokens) + (item.finished == "end") for item in beams),
            )
            for beams in generated
        ]
        if not self.with_gold_loss:
            return answers
        return [
            replace(answer, loss=loss, gold_tokens=num_tokens)
            for answer, (loss, num_tokens) in zip(answers, self._gold_losses(model, pieces), strict=True)
        ]

    def _gold_losses(self, model: Model, pieces: Sequence[SamplePiece]) -> Iterator[tuple[float, int]]:
        """−log p(gold | source) of each sample, and its number of tokens."""
        sums = np.zeros((len(pieces), 2))
        for indices in length_batches([piece.num_tokens for piece in pieces], max_tokens=MAX_TOKENS_PER_PASS):
            rows = [
                self.layout.build_row(Row(inputs={}, metadata={"piece": pieces[index]}), SampleRng(0, 0, index))
                for index in indices
            ]
            batch = collate(rows, self.layout.objective, {}).to(model.device)
            target = batch.targets.get(self.layout.term)
            if target is None:
                continue
            head, hidden = (
                model.heads[self.head_name],
                self.states.encode(model, batch, None, self.output_positions(batch)),
            )
            assert isinstance(head, VocabularyHead)
            losses = head.compute_loss(hidden.select(target["at"]), target["values"]).losses_N.double().cpu().numpy()
            row_of_target = (target["at"] // batch.inputs["tokens"].shape[1]).cpu().numpy()
            np.add.at(sums, np.array(indices)[row_of_target], np.stack([losses, np.ones_like(losses)], 1))
        return ((loss, int(count)) for loss, count in sums.tolist())


def generator_of(task: Task) -> SequenceGenerator:
    """The generator of a text generation task."""
    generator = task.parts.head
    if not isinstance(generator, SequenceGenerator):
        raise TypeError(f"task {task.name} does not generate text")
    return generator
