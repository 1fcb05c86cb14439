"""Input encoder of text generation: a source, truncated, and its first gold, laid out as in pretraining."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from meristem.generation.source_target_layout import SourceTargetLayout
from meristem.inputs.batch import Array, RngFactory, Row
from meristem.inputs.template import InputTemplate
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_parts import InputEncoder
from meristem.interfaces.task_signature import InputField
from meristem.tasks.components.lm_loss import TERM as LM_TERM
from meristem.tokenizers.tokenizer import Tokenizer

SOURCE = InputField(
    name="source", public_name="text", help="One or several texts.", example="Ada walked to the old harbour."
)
Truncation = Callable[[Sequence[Array], int], tuple[Array, int]]
"""(token ids of the texts of a source, maximum tokens) → (ids that fit, number of tokens truncated)."""


def keep_start(parts: Sequence[Array], max_tokens: int) -> tuple[Array, int]:
    """The beginning of a source that fits."""
    (ids,) = parts
    return ids[:max_tokens], max(0, len(ids) - max_tokens)


def keep_ends(parts: Sequence[Array], max_tokens: int) -> tuple[Array, int]:
    """The start and the end of a source, half of what fits of each."""
    (ids,) = parts
    if len(ids) <= max_tokens:
        return ids, 0
    num_tail = max_tokens // 2
    return np.concatenate([ids[: max_tokens - num_tail], ids[len(ids) - num_tail :]]), len(ids) - max_tokens


class KeepLastTurns:
    """The last complete turns that fit, with a separator between them; if the last turn is too long, its end."""

    def __init__(self, separator: Sequence[int] | Array) -> None:
        self.separator: Array = np.array(separator, np.int64)

    def __call__(self, parts: Sequence[Array], max_tokens: int) -> tuple[Array, int]:
        """The ids that fit, and the number of tokens truncated."""
        kept_ids = parts[-1][max(0, len(parts[-1]) - max_tokens) :]
        num_lost = sum(map(len, parts)) - len(kept_ids)
        for turn in reversed(parts[:-1]):
            if len(turn) + len(self.separator) + len(kept_ids) > max_tokens:
                break
            kept_ids, num_lost = np.concatenate([turn, self.separator, kept_ids]), num_lost - len(turn)
        return kept_ids, num_lost


def source_texts(sample: Sample) -> list[str]:
    """The texts of a source, in order: one text, the turns of a dialogue, or the name of an image."""
    (source,) = sample.inputs.values()
    return list(source) if isinstance(source, list | tuple) else [source]


class SourceTargetEncoder(InputEncoder):
    """One piece per sample: a source and its first gold."""

    def __init__(
        self,
        template: InputTemplate | None,
        layout: SourceTargetLayout,
        tokenizer: Tokenizer,
        truncate: Truncation = keep_start,
        *,
        lm_targets: bool = False,
    ) -> None:
        """With `lm_targets` rows of a causal model have targets of the auxiliary language-model loss."""
        self.template, self.layout, self.tokenizer = template, layout, tokenizer
        self.truncate, self.lm_targets = truncate, lm_targets

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Each source and its first gold, truncated."""
        texts = [source_texts(sample) for sample in samples]
        ids = iter(self.tokenizer.encode_ids([text for parts in texts for text in parts]))
        sources = [[next(ids).astype(np.int64) for _ in parts] for parts in texts]
        pieces = []
        for index, (parts, target) in enumerate(zip(sources, self.target_ids(samples), strict=True)):
            source, num_lost = self.truncate(parts, self.layout.max_source_tokens)
            piece = self.layout.build_piece(index, source, target)
            pieces.append(replace(piece, num_truncated=piece.num_truncated + num_lost))
        return pieces

    def target_ids(self, samples: Sequence[Sample]) -> list[Array | None]:
        """The ids of each sample's first gold; None where it has none."""
        golds = [sample.gold[0] if sample.gold else None for sample in samples]
        ids = iter(self.tokenizer.encode_ids([gold for gold in golds if gold is not None]))
        return [None if gold is None else next(ids).astype(np.int64) for gold in golds]

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """A row laid out as in pretraining."""
        prepared = self.layout.build_row(row, draw)
        all_positions = prepared.targets.pop("every", None)
        if self.lm_targets and all_positions is not None:
            prepared.targets[LM_TERM] = all_positions
        return prepared
