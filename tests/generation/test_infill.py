"""Denoising encoder-decoders: mask filling with the decoder, and scores of texts as the infilling of one gap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from meristem.config.errors import MeristemError
from meristem.generation.fill import fill, fill_many, parse_masked_text
from meristem.generation.score import score
from meristem.interfaces.backbone import Model
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

TEXTS = ["The old gardener planted the apple tree. My sister sold seventeen boats and a small garden."] * 3
TEXT = "The [MASK] gardener sold the [MASK] boats."


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer(TokenizerSettings.model_validate({"kind": "bpe", "vocab_size": 300, "sentinels": 4}), TEXTS)


@pytest.fixture(scope="module", params=["masks", "sentinels"])
def denoiser(request: pytest.FixtureRequest, make: Any, words: Tokenizer) -> Model:
    model: Model = make("transformer", ("seq2seq",), words.vocab_size)
    model.source_kinds = frozenset({request.param})
    model.decoder_start_ids = (words.end,) if words.end is not None else None
    return model


def next_token_logprobs(model: Model, source: list[int], target: list[int]) -> torch.Tensor:
    """[V] log-probabilities of the token after a target."""
    with torch.no_grad():
        hidden = model.backbone(tokens=torch.tensor([target]), source=torch.tensor([source]))
        return model.heads["seq2seq"](hidden.last_hidden_state[0, -1]).log_softmax(-1)  # type: ignore[no-any-return]


def test_gaps_are_what_the_decoder_would_write(denoiser: Model, words: Tokenizer) -> None:
    ids = words.encode(TEXT, special=True).ids.tolist()
    gaps = [index for index, token in enumerate(ids) if token == words.mask]
    numbered = "sentinels" in denoiser.source_kinds
    source = list(ids)
    for number, position in enumerate(gaps if numbered else ()):
        source[position] = words.sentinels[number]
    start_ids, decoder_ids = list(denoiser.decoder_start_ids or ()), list[int]()
    for number, filled in enumerate(fill(denoiser, words, TEXT, top=3)):
        if numbered:
            target = [*start_ids, *decoder_ids, words.sentinels[number]]
        else:
            target = [
                *start_ids,
                *(
                    decoder_ids[gaps.index(position)] if position in gaps else ids[position]
                    for position in range(gaps[number])
                ),
            ]
        chances = next_token_logprobs(denoiser, [*source, words.end or 0], target).exp()
        ordinary = chances.masked_fill(torch.from_numpy(words.special_mask), 0.0)
        best = int(ordinary.argmax())
        assert filled.candidates[0].token == words.token_text(best)
        assert filled.candidates[0].probability == pytest.approx(float(ordinary.max()), rel=1e-3)
        decoder_ids += [words.sentinels[number], best] if numbered else [best]


def test_several_texts_are_filled_as_each_alone(denoiser: Model, words: Tokenizer) -> None:
    texts = [TEXT, "[MASK]", "My sister sold a [MASK] and [MASK] and [MASK].", "The old gardener " * 12 + "[MASK]."]
    batched = fill_many(denoiser, words, [parse_masked_text(words, text) for text in texts], top=2)
    for text, filled_gaps in zip(texts, batched, strict=True):
        for gap, other in zip(fill(denoiser, words, text, top=2), filled_gaps, strict=True):
            assert [c.token for c in gap.candidates] == [c.token for c in other.candidates]
            chances = [[c.probability for c in candidates_of.candidates] for candidates_of in (gap, other)]
            assert chances[0] == pytest.approx(chances[1], rel=1e-3)


def test_a_text_alone_is_what_one_gap_stands_for(denoiser: Model, words: Tokenizer) -> None:
    text = "My sister sold boats."
    ids = words.encode(text).ids.tolist()
    numbered = "sentinels" in denoiser.source_kinds
    gap = words.sentinels[0] if numbered else words.mask
    start = [*(denoiser.decoder_start_ids or ()), *([gap] if numbered else [])]
    expected = [
        float(next_token_logprobs(denoiser, [gap, words.end], [*start, *ids[:index]])[token])  # type: ignore[list-item]
        for index, token in enumerate(ids)
    ]
    (text_score,) = score(denoiser, words, [text])
    assert [value for _, value in text_score.per_token] == pytest.approx(expected, abs=1e-3)
    assert "".join(piece for piece, _ in text_score.per_token) == text
    with pytest.raises(MeristemError, match=r"this model scores at most \d+ at once"):
        score(denoiser, words, [text * 10])


def test_what_has_too_many_gaps_is_refused(make: Any, words: Tokenizer) -> None:
    model = make("transformer", ("seq2seq",), words.vocab_size)
    model.source_kinds = frozenset({"sentinels"})
    with pytest.raises(MeristemError, match="4 sentinels"):
        fill(model, words, "[MASK] a " * 5)


def test_a_target_in_place_of_the_one_gap(make: Any, words: Tokenizer) -> None:
    model = make("transformer", ("seq2seq",), words.vocab_size)
    model.source_kinds, model.decoder_start_ids = frozenset({"sentinels"}), (words.end,)
    (text_score,) = score(model, words, ["The old [MASK] sold boats."], text_b=["gardener"])
    ids = words.encode("gardener").ids.tolist()
    source = words.encode("The old [MASK] sold boats.", special=True).ids.tolist()
    source = [words.sentinels[0] if token == words.mask else token for token in source]
    start = [words.end, words.sentinels[0]]
    target_ids = [*ids, words.end]
    source = [*source, words.end]
    expected = [
        float(next_token_logprobs(model, source, [*start, *target_ids[:index]])[token])
        for index, token in enumerate(target_ids)
    ]
    assert text_score.logprob == pytest.approx(float(np.sum(expected)), abs=1e-3)
