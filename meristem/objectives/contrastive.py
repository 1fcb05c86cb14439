"""Contrastive learning of text embeddings (SimCSE, Gao et al. 2021), with in-batch negatives.

A text is read twice, with different dropout, and its two embeddings must be more similar than those of different texts.
In a corpus of pairs (`corpus.target`) the two texts of a pair take the place of the two readings. Negatives are the
other texts of the same group, which is one sample: so the loss does not depend on micro-batches and processes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from meristem.blocks.precision import at_least_float32
from meristem.inputs.batch import Array, Batch, RngFactory, Row
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.objectives.settings import ObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer

TextPooling = Literal["mean", "first", "last"]


class ContrastiveObjectiveSettings(ObjectiveSettings):
    """Settings of contrastive learning."""

    foreign_names: ClassVar[dict[str, str]] = {
        "temp": "temperature",
        "pooler_type": "pooling",
        "num_negatives": "group_size",
    }

    name: Literal["contrastive"] = "contrastive"
    """The objective's name."""
    weight: float = Field(1.0, gt=0)
    """Weight of this objective's loss in the sum."""
    temperature: float = Field(0.05, gt=0)
    """Cosine similarities are divided by this before the softmax."""
    pooling: TextPooling = "mean"
    """How hidden states become a text's embedding: their mean, the first or the last; meristem embed uses it too."""
    group_size: int = Field(32, ge=2, le=4096)
    """Texts or pairs that are compared with each other: one of them is right, the others are negatives."""
    max_text_length: int = Field(64, ge=1)
    """Text tokens that are read; a longer document is cut from one of its sentences."""

    @property
    def privacy_obstacle(self) -> str | None:
        """Negatives are the other texts of a group."""
        return "each text is compared with the other texts of its group, so no gradient is of one text alone"


class ContrastiveObjective(Objective):
    """p(second view of a text | first view) = softmax of cosine similarities within a group of texts."""

    Settings = ContrastiveObjectiveSettings
    name = "contrastive"
    requires = frozenset({"bidirectional"})
    view = ViewSpec("text_groups")
    heads = {}

    def __init__(self, settings: ContrastiveObjectiveSettings, tokenizer: Tokenizer) -> None:
        self.settings = settings
        self.view = ViewSpec("text_groups", (("size", settings.group_size), ("longest", settings.max_text_length)))
        self.text_pooling = settings.pooling
        self.max_rows_per_sample = 2 * settings.group_size
        self.loss_weights = {self.name: settings.weight}

    def prepare(self, row: Row, draw: RngFactory) -> list[Row]:
        """One row per reading: all first ones, then all second ones."""
        tokens, is_pair = row.inputs["tokens"], bool(row.metadata.get("pairs", False))
        starts = row.metadata["starts"]
        texts = np.split(tokens, starts[1 : np.searchsorted(starts, len(tokens))])
        first, second = (texts[0::2], texts[1::2]) if is_pair else (texts, texts)
        pairs = _without_repeats(list(zip(first, second, strict=False)))  # a pair may have lost its second text
        metadata = {"group_size": 2 * len(pairs)}
        rows = [
            Row(inputs={"tokens": pair[side]}, metadata=metadata, sample_id=row.sample_id)
            for side in (0, 1)
            for pair in pairs
        ]
        for label in rows[: len(pairs)]:
            label.targets[self.name] = {"at": np.zeros(1, np.int64), "values": np.zeros(1, np.int64)}
        return rows

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of each first view against all second views of its group, and how often it is the nearest."""
        states = at_least_float32(hidden.last_hidden_state)
        embeddings = F.normalize(pool_texts(states, batch.inputs.get("present"), self.settings.pooling), dim=-1)
        total, correct = embeddings.new_zeros(()), embeddings.new_zeros(())
        for group in torch.split(embeddings, _group_sizes(batch)):
            first, second = group.chunk(2)
            scores = first @ second.t() / self.settings.temperature
            labels = torch.arange(len(first), device=scores.device)
            total = total + F.cross_entropy(scores, labels, reduction="sum")
            correct = correct + (scores.detach().argmax(1) == labels).sum()
        count = embeddings.new_full((), float(batch.target_counts[self.name]))
        return Outcome(loss_sums={self.name: total}, metrics={f"{self.name}.accuracy": (correct, count)})


def _group_sizes(batch: Batch) -> list[int]:
    """Rows of each group of a batch, in order."""
    sizes, start = list[int](), 0
    while start < len(batch.metadata):
        sizes.append(batch.metadata[start]["group_size"])
        start += sizes[-1]
    return sizes


def _without_repeats(pairs: list[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
    """The pairs whose texts occur in no earlier pair: a text cannot be a negative of itself."""
    seen: set[bytes] = set()
    distinct = []
    for pair in pairs:
        keys = {text.tobytes() for text in pair}
        if not keys & seen:
            distinct.append(pair)
        seen |= keys
    return distinct


def pool_texts(states_BTD: Tensor, present_BT: Tensor | None, pooling: TextPooling) -> Tensor:
    """One vector per row [B, D]: the mean, first or last of its hidden states without padding."""
    if pooling == "first":
        return states_BTD[:, 0]
    if present_BT is None:
        return states_BTD.mean(1) if pooling == "mean" else states_BTD[:, -1]
    lengths_B = present_BT.sum(1)
    if pooling == "mean":
        return states_BTD.masked_fill(~present_BT[..., None], 0).sum(1) / lengths_B[:, None]
    return states_BTD[torch.arange(len(states_BTD), device=states_BTD.device), lengths_B - 1]
