"""Continuation scores against scores of the whole text, against one row at a time, and beyond the maximum length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from meristem.config.errors import MeristemError
from meristem.generation.continuation_score import score_continuations
from meristem.generation.generation_inputs import build_generation_inputs, collate_inputs
from meristem.generation.score import score
from meristem.inputs.template import separator_id
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

PAIRS = [
    ("The old gardener", " planted the apple tree."),
    ("The old gardener", " sold boats"),
    ("", "My sister"),
    ("老园丁", "种下了苹果树。"),
    ("My sister", ""),
    ("The old gard", "ener"),
]


@pytest.mark.parametrize("fixture_name", ["causal", "masked"])
def test_it_is_the_end_of_the_score(fixture_name: str, tokenizer: Tokenizer, request: pytest.FixtureRequest) -> None:
    model: Model = request.getfixturevalue(fixture_name)
    for (context, text), score_continuation in zip(PAIRS, score_continuations(model, tokenizer, PAIRS), strict=True):
        (full_score,) = score(model, tokenizer, [context + text])
        ends = tokenizer.encode(context + text).offsets[:, 1]
        tail = [value for (_, value), end in zip(full_score.per_token, ends, strict=True) if end > len(context)]
        assert score_continuation.tokens == len(tail)
        assert score_continuation.logprob == pytest.approx(sum(tail), abs=1e-4)


def test_a_token_across_the_border_is_the_continuations(causal: Model, tokenizer: Tokenizer) -> None:
    word = tokenizer.encode("gardener").ids
    (continuation,) = score_continuations(causal, tokenizer, [("gardene", "r")])
    assert continuation.tokens == 1 and len(word) >= 1


def test_best_is_what_greedy_writing_chooses(causal: Model, tokenizer: Tokenizer) -> None:
    ids = [separator_id(tokenizer), *tokenizer.encode("The old gardener").ids.tolist()]
    with torch.inference_mode():
        logits = causal.heads["clm"](causal.backbone(tokens=torch.tensor([ids]), causal=True).last_hidden_state[0, -1])
    order = [number for number in logits.argsort(descending=True).tolist() if not tokenizer.special_mask[number]]
    spelled = [tokenizer.id_to_token(number) for number in order]
    word_continuations = [f" {token}" for token in spelled if not token.startswith("##") and token.isalpha()]
    continuations = score_continuations(causal, tokenizer, [("The old gardener", word) for word in word_continuations])
    single = [continuation for continuation in continuations if continuation.tokens == 1]
    assert sum(continuation.best for continuation in single) <= 1
    top = max(single, key=lambda continuation: continuation.logprob)
    assert top.best == (int(logits.argmax()) == tokenizer.encode(word_continuations[continuations.index(top)]).ids[0])


def test_a_context_too_long_loses_its_beginning(causal: Model, tokenizer: Tokenizer) -> None:
    context = "The old gardener planted the apple tree. " * 5
    (continuation,) = score_continuations(causal, tokenizer, [(context, "My sister")])
    ids = tokenizer.encode(context + "My sister").ids.astype(np.int64)[-causal.backbone.max_length :]
    with torch.inference_mode():
        row = torch.tensor([[separator_id(tokenizer), *ids[:-1].tolist()]])
        logits = causal.heads["clm"](causal.backbone(tokens=row, causal=True).last_hidden_state[0]).log_softmax(-1)
    token_logprobs = logits[torch.arange(len(ids)), torch.from_numpy(ids)]
    assert continuation.logprob == pytest.approx(float(token_logprobs[-continuation.tokens :].sum()), abs=1e-4)


def test_a_continuation_longer_than_the_model_is_read_in_windows(causal: Model, tokenizer: Tokenizer) -> None:
    text = "The old gardener planted the apple tree. " * 6
    (continuation,) = score_continuations(causal, tokenizer, [("", text)])
    (full_score,) = score(causal, tokenizer, [text])
    assert full_score.tokens > causal.backbone.max_length
    assert continuation.logprob == pytest.approx(full_score.logprob, abs=1e-4)


def test_targets_of_their_sources(make: Any, tokenizer: Tokenizer) -> None:
    model = make("transformer", ("seq2seq",), tokenizer.vocab_size)
    continuations = score_continuations(model, tokenizer, PAIRS)
    for (context, text), continuation in zip(PAIRS, continuations, strict=True):
        ids = tokenizer.encode(text).ids.tolist()
        assert continuation.tokens == len(ids)
        if not ids or not context:
            continue
        start = build_generation_inputs(model, tokenizer, context)
        tokens, _, inputs = collate_inputs([start], model.device)
        row = torch.cat([tokens, torch.tensor([ids])], 1)
        with torch.inference_mode():
            logits = model.heads["seq2seq"](model.backbone(tokens=row, **inputs).last_hidden_state[0]).log_softmax(-1)
        expected = sum(float(logits[len(start.prompt_ids) - 1 + index, token]) for index, token in enumerate(ids))
        assert continuation.logprob == pytest.approx(expected, abs=1e-4)
        assert continuation.best == all(
            int(logits[len(start.prompt_ids) - 1 + index].argmax()) == token for index, token in enumerate(ids)
        )
    with pytest.raises(MeristemError, match=r"a target has \d+ tokens, and this model generates at most 24"):
        score_continuations(model, tokenizer, [("The old", "boats " * 60)])
