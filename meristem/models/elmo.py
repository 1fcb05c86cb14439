"""ELMo (Peters et al. 2018): a character CNN and a bidirectional LSTM language model."""

# B batch, T words, C characters of a word, D hidden size of one direction

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from meristem.blocks.embeddings.char_cnn import CharCNN
from meristem.blocks.heads.task_heads import build_shared_head
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.incremental.lstm_decoder import LSTMIncrementalDecoder
from meristem.blocks.recurrent.projected_lstm import LSTMClipping, ProjectedLSTM
from meristem.blocks.recurrent.row_reversal import RowReversal
from meristem.config.conditions import SettingConditions, when
from meristem.inputs.char_ids import CHAR_VOCAB_SIZE, PAD_CHAR
from meristem.interfaces.backbone import Backbone, Hidden, State
from meristem.models.settings import ModelSettings

CHAR_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


class ELMoSettings(ModelSettings):
    """ELMo as published unless set otherwise."""

    renamed: ClassVar[dict[str, str]] = {
        "width": "hidden_size",
        "cells": "cell_size",
        "length": "max_length",
        "letter_width": "char_embedding_size",
        "filters": "char_filters",
        "highways": "highway_layers",
    }

    needs: ClassVar[SettingConditions] = {
        "residual": (when("layers", above=1),),
    }

    family: Literal["elmo"] = "elmo"
    """The family this model belongs to."""
    layers: int = Field(2, ge=1)
    """Number of LSTM layers in each direction."""
    hidden_size: int = Field(512, ge=4)
    """Hidden size of one direction (LSTM projection), and size of word vectors."""
    cell_size: int = Field(4096, ge=4)
    """LSTM cell size of one direction, projected to the hidden size."""
    max_length: int = Field(128, ge=4)
    """Maximum input length in training, in words; there is no limit at inference."""
    char_embedding_size: int = Field(16, ge=1)
    """Character embedding size."""
    char_filters: tuple[tuple[int, int], ...] = Field(CHAR_FILTERS, min_length=1)
    """Convolutions over characters: pairs of kernel size and number of filters."""
    highway_layers: int = Field(2, ge=0)
    """Number of highway layers after the convolutions."""
    activation: Literal["relu", "gelu"] = "relu"
    """Activation of convolutions and highway layers."""
    cell_clip: float | None = Field(3.0, gt=0)
    """Cells are clipped to ± this; none means no clipping."""
    state_clip: float | None = Field(3.0, gt=0)
    """Projected states are clipped to ± this; none means no clipping."""
    residual: bool = True
    """Residual connections around all LSTM layers but the first."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate before each layer and after the last."""


class ELMo(Backbone):
    """Forward and backward LSTM language models; their hidden states are concatenated, forward first."""

    Settings: ClassVar[type[ELMoSettings]] = ELMoSettings
    settings: ELMoSettings
    capabilities = frozenset({"both_directions", "characters"})
    supports_gradient_checkpointing = False
    has_attention = False
    gains_from_bfloat16 = False

    def __init__(self, settings: ELMoSettings, vocab_size: int) -> None:
        super().__init__()
        s = settings
        self.settings, self.hidden_size, self.max_length = s, 2 * s.hidden_size, s.max_length
        self.characters = CharCNN(
            CHAR_VOCAB_SIZE,
            s.hidden_size,
            s.char_filters,
            char_embedding_size=s.char_embedding_size,
            num_highways=s.highway_layers,
            activation=s.activation,
            padding_id=PAD_CHAR,
        )
        clipping = LSTMClipping(cell=s.cell_clip, state=s.state_clip)
        self.layers = nn.ModuleList(
            ProjectedLSTM(2, s.hidden_size, s.cell_size, s.hidden_size, clipping) for _ in range(s.layers)
        )
        self.words = nn.Embedding(vocab_size, s.hidden_size)
        """Character ids of tokens, set when the vocabulary is known: generated words are encoded by them."""
        nn.init.normal_(self.words.weight, std=s.hidden_size**-0.5)

    def forward(  # type: ignore[override]  # the inputs are named
        self,
        *,
        characters: Tensor,
        tokens: Tensor | None = None,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
    ) -> Hidden:
        """Character ids [B, T, C] → Hidden; `tokens` are not used.

        A state, initially from `init_state`, continues both directions where earlier rows ended.
        """
        words_BTD = self.characters(characters)
        reversal = RowReversal(len(words_BTD), words_BTD.shape[1], present, documents)
        x = reversal.split_directions(words_BTD)
        layer_outputs, layer_ends = [torch.cat([words_BTD, words_BTD], -1)], []
        for layer_index, layer in enumerate(self.layers):
            layer_state = (
                None if state is None else _split_state(state["state"][:, layer_index], self.settings.hidden_size)
            )
            dropped = F.dropout(x, self.settings.dropout, self.training)
            outputs, cells = layer(dropped, layer_state, reversal.continues)
            layer_ends.append((outputs, cells))
            x = outputs + x if self.settings.residual and layer_index else outputs
            if "layers" in want and layer_index + 1 < len(self.layers):
                layer_outputs.append(reversal.merge_directions(x))
        last = reversal.merge_directions(F.dropout(x, self.settings.dropout, self.training))
        return Hidden(
            last_hidden_state=last,
            layers=(*layer_outputs, last) if "layers" in want else (),
            state={}
            if state is None
            else {"state": torch.stack([_final_state(reversal, *end) for end in layer_ends], 1)},
        )

    def init_state(self, batch_size: int) -> State:
        """Zero state [B, layers, 2, width + cells]."""
        s = self.settings
        return {"state": self.words.weight.new_zeros(batch_size, s.layers, 2, s.hidden_size + s.cell_size)}

    def incremental_decoder(self) -> LSTMIncrementalDecoder:
        """Incremental decoding with the forward direction."""
        assert self.spell is not None  # set by build_learner
        return LSTMIncrementalDecoder(self.characters, self.layers, self.spell, residual=self.settings.residual)  # type: ignore[arg-type]  # ModuleList is untyped

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """Vocabulary head shared by both directions, or a shared head."""
        if kind == "vocabulary":
            return VocabularyHead(self.words, bias=True)
        return build_shared_head(self, kind, sizes, ("vocabulary",))

    def embedding(self) -> nn.Embedding:
        """The output embedding; inputs are encoded by characters."""
        return self.words


def _split_state(state_B2S: Tensor, hidden_size: int) -> tuple[Tensor, Tensor]:
    """Hidden state and cell of both directions [2, B, ·]."""
    state_2BS = state_B2S.transpose(0, 1)
    return state_2BS[..., :hidden_size], state_2BS[..., hidden_size:]


def _final_state(reversal: RowReversal, states_2TBD: Tensor, cells_2TBH: Tensor) -> Tensor:
    return torch.cat([reversal.final_states(states_2TBD), reversal.final_states(cells_2TBH)], -1)
