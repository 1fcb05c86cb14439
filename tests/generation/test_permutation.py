"""XLNet as a language model: exact probabilities in any order, gaps, and incremental generation."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from meristem.blocks.attention.relative_mask import RelativeMaskSpec
from meristem.config.errors import MeristemError
from meristem.generation.fill import fill
from meristem.generation.generate import generate
from meristem.generation.generation_inputs import input_template
from meristem.generation.incremental_decoder import DecodeSession
from meristem.generation.permutation import permutation_scores
from meristem.generation.score import score
from meristem.generation.settings import SamplingSettings
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

LENGTH = 24
TEXT = "The old gardener planted the apple tree."


@pytest.fixture(scope="module", params=[0, 8], ids=["alone", "memory"])
def xlnet(request: pytest.FixtureRequest, make: Any, tokenizer: Tokenizer) -> Model:
    model: Model = make("xlnet", ("plm",), tokenizer.vocab_size, memory_length=request.param)
    return model


def full_pass(model: Model, tokens: list[int], rank: list[int], slots: list[int], window: int | None) -> torch.Tensor:
    """[slots, V] log-probabilities of a full two-stream pass over one row, however long."""
    backbone: Any = model.backbone
    x, order, query_slots = backbone.tokens(torch.tensor([tokens])), torch.tensor([rank]), torch.tensor([slots])
    mask_spec = RelativeMaskSpec(
        num_tokens=len(tokens),
        causal=False,
        device=x.device,
        dtype=x.dtype,
        present=order > 0,
        order=order,
        window=window,
    )
    with torch.no_grad():
        hidden = backbone.stack(x, mask_spec, queries=backbone.query.expand(1, len(slots), -1), at=query_slots)
        return model.heads["plm"](hidden.last_hidden_state[0]).log_softmax(-1)  # type: ignore[no-any-return]


@pytest.mark.parametrize("order", [None, (2, 1, 0), (1, 2, 0)])
def test_probabilities_of_all_texts_of_a_length_sum_to_one(make: Any, tokenizer: Tokenizer, order: Any) -> None:
    model = make("xlnet", ("plm",), tokenizer.vocab_size)
    words = np.flatnonzero(~tokenizer.special_mask)[:5]
    with torch.no_grad():  # all other tokens are impossible
        model.heads["plm"].bias.fill_(-torch.inf)
        model.heads["plm"].bias[torch.from_numpy(words)] = 0.0
    texts = [np.array(id_tuple) for id_tuple in itertools.product(words, repeat=3)]
    scores = permutation_scores(model, tokenizer, texts, [0] * len(texts), [order] * len(texts))
    probabilities = np.exp([score.logprobs.sum() for score in scores])
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-5)
    assert probabilities.max() > 1.5 / len(texts)  # and they are not all alike


def test_each_token_is_predicted_from_those_before_it_in_the_order(xlnet: Model, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT).ids.tolist()
    first = list(input_template(xlnet, tokenizer, "permutation").prompt_start_ids)
    for order in (list(range(len(ids))), list(np.random.default_rng(1).permutation(len(ids)))):
        (permutation_score,) = permutation_scores(xlnet, tokenizer, [np.array(ids)], [0], [order])
        visible = set(range(len(first)))
        for position in order:  # by hand: a pass for each token, in which later ones are not there at all
            tokens = [*first, *ids]
            row_position = position + len(first)
            rank = [
                1 if any_position in visible else 2 if any_position == row_position else 3
                for any_position in range(len(tokens))
            ]
            ordered = sorted(
                visible - set(range(len(first))), key=lambda row_position: order.index(row_position - len(first))
            )
            for number, later_position in enumerate(ordered):  # their content was made in the same order
                rank[later_position] = 2 + number
            rank[row_position] = 2 + len(ordered)
            rank = [
                rank_value if index in visible or index == row_position else 99 for index, rank_value in enumerate(rank)
            ]
            expected = full_pass(xlnet, tokens, rank, [row_position], None)[0, ids[position]]
            assert permutation_score.logprobs[position] == pytest.approx(float(expected), abs=1e-4)
            visible.add(row_position)
    (scored,) = score(xlnet, tokenizer, [TEXT])
    (left_to_right,) = permutation_scores(xlnet, tokenizer, [np.array(ids)], [0])
    assert scored.logprob == pytest.approx(float(left_to_right.logprobs.sum()), abs=1e-5)
    (backwards,) = score(xlnet, tokenizer, [TEXT], order=list(range(len(ids)))[::-1])
    assert abs(backwards.logprob - scored.logprob) > 1e-3


def test_a_batch_says_what_each_text_says_alone(xlnet: Model, tokenizer: Tokenizer) -> None:
    texts = [TEXT, "My sister sold boats.", "", TEXT * 4, "The old " * 30]  # two are longer than the model
    batched = score(xlnet, tokenizer, texts)
    assert max(batched_score.tokens for batched_score in batched) > 2 * LENGTH
    for text, text_score in zip(texts, batched, strict=True):
        (single,) = score(xlnet, tokenizer, [text])
        assert text_score.logprob == pytest.approx(single.logprob, abs=2e-3)
        assert len(text_score.per_token) == text_score.tokens


def test_long_texts_go_through_memory(make: Any, tokenizer: Tokenizer) -> None:
    model = make("xlnet", ("plm",), tokenizer.vocab_size, memory_length=8)
    ids = tokenizer.encode(TEXT * 5).ids.astype(np.int64)
    (permutation_score,) = permutation_scores(model, tokenizer, [ids], [0])
    first = list(input_template(model, tokenizer, "permutation").prompt_start_ids)
    row_ids, state = np.concatenate([first, ids]), None
    for number, start in enumerate(range(0, len(row_ids), LENGTH)):
        part = row_ids[start : start + LENGTH]
        num_context = len(first) if not number else 0
        rank = np.ones(len(part), np.int64)
        rank[num_context:] = 2 + np.arange(len(part) - num_context)
        slots = torch.arange(num_context, len(part))[None]
        with torch.no_grad():
            inputs = {"order": torch.from_numpy(rank)[None], "slots": slots, "fresh": torch.tensor([[not number]])}
            hidden = model.backbone(tokens=torch.from_numpy(part)[None], state=state, **inputs)
            logprobs = model.heads["plm"](hidden.last_hidden_state[0]).log_softmax(-1)
        state = hidden.state
        expected = logprobs[torch.arange(len(part) - num_context), torch.from_numpy(part[num_context:])]
        first_index = start + num_context - len(first)
        assert np.allclose(
            permutation_score.logprobs[first_index : first_index + len(expected)], expected.numpy(), atol=1e-4
        )


@pytest.mark.parametrize("size", [5, 30, 60])  # one chunk, two, three
def test_incremental_decoding_is_the_full_two_stream_pass(xlnet: Model, tokenizer: Tokenizer, size: int) -> None:
    rng = np.random.default_rng(size)
    ordinary = np.flatnonzero(~tokenizer.special_mask)
    tokens = rng.choice(ordinary, size + 40).tolist()
    other = rng.choice(ordinary, size + 43).tolist()  # rows of different lengths do not disturb each other
    backbone: Any = xlnet.backbone
    reach = LENGTH + backbone.settings.memory_length
    prompts = [torch.tensor(tokens[:size]), torch.tensor(other[: size + 3])]
    padded = torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True)
    session = DecodeSession(xlnet, padded, torch.tensor([size, size + 3]), capacity=size + 4)
    chunks = [1 + index // LENGTH for index in range(size)]  # the tokens of a chunk see each other
    for step in range(40):
        rank = [*chunks, *(chunks[-1] + 1 + number for number in range(step + 1))]
        expected = full_pass(xlnet, tokens[: size + step + 1], rank, [size + step], reach)[0]
        assert torch.allclose(session.logits[0].log_softmax(-1), expected, atol=2e-4), step
        session.decode_step(torch.tensor([tokens[size + step], other[size + 3 + step]]))


def test_what_is_generated_has_the_score_it_is_given(xlnet: Model, tokenizer: Tokenizer) -> None:
    settings = SamplingSettings(max_tokens=6, greedy=True)
    ((completion,), (unprompted,)) = generate(xlnet, tokenizer, [TEXT[:12], ""], settings)
    assert len(completion.tokens) == len(unprompted.tokens) == 6 and completion.finished == "length"
    (scored,) = permutation_scores(xlnet, tokenizer, [np.array(unprompted.tokens)], [0])
    assert unprompted.score == pytest.approx(float(scored.logprobs.sum()), abs=1e-3)
    ids = [*tokenizer.encode(TEXT[:12]).ids.tolist(), *completion.tokens]
    (after,) = permutation_scores(xlnet, tokenizer, [np.array(ids)], [len(ids) - 6])
    assert completion.score == pytest.approx(float(after.logprobs.sum()), abs=1e-3)
    (beam,) = generate(xlnet, tokenizer, [TEXT[:12]], SamplingSettings(max_tokens=4, beams=3), count=2)
    assert beam[0].score >= beam[1].score


def test_the_end_which_was_never_predicted_is_never_written(xlnet: Model, tokenizer: Tokenizer) -> None:
    assert tokenizer.end is not None
    with torch.no_grad():
        xlnet.heads["plm"].bias[tokenizer.end] += 100.0
        ((completion,),) = generate(xlnet, tokenizer, ["The old"], SamplingSettings(max_tokens=3, greedy=True))
        xlnet.heads["plm"].bias[tokenizer.end] -= 100.0
    assert completion.finished == "length" and len(completion.tokens) == 3


def test_masks_are_predicted_last(xlnet: Model, tokenizer: Tokenizer) -> None:
    text = "The [MASK] gardener planted the [MASK] tree."
    first_fill, other = fill(xlnet, tokenizer, text, top=4)
    ids = tokenizer.encode(text, special=True).ids.tolist()
    before = list(input_template(xlnet, tokenizer, "permutation").prompt_start_ids)
    after = [tokenizer.end]
    tokens = [*before, *ids, *after]
    masks = [index for index, token in enumerate(tokens) if token == tokenizer.mask]
    rank = [2 if position in masks else 1 for position in range(len(tokens))]
    probabilities = full_pass(xlnet, tokens, rank, masks, None).exp()
    for filled, row in zip((first_fill, other), probabilities, strict=True):
        best = filled.candidates[0]
        ordinary = row.masked_fill(torch.from_numpy(tokenizer.special_mask), 0.0)
        assert tokenizer.token_text(int(ordinary.argmax())) == best.token
        assert best.probability == pytest.approx(float(ordinary.max()), rel=1e-3)
    # what is written at a mask makes no difference: it is hidden, not read as the mask token
    tokens[masks[0]] = ids[-1]
    assert torch.allclose(full_pass(xlnet, tokens, rank, masks, None).exp(), probabilities, atol=1e-6)


def test_an_order_that_is_none_is_refused(xlnet: Model, causal: Model, tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match=r"order: expected each of the text's \d+ tokens once"):
        score(xlnet, tokenizer, [TEXT], order=[0, 0, 1])
    size = score(xlnet, tokenizer, [TEXT * 4])[0].tokens
    with pytest.raises(MeristemError, match=r"order: this model orders at most \d+ tokens"):
        score(xlnet, tokenizer, [TEXT * 4], order=list(range(size)))
    with pytest.raises(MeristemError, match="only a permutation model"):
        score(causal, tokenizer, [TEXT], order=[0])
