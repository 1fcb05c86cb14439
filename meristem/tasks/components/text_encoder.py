"""Input encoder of one or two texts with one target: truncated, with special tokens, read at the summary position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from meristem.inputs.batch import Array, RngFactory, Row
from meristem.inputs.encoded_input import TokenizedText
from meristem.inputs.template import InputTemplate
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_parts import InputEncoder
from meristem.tasks.components.lm_loss import LanguageModelLoss
from meristem.tasks.components.ngram_logits import TERM as NGRAMS
from meristem.tasks.components.ngram_logits import NgramLogits

Arrangement = Literal["joined", "both_orders", "separate"]
"""Two texts in one row, in one row for each order, or each in a row of its own."""
EXPORT_OBSTACLES = {
    "separate": ("two texts encoded separately (task.siamese)",),
    "both_orders": ("a pair encoded in both orders (task.pair_orders)",),
}
TargetFunction = Callable[[Sample], Mapping[str, Array]]
"""Sample → arrays of its target (`values`); empty if its gold is unknown."""


class TextEncoder(InputEncoder):
    """One piece per sample, of one row, or of two for a pair of texts."""

    def __init__(
        self,
        template: InputTemplate,
        fields: Sequence[str],
        term: str,
        target: TargetFunction,
        lm_loss: LanguageModelLoss,
        arrangement: Arrangement = "joined",
        ngrams: NgramLogits | None = None,
    ) -> None:
        self.template: InputTemplate = template
        self.fields, self.term, self.target, self.lm_loss = fields, term, target, lm_loss
        self.arrangement, self.ngrams = arrangement, ngrams
        self.max_rows_per_sample = 1 if arrangement == "joined" else 2
        self.export_obstacles = EXPORT_OBSTACLES.get(arrangement, ())

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Each text or pair, truncated."""
        num_fields = len(self.fields)
        tokenized = self.template.tokenize(
            [sample.inputs[field] for sample in samples for field in self.fields], with_offsets=False
        )
        pieces = []
        for index, sample in enumerate(samples):
            texts = tokenized[num_fields * index : num_fields * (index + 1)]
            rows = [[text] for text in texts] if self.arrangement == "separate" else [texts]
            truncated = [self.template.truncate(row_texts) for row_texts in rows]
            pieces.append(
                SamplePiece(
                    sample_index=index,
                    num_tokens=max(self.template.num_tokens(row_texts) for row_texts, _ in truncated),
                    features={
                        "texts": tuple(text for row_texts, _ in truncated for text in row_texts),
                        "target": self.target(sample),
                        "ngrams": self._ngrams(sample),
                    },
                    num_truncated=sum(num_truncated for _, num_truncated in truncated),
                )
            )
        return pieces

    def _ngrams(self, sample: Sample) -> Mapping[str, Array]:
        """The n-grams of the whole texts, also of what is truncated; empty if the head does not count them."""
        return {} if self.ngrams is None else self.ngrams.of_texts([str(sample.inputs[field]) for field in self.fields])

    def prepare(self, row: Row, draw: RngFactory) -> Row | list[Row]:
        """The rows with special tokens; the first carries the target, at the summary position."""
        features = row.metadata["piece"].features
        rows: list[Row] = []
        for texts in self._row_texts(features["texts"]):
            encoded = self.template.build_input(*texts)
            summary_position = np.array([encoded.summary_position])
            targets = {"read": {"at": summary_position}, **self.lm_loss.targets(encoded)}
            if features["target"] and not rows:
                targets[self.term] = {"at": summary_position, **features["target"]}
            if features["ngrams"] and not rows:
                targets[NGRAMS] = features["ngrams"]
            rows.append(Row(inputs=encoded.inputs, targets=targets, metadata=row.metadata, sample_id=row.sample_id))
        return rows[0] if self.arrangement == "joined" else rows

    def _row_texts(self, texts: Sequence[TokenizedText]) -> list[Sequence[TokenizedText]]:
        match self.arrangement:
            case "joined":
                return [texts]
            case "both_orders":
                return [texts, texts[::-1]]
            case "separate":
                return [[text] for text in texts]
