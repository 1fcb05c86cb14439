from __future__ import annotations

import pytest
import torch
from torch import nn

from meristem.blocks.heads import Transform
from meristem.blocks.logits import PANEL, Logits
from meristem.blocks.vocabulary import VocabularyHead


@pytest.mark.parametrize("words", [7, PANEL, PANEL + 1, 3 * PANEL - 1])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_reads_what_the_head_reads(words: int, rows: int) -> None:
    torch.manual_seed(words)
    bare = VocabularyHead(nn.Embedding(words, 16))
    full = VocabularyHead(nn.Embedding(words, 16), transform=Transform(16, "gelu", "layer", 1e-5, 0.3), bias=True)
    nn.init.normal_(full.bias)  # type: ignore[arg-type]
    with torch.inference_mode():
        for head in (bare, full):
            read = Logits(head)
            for number in (rows, 1, rows):  # rows may leave a session
                states = torch.randn(number, 16)
                torch.testing.assert_close(read(states), head(states), atol=1e-5, rtol=1e-5)
