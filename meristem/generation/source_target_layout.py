"""Source-target layouts: a pair on the two sides of an encoder-decoder, or concatenated for a causal model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

from meristem.config.errors import MeristemError
from meristem.generation.generation_inputs import GenerationInputs
from meristem.inputs.batch import Array, RngFactory, Row
from meristem.inputs.template import InputTemplate
from meristem.interfaces.sample import SamplePiece
from meristem.objectives._sequence_target import SequenceTargetObjective
from meristem.objectives.clm import CLMObjective
from meristem.tokenizers.tokenizer import Tokenizer


class SourceTargetLayout(ABC):
    """Turns source-target pairs into training rows and generation inputs."""

    objective: SequenceTargetObjective | CLMObjective
    """The pretraining objective that computes the loss."""
    term: str
    max_source_tokens: int
    """Maximum tokens of a source."""
    max_target_tokens: int
    """Maximum tokens of a target, without its end token."""
    end_id: int | None = None
    """The token that ends a target, if not the tokenizer's end token."""

    @abstractmethod
    def build_piece(self, sample_index: int, source: Array, target: Array | None) -> SamplePiece:
        """A source and its target, if known, truncated to the maximum lengths."""

    @abstractmethod
    def build_row(self, row: Row, draw: RngFactory) -> Row:
        """Inputs and targets of a piece; no targets if the target is unknown."""

    @abstractmethod
    def generation_inputs(self, piece: SamplePiece) -> GenerationInputs:
        """The inputs from which the target is generated."""


class EncoderDecoderLayout(SourceTargetLayout):
    """The encoder reads the source text or image; the decoder generates the target after its start tokens."""

    objective: SequenceTargetObjective

    def __init__(
        self,
        objective: SequenceTargetObjective,
        tokenizer: Tokenizer,
        max_length: int,
        max_target_tokens: int,
        source_key: str = "source",
    ) -> None:
        self.objective, self.term, self.source_key = objective, objective.name, source_key
        self.template, self.max_length = objective.template, max_length
        num_special_tokens = 0 if tokenizer.single_template is None else self.template.num_special_tokens()
        self.max_source_tokens = max_length - num_special_tokens
        self.max_decoder_length = max_length - int(dict(objective.view.options).get("spare", 0))
        self.max_target_tokens = min(max_target_tokens, self.max_decoder_length)
        if self.max_source_tokens < 1:
            raise MeristemError(
                f"task.max_length: {max_length} leaves no room for text beside {num_special_tokens} special tokens"
            )

    def build_piece(self, sample_index: int, source: Array, target: Array | None) -> SamplePiece:
        """Both sides truncated as in the dataset views: a truncated side has no end token."""
        source_ids = self.template.source_ids(source, self.max_length) if self.source_key == "source" else source
        begin = len(self.objective.decoder_start_ids)
        parts: dict[str, Any] = {"given": source_ids, "target": None}
        num_truncated = 0
        if target is not None:
            target_ids = self.template.target_ids(target, self.max_decoder_length)
            parts["target"] = self.template.strip_start(target_ids)
            num_truncated = max(0, len(target) - len(target_ids))
            begin += len(parts["target"]) - 1
        # by the longer side batches are 92 % full on Multi30k, by the sum of both 80 %
        size = max(begin, len(source_ids)) if self.source_key == "source" else begin
        return SamplePiece(sample_index=sample_index, num_tokens=size, features=parts, num_truncated=num_truncated)

    def build_row(self, row: Row, draw: RngFactory) -> Row:
        """The pretraining objective's own row."""
        parts = row.metadata["piece"].features
        source_inputs = {self.source_key: parts["given"]}
        if parts["target"] is not None:
            return self.objective.build_row(row, parts["target"], **source_inputs)
        tokens = np.array(self.objective.decoder_start_ids, np.int64)
        return Row(inputs={**source_inputs, "tokens": tokens}, metadata=row.metadata, sample_id=row.sample_id)

    def generation_inputs(self, piece: SamplePiece) -> GenerationInputs:
        """The source for the encoder, and the decoder's start tokens."""
        return GenerationInputs(
            prompt_ids=list(self.objective.decoder_start_ids),
            inputs={self.source_key: torch.from_numpy(np.array(piece.features["given"]))},
        )


class ContinuationLayout(SourceTargetLayout):
    """A causal model continues the prompt, as in pretraining; a long prompt is truncated at its beginning."""

    objective: CLMObjective

    def __init__(self, objective: CLMObjective, tokenizer: Tokenizer, max_length: int, max_target_tokens: int) -> None:
        self.objective, self.term = objective, objective.name
        self.start_ids = InputTemplate.for_documents(tokenizer, start_ids=objective.decoder_start_ids).prompt_start_ids
        self.max_target_tokens = min(max_target_tokens, max(1, max_length // 2))
        self.max_source_tokens, self.end_id = max_length - len(self.start_ids) - self.max_target_tokens, tokenizer.end
        if self.max_source_tokens < 0:
            raise MeristemError(
                f"model.max_length: {max_length} leaves no room for text after the start tokens; at least 4 are needed"
            )

    def build_piece(self, sample_index: int, source: Array, target: Array | None) -> SamplePiece:
        """Prompt and target, truncated; a truncated target has no end token."""
        source_tail = source[len(source) - min(len(source), self.max_source_tokens) :]
        prompt = np.concatenate([self.start_ids, source_tail]).astype(np.int64)
        if not len(prompt):
            raise MeristemError("this model has no start token, so a prompt must not be empty")
        parts: dict[str, Any] = {"prompt": prompt, "target": None}
        if target is not None:
            ending = [] if len(target) > self.max_target_tokens or self.end_id is None else [self.end_id]
            parts["target"] = np.concatenate([target[: self.max_target_tokens], ending]).astype(np.int64)
        return SamplePiece(
            sample_index=sample_index,
            num_tokens=len(prompt),
            features=parts,
            num_truncated=len(source) - len(source_tail),
        )

    def build_row(self, row: Row, draw: RngFactory) -> Row:
        """The causal objective's row: the loss term covers the target, and "every" has the targets of the whole row."""
        prompt, target = (row.metadata["piece"].features[key] for key in ("prompt", "target"))
        if target is None:
            return Row(inputs={"tokens": prompt}, metadata=row.metadata, sample_id=row.sample_id)
        tokens = np.concatenate([prompt, target])
        prepared = self.objective.prepare(
            Row(inputs={"tokens": tokens}, metadata=row.metadata, sample_id=row.sample_id), draw
        )
        all_targets = prepared.targets.pop(self.term)
        own_targets = {key: value[len(prompt) - 1 :] for key, value in all_targets.items()}
        prepared.targets |= {"every": all_targets, self.term: own_targets}
        return prepared

    def generation_inputs(self, piece: SamplePiece) -> GenerationInputs:
        """The prompt, up to the delimiter if there is one."""
        return GenerationInputs(prompt_ids=piece.features["prompt"].tolist())


class CausalLayout(ContinuationLayout):
    """`start source delimiter target extract` for a causal model (GPT); only the target and its end are predicted."""

    def __init__(self, objective: CLMObjective, tokenizer: Tokenizer, max_length: int, max_target_tokens: int) -> None:
        pair = InputTemplate(tokenizer, "causal", add_special_tokens=False).pair
        if not len(pair.between) or not len(pair.after):
            raise MeristemError(
                "this tokenizer has no delimiter between two texts, which task.backbone_mode=causal needs"
            )
        self.objective, self.term, self.pair = objective, objective.name, pair
        self.max_target_tokens = min(max_target_tokens, max_length // 2)
        self.max_source_tokens = max_length - len(pair.before) - len(pair.between) - self.max_target_tokens
        self.end_id = int(pair.after[0])
        if self.max_source_tokens < 1:
            raise MeristemError(
                f"task.max_length: {max_length} leaves no room for a source beside its target; at least 6 are needed"
            )

    def build_piece(self, sample_index: int, source: Array, target: Array | None) -> SamplePiece:
        """The prompt, which leaves room for the longest target; a truncated target has no end token."""
        prompt = np.concatenate([self.pair.before, source[: self.max_source_tokens], self.pair.between]).astype(
            np.int64
        )
        parts: dict[str, Any] = {"prompt": prompt, "target": None}
        size, num_truncated = len(prompt), max(0, len(source) - self.max_source_tokens)
        if target is not None:
            ending = self.pair.after[: 0 if len(target) > self.max_target_tokens else 1]
            parts["target"] = np.concatenate([target[: self.max_target_tokens], ending]).astype(np.int64)
            size += len(parts["target"]) - 1
            num_truncated += max(0, len(target) - self.max_target_tokens)
        return SamplePiece(sample_index=sample_index, num_tokens=size, features=parts, num_truncated=num_truncated)
