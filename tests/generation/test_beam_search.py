"""Beam search against exhaustive search, alone and batched, with length penalty and early stopping."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from meristem.generation.beam_search import BeamSearch
from meristem.generation.incremental_decoder import DecodeSession
from meristem.interfaces.backbone import Model

WORDS, END, MOST = 5, 0, 4
PROMPT = [3, 1]


@pytest.fixture(scope="module")
def model(make: Any) -> Model:
    return make("gpt2", ("clm",), WORDS)  # type: ignore[no-any-return]


def every_text(model: Model) -> dict[tuple[int, ...], float]:
    """The log-probability of every text that ends, or reaches the full length."""
    out = {}
    for size in range(1, MOST + 1):
        for text in itertools.product(range(WORDS), repeat=size):
            is_complete = END not in text[:-1] and (text[-1] == END or size == MOST)
            if is_complete:
                with torch.inference_mode():
                    states = model.backbone(tokens=torch.tensor([[*PROMPT, *text]]), causal=True).last_hidden_state[0]
                    logprobs = model.heads["clm"](states).log_softmax(-1)
                out[text] = sum(float(logprobs[len(PROMPT) - 1 + n, token]) for n, token in enumerate(text))
    return out


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_wide_beams_are_exhaustive_search(model: Model, penalty: float) -> None:
    texts = every_text(model)
    ranked = sorted(texts, key=lambda text: -texts[text] / len(text) ** penalty)[:6]
    beam = BeamSearch(num_beams=WORDS**MOST, max_new_tokens=MOST, end_id=END, length_penalty=penalty)
    (hypotheses,) = beam.search_all(DecodeSession(model, torch.tensor([PROMPT]), capacity=8), best=6)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [
        tuple(token for token in text if token != END) for text in ranked
    ]
    assert [hypothesis.logprob for hypothesis in hypotheses] == pytest.approx(
        [texts[text] for text in ranked], abs=1e-3
    )
    assert [hypothesis.ended for hypothesis in hypotheses] == [text[-1] == END for text in ranked]


def test_narrow_beams_stop_early_only_when_nothing_can_overtake(model: Model) -> None:
    texts = every_text(model)
    for beams in (2, 3, 8):
        ((hypothesis,),) = BeamSearch(num_beams=beams, max_new_tokens=MOST, end_id=END).search_all(
            DecodeSession(model, torch.tensor([PROMPT]), capacity=8)
        )
        text = (*hypothesis.tokens, END) if hypothesis.ended else hypothesis.tokens
        assert texts[text] == pytest.approx(hypothesis.logprob, abs=1e-3)
        ((greedy,),) = BeamSearch(num_beams=1, max_new_tokens=MOST, end_id=END).search_all(
            DecodeSession(model, torch.tensor([PROMPT]), capacity=8)
        )
        assert hypothesis.score >= greedy.score - 1e-6


def test_what_is_adjusted_away_is_not_found(model: Model) -> None:
    def even_only(logprobs: torch.Tensor, sequences: Any) -> torch.Tensor:
        return logprobs.index_fill(1, torch.tensor([1, 3]), -torch.inf)

    beam = BeamSearch(num_beams=WORDS**MOST, max_new_tokens=MOST, end_id=END, processors=[even_only])
    (hypotheses,) = beam.search_all(DecodeSession(model, torch.tensor([PROMPT]), capacity=8), best=50)
    assert len(hypotheses) == 1 + 2 + 4 + 8 + 16  # texts of 2 and 4 that end after 0 to 3 tokens, or fill the length
    assert all(token in {2, 4} for hypothesis in hypotheses for token in hypothesis.tokens)


def test_a_text_that_ends_goes_no_further(model: Model) -> None:
    beam = BeamSearch(num_beams=WORDS**MOST, max_new_tokens=MOST, end_id=END)
    session = DecodeSession(model, torch.tensor([PROMPT]), capacity=8)
    (hypotheses,) = beam.search_all(session, best=1000, is_finished=lambda tokens, row: tokens[-1] == 2)
    assert all(2 not in hypothesis.tokens[:-1] for hypothesis in hypotheses)
    assert any(hypothesis.tokens[-1:] == (2,) and hypothesis.ended for hypothesis in hypotheses)


def test_rows_searched_together_find_what_each_finds_alone(model: Model) -> None:
    prompts = [[3, 1], [2], [4, 4, 1], [1, 2, 3]]
    tokens = torch.tensor([prompt + [0] * (3 - len(prompt)) for prompt in prompts])
    sizes = torch.tensor([len(prompt) for prompt in prompts])
    for beams, early in ((1, False), (2, False), (3, True), (8, False)):
        beam = BeamSearch(num_beams=beams, max_new_tokens=6, end_id=END, early_stopping=early)
        batched = beam.search_all(DecodeSession(model, tokens, sizes, capacity=4), best=beams)
        for prompt, hypotheses in zip(prompts, batched, strict=True):
            (single,) = beam.search_all(DecodeSession(model, torch.tensor([prompt]), capacity=8), best=beams)
            assert [hypothesis.tokens for hypothesis in hypotheses] == [hypothesis.tokens for hypothesis in single]
            assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(
                [hypothesis.score for hypothesis in single], abs=1e-4
            )


class Scripted:
    """A session with the same logits at every step."""

    def __init__(self, probabilities: list[float]) -> None:
        self.logits, self.num_steps = torch.tensor([probabilities]).log(), 0

    def select_rows(self, rows: torch.Tensor) -> None:
        self.logits = self.logits[rows]

    def decode_step(self, tokens: torch.Tensor) -> None:
        self.num_steps += 1


def test_an_early_search_ends_when_nothing_followed_is_better_by_now() -> None:
    steps = {}
    for early in (False, True):
        session: Any = Scripted([0.6, 0.2, 0.1, 0.1])
        ((hypothesis,),) = BeamSearch(num_beams=2, max_new_tokens=20, end_id=END, early_stopping=early).search_all(
            session
        )
        assert (hypothesis.tokens, hypothesis.ended) == ((), True)
        steps[early] = session.num_steps
    # −0.51 and (−1.61 − 0.51) / 2 have ended, and what goes on has −1.61 a token: over 20 tokens that is −1.06 after 14
    assert steps == {False: 13, True: 1}


def test_what_a_row_may_not_say_is_its_own_affair(model: Model) -> None:
    def each_its_own(logprobs: torch.Tensor, sequences: Any) -> torch.Tensor:
        for number, sequence in enumerate(sequences):
            logprobs[number, [END, 1 + sequence.prompt_ids[0]]] = -torch.inf
        return logprobs

    beam = BeamSearch(num_beams=3, max_new_tokens=5, end_id=END, processors=[each_its_own])
    for row, hypotheses in enumerate(
        beam.search_all(
            DecodeSession(model, torch.tensor([PROMPT, PROMPT, PROMPT]), capacity=8), 3, prompts=[[0], [1], [2]]
        )
    ):
        assert len(hypotheses) == 3
        assert all(1 + row not in hypothesis.tokens and len(hypothesis.tokens) == 5 for hypothesis in hypotheses)
