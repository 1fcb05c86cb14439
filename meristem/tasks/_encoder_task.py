"""Base of tasks on encoder states: input encoding, layer mixing and pooling, auxiliary language-model loss."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch
from meristem.inputs.encoded_input import EncodedInput
from meristem.inputs.template import BackboneMode, InputTemplate, add_task_tokens
from meristem.interfaces.backbone import Head, Hidden, Model, State
from meristem.interfaces.objective import Outcome
from meristem.interfaces.task import Task
from meristem.tasks.settings import TaskSettings
from meristem.tokenizers.tokenizer import Tokenizer

Pooling = Literal["first", "last", "mean", "max"]


class EncoderTaskSettings(TaskSettings):
    """Settings of every task on encoder states."""

    renamed: ClassVar[dict[str, str]] = {
        "way": "backbone_mode",
        "length": "max_length",
        "begin": "decoder_start_ids",
        "framed": "add_special_tokens",
        "lm": "lm_weight",
        "mix": "scalar_mix",
        "network_width": "network_hidden_size",
        "mix_again": "output_scalar_mix",
    }

    needs: ClassVar[SettingConditions] = {
        "decoder_start_ids": (when("backbone_mode", None, "encoder_decoder"),),
        "lm_weight": (when("backbone_mode", None, "causal"),),
        "network_hidden_size": (when("network", "linear", "recurrent"),),
        "output_scalar_mix": (when("network", "linear", "recurrent"),),
        "word_embedding_size": (when("network", "linear", "recurrent"),),
    }

    backbone_mode: BackboneMode | None = None
    """How the backbone attends to a text; that of the model family if not set."""
    max_length: int | None = Field(None, ge=4)
    """Maximum tokens of a sequence, special tokens included; the model's maximum length if not set."""
    decoder_start_ids: tuple[int, ...] = ()
    """Decoder start tokens of an encoder-decoder; as in pretraining if not set."""
    add_special_tokens: bool = True
    """Add special tokens around texts even if the tokenizer's own file adds none."""
    lm_weight: float = Field(0.0, ge=0)
    """Weight λ of the auxiliary language-model loss, task + λ · LM, for causal models (Radford et al. 2018: 0.5)."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the states before the head."""
    scalar_mix: bool | None = None
    """Use a learned mix of all layers, γ Σ s_j h_j, instead of the last one; on for ELMo if not set."""
    network: Literal["none", "linear", "recurrent"] = "none"
    """The task's own network between the states and the head: none, a dense layer, or a bidirectional LSTM."""
    network_hidden_size: int = Field(256, ge=2, multiple_of=2)
    """Hidden size of that network."""
    output_scalar_mix: bool = False
    """Concatenate a second mix of the layers, with its own weights, to the output of that network (ELMo)."""
    word_embedding_size: int = Field(0, ge=0)
    """Size of the task's own token embedding x, concatenated to the states at the network's input: [x; ELMo]."""


class EncoderTask(Task):
    """A task on the hidden states of a backbone: bidirectional, causal, bidirectional LSTM or encoder-decoder."""

    requires_any = frozenset({"bidirectional", "causal", "both_directions", "encoder_decoder"})

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        if settings.backbone_mode is None or settings.max_length is None:
            raise MeristemError(
                f"task {settings.name}: task.backbone_mode and task.max_length are not set; they come from the model"
            )
        if settings.lm_weight and settings.backbone_mode != "causal":
            raise MeristemError(
                "task.lm_weight: only causal models have an auxiliary language-model loss; this one is "
                f"{settings.backbone_mode}"
            )
        if settings.output_scalar_mix and settings.network == "none":
            raise MeristemError(
                "task.output_scalar_mix: there is no network to concatenate the layers to; set "
                "task.network=recurrent or linear"
            )
        if settings.word_embedding_size and settings.network == "none":
            raise MeristemError(
                "task.word_embedding_size: there is no network to use these embeddings; set task.network=recurrent or "
                "linear"
            )
        self.settings, self.vocab_size = settings, tokenizer.vocab_size
        self.template: InputTemplate = InputTemplate(
            tokenizer,
            settings.backbone_mode,
            settings.max_length,
            decoder_start_ids=settings.decoder_start_ids,
            add_special_tokens=settings.add_special_tokens,
        )
        self.uses_scalar_mix = (
            settings.backbone_mode == "both_directions" if settings.scalar_mix is None else settings.scalar_mix
        )

    @classmethod
    def extend_tokenizer(cls, settings: Any, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with start, delimiter and extract tokens for causal models, unless it has them already."""
        return add_task_tokens(tokenizer) if settings.backbone_mode == "causal" else tokenizer

    # ------------------------------------------------------------ heads

    def encoder_heads(self, width: int | None = None) -> dict[str, Head]:
        """The modules between the backbone and the task's head."""
        s, heads = self.settings, dict[str, Head]()
        if self.uses_scalar_mix:
            heads["mix"] = Head("mix")
        if s.network != "none":
            sizes = [("hidden", s.network_hidden_size), ("recurrent", int(s.network == "recurrent"))]
            if s.word_embedding_size:
                heads["word_embedding"] = Head(
                    "embedding", (("rows", self.vocab_size), ("width", s.word_embedding_size))
                )
                sizes.append(("beside", s.word_embedding_size))
            heads["network"] = Head("network", tuple(sizes))
        if s.output_scalar_mix:
            heads["mix_again"] = Head("mix")
        if s.lm_weight:
            heads["clm"] = Head("vocabulary")
        return heads

    def sized_head(self, kind: str, num_classes: int) -> Head:
        """A head for `num_classes` classes, with the width of its input."""
        s = self.settings
        sizes = [("classes", num_classes)]
        if s.network != "none" and not s.output_scalar_mix:
            sizes.append(("width", s.network_hidden_size))
        if s.output_scalar_mix:
            sizes.append(("beside", s.network_hidden_size))
        return Head(kind, tuple(sizes))

    @property
    def task_loss_weights(self) -> dict[str, float]:
        """Weights of the task's loss and of the auxiliary language-model loss."""
        return {self.name: 1.0, **({"lm": self.settings.lm_weight} if self.settings.lm_weight else {})}

    def lm_goal(self, encoded: EncodedInput) -> dict[str, dict[str, Any]]:
        """Targets of the auxiliary language-model loss: every token but the first."""
        if not self.settings.lm_weight:
            return {}
        tokens = encoded.inputs["tokens"]
        return {"lm": {"at": np.arange(len(tokens) - 1), "values": tokens[1:]}}

    # ------------------------------------------------------------ states

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Backbone states after layer mix and task network: [B, T, D], or only those at `output_positions`."""
        s = self.settings
        extra_inputs: dict[str, Any] = {"causal": True} if s.backbone_mode == "causal" else {}
        if self.uses_scalar_mix or s.output_scalar_mix:
            extra_inputs["want"] = ("layers",)
        elif (
            model.backbone.supports_output_positions
            and s.network == "none"
            and (output_positions := self.output_positions(batch)) is not None
        ):
            extra_inputs["output_positions"] = output_positions
        hidden: Hidden = model.backbone(state=state, **batch.inputs, **extra_inputs)
        if self.uses_scalar_mix:
            hidden.last_hidden_state = model.heads["mix"](hidden.layers)
        if s.network != "none":
            read = hidden.last_hidden_state
            if s.word_embedding_size:  # [x; ELMo] at the network's input (Peters et al. 2018, section 3.3)
                tokens = batch.inputs["source" if s.backbone_mode == "encoder_decoder" else "tokens"]
                read = torch.cat([model.heads["word_embedding"](tokens), read], -1)
            said = model.heads["network"](self._dropout(read, training=model.training), batch.inputs.get("present"))
            hidden.last_hidden_state = (
                torch.cat([said, model.heads["mix_again"](hidden.layers)], -1) if s.output_scalar_mix else said
            )
        return hidden

    def _dropout(self, states: Tensor, *, training: bool) -> Tensor:
        return F.dropout(states, self.settings.dropout, training)

    def states_at(self, hidden: Hidden, positions: Tensor, *, training: bool) -> Tensor:
        """States at flat positions [n] → [n, D], with dropout in training."""
        return self._dropout(hidden.select(positions), training=training)

    def pool(
        self, hidden: Hidden, batch: Batch, pooling: Pooling | None, positions: Tensor, *, training: bool
    ) -> Tensor:
        """One vector per row [B, D]: the state at `positions`, or the first, last, mean or maximum state."""
        if pooling is None:
            return self.states_at(hidden, positions, training=training)
        states, present = hidden.last_hidden_state, batch.inputs.get("present")
        if present is None:
            present = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        match pooling:
            case "first":
                found = states[:, 0]
            case "last":
                found = states[torch.arange(len(states), device=states.device), present.sum(1) - 1]
            case "mean":
                share = present[..., None].to(states.dtype)
                found = (states * share).sum(1) / share.sum(1)
            case _:
                found = states.masked_fill(~present[..., None], float("-inf")).amax(1)
        return self._dropout(found, training=training)

    # ------------------------------------------------------------ language-model loss

    def add_lm_loss(self, model: Model, hidden: Hidden, batch: Batch, output: Outcome) -> Outcome:
        """Add the auxiliary language-model loss to the outcome, if λ is not 0."""
        if self.settings.lm_weight and "lm" in batch.targets:
            head = model.heads["clm"]
            assert isinstance(head, VocabularyHead)
            goal = batch.targets["lm"]
            output.loss_sums["lm"] = head.compute_loss(hidden.select(goal["at"]), goal["values"]).total
        return output
