"""Prompt log-probabilities of a causal model: each token's log-probability and the top alternatives (echo)."""

# N positions, V vocabulary

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.generation.continuous_batching import SampledToken
from meristem.generation.head_selection import LM_HEADS, require_lm_kind
from meristem.generation.token_scores import forward_passes, overlapping_windows
from meristem.interfaces.backbone import Model

MAX_TOKENS_PER_PASS = 4096
"""Tokens per forward pass, padding included."""
MAX_LOGIT_POSITIONS = 256
"""Positions whose logits are in memory at once."""


@torch.inference_mode()
def score_prompt_tokens(
    model: Model, texts: Sequence[Sequence[int]], *, top_logprobs: int = 0
) -> list[list[SampledToken]]:
    """Scores for each token but the first of each text; long texts are read in windows that overlap by half."""
    require_lm_kind(model, "causal", "echo")
    windows = [
        (text_index, *window)
        for text_index, text in enumerate(texts)
        for window in overlapping_windows(len(text) - 1, model.backbone.max_length)
    ]
    scores: dict[int, list[SampledToken]] = {}
    for indices in forward_passes([stop - start + 1 for _, start, stop, _ in windows], MAX_TOKENS_PER_PASS):
        batch_windows = [windows[index] for index in indices]
        rows = [torch.tensor(texts[text_index][start:stop]) for text_index, start, stop, _ in batch_windows]
        # padding comes after the text, so that causal attention never sees it
        tokens = pad_sequence(rows, batch_first=True).to(model.device)
        hidden = model.backbone(tokens=tokens, causal=True)
        for row, (index, (text_index, start, stop, first)) in enumerate(zip(indices, batch_windows, strict=True)):
            states = hidden.last_hidden_state[row, first - start : stop - start]
            target_ids = torch.tensor(texts[text_index][first + 1 : stop + 1], device=model.device)
            scores[index] = list(_score_targets(model, states, target_ids, top_logprobs))
    choices: list[list[SampledToken]] = [[] for _ in texts]
    for index, (text_index, *_) in enumerate(windows):
        choices[text_index] += scores[index]
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
