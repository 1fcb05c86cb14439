"""Rollouts: sampled at given uniforms, independent of the batch, with token log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from meristem.generation.generate import banned_token_ids
from meristem.generation.generation_inputs import GenerationInputs, build_generation_inputs
from meristem.generation.rollout import RolloutConfig, decode_after_prompt, sample_rollouts
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

PROMPTS = ("The old", "My sister sold seventeen", "老园丁")
MOST = 8


def way_for(model: Model, tokenizer: Tokenizer, temperature: float = 1.0) -> RolloutConfig:
    return RolloutConfig(
        max_new_tokens=MOST,
        end_id=tokenizer.end,
        banned_ids=tuple(banned_token_ids(model, tokenizer)),
        temperature=temperature,
    )


def uniforms(prompts: int, count: int) -> list[np.ndarray[Any, Any]]:
    return [np.random.default_rng(n).random((count, MOST)) for n in range(prompts)]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_are_those_of_reading_again(causal: Model, tokenizer: Tokenizer, temperature: float) -> None:
    rollout_config = way_for(causal, tokenizer, temperature)
    starts = [build_generation_inputs(causal, tokenizer, prompt) for prompt in PROMPTS]
    for start, texts in zip(starts, sample_rollouts(causal, starts, uniforms(3, 4), rollout_config), strict=True):
        assert len(texts) == 4
        for text in texts:
            full_ids = torch.tensor([[*start.prompt_ids, *text.tokens]])
            with torch.no_grad():
                states = causal.backbone(tokens=full_ids, causal=True).last_hidden_state[
                    0, len(start.prompt_ids) - 1 : -1
                ]
                logits = causal.heads["clm"](states) / temperature + rollout_config.banned_logits(
                    causal.heads["clm"].weight.shape[0]
                )
            right = logits.log_softmax(-1)[torch.arange(len(text.tokens)), torch.from_numpy(text.tokens)]
            np.testing.assert_allclose(text.logprobs, right.numpy(), atol=2e-5)
            assert not set(text.tokens.tolist()) & set(rollout_config.banned_ids)


def test_tokens_are_where_the_numbers_fall(causal: Model, tokenizer: Tokenizer) -> None:
    rollout_config = way_for(causal, tokenizer)
    start = build_generation_inputs(causal, tokenizer, PROMPTS[0])
    with torch.no_grad():
        logits = causal.heads["clm"](
            causal.backbone(tokens=torch.tensor([start.prompt_ids]), causal=True).last_hidden_state[0, -1]
        )
    shares = (logits + rollout_config.banned_logits(len(logits))).double().softmax(-1).cumsum(-1)
    uniform_values = np.linspace(0.01, 0.99, 16)
    firsts = [
        rollout.tokens[0]
        for rollout in sample_rollouts(causal, [start], [np.tile(uniform_values[:, None], (1, MOST))], rollout_config)[
            0
        ]
    ]
    right = torch.searchsorted(shares, torch.from_numpy(uniform_values), right=True)
    assert firsts == right.tolist()


def test_a_text_is_the_same_alone_and_among_others(causal: Model, tokenizer: Tokenizer) -> None:
    rollout_config, numbers = way_for(causal, tokenizer), uniforms(3, 5)
    starts = [build_generation_inputs(causal, tokenizer, prompt) for prompt in PROMPTS]
    rollouts = sample_rollouts(causal, starts, numbers, rollout_config)
    for start, own_uniforms, texts in zip(starts, numbers, rollouts, strict=True):
        single = sample_rollouts(causal, [start], [own_uniforms[2:3]], rollout_config)[0][0]
        assert single.tokens.tolist() == texts[2].tokens.tolist()
        np.testing.assert_allclose(single.logprobs, texts[2].logprobs, atol=1e-5)


def test_a_text_ends_at_its_end_token_and_the_end_is_counted(causal: Model, tokenizer: Tokenizer) -> None:
    start = build_generation_inputs(causal, tokenizer, PROMPTS[0])
    first = sample_rollouts(causal, [start], uniforms(1, 6), way_for(causal, tokenizer))[0]
    word = int(first[0].tokens[3])
    rollout_config = RolloutConfig(
        max_new_tokens=MOST, end_id=word, banned_ids=tuple(banned_token_ids(causal, tokenizer))
    )
    second_rollouts = sample_rollouts(causal, [start], uniforms(1, 6), rollout_config)[0]
    for before, second_rollout in zip(first, second_rollouts, strict=True):
        indices = np.flatnonzero(before.tokens == word)
        size = int(indices[0]) + 1 if len(indices) else MOST
        assert second_rollout.tokens.tolist() == before.tokens[:size].tolist() and second_rollout.is_finished == bool(
            len(indices)
        )
        assert (
            second_rollout.text_tokens.tolist() == second_rollout.tokens[: size - second_rollout.is_finished].tolist()
        )
    assert second_rollouts[0].is_finished


@pytest.mark.parametrize("family", ["transformer", "rnn"])
def test_encoder_decoders_have_rollouts_too(make: Any, tokenizer: Tokenizer, family: str) -> None:
    sizes = {"heads": 4} if family == "transformer" else {}
    model = make_source(make, family, tokenizer, sizes)
    starts = [build_generation_inputs(model, tokenizer, prompt) for prompt in PROMPTS]
    rollout_config = way_for(model, tokenizer)
    for start, texts in zip(starts, sample_rollouts(model, starts, uniforms(3, 2), rollout_config), strict=True):
        for text in texts:
            with torch.no_grad():
                hidden = model.backbone(
                    tokens=torch.tensor([[*start.prompt_ids, *text.tokens[:-1]]]), source=start.inputs["source"][None]
                )
                logits = model.heads["seq2seq"](hidden.last_hidden_state[0]) + rollout_config.banned_logits(
                    tokenizer.vocab_size
                )
            right = logits.log_softmax(-1)[torch.arange(len(text.tokens)), torch.from_numpy(text.tokens)]
            np.testing.assert_allclose(text.logprobs, right.numpy(), atol=2e-5)


def make_source(make: Any, family: str, tokenizer: Tokenizer, sizes: dict[str, int]) -> Model:
    if family == "transformer":
        return make(family, ("seq2seq",), tokenizer.vocab_size)  # type: ignore[no-any-return]
    from meristem.interfaces.backbone import MODEL_FAMILIES, Head

    torch.manual_seed(3)
    cls = MODEL_FAMILIES[family]
    backbone = cls(
        cls.Settings.model_validate({"layers": 1, "hidden_size": 32, "max_length": 24}), tokenizer.vocab_size
    )
    return Model(backbone, {"seq2seq": Head("vocabulary")}).eval()


def test_a_text_is_spelled_as_it_follows_its_prompt(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("The old gardener planted").ids.tolist()
    for cut in range(len(ids)):
        assert tokenizer.decode(ids[:cut]) + decode_after_prompt(tokenizer, ids[:cut], ids[cut:]) == tokenizer.decode(
            ids
        )


def test_an_empty_prompt_is_refused(causal: Model) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        sample_rollouts(
            causal, [GenerationInputs(prompt_ids=[])], uniforms(1, 1), RolloutConfig(max_new_tokens=2, end_id=None)
        )
