"""Mask filling: candidates are ranked by the model's own probabilities."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from meristem.config.errors import MeristemError
from meristem.generation.fill import fill
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer


def direct(model: Model, tokenizer: Tokenizer, ids: list[int], position: int) -> torch.Tensor:
    """Probabilities at one place of a framed row, the plain way."""
    row = torch.tensor([[tokenizer.start, *ids, tokenizer.end]])
    with torch.no_grad():
        return model.heads["mlm"](model.backbone(tokens=row).last_hidden_state)[0, position + 1].softmax(-1)  # type: ignore[no-any-return]


@pytest.mark.parametrize("text", ["The old [MASK] planted the [MASK] tree.", "老[MASK]丁种下了苹果[MASK]。", "[MASK]"])
def test_ranks_are_those_of_the_models_own_probabilities(masked: Model, tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, special=True).ids.tolist()
    positions = [index for index, token in enumerate(ids) if token == tokenizer.mask]
    fills = fill(masked, tokenizer, text, top=7)
    assert [fill.mask for fill in fills] == list(range(len(positions))) == list(range(text.count("[MASK]")))
    for filled, position in zip(fills, positions, strict=True):
        expected = direct(masked, tokenizer, ids, position)
        ranked = [n for n in expected.argsort(descending=True).tolist() if not tokenizer.special_mask[n]][:7]
        assert [candidate.token for candidate in filled.candidates] == [tokenizer.id_to_token(n) for n in ranked]
        assert [c.probability for c in filled.candidates] == pytest.approx(
            [float(expected[n]) for n in ranked], abs=1e-6
        )


def test_the_text_with_a_candidate_is_written_as_the_tokenizer_would(masked: Model, tokenizer: Tokenizer) -> None:
    for candidate in fill(masked, tokenizer, "The old [MASK] planted  the [MASK]  tree.", top=80)[0].candidates:
        piece = candidate.token.removeprefix("##")
        joined = candidate.token.startswith("##") or candidate.token in {".", ","} or ord(candidate.token[0]) > 0x2E7F
        assert candidate.text == f"The old{'' if joined else ' '}{piece} planted  the [MASK]  tree."
    for candidate in fill(masked, tokenizer, "老[MASK]丁", top=5)[0].candidates:
        assert candidate.text == f"老{candidate.token.removeprefix('##')}丁"


def test_a_mask_is_understood_whatever_the_tokenizer_calls_it(bytes_tokenizer: Tokenizer, make: Any) -> None:
    assert bytes_tokenizer.id_to_token(bytes_tokenizer.mask or 0) != "[MASK]"
    model = make("roberta", ("mlm",), bytes_tokenizer.vocab_size)
    (filled,) = fill(model, bytes_tokenizer, "The old [MASK] planted.", top=3)
    assert len(filled.candidates) == 3
    for candidate in filled.candidates:
        assert candidate.text.startswith("The old") and candidate.text.endswith(" planted.")


def test_a_long_text_is_read_in_a_window_round_each_mask(masked: Model, tokenizer: Tokenizer) -> None:
    before, after = "my sister sold seventeen boats " * 6, " the apple tree" * 12
    text = before + "[MASK]" + after + " [MASK]"
    ids = tokenizer.encode(text, special=True).ids.tolist()
    first, last = (index for index, token in enumerate(ids) if token == tokenizer.mask)
    num_visible = masked.backbone.max_length - 2
    fills = fill(masked, tokenizer, text, top=1)
    for filled, position, start in zip(
        fills, (first, last), (first - num_visible // 2, len(ids) - num_visible), strict=True
    ):
        expected = direct(masked, tokenizer, ids[start : start + num_visible], position - start)
        expected[torch.from_numpy(tokenizer.special_mask)] = 0
        assert filled.candidates[0].probability == pytest.approx(float(expected.max()), abs=1e-6)


def test_what_cannot_be_done_is_said(masked: Model, causal: Model, tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match=r"write \[MASK\]"):
        fill(masked, tokenizer, "nothing hidden")
    with pytest.raises(MeristemError, match="it supports generate and score"):
        fill(causal, tokenizer, "The [MASK]")
    with pytest.raises(MeristemError, match="at least 1"):
        fill(masked, tokenizer, "The [MASK]", top=0)
