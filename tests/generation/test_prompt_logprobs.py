"""Prompt log-probabilities equal the scores of the same texts, with the most probable tokens beside them."""

from __future__ import annotations

import pytest

from meristem.config.errors import MeristemError
from meristem.generation.generation_inputs import input_template
from meristem.generation.prompt_logprobs import score_prompt_tokens
from meristem.generation.score import score
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

TEXTS = ["the old gardener planted the apple tree", "my sister", "a small garden and seventeen boats sold " * 12]


def test_prompt_logprobs_are_scores_in_windows_too(causal: Model, tokenizer: Tokenizer) -> None:
    ids = [
        [*input_template(causal, tokenizer, "causal").prompt_start_ids, *tokenizer.encode(text).ids.tolist()]
        for text in TEXTS
    ]
    assert len(ids[2]) > 2 * causal.backbone.max_length
    prompt_scores = score_prompt_tokens(causal, ids, top_logprobs=2)
    for text, token_scores, scored in zip(ids, prompt_scores, score(causal, tokenizer, TEXTS), strict=True):
        assert [token_score.token for token_score in token_scores] == text[1:]
        assert [token_score.logprob for token_score in token_scores] == pytest.approx(
            [x for _, x in scored.per_token], abs=1e-4
        )
        for scored_token in token_scores:
            (best, first), (_, second) = scored_token.top
            assert first >= second
            assert (scored_token.logprob == first) == (scored_token.token == best)


def test_a_text_of_one_token_has_no_prompt_logprobs(causal: Model) -> None:
    assert score_prompt_tokens(causal, [[3]]) == [[]]


def test_only_causal_models_have_prompt_logprobs(masked: Model) -> None:
    with pytest.raises(MeristemError, match="echo needs a causal model"):
        score_prompt_tokens(masked, [[1, 2]])
