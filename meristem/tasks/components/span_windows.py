"""Input encoder of extractive question answering: the question with each sliding window of its passage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meristem.inputs.batch import RngFactory, Row
from meristem.inputs.encoded_input import TokenizedText
from meristem.inputs.template import InputTemplate
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_parts import InputEncoder
from meristem.tasks.components.char_spans import char_span_to_tokens
from meristem.tasks.components.lm_loss import LanguageModelLoss
from meristem.tasks.components.sliding_windows import sliding_windows

TEXT_FIELDS = "question", "passage"


class SpanWindows(InputEncoder):
    """One piece per window of the passage, each with the question in front."""

    def __init__(
        self,
        template: InputTemplate,
        term: str,
        lm_loss: LanguageModelLoss,
        *,
        stride: int,
        max_question_length: int,
        max_answer_length: int,
    ) -> None:
        self.template: InputTemplate = template
        self.term, self.lm_loss, self.stride = term, lm_loss, stride
        self.max_question_length, self.max_answer_length = max_question_length, max_answer_length

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """The question with each window of its passage."""
        questions, passages = (
            self.template.tokenize([str(sample.inputs[field]) for sample in samples]) for field in TEXT_FIELDS
        )
        max_tokens, pieces = self.template.max_text_tokens(2), []
        for index, (question, passage) in enumerate(zip(questions, passages, strict=True)):
            short_question = question.slice(0, min(self.max_question_length, max_tokens // 2))
            target = self._answer_tokens(samples[index], passage)
            passage_tokens = max_tokens - len(short_question.ids)
            stride = min(self.stride, passage_tokens - min(self.max_answer_length, passage_tokens // 2))
            spans = sliding_windows(len(passage.ids), passage_tokens, stride)
            for window, (start, stop) in enumerate(spans):
                parts = {
                    "question": short_question,
                    "passage": passage.slice(start, stop),
                    "whole": passage,
                    "start": start,
                    "target": target,
                }
                size = len(short_question.ids) + stop - start + self.template.num_special_tokens(2)
                num_cut = 0 if window else len(question.ids) - len(short_question.ids)
                pieces.append(SamplePiece(sample_index=index, num_tokens=size, features=parts, num_truncated=num_cut))
        return pieces

    @staticmethod
    def _answer_tokens(sample: Sample, passage: TokenizedText) -> tuple[int, int] | tuple[()] | None:
        """First and last token of the answer, () for "no answer"; None if there is no gold or it cannot be located."""
        if sample.gold is None:
            return None
        if not len(sample.gold):
            return ()
        answer, start = sample.gold[0]
        return char_span_to_tokens(passage.offsets, start, start + len(answer))

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """The target is the answer span in this window, or the "no answer" position if it is not in this window."""
        features = row.metadata["piece"].features
        encoded = self.template.build_input(features["question"], features["passage"])
        num_tokens = len(features["passage"].ids)
        positions = encoded.text_starts[1] + np.arange(num_tokens)
        # the summary position is in the passage if no special token follows it
        no_answer_position = 0 if encoded.summary_position in positions else encoded.summary_position
        targets: dict[str, Any] = {
            "read": {"at": np.append(positions, no_answer_position)},
            "nowhere": {"at": [no_answer_position]},
        }
        target = features["target"]
        if target is not None:
            first, last = (position - features["start"] for position in target) if target else (-1, -1)
            answer_positions = (
                positions[[first, last]] if first >= 0 and last < num_tokens else np.array([no_answer_position] * 2)
            )
            targets[self.term] = {
                "at": np.array([no_answer_position]),
                "first": answer_positions[:1],
                "last": answer_positions[1:],
            }
        targets |= self.lm_loss.targets(encoded)
        notes = {**row.metadata, "base": encoded.text_starts[1]}
        return Row(inputs=encoded.inputs, targets=targets, metadata=notes, sample_id=row.sample_id)
