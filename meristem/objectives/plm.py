"""Permutation language modelling (PLM, XLNet; Yang et al. 2019): predict the last tokens of a random order."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from meristem.config.conditions import SettingConditions, when
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.interfaces.backbone import Head, Hidden, Model, State
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.objectives import _token_prediction
from meristem.tokenizers.tokenizer import Tokenizer

Ints = NDArray[np.int64]


class PLMObjectiveSettings(_token_prediction.TokenLossSettings):
    """Settings of permutation language modelling."""

    renamed: ClassVar[dict[str, str]] = {
        "one_in": "predict_one_in",
        "span_longest": "max_span_length",
    }

    needs: ClassVar[SettingConditions] = {
        "max_span_length": (when("unit", "span"),),
    }

    name: Literal["plm"] = "plm"
    """The objective's name."""
    predict_one_in: float = Field(6.0, ge=1)
    """One token in this many is predicted, the last of the order (K in Yang et al. 2019, §2.3)."""
    unit: Literal["token", "span"] = "token"
    """What is predicted: single tokens anywhere, or spans with context around them."""
    max_span_length: int = Field(5, ge=1)
    """Maximum span length in tokens; lengths are uniform from 1."""
    context: Literal["whole", "ordered"] = "whole"
    """Unpredicted tokens attend to each other (whole, as in XLNet's code), or only to earlier ones (ordered)."""


def predicted_suffix(order: Ints, predict_one_in: float) -> Ints:
    """The last 1/`predict_one_in` of an order, at least one token."""
    return order[len(order) - max(1, round(len(order) / predict_one_in)) :] if len(order) else order


def sample_spans(size: int, predict_one_in: float, max_span_length: int, rng: Generator) -> Ints:
    """Positions of spans of 1 to `max_span_length` tokens, each in a window of `predict_one_in` times its length."""
    span_list: list[Ints] = []
    start = 0
    while start < size:
        length = int(rng.integers(1, max_span_length + 1))
        span_window = round(length * predict_one_in)
        if start + span_window > size:  # the remainder gets its share, rounded randomly
            span_window = size - start
            length = min(span_window, int(span_window / predict_one_in + rng.random()))
        span_start = start + int(rng.integers(span_window - length + 1))
        span_list.append(np.arange(span_start, span_start + length))
        start += span_window
    positions = np.concatenate(span_list) if span_list else np.zeros(0, np.int64)
    return positions if len(positions) or not size else rng.integers(size, size=1)


class PLMObjective(Objective):
    """Π p(x_{z_t} | x_{z_<t}) over the last tokens of a factorization order z; positions are unchanged."""

    Settings = PLMObjectiveSettings
    name = "plm"
    requires = frozenset({"two_stream"})
    axis = "slots"
    view = ViewSpec("windows", (("frame", True),))
    memory_view = ViewSpec("contiguous", (("ahead", 0),))
    heads = {"plm": Head("vocabulary")}

    def __init__(self, settings: PLMObjectiveSettings, tokenizer: Tokenizer) -> None:
        self.settings = settings
        self.loss_weights = _token_prediction.loss_weights(settings, self.name)

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """Sample a factorization order and its predicted tokens; special tokens come first and are never predicted."""
        tokens = row.inputs["tokens"]
        order, predicted = self._factorization_order(np.flatnonzero(~row.metadata["special"]), draw("plm"))
        rank = np.ones(len(tokens), np.int64)  # 0 is padding
        if self.settings.context == "ordered":
            rank[order] = 2 + np.arange(len(order))
        else:
            rank[predicted] = 2 + np.arange(len(predicted))
        slots = np.sort(predicted)
        labels = {"at": np.arange(len(slots)), "values": tokens[slots]}
        inputs = {**row.inputs, "order": rank, "slots": slots}
        return Row(
            inputs=inputs, targets={**row.targets, "plm": labels}, metadata=row.metadata, sample_id=row.sample_id
        )

    def _factorization_order(self, positions: Ints, rng: Generator) -> tuple[Ints, Ints]:
        """All positions in factorization order, and the predicted ones at its end."""
        s = self.settings
        order = rng.permutation(positions)
        if s.unit == "token":
            return order, predicted_suffix(order, s.predict_one_in)
        is_predicted = np.isin(order, positions[sample_spans(len(positions), s.predict_one_in, s.max_span_length, rng)])
        return np.concatenate([order[~is_predicted], order[is_predicted]]), order[is_predicted]

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Number of query slots: each is a prediction."""
        num_predictions = len(batch.targets["plm"]["at"]) if "plm" in batch.targets else 0
        return dict.fromkeys(self.loss_weights, num_predictions)

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Hidden states of the query stream; `order` marks padding, and padded slots are never used."""
        inputs = {key: value for key, value in batch.inputs.items() if not key.endswith("present")}
        return model.backbone(state=state, **inputs)  # type: ignore[no-any-return]  # nn.Module.__call__

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the predicted tokens."""
        return _token_prediction.token_loss(self.settings, self.name, model, hidden, batch)
