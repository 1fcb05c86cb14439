"""Rollouts: drawn where given numbers say, whatever is drawn beside them, with each token's log-probability."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from meristem.batch import Model
from meristem.generation.given import Given, given
from meristem.generation.rolling import Way, roll, spelled
from meristem.generation.write import unwanted
from meristem.tokenizers.tokenizer import Tokenizer

PROMPTS = ("The old", "My sister sold seventeen", "老园丁")
MOST = 8


def way_for(model: Model, tokenizer: Tokenizer, heat: float = 1.0) -> Way:
    return Way(most=MOST, end=tokenizer.end, shut=tuple(unwanted(model, tokenizer)), heat=heat)


def uniforms(prompts: int, count: int) -> list[np.ndarray[Any, Any]]:
    return [np.random.default_rng(n).random((count, MOST)) for n in range(prompts)]


@pytest.mark.parametrize("heat", [1.0, 0.6])
def test_log_probabilities_are_those_of_reading_again(causal: Model, tokenizer: Tokenizer, heat: float) -> None:
    way = way_for(causal, tokenizer, heat)
    starts = [given(causal, tokenizer, prompt) for prompt in PROMPTS]
    for start, texts in zip(starts, roll(causal, starts, uniforms(3, 4), way), strict=True):
        assert len(texts) == 4
        for one in texts:
            whole = torch.tensor([[*start.prompt, *one.tokens]])
            with torch.no_grad():
                states = causal.backbone(tokens=whole, causal=True).last[0, len(start.prompt) - 1 : -1]
                logits = causal.heads["clm"](states) / heat + way.without(causal.heads["clm"].weight.shape[0])
            right = logits.log_softmax(-1)[torch.arange(len(one.tokens)), torch.from_numpy(one.tokens)]
            np.testing.assert_allclose(one.logprobs, right.numpy(), atol=2e-5)
            assert not set(one.tokens.tolist()) & set(way.shut)


def test_tokens_are_where_the_numbers_fall(causal: Model, tokenizer: Tokenizer) -> None:
    way = way_for(causal, tokenizer)
    start = given(causal, tokenizer, PROMPTS[0])
    with torch.no_grad():
        logits = causal.heads["clm"](causal.backbone(tokens=torch.tensor([start.prompt]), causal=True).last[0, -1])
    shares = (logits + way.without(len(logits))).double().softmax(-1).cumsum(-1)
    at = np.linspace(0.01, 0.99, 16)
    firsts = [one.tokens[0] for one in roll(causal, [start], [np.tile(at[:, None], (1, MOST))], way)[0]]
    right = torch.searchsorted(shares, torch.from_numpy(at), right=True)
    assert firsts == right.tolist()


def test_a_text_is_the_same_alone_and_among_others(causal: Model, tokenizer: Tokenizer) -> None:
    way, numbers = way_for(causal, tokenizer), uniforms(3, 5)
    starts = [given(causal, tokenizer, prompt) for prompt in PROMPTS]
    together = roll(causal, starts, numbers, way)
    for start, own, texts in zip(starts, numbers, together, strict=True):
        alone = roll(causal, [start], [own[2:3]], way)[0][0]
        assert alone.tokens.tolist() == texts[2].tokens.tolist()
        np.testing.assert_allclose(alone.logprobs, texts[2].logprobs, atol=1e-5)


def test_a_text_ends_at_its_end_token_and_the_end_is_counted(causal: Model, tokenizer: Tokenizer) -> None:
    start = given(causal, tokenizer, PROMPTS[0])
    first = roll(causal, [start], uniforms(1, 6), way_for(causal, tokenizer))[0]
    word = int(first[0].tokens[3])
    way = Way(most=MOST, end=word, shut=tuple(unwanted(causal, tokenizer)))
    again = roll(causal, [start], uniforms(1, 6), way)[0]
    for before, now in zip(first, again, strict=True):
        places = np.flatnonzero(before.tokens == word)
        size = int(places[0]) + 1 if len(places) else MOST
        assert now.tokens.tolist() == before.tokens[:size].tolist() and now.ended == bool(len(places))
        assert now.words.tolist() == now.tokens[: size - now.ended].tolist()
    assert again[0].ended


@pytest.mark.parametrize("family", ["transformer", "rnn"])
def test_what_writes_from_a_source_rolls_too(make: Any, tokenizer: Tokenizer, family: str) -> None:
    sizes = {"heads": 4} if family == "transformer" else {}
    model = make_source(make, family, tokenizer, sizes)
    starts = [given(model, tokenizer, prompt) for prompt in PROMPTS]
    way = way_for(model, tokenizer)
    for start, texts in zip(starts, roll(model, starts, uniforms(3, 2), way), strict=True):
        for one in texts:
            with torch.no_grad():
                hidden = model.backbone(
                    tokens=torch.tensor([[*start.prompt, *one.tokens[:-1]]]), source=start.inputs["source"][None]
                )
                logits = model.heads["seq2seq"](hidden.last[0]) + way.without(tokenizer.size)
            right = logits.log_softmax(-1)[torch.arange(len(one.tokens)), torch.from_numpy(one.tokens)]
            np.testing.assert_allclose(one.logprobs, right.numpy(), atol=2e-5)


def make_source(make: Any, family: str, tokenizer: Tokenizer, sizes: dict[str, int]) -> Model:
    if family == "transformer":
        return make(family, ("seq2seq",), tokenizer.size)  # type: ignore[no-any-return]
    from meristem.batch import Head
    from meristem.settings import find

    torch.manual_seed(3)
    cls = find("models", family)
    backbone = cls(cls.Settings.model_validate({"layers": 1, "width": 32, "length": 24}), tokenizer.size)
    return Model(backbone, {"seq2seq": Head("vocabulary")}).eval()


def test_a_text_is_spelled_as_it_follows_its_prompt(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("The old gardener planted").ids.tolist()
    for cut in range(len(ids)):
        assert tokenizer.decode(ids[:cut]) + spelled(tokenizer, ids[:cut], ids[cut:]) == tokenizer.decode(ids)


def test_one_start_with_nothing_to_read_is_refused(causal: Model) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        roll(causal, [Given(prompt=[])], uniforms(1, 1), Way(most=2, end=None))
