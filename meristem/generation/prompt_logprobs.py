"""Prompt log-probabilities of a causal model: each token's log-probability and the top alternatives (echo)."""

# N positions, V vocabulary

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.generation.continuous_batching import SampledToken
from meristem.generation.head_selection import LM_HEADS, require_lm_kind
from meristem.generation.token_scores import forward_passes
from meristem.interfaces.backbone import Model

MAX_TOKENS_PER_PASS = 4096
"""Tokens per forward pass, padding included."""
MAX_LOGIT_POSITIONS = 256
"""Positions whose logits are in memory at once."""


@dataclass(frozen=True)
class _Window:
    """A window of a text, tokens `start` to `stop`, of which those from `first_scored` on are scored."""

    text_index: int
    start: int
    stop: int
    first_scored: int


@torch.inference_mode()
def score_prompt_tokens(
    model: Model, texts: Sequence[Sequence[int]], *, top_logprobs: int = 0
) -> list[list[SampledToken]]:
    """Scores for each token but the first of each text; long texts are read in windows that overlap by half."""
    require_lm_kind(model, "causal", "echo")
    windows = list(_windows(texts, model.backbone.max_length))
    scores: dict[int, list[SampledToken]] = {}
    for indices in forward_passes([window.stop - window.start for window in windows], MAX_TOKENS_PER_PASS):
        batch_windows = [windows[index] for index in indices]
        rows = [torch.tensor(texts[window.text_index][window.start : window.stop - 1]) for window in batch_windows]
        # padding comes after the text, so that causal attention never sees it
        tokens = pad_sequence(rows, batch_first=True).to(model.device)
        hidden = model.backbone(tokens=tokens, causal=True)
        for row, (index, window) in enumerate(zip(indices, batch_windows, strict=True)):
            states = hidden.last_hidden_state[
                row, window.first_scored - window.start - 1 : window.stop - window.start - 1
            ]
            target_ids = torch.tensor(texts[window.text_index][window.first_scored : window.stop], device=model.device)
            scores[index] = list(_score_targets(model, states, target_ids, top_logprobs))
    choices: list[list[SampledToken]] = [[] for _ in texts]
    for index, window in enumerate(windows):
        choices[window.text_index] += scores[index]
    return choices


def _score_targets(model: Model, states_ND: Tensor, target_ids_N: Tensor, top_logprobs: int) -> Iterator[SampledToken]:
    head = model.heads[LM_HEADS["causal"]]
    for states, target_ids in zip(
        torch.split(states_ND, MAX_LOGIT_POSITIONS), torch.split(target_ids_N, MAX_LOGIT_POSITIONS), strict=True
    ):
        logprobs = head(states).float().log_softmax(-1)
        target_logprobs = logprobs.gather(1, target_ids[:, None])[:, 0].tolist()
        top = logprobs.topk(min(top_logprobs, logprobs.shape[1])) if top_logprobs else None
        for position, (token, logprob) in enumerate(zip(target_ids.tolist(), target_logprobs, strict=True)):
            pairs = (
                () if top is None else zip(top.indices[position].tolist(), top.values[position].tolist(), strict=True)
            )
            yield SampledToken(token, logprob, tuple(pairs))


def _windows(texts: Sequence[Sequence[int]], length: int) -> Iterator[_Window]:
    """The windows of each text in order; every token is scored in the first window that contains it."""
    for text_index, text in enumerate(texts):
        start, first_scored = 0, 1
        while first_scored < len(text):
            stop = min(len(text), start + length + 1)
            yield _Window(text_index, start, stop, first_scored)
            first_scored, start = stop, start + length - length // 2
