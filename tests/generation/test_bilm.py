"""ELMo as a language model: both directions, gaps from both sides, and incremental forward generation."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from meristem.generation import bilm
from meristem.generation.bilm import SpelledText, bilm_scores
from meristem.generation.continuous_batching import ContinuousBatch, SequenceState, TokenSampler
from meristem.generation.fill import fill
from meristem.generation.generate import banned_token_ids, generate
from meristem.generation.generation_inputs import build_generation_inputs, collate_inputs
from meristem.generation.incremental_decoder import DecodeSession
from meristem.generation.sampling import seeded_uniforms
from meristem.generation.score import score
from meristem.generation.settings import SamplingSettings
from meristem.generation.slot_scheduling import FairSlotScheduler
from meristem.inputs.char_ids import TokenCharIds
from meristem.interfaces.backbone import MODEL_FAMILIES, Head, Model
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

TEXTS = ["The old gardener planted the apple tree. My sister sold seventeen boats and a small garden."] * 3
UNSEEN = "The old grelbon sold the quorple."


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer(TokenizerSettings.model_validate({"kind": "words", "vocab_size": 64}), TEXTS)


@pytest.fixture(scope="module")
def elmo(words: Tokenizer) -> Model:
    torch.manual_seed(3)
    cls = MODEL_FAMILIES["elmo"]
    model_settings = {
        "layers": 2,
        "hidden_size": 12,
        "cell_size": 20,
        "max_length": 16,
        "char_embedding_size": 4,
        "char_filters": [[1, 8], [2, 8]],
    }
    backbone = cls(cls.Settings.model_validate(model_settings), words.vocab_size)
    backbone.spell = TokenCharIds(words)
    model = Model(backbone, {"bilm": Head("vocabulary")})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def by_hand(model: Model, text: SpelledText) -> tuple[list[float], list[float]]:
    """Each word's log-probability from its left and from its right neighbour's state, in one pass over the row."""
    with torch.no_grad():
        hidden = model.backbone(characters=torch.from_numpy(text.char_ids)[None])
        forward, backward = (
            model.heads["bilm"](half).log_softmax(-1)[0] for half in hidden.last_hidden_state.chunk(2, -1)
        )
    inside = range(1, len(text.ids) - 1)
    return ([float(forward[position - 1, text.ids[position]]) for position in inside],
            [float(backward[position + 1, text.ids[position]]) for position in inside])  # fmt: skip


def test_both_directions_and_their_mean(elmo: Model, words: Tokenizer) -> None:
    texts = [TEXTS[0], UNSEEN, "", "boats"]
    for text, text_score in zip(texts, score(elmo, words, texts), strict=True):
        encoded = words.encode(text)
        word_bytes = [text[a:b].encode() for a, b in encoded.offsets.tolist()]
        forward, backward = by_hand(elmo, SpelledText.from_ids(words, encoded.ids.astype(np.int64), word_bytes))
        assert text_score.forward == pytest.approx(sum(forward), abs=1e-3)
        assert text_score.backward == pytest.approx(sum(backward), abs=1e-3)
        assert text_score.logprob == pytest.approx((sum(forward) + sum(backward)) / 2, abs=1e-3)
        assert [value for _, value in text_score.per_token] == pytest.approx(
            [(a + b) / 2 for a, b in zip(forward, backward, strict=True)], abs=1e-3
        )
    other_score = score(elmo, words, [UNSEEN.replace("grelbon", "grelbin")])[0]
    assert other_score.tokens == score(elmo, words, [UNSEEN])[0].tokens
    assert (
        abs(other_score.logprob - score(elmo, words, [UNSEEN])[0].logprob) > 1e-4
    )  # unknown words differ in their letters


@pytest.mark.parametrize("direction", [0, 1])
def test_probabilities_of_all_texts_of_a_length_sum_to_one(elmo: Model, words: Tokenizer, direction: int) -> None:
    word_ids = np.flatnonzero(~words.special_mask)[:4]
    saved_bias = elmo.heads["bilm"].bias.detach().clone()
    with torch.no_grad():
        elmo.heads["bilm"].bias.fill_(-torch.inf)
        elmo.heads["bilm"].bias[torch.from_numpy(word_ids)] = 0.0
    texts = [np.array(id_tuple) for id_tuple in itertools.product(word_ids, repeat=3)]
    probabilities = np.exp(
        [direction_score.logprobs.sum() for direction_score in bilm_scores(elmo, words, texts)[direction]]
    )
    with torch.no_grad():
        elmo.heads["bilm"].bias.copy_(saved_bias)
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-5)
    assert probabilities.max() > 1.5 / len(texts)


def test_long_texts_go_through_the_state(elmo: Model, words: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [" ".join(TEXTS), UNSEEN, TEXTS[0]]
    expected_scores = score(elmo, words, texts)
    monkeypatch.setattr(bilm, "MAX_WORDS_PER_PASS", 7)
    for expected, other in zip(expected_scores, score(elmo, words, texts), strict=True):
        assert expected.forward == pytest.approx(other.forward, abs=1e-3)
        assert expected.backward == pytest.approx(other.backward, abs=1e-3)


def test_generation_is_the_forward_direction(elmo: Model, words: Tokenizer) -> None:
    starts = [build_generation_inputs(elmo, words, text) for text in (UNSEEN, "My sister")]
    tokens, sizes, inputs = collate_inputs(starts, elmo.device)
    session = DecodeSession(elmo, tokens, sizes, capacity=4, **inputs)
    rng, sequences = np.random.default_rng(0), [list(start.prompt_ids) for start in starts]
    for _ in range(5):
        for row, start in enumerate(starts):
            new = np.array(sequences[row][len(start.prompt_ids) :], np.int64)
            letters = np.concatenate([start.inputs["characters"].numpy(), TokenCharIds(words)(new)])
            with torch.no_grad():
                hidden = elmo.backbone(characters=torch.from_numpy(letters)[None])
                expected = elmo.heads["bilm"](
                    hidden.last_hidden_state[0, -1, : hidden.last_hidden_state.shape[-1] // 2]
                )
            assert torch.allclose(session.logits[row], expected, atol=1e-4)
        new = rng.choice(np.flatnonzero(~words.special_mask), 2)
        session.decode_step(torch.from_numpy(new))
        for row, token in enumerate(new.tolist()):
            sequences[row].append(token)


def test_what_is_generated_has_its_forward_score(elmo: Model, words: Tokenizer) -> None:
    settings = SamplingSettings(max_tokens=5, greedy=True)
    ((completion,),) = generate(elmo, words, [""], settings)
    assert words.encode(completion.text).ids.tolist() == list(completion.tokens)
    ending = [words.end] if completion.finished == "end" else []
    forward, _ = bilm_scores(elmo, words, [np.array([*completion.tokens, *ending])])
    assert completion.score == pytest.approx(float(forward[0].logprobs.sum()), abs=1e-3)
    # texts written beside others, which joined later, are what they are alone
    continuous_batch, sequence_states = ContinuousBatch(elmo, scheduler=FairSlotScheduler(2)), []
    sampler = TokenSampler.from_settings(settings, banned_token_ids(elmo, words), words.end)
    for prompt in ("The old", UNSEEN, ""):
        start = build_generation_inputs(elmo, words, prompt)
        sequence_states.append(SequenceState(start, sampler, seeded_uniforms(0), settings.max_tokens, words.end))
        continuous_batch.add(sequence_states[-1])
        continuous_batch.step()
    while continuous_batch.has_work:
        continuous_batch.step()
    single_texts = [
        single_completion.text for (single_completion,) in generate(elmo, words, ["The old", UNSEEN, ""], settings)
    ]
    assert [sequence_state.to_text(words, None).text for sequence_state in sequence_states] == single_texts


def test_continuations_are_scored_forward(elmo: Model, words: Tokenizer) -> None:
    (full_score,), (first,) = (
        score(elmo, words, ["The old gardener sold boats"]),
        score(elmo, words, ["The old gardener"]),
    )
    (after,) = score(elmo, words, ["The old gardener"], text_b=[" sold boats"])
    assert after.logprob == pytest.approx(full_score.forward - first.forward, abs=1e-3)
    assert (after.text_b, after.tokens) == (" sold boats", 2)


def test_gaps_are_filled_from_both_sides(elmo: Model, words: Tokenizer) -> None:
    text = "The old [MASK] sold the apple [MASK] ."
    fills = fill(elmo, words, text, top=words.vocab_size)
    ids = words.encode(text, special=True).ids.astype(np.int64)
    row = SpelledText.from_ids(words, ids, [b"The", b"old", b"[MASK]", b"sold", b"the", b"apple", b"[MASK]", b"."])
    with torch.no_grad():
        hidden = elmo.backbone(characters=torch.from_numpy(row.char_ids)[None])
        forward, backward = (elmo.heads["bilm"](half)[0].softmax(-1) for half in hidden.last_hidden_state.chunk(2, -1))
    for filled, position in zip(fills, np.flatnonzero(row.ids == words.mask), strict=True):
        product = forward[position - 1] * backward[position + 1]
        product /= product.sum()
        for candidate in filled.candidates[:5]:
            assert candidate.probability == pytest.approx(float(product[words.token_to_id(candidate.token)]), rel=1e-3)
        assert filled.candidates[0].probability > filled.candidates[1].probability


def test_a_text_of_one_word_and_none(elmo: Model, words: Tokenizer) -> None:
    (word_score, none) = score(elmo, words, ["boats", ""])
    assert (word_score.tokens, none.tokens, none.logprob) == (1, 0, 0.0)
    with pytest.raises(Exception, match=r"write \[MASK\]"):
        fill(elmo, words, "boats")


def test_a_text_without_special_tokens_has_no_context_before_its_first_word(
    elmo: Model, words: Tokenizer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(words, "start", None)
    forward, backward = bilm_scores(elmo, words, [words.encode("my sister sold").ids.astype(np.int64)])
    assert forward[0].logprobs[0] == 0 and (forward[0].logprobs[1:] < 0).all()
    assert backward[0].logprobs[-1] == 0 and (backward[0].logprobs[:-1] < 0).all()
