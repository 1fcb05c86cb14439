from __future__ import annotations

import pytest
import torch
from torch import nn

from meristem.blocks.heads.task_heads import PredictionTransform
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.incremental.next_token_logits import PANEL_SIZE, NextTokenLogits


@pytest.mark.parametrize("words", [7, PANEL_SIZE, PANEL_SIZE + 1, 3 * PANEL_SIZE - 1])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_logits_are_those_of_the_head(words: int, rows: int) -> None:
    torch.manual_seed(words)
    vocabulary_head = VocabularyHead(nn.Embedding(words, 16))
    full = VocabularyHead(
        nn.Embedding(words, 16), transform=PredictionTransform(16, "gelu", "layer", 1e-5, 0.3), bias=True
    )
    nn.init.normal_(full.bias)  # type: ignore[arg-type]
    with torch.inference_mode():
        for head in (vocabulary_head, full):
            token_logits = NextTokenLogits(head)
            for number in (rows, 1, rows):  # rows may leave a session
                states = torch.randn(number, 16)
                torch.testing.assert_close(token_logits(states), head(states), atol=1e-5, rtol=1e-5)
