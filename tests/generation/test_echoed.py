"""What is echoed are the numbers that scoring gives, with the likeliest tokens beside them."""

from __future__ import annotations

import pytest

from meristem.batch import Model
from meristem.errors import MeristemError
from meristem.generation.echoed import echoed
from meristem.generation.given import opening
from meristem.generation.score import score
from meristem.tokenizers.tokenizer import Tokenizer

TEXTS = ["the old gardener planted the apple tree", "my sister", "a small garden and seventeen boats sold " * 12]


def test_echoes_are_scores_in_windows_too(causal: Model, tokenizer: Tokenizer) -> None:
    ids = [[*opening(causal, tokenizer), *tokenizer.encode(text).ids.tolist()] for text in TEXTS]
    assert len(ids[2]) > 2 * causal.backbone.length
    found = echoed(causal, ids, top=2)
    for text, one, scored in zip(ids, found, score(causal, tokenizer, TEXTS), strict=True):
        assert [chosen.token for chosen in one] == text[1:]
        assert [chosen.logprob for chosen in one] == pytest.approx([x for _, x in scored.per_token], abs=1e-4)
        for chosen in one:
            (best, first), (_, second) = chosen.top
            assert first >= second
            assert (chosen.logprob == first) == (chosen.token == best)


def test_a_text_of_one_token_echoes_nothing(causal: Model) -> None:
    assert echoed(causal, [[3]]) == [[]]


def test_only_causal_models_echo(masked: Model) -> None:
    with pytest.raises(MeristemError, match="echo needs a causal model"):
        echoed(masked, [[1, 2]])
