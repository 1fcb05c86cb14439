"""Encoder states for a task's head: backbone, scalar mix of its layers, the task's own network, pooling."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.inputs.batch import Batch
from meristem.inputs.template import InputTemplate
from meristem.interfaces.backbone import Head, Hidden, Model, State
from meristem.interfaces.task_parts import StateReader
from meristem.tasks.components.encoder_settings import EncoderSettings, Pooling, build_template
from meristem.tasks.components.lm_loss import LanguageModelLoss
from meristem.tokenizers.tokenizer import Tokenizer


def encoder_parts(
    settings: EncoderSettings, task_name: str, tokenizer: Tokenizer
) -> tuple[InputTemplate, EncoderStateReader, LanguageModelLoss]:
    """The template of a task's texts, the reader of their states, and the auxiliary loss on them."""
    template = build_template(settings, task_name, tokenizer)
    return template, EncoderStateReader(settings, tokenizer.vocab_size), LanguageModelLoss(settings.lm_weight)


class EncoderStateReader(StateReader):
    """States of any backbone, its layers mixed and read by the task's network where that is set."""

    def __init__(self, settings: EncoderSettings, vocab_size: int) -> None:
        self.settings = settings
        self.uses_scalar_mix = (
            settings.backbone_mode == "both_directions" if settings.scalar_mix is None else settings.scalar_mix
        )
        self.heads = self._build_heads(vocab_size)
        obstacles = {
            "a mix of layers (task.scalar_mix)": self.uses_scalar_mix,
            f"a task-specific network (task.network={settings.network})": settings.network != "none",
        }
        self.export_obstacles = tuple(obstacle for obstacle, is_used in obstacles.items() if is_used)

    def _build_heads(self, vocab_size: int) -> dict[str, Head]:
        s, heads = self.settings, dict[str, Head]()
        if self.uses_scalar_mix:
            heads["mix"] = Head("mix")
        if s.network != "none":
            sizes = [("hidden", s.network_hidden_size), ("recurrent", int(s.network == "recurrent"))]
            if s.word_embedding_size:
                heads["word_embedding"] = Head("embedding", (("rows", vocab_size), ("width", s.word_embedding_size)))
                sizes.append(("beside", s.word_embedding_size))
            heads["network"] = Head("network", tuple(sizes))
        if s.output_scalar_mix:
            heads["mix_again"] = Head("mix")
        return heads

    def head(self, kind: str, num_classes: int) -> Head:
        """A head for `num_classes` classes on these states, with the width of its input."""
        s, sizes = self.settings, [("classes", num_classes)]
        if s.network != "none" and not s.output_scalar_mix:
            sizes.append(("width", s.network_hidden_size))
        if s.output_scalar_mix:
            sizes.append(("beside", s.network_hidden_size))
        return Head(kind, tuple(sizes))

    @property
    def pooled_head_kind(self) -> str:
        """As in transformers: a linear layer on a causal model, a pooler and a linear layer on others."""
        return "scores" if self.settings.backbone_mode == "causal" else "pooled"

    def encode(self, model: Model, batch: Batch, state: State | None = None, positions: Tensor | None = None) -> Hidden:
        """States [B, T, D] after layer mix and network, or only those at `positions`."""
        s = self.settings
        extra_inputs: dict[str, Any] = {"causal": True} if s.backbone_mode == "causal" else {}
        if self.uses_scalar_mix or s.output_scalar_mix:
            extra_inputs["want"] = ("layers",)
        elif model.backbone.supports_output_positions and s.network == "none" and positions is not None:
            extra_inputs["output_positions"] = positions
        hidden: Hidden = model.backbone(state=state, **batch.inputs, **extra_inputs)
        if self.uses_scalar_mix:
            hidden.last_hidden_state = model.heads["mix"](hidden.layers)
        if s.network != "none":
            states = hidden.last_hidden_state
            if s.word_embedding_size:  # [x; ELMo] at the network's input (Peters et al. 2018, section 3.3)
                tokens = batch.inputs["source" if s.backbone_mode == "encoder_decoder" else "tokens"]
                states = torch.cat([model.heads["word_embedding"](tokens), states], -1)
            output = model.heads["network"](self.dropout(model, states), batch.inputs.get("present"))
            hidden.last_hidden_state = (
                torch.cat([output, model.heads["mix_again"](hidden.layers)], -1) if s.output_scalar_mix else output
            )
        return hidden

    def dropout(self, model: Model, states: Tensor) -> Tensor:
        """The states, with dropout in training."""
        return F.dropout(states, self.settings.dropout, model.training)

    def select(self, model: Model, hidden: Hidden, positions: Tensor) -> Tensor:
        """States at flat positions [n] → [n, D], with dropout in training."""
        return self.dropout(model, hidden.select(positions))

    def pool(self, model: Model, hidden: Hidden, batch: Batch, pooling: Pooling | None, positions: Tensor) -> Tensor:
        """One vector per row [B, D]: the state at `positions`, or the first, last, mean or maximum state."""
        if pooling is None:
            return self.select(model, hidden, positions)
        return self.dropout(model, pool_states(hidden.last_hidden_state, batch.inputs.get("present"), pooling))


def pool_states(states: Tensor, present: Tensor | None, pooling: Pooling) -> Tensor:
    """[B, T, D] → [B, D]: the first, last, mean or maximum state; `present` [B, T] is the padding mask."""
    if present is None:
        present = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
    match pooling:
        case "first":
            return states[:, 0]
        case "last":
            return states[torch.arange(len(states), device=states.device), present.sum(1) - 1]
        case "mean":
            share = present[..., None].to(states.dtype)
            return (states * share).sum(1) / share.sum(1)
        case "max":
            return states.masked_fill(~present[..., None], float("-inf")).amax(1)
