"""One model read by several threads at once, as a server does: nobody gets what was made for somebody else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from meristem.interfaces.backbone import MODEL_FAMILIES

FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "gpt2": {},
    "modern": {},
    "transformer": {"relative_buckets": 8},
    "transformer_xl": {"memory_length": 0},
    "xlnet": {},
}


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_attention_weights_belong_to_their_own_call(family: str) -> None:
    torch.manual_seed(0)
    cls = MODEL_FAMILIES[family]
    settings = cls.Settings(layers=2, hidden_size=16, heads=2, max_length=16, **FAMILIES[family])
    model = cls(settings, 50).eval()
    rows = [torch.randint(0, 50, (1, 4 + number % 9)) for number in range(16)]

    def attended(tokens: Tensor, requested: tuple[str, ...] = ("attention",)) -> list[Tensor]:
        with torch.inference_mode():
            inputs = {"source": tokens, "tokens": tokens[:, :3]} if family == "transformer" else {"tokens": tokens}
            hidden = model(**inputs, want=requested)
            return [*hidden.attention, *hidden.extra.get("encoder_attention", ())]

    expected_layers = [attended(row) for row in rows]
    assert all(len(layers) >= 2 for layers in expected_layers)
    with ThreadPoolExecutor(8) as executor:
        # every second caller wants no weights: one that would switch them off for the others is noticed too
        attention_layers = list(
            executor.map(lambda n: attended(rows[n // 2 % 16], () if n % 2 else ("attention",)), range(320))
        )
    for number, layers in enumerate(attention_layers):
        if number % 2:
            assert not layers
            continue
        expected = expected_layers[number // 2 % 16]
        assert len(layers) == len(expected)
        for layer, other in zip(layers, expected, strict=True):
            torch.testing.assert_close(layer, other, atol=1e-6, rtol=1e-5)
