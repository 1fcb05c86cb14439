"""Masked models write too: all tokens hidden at first, the surest uncovered round by round.

After Ghazvininejad et al. 2019 (mask-predict) with the cosine schedule of Chang et al. 2022: few tokens are settled
early, when little is known, and most of them late. What is settled stays.
"""

# N masks, V vocabulary

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from meristem.batch import Model
from meristem.errors import MeristemError
from meristem.generation.framed import Frame, mask_of, states_at
from meristem.generation.sampling import SamplingSettings, draw, refuse_nan, shaped, with_repetition_penalty, without
from meristem.generation.watching import go_on
from meristem.generation.way import Way, vocabulary_head
from meristem.generation.written import OnText, Writing, Written
from meristem.randomness import generator
from meristem.tokenizers.tokenizer import Tokenizer

ROUNDS = 24


def unmask(
    model: Model, tokenizer: Tokenizer, prompts: list[str], settings: SamplingSettings, *, count: int = 1,
    on_text: OnText | None = None, way: Way = "masked",
) -> list[list[Written]]:
    """`count` texts of exactly `max_tokens` tokens for each prompt, unless a stop string cuts them.

    `way` is masked, or generator for ELECTRA's.
    """
    if settings.searches:
        raise MeristemError("beams: beam search needs a causal model (objective=clm); a masked one writes by unmasking")
    out = []
    for number, prompt in enumerate(prompts):
        texts = []
        for copy in range(count):
            written = _one(model, tokenizer, prompt, settings, copy, way)
            if on_text is not None and written.text:
                on_text(number * count + copy, written.text)
            texts.append(written)
        out.append(texts)
    return out


def left_after(number: int, rounds: int, masks: int) -> int:
    """Masks that remain after so many rounds: cos(π/2 · number/rounds) of them, at least one less each time."""
    return min(masks - number, math.floor(masks * math.cos(math.pi / 2 * number / rounds)))


@torch.inference_mode()
def _one(model: Model, tokenizer: Tokenizer, prompt: str, settings: SamplingSettings, copy: int, way: Way) -> Written:
    frame = Frame.of(model, tokenizer)
    masks = settings.max_tokens
    if masks > frame.room:
        raise MeristemError(f"max_tokens: this masked model holds {frame.room} tokens, not {masks}; ask for fewer")
    ids = tokenizer.encode(prompt).ids
    ids = ids[max(0, len(ids) - (frame.room - masks)) :]  # a long prompt is read from its end
    row = frame.row(np.concatenate([ids, np.full(masks, mask_of(tokenizer))]))
    first = len(frame.before) + len(ids)
    hidden, score = list(range(first, first + masks)), 0.0
    rounds = min(ROUNDS, masks)
    for number in range(1, rounds + 1):
        go_on()
        uniform = torch.from_numpy(generator(settings.seed, "unmask", copy, number).random(masks))
        mine = uniform[[at - first for at in hidden]]
        tokens, sureness, logprobs = _guess(model, tokenizer, row, hidden, settings, mine, way)
        ranked = sureness.argsort(descending=True, stable=True).tolist()
        settled = set(ranked[: len(hidden) - left_after(number, rounds, masks)])
        for place in settled:
            row[hidden[place]] = tokens[place]
            score += float(logprobs[place])
        hidden = [at for place, at in enumerate(hidden) if place not in settled]
    writing = Writing(tokenizer, ids.tolist(), settings.stop)
    for token in row[first : first + masks].tolist():
        if writing.finished is None:
            writing.push(token, 0.0, masks)
    writing.score = score
    return writing.written()


def _guess(model: Model, tokenizer: Tokenizer, row: Tensor, hidden: list[int], settings: SamplingSettings,
           uniform: Tensor, way: Way) -> tuple[Tensor, Tensor, Tensor]:
    """For each hidden place a token, how sure it is, and the token's log-probability under the model."""
    at = torch.tensor(hidden)
    raw = vocabulary_head(model, way)(states_at(model, [row], at, torch.zeros_like(at), way)).float().cpu()
    refuse_nan(raw)
    seen = [row.tolist()] * len(hidden) if settings.repetition_penalty != 1.0 else []
    banned = [*tokenizer.specials.nonzero()[0].tolist(), *range(tokenizer.size, raw.shape[-1])]
    logits = without(with_repetition_penalty(raw, seen, settings.repetition_penalty), banned)
    tokens = logits.argmax(-1) if settings.greedy else draw(shaped(logits, settings), uniform)
    pick = tokens[:, None]
    return tokens, logits.softmax(-1).gather(1, pick)[:, 0], raw.log_softmax(-1).gather(1, pick)[:, 0]
