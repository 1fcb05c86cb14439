"""Bidirectional language modelling (biLM, ELMo; Peters et al. 2018): forward and backward next-token prediction."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from meristem.blocks.heads.sampled_softmax import sampled_softmax_loss
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.inputs.template import InputTemplate
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.objectives import _token_prediction
from meristem.tokenizers.tokenizer import Tokenizer

TERMS = ("forward", "backward")


class BiLMObjectiveSettings(_token_prediction.TokenLossSettings):
    """Settings of bidirectional language modelling."""

    renamed: ClassVar[dict[str, str]] = {
        "rivals": "sampled_softmax",
    }

    name: Literal["bilm"] = "bilm"
    """The objective's name."""
    sampled_softmax: int = Field(0, ge=0)
    """Sampled softmax: number of negatives per row in training, log-uniform by rank; 0 is the full softmax."""

    @model_validator(mode="after")
    def _check_sampled_softmax(self) -> Self:
        if self.sampled_softmax and (self.label_smoothing or self.l1_logits):
            raise ValueError(
                "sampled_softmax: label_smoothing and l1_logits need the logits of all tokens; set sampled_softmax to 0"
            )
        return self


def sample_log_uniform(rng: Generator, num_samples: int, vocab_size: int) -> NDArray[np.int64]:
    """Token ids sampled with replacement, p(w) = log((w + 2) / (w + 1)) / log(V + 1): ids are about frequency ranks."""
    token_ids: NDArray[np.int64] = np.exp(rng.random(num_samples) * np.log(vocab_size + 1)).astype(np.int64) - 1
    return token_ids.clip(max=vocab_size - 1)


class BiLMObjective(Objective):
    """½ Σ log p(x_t | x_<t) + ½ Σ log p(x_t | x_>t), with shared embedding and softmax."""

    Settings = BiLMObjectiveSettings
    name = "bilm"
    requires = frozenset({"both_directions"})
    view = ViewSpec("windows", (("frame", True),))
    heads = {"bilm": Head("vocabulary")}

    def __init__(self, settings: BiLMObjectiveSettings, tokenizer: Tokenizer) -> None:
        self.settings, self.vocab_size = settings, tokenizer.vocab_size
        # windows are cut anywhere, so their start and end tokens are inputs but never targets
        template = InputTemplate(tokenizer, "both_directions")
        self.num_prefix, self.num_suffix = len(template.prefix_ids), len(template.suffix_ids)
        self.loss_weights = dict.fromkeys(TERMS, settings.weight / 2)
        if settings.l1_hidden_states:
            self.loss_weights["bilm.states"] = settings.l1_hidden_states

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """Set the targets of both directions; nothing is masked."""
        tokens = row.inputs["tokens"]
        length, text_stop = len(tokens), len(tokens) - self.num_suffix
        labels = {
            "forward": {"at": np.arange(text_stop - 1), "values": tokens[1:text_stop]},
            "backward": {"at": np.arange(1 + self.num_prefix, length), "values": tokens[self.num_prefix : length - 1]},
        }
        if self.settings.sampled_softmax:
            labels["forward"]["rivals"] = sample_log_uniform(
                draw("bilm"), self.settings.sampled_softmax, self.vocab_size
            )
        return Row(inputs=row.inputs, targets={**row.targets, **labels}, metadata=row.metadata, sample_id=row.sample_id)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Number of predictions of each direction."""
        hidden_l1 = {"bilm.states": _token_prediction.count_positions(batch)} if self.settings.l1_hidden_states else {}
        return {**super().count_targets(batch), **hidden_l1}

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of each direction on its half of the hidden states."""
        outcome = Outcome(loss_sums={})
        for term, states in zip(TERMS, hidden.last_hidden_state.chunk(2, -1), strict=True):
            self._direction_loss(term, model, states, batch, outcome)
        if self.settings.l1_hidden_states:
            _token_prediction.add_hidden_l1(
                "bilm.states", hidden.last_hidden_state, batch, outcome, training=model.training
            )
        return outcome

    def _direction_loss(self, term: str, model: Model, states_BTD: Tensor, batch: Batch, outcome: Outcome) -> None:
        head, labels, settings = model.heads["bilm"], batch.targets[term], self.settings
        assert isinstance(head, VocabularyHead)
        if settings.sampled_softmax and model.training:
            sampled_ids = batch.targets["forward"]["rivals"].view(-1, settings.sampled_softmax)
            outcome.loss_sums[term] = sampled_softmax_loss(
                head, states_BTD, labels["at"], labels["values"], sampled_ids
            )
            return
        states_ND = states_BTD.reshape(-1, states_BTD.shape[-1]).index_select(0, labels["at"])
        vocab_loss = head.compute_loss(
            states_ND,
            labels["values"],
            smoothing=settings.label_smoothing if model.training else 0.0,
            l1=settings.l1_logits if model.training else 0.0,
        )
        outcome.loss_sums[term] = vocab_loss.total
        if vocab_loss.ranks_N is not None:
            num_predictions = torch.full((), float(len(labels["at"])), device=vocab_loss.total.device)
            outcome.metrics[f"{term}.top1"] = ((vocab_loss.ranks_N < 1).sum().float(), num_predictions)
            outcome.metrics[f"{term}.top5"] = ((vocab_loss.ranks_N < 5).sum().float(), num_predictions)
