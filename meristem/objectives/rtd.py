"""Replaced token detection (RTD, ELECTRA; Clark et al. 2020): a generator replaces tokens, the model detects them."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor

from meristem.blocks.transformer.electra_generator import ElectraGenerator
from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.interfaces.backbone import Head, Hidden, Model, State
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.metrics import roc_auc
from meristem.objectives._token_selection import TokenSelectionSettings, masking_units, select_masked_positions
from meristem.tokenizers.tokenizer import Tokenizer


class RTDObjectiveSettings(TokenSelectionSettings):
    """Settings of replaced token detection."""

    renamed: ClassVar[dict[str, str]] = {
        "detection_weight": "discriminator_weight",
        "generator": "generator_size",
    }

    needs: ClassVar[SettingConditions] = {
        "discriminator_weight": (when("generator_size"),),
    }

    name: Literal["rtd"] = "rtd"
    """The objective's name."""
    weight: float = Field(1.0, gt=0)
    """Weight of this objective's loss in the sum."""
    discriminator_weight: float = Field(50.0, gt=0)
    """Weight of the discriminator's loss relative to the generator's (λ in Clark et al. 2020, §3.1)."""
    generator_size: str = "1/4"
    """The generator's hidden size as a fraction of the model's; none replaces with random tokens instead."""

    @field_validator("generator_size")
    @classmethod
    def _check_fraction(cls, value: str) -> str:
        numerator, _, denominator = value.partition("/")
        if value != "none" and not (numerator == "1" and denominator.isdecimal() and int(denominator) > 0):
            raise ValueError("must be a fraction of the model's hidden size (1/2, 1/4, …), or none")
        return value

    @property
    def generator_divisor(self) -> int | None:
        """Divisor of the model's hidden size; None without a generator."""
        return None if self.generator_size == "none" else int(self.generator_size.removeprefix("1/"))


class RTDObjective(Objective):
    """p(token is replaced) for every token; replacements are sampled from a generator trained with MLM.

    As in the paper every token but padding is classified, special tokens too, although these are never replaced.
    """

    Settings = RTDObjectiveSettings
    name = "rtd"
    requires = frozenset({"bidirectional"})
    view = ViewSpec("windows", (("frame", True),))

    def __init__(self, settings: RTDObjectiveSettings, tokenizer: Tokenizer) -> None:
        self.settings = settings
        self.starts_word = tokenizer.word_start_mask
        self.regular_ids = np.flatnonzero(~tokenizer.special_mask)
        self.mask_id = tokenizer.mask
        score_head = Head("token_score")
        if settings.generator_divisor is None:
            self.heads, self.loss_weights = {"rtd": score_head}, {"rtd": settings.weight}
            return
        if self.mask_id is None:
            raise MeristemError(
                "objective rtd: this tokenizer has no mask token, which the generator needs; train a tokenizer that "
                "has one, or replace with random tokens (objective.generator_size=none)"
            )
        self.heads = {"generator": Head("generator", (("divide", settings.generator_divisor),)), "rtd": score_head}
        self.loss_weights = {"generator": settings.weight, "rtd": settings.weight * settings.discriminator_weight}

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """Select tokens and replace them with the mask, or with random tokens if there is no generator."""
        rng, tokens = draw("rtd"), row.inputs["tokens"].copy()
        groups = masking_units(tokens, ~row.metadata["special"], self.starts_word, self.settings.unit != "token")
        positions = select_masked_positions(groups, self.settings, rng)
        values, all_positions = tokens[positions], {"at": np.arange(len(tokens))}
        if self.settings.generator_divisor is None:
            tokens[positions] = self.regular_ids[rng.integers(len(self.regular_ids), size=len(positions))]
            replaced = np.zeros(len(tokens), bool)
            replaced[positions] = tokens[positions] != values
            labels = {"rtd": {**all_positions, "values": replaced}}
        else:
            tokens[positions] = self.mask_id
            uniform = rng.random(len(positions), dtype=np.float32)
            labels = {"rtd": all_positions, "generator": {"at": positions, "values": values, "uniform": uniform}}
        inputs = {**row.inputs, "tokens": tokens}
        return Row(inputs=inputs, targets={**row.targets, **labels}, metadata=row.metadata, sample_id=row.sample_id)

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Run the generator and its MLM loss, sample replacements, and encode the corrupted tokens."""
        if self.settings.generator_divisor is None:
            return super().encode(model, batch, state)
        generator, labels, tokens = model.heads["generator"], batch.targets["generator"], batch.inputs["tokens"]
        assert isinstance(generator, ElectraGenerator)
        generated = generator(**batch.inputs, output_positions=labels["at"])
        vocab_loss = generator.words.compute_loss(
            generated.select(labels["at"]), labels["values"], uniform_N=labels["uniform"]
        )
        assert vocab_loss.sampled_ids_N is not None
        corrupted = tokens.flatten().index_copy(0, labels["at"], vocab_loss.sampled_ids_N).view_as(tokens)
        hidden: Hidden = model.backbone(state=state, **{**batch.inputs, "tokens": corrupted})
        none_replaced = torch.zeros_like(tokens, dtype=torch.bool).flatten()
        replaced = none_replaced.index_copy(0, labels["at"], vocab_loss.sampled_ids_N != labels["values"])
        hidden.extra = {"generator_loss": vocab_loss, "replaced": replaced}
        return hidden

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Binary cross-entropy of the discriminator for every token, and the generator's MLM cross-entropy."""
        labels = batch.targets["rtd"]
        replaced = (
            labels["values"] if self.settings.generator_divisor is None else hidden.extra["replaced"][labels["at"]]
        )
        outcome = _detection_outcome(model.heads["rtd"](hidden.select(labels["at"])), replaced, training=model.training)
        outcome.state = hidden.state
        if self.settings.generator_divisor is not None:
            vocab_loss = hidden.extra["generator_loss"]
            outcome.loss_sums["generator"] = vocab_loss.total
            if vocab_loss.ranks_N is not None:
                num_predictions = vocab_loss.total.new_full((), float(len(vocab_loss.ranks_N)))
                outcome.metrics["generator.top1"] = ((vocab_loss.ranks_N < 1).sum().float(), num_predictions)
        return outcome


def _detection_outcome(scores: Tensor, replaced: Tensor, *, training: bool) -> Outcome:
    """Summed binary cross-entropy of the scores, accuracy, and in evaluation a histogram for ROC AUC."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    total = F.binary_cross_entropy_with_logits(scores, replaced.to(scores.dtype), reduction="sum")
    num_tokens = scores.new_full((), float(len(scores)))
    metrics = {
        "rtd.accuracy": ((((scores > 0) == replaced) & ~scores.isnan()).sum().float(), num_tokens),
        "rtd.replaced": (replaced.sum().float(), num_tokens),
    }
    histograms = {} if training else {"rtd.auc": roc_auc.score_histogram(scores, replaced)}
    return Outcome(loss_sums={"rtd": total}, metrics=metrics, score_histograms=histograms)
