"""Sentence pairs: two texts → a label (entailment, paraphrase) or a similarity score."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.inputs.encoded_input import TokenizedText
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.task import Sample, SamplePiece
from meristem.tasks._label_task import LabelProbs, LabelTask, LabelTaskSettings
from meristem.tokenizers.tokenizer import Tokenizer

TEXT_FIELDS = ("text", "text_b")


class PairTaskSettings(LabelTaskSettings):
    """Settings of sentence pairs."""

    renamed: ClassVar[dict[str, str]] = {
        "orders": "pair_orders",
    }

    needs: ClassVar[SettingConditions] = {
        "pair_orders": (when("siamese", False),),
    }

    name: Literal["pair"] = "pair"
    """The task's name."""
    siamese: bool = False
    """Encode each text separately: cosine similarity for regression, [u, v, |u − v|] for labels (Sentence-BERT)."""
    pair_orders: Literal["one", "both"] | None = None
    """both: encode the pair in both orders and add the vectors; the default for regression on causal models."""


class PairTask(LabelTask):
    """p(label | text, text_b), or a number."""

    Settings = PairTaskSettings
    name = "pair"
    sample_type = "pair"
    score_name = "similarity"

    def __init__(self, settings: PairTaskSettings, tokenizer: Tokenizer) -> None:
        if settings.siamese and settings.pair_orders == "both":
            raise MeristemError(
                "task.pair_orders: siamese texts are encoded separately and have no order; leave it out"
            )
        if settings.siamese and settings.pooling is None:
            settings = settings.model_copy(update={"pooling": "mean"})
        super().__init__(settings, tokenizer)
        self.siamese = settings.siamese
        self.reads_both_orders = not self.siamese and (settings.pair_orders or _default_pair_orders(settings)) == "both"
        self.max_rows_per_sample = 2 if self.siamese or self.reads_both_orders else 1

    def label_heads(self, num_classes: int) -> dict[str, Head]:
        """The head on the pair's vector; none if the prediction is the cosine."""
        if not self.settings.siamese:
            return super().label_heads(num_classes)
        if self.settings.problem_type == "regression":
            return {}
        head = self.sized_head(self.head_kind, num_classes)
        sizes = [(key, 3 * size if key == "beside" else size) for key, size in head.sizes]
        return {self.name: Head(head.kind, (*sizes, ("times", 3)))}

    # ------------------------------------------------------------ rows

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Both texts, truncated: in one row, or each in a row of its own."""
        texts = self.template.tokenize(
            [sample.inputs[field] for sample in samples for field in TEXT_FIELDS], with_offsets=False
        )
        pieces = []
        for index, sample in enumerate(samples):
            pair = texts[2 * index : 2 * index + 2]
            rows = [[text] for text in pair] if self.siamese else [pair]
            truncated = [self.template.truncate(row_texts) for row_texts in rows]
            parts = {
                "texts": tuple(text for row_texts, _ in truncated for text in row_texts),
                "goal": self.label_goal(sample),
            }
            pieces.append(
                SamplePiece(
                    sample_index=index,
                    num_tokens=max(self.template.num_tokens(row_texts) for row_texts, _ in truncated),
                    features=parts,
                    num_truncated=sum(num_truncated for _, num_truncated in truncated),
                )
            )
        return pieces

    def prepare(self, row: Row, draw: RngFactory) -> list[Row]:
        """One row for the pair, one for each order, or one for each text; the first carries the gold."""
        parts: dict[str, Any] = row.metadata["piece"].features
        first, second = parts["texts"]
        inputs: list[tuple[TokenizedText, ...]] = [(first,), (second,)] if self.siamese else [(first, second)]
        if self.reads_both_orders:
            inputs.append((second, first))
        rows: list[Row] = []
        for texts in inputs:
            encoded = self.template.build_input(*texts)
            summary_position = np.array([encoded.summary_position])
            goals = {"read": {"at": summary_position}, **self.lm_goal(encoded)}
            if parts["goal"] and not rows:
                goals[self.name] = {"at": summary_position, **parts["goal"]}
            rows.append(Row(inputs=encoded.inputs, targets=goals, metadata=row.metadata, sample_id=row.sample_id))
        return rows

    def scores(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """Logits [samples, classes]; for siamese regression the cosine, 0 to 1 for the range of the scores."""
        if not self.siamese:
            return super().scores(model, hidden, batch)
        pooled = self.pool(hidden, batch, self.settings.pooling, batch.targets["read"]["at"], training=model.training)
        u, v = pooled[::2], pooled[1::2]
        if self.settings.problem_type == "regression":
            return F.cosine_similarity(u.float(), v.float())[:, None]
        return model.heads[self.name](torch.cat([u, v, (u - v).abs()], 1)).float()  # type: ignore[no-any-return]  # nn.Module.__call__

    # ------------------------------------------------------------ input and output

    def parse_input(self, value: str | Mapping[str, Any]) -> Sample:
        """A mapping with `text` and `text_b`."""
        if isinstance(value, str) or not all(isinstance(value.get(field), str) for field in TEXT_FIELDS):
            raise MeristemError('task pair takes two texts: give {"text": "…", "text_b": "…"} (--text-b "…")')
        return Sample(inputs={field: value[field] for field in TEXT_FIELDS})

    def format_output(self, prediction: LabelProbs, sample: Sample) -> Any:
        """{label, score}; a cosine is clipped to the range of the training scores."""
        if self.siamese and self.settings.problem_type == "regression":
            prediction = np.clip(prediction, *self.settings.target_range)
        return super().format_output(prediction, sample)

    def example_commands(self, run_path: str, sample: Sample) -> list[str]:
        """The command with both texts."""
        first, second = (shlex.quote(sample.inputs[field]) for field in TEXT_FIELDS)
        return [f"meristem predict {run_path} {first} --text-b {second}"]


def _default_pair_orders(settings: PairTaskSettings) -> str:
    """both for similarity on causal models: similarity is symmetric, a causal model is not (Radford et al. 2018)."""
    return "both" if settings.backbone_mode == "causal" and settings.problem_type == "regression" else "one"
