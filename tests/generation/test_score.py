"""Scores of texts against exact and brute-force log-probabilities."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from meristem.config.errors import MeristemError
from meristem.generation import score as module
from meristem.generation.score import score
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

TEXTS = ["The old gardener planted the apple tree.", "老园丁种下了苹果树。", "", "boats", "My sister sold boats."]


def exact(model: Model, tokenizer: Tokenizer, ids: list[int]) -> torch.Tensor:
    """log p of each token, the text begun by the separator and read at once."""
    with torch.inference_mode():
        states = model.backbone(tokens=torch.tensor([[tokenizer.end, *ids]]), causal=True).last_hidden_state[0, :-1]
        logprobs = model.heads["clm"](states).log_softmax(-1)
    return logprobs.gather(1, torch.tensor(ids)[:, None])[:, 0]  # type: ignore[no-any-return]


def hidden_once(model: Model, tokenizer: Tokenizer, ids: list[int], position: int) -> float:
    """log p of one token with all others in sight."""
    row = torch.tensor([[tokenizer.start, *ids, tokenizer.end]])
    row[0, position + 1] = tokenizer.mask
    with torch.inference_mode():
        return float(
            model.heads["mlm"](model.backbone(tokens=row).last_hidden_state)[0, position + 1].log_softmax(-1)[
                ids[position]
            ]
        )


@pytest.mark.parametrize("budget", [8192, 20])
def test_causal_scores_are_exact(
    causal: Model,
    tokenizer: Tokenizer,
    budget: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TOKENS_PER_PASS", budget)  # however many rows are read together
    for text, text_score in zip(TEXTS, score(causal, tokenizer, TEXTS), strict=True):
        ids = tokenizer.encode(text).ids.tolist()
        assert text_score.tokens == len(ids)
        assert [token for token, _ in text_score.per_token] == [tokenizer.id_to_token(n) for n in ids]
        expected = exact(causal, tokenizer, ids).tolist() if ids else []
        assert [value for _, value in text_score.per_token] == pytest.approx(expected, abs=1e-4)
        assert text_score.logprob == pytest.approx(sum(expected), abs=1e-3)


@pytest.mark.parametrize("budget", [8192, 20])
def test_masked_scores_are_brute_force(
    masked: Model,
    tokenizer: Tokenizer,
    budget: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TOKENS_PER_PASS", budget)
    for text, text_score in zip(TEXTS, score(masked, tokenizer, TEXTS), strict=True):
        ids = tokenizer.encode(text).ids.tolist()
        expected = [hidden_once(masked, tokenizer, ids, index) for index in range(len(ids))]
        assert [value for _, value in text_score.per_token] == pytest.approx(expected, abs=1e-4)


def test_long_texts_go_through_overlapping_windows(causal: Model, masked: Model, tokenizer: Tokenizer) -> None:
    text = "My sister sold seventeen boats and the apple tree. 老园丁种下了苹果树。" * 3
    ids = tokenizer.encode(text).ids.tolist()
    length = causal.backbone.max_length
    assert len(ids) > 2 * length
    values = [value for _, value in score(causal, tokenizer, [text])[0].per_token]
    window_ids = [tokenizer.end, *ids]
    for index in range(len(ids)):
        start = 0 if index < length else (index - length) // (length // 2) * (length // 2) + length // 2
        with torch.inference_mode():
            states = causal.backbone(
                tokens=torch.tensor([window_ids[start : index + 1]]), causal=True
            ).last_hidden_state[0, -1]
            expected = float(causal.heads["clm"](states).log_softmax(-1)[ids[index]])
        assert values[index] == pytest.approx(expected, abs=1e-4)
        assert index < length or index - start >= length // 2
    num_visible = masked.backbone.max_length - 2
    values = [value for _, value in score(masked, tokenizer, [text])[0].per_token]
    for index in (0, num_visible, len(ids) - 1):
        start = max(0, min(index - num_visible // 2, len(ids) - num_visible))
        expected = hidden_once(masked, tokenizer, ids[start : start + num_visible], index - start)
        assert values[index] == pytest.approx(expected, abs=1e-4)


def test_a_model_of_both_ways_scores_exactly_unless_asked(make: Any, tokenizer: Tokenizer) -> None:
    bidirectional_causal = make("modern", ("clm", "mlm"), tokenizer.vocab_size)
    ids = tokenizer.encode(TEXTS[0]).ids.tolist()
    causal = float(exact(bidirectional_causal, tokenizer, ids).sum())
    assert score(bidirectional_causal, tokenizer, TEXTS[:1])[0].logprob == pytest.approx(causal, abs=1e-3)
    pseudo = sum(hidden_once(bidirectional_causal, tokenizer, ids, index) for index in range(len(ids)))
    assert score(bidirectional_causal, tokenizer, TEXTS[:1], lm_kind="masked")[0].logprob == pytest.approx(
        pseudo, abs=1e-3
    )


def test_the_other_way_is_refused(causal: Model, tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match="masked model"):
        score(causal, tokenizer, ["a"], lm_kind="masked")


def test_a_text_is_scored_after_all_of_its_start_tokens(causal: Model, tokenizer: Tokenizer) -> None:
    assert tokenizer.start is not None and tokenizer.end is not None
    ids = tokenizer.encode(TEXTS[0]).ids.tolist()
    with torch.inference_mode():
        tokens = torch.tensor([[tokenizer.end, tokenizer.start, *ids[:-1]]])
        states = causal.backbone(tokens=tokens, causal=True).last_hidden_state[0, 1:]
        logprobs = causal.heads["clm"](states).log_softmax(-1).gather(1, torch.tensor(ids)[:, None])
    causal.causal_start_ids = (tokenizer.end, tokenizer.start)
    try:
        (text_score,) = score(causal, tokenizer, TEXTS[:1])
    finally:
        causal.causal_start_ids = None
    assert text_score.logprob == pytest.approx(float(logprobs.sum()), abs=1e-4)
