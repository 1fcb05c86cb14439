"""Logits from one vector per sample: a head on the pooled state, or siamese vectors of two texts compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.precision import at_least_float32
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.tasks.components.encoder_settings import Pooling
from meristem.tasks.components.ngram_logits import TERM as NGRAMS
from meristem.tasks.components.ngram_logits import NgramLogits, mix_logits
from meristem.tasks.components.state_reader import EncoderStateReader


class LogitLayer(ABC):
    """The modules from hidden states to logits."""

    heads: Mapping[str, Head]
    export_obstacles: tuple[str, ...] = ()
    """What of it no transformers class does."""

    @abstractmethod
    def logit_parts(self, model: Model, hidden: Hidden, batch: Batch) -> list[Tensor]:
        """[samples, classes] of each part of the head; each is trained by a loss of its own."""

    def mix(self, model: Model, parts: Sequence[Tensor]) -> Tensor:
        """The logits that predict, from those of the parts."""
        return parts[0]

    def logits(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """[samples, classes] that predict."""
        return self.mix(model, self.logit_parts(model, hidden, batch))

    def output_positions(self, batch: Batch) -> Tensor | None:
        """The positions whose states it uses; None means all."""
        return None


class PooledLogits(LogitLayer):
    """A head on the state at the summary position, or on the pooled states, of each row."""

    def __init__(
        self,
        states: EncoderStateReader,
        name: str,
        num_classes: int,
        pooling: Pooling | None = None,
        positions_term: str = "read",
        ngrams: NgramLogits | None = None,
    ) -> None:
        self.states, self.name, self.pooling, self.positions_term = states, name, pooling, positions_term
        self.ngrams = ngrams
        self.heads = {name: states.head(states.pooled_head_kind, num_classes), **(ngrams.heads if ngrams else {})}
        pooling_obstacles = () if pooling is None else (f"a head on pooled states (task.pooling={pooling})",)
        self.export_obstacles = (*pooling_obstacles, *(ngrams.export_obstacles if ngrams else ()))

    def vectors(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """[rows, D]."""
        return self.states.pool(model, hidden, batch, self.pooling, batch.targets[self.positions_term]["at"])

    def row_logits(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """[rows, classes]: each row by itself."""
        return at_least_float32(model.heads[self.name](self.vectors(model, hidden, batch)))

    def logit_parts(self, model: Model, hidden: Hidden, batch: Batch) -> list[Tensor]:
        """The head on the sum of the vectors of a sample's rows, and the linear model of its n-grams."""
        rows = self.vectors(model, hidden, batch)
        if len(batch.sample_ids) < len(rows):
            rows = rows.new_zeros(len(batch.sample_ids), rows.shape[1]).index_add(0, batch.sample_index, rows)
        logits = at_least_float32(model.heads[self.name](rows))
        if self.ngrams is None:
            return [logits]
        feature_rows = batch.targets[NGRAMS]["at"] // batch.inputs["tokens"].shape[1]
        return [logits, self.ngrams.logits(model, batch, batch.sample_index[feature_rows], len(logits))]

    def mix(self, model: Model, parts: Sequence[Tensor]) -> Tensor:
        """The weighted sum of both parts."""
        return mix_logits(model, parts)

    def output_positions(self, batch: Batch) -> Tensor | None:
        """The summary positions, unless states are pooled."""
        return batch.targets[self.positions_term]["at"] if self.pooling is None else None


class SiameseLogits(PooledLogits):
    """Two texts in rows of their own (Sentence-BERT): a head on [u, v, |u − v|], or their cosine without classes."""

    def __init__(
        self, states: EncoderStateReader, name: str, num_classes: int | None, pooling: Pooling | None = None
    ) -> None:
        super().__init__(states, name, num_classes or 1, pooling)
        self.is_cosine = num_classes is None
        head = self.heads[name]
        sizes = [(key, 3 * size if key == "beside" else size) for key, size in head.sizes]
        self.heads = {} if self.is_cosine else {name: Head(head.kind, (*sizes, ("times", 3)))}

    def logit_parts(self, model: Model, hidden: Hidden, batch: Batch) -> list[Tensor]:
        """[samples, classes], or the cosine [samples, 1]: 0 to 1 for the range of the scores."""
        pooled = self.vectors(model, hidden, batch)
        u, v = pooled[::2], pooled[1::2]
        if self.is_cosine:
            return [F.cosine_similarity(u.float(), v.float())[:, None]]
        return [at_least_float32(model.heads[self.name](torch.cat([u, v, (u - v).abs()], 1)))]
