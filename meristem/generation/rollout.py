"""Rollouts for policy-gradient training: several sampled completions per prompt, with token log-probabilities.

Sampling uses given uniform random numbers, so that rollouts do not depend on how they are batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem.blocks.multinomial import sample_multinomial
from meristem.blocks.precision import at_least_float32
from meristem.generation.generation_inputs import GenerationInputs, collate_inputs
from meristem.generation.incremental_decoder import DecodeSession, limit_threads
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

Uniforms = NDArray[np.float64]
FINISHED_ROWS_DIVISOR = 4
"""Finished rows are removed once they are at least 1/this of the rows: removing copies the KV cache of the others."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One sampled completion."""

    tokens: NDArray[np.int64]
    """The sampled tokens, including the end token if it was sampled."""
    logprobs: NDArray[Any]
    """Of each token under the distribution it was sampled from."""
    is_finished: bool
    """Whether it ended with the end token before `max_new_tokens`."""

    @property
    def text_tokens(self) -> NDArray[np.int64]:
        """The tokens without the end token."""
        return self.tokens[:-1] if self.is_finished else self.tokens


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """How rollouts are sampled: at most `max_new_tokens` tokens, never `banned_ids`, until the end token."""

    max_new_tokens: int
    end_id: int | None
    banned_ids: tuple[int, ...] = ()
    temperature: float = 1.0

    def banned_logits(self, vocab_size: int) -> Tensor:
        """[V] −∞ for banned tokens, else 0."""
        return torch.zeros(vocab_size).index_fill_(0, torch.tensor(self.banned_ids, dtype=torch.long), -torch.inf)


@torch.inference_mode()
def sample_rollouts(
    model: Model, items: Sequence[GenerationInputs], uniforms: Sequence[Uniforms], config: RolloutConfig
) -> list[list[Rollout]]:
    """As many rollouts per prompt as its uniforms [rollouts, max_new_tokens] have rows; each is prefilled once."""
    copies = [len(some) for some in uniforms]
    u_BT = torch.from_numpy(np.concatenate(uniforms)[:, : config.max_new_tokens])
    rows = len(u_BT)
    with limit_threads(rows):
        tokens, sizes, inputs = collate_inputs(items, model.device)
        session = DecodeSession(model, tokens, sizes, capacity=tokens.shape[1] + config.max_new_tokens, **inputs)
        session.select_rows(torch.repeat_interleave(torch.tensor(copies)).to(model.device))
        found = _decode_rollouts(session, u_BT, config)
    each = iter(found)
    return [[next(each) for _ in range(number)] for number in copies]


def _decode_rollouts(session: DecodeSession, u_BT: Tensor, config: RolloutConfig) -> list[Rollout]:
    """Decode token by token; finished rows continue idly until enough of them can be removed together."""
    rows, most = u_BT.shape
    kind = at_least_float32(session.logits).dtype
    words_BT, logp_BT = torch.zeros(rows, most, dtype=torch.long), torch.zeros(rows, most, dtype=kind)
    sizes, ended = torch.full((rows,), most), torch.zeros(rows, dtype=torch.bool)
    without = config.banned_logits(session.logits.shape[1]).to(session.logits.device)
    going = torch.arange(rows)  # rollout index of each row of the session
    end = -1 if config.end_id is None else config.end_id
    for place in range(most):
        logits = at_least_float32(session.logits) / config.temperature + without
        shares = (logits - logits.amax(1, keepdim=True)).exp_()
        chosen = sample_multinomial(shares.t(), u_BT[going, place].to(logits.device))
        logp = (shares.gather(1, chosen[:, None])[:, 0] / shares.sum(1)).log()
        chosen_here = chosen.cpu()
        words_BT[going, place], logp_BT[going, place] = chosen_here, logp.cpu()
        over = (chosen_here == end) & ~ended[going]
        sizes[going[over]], ended[going[over]] = place + 1, True
        idle = ended[going]
        if bool(idle.all()) or place + 1 == most:
            break
        if int(idle.sum()) * FINISHED_ROWS_DIVISOR >= len(going):
            stay = (~idle).nonzero()[:, 0]
            session.select_rows(stay.to(chosen.device))
            chosen, going = chosen[stay.to(chosen.device)], going[stay]
        session.decode_step(chosen)
    return [
        Rollout(
            tokens=words_BT[row, :size].numpy().copy(), logprobs=logp_BT[row, :size].numpy().copy(), is_finished=done
        )
        for row, (size, done) in enumerate(zip(sizes.tolist(), ended.tolist(), strict=True))
    ]


def decode_after_prompt(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int] | NDArray[Any]) -> str:
    """Decoded tokens after a prompt; whether a space comes first depends on the prompt's last token."""
    stream = tokenizer.stream_decoder()
    for token in prompt:
        stream.push(token)
    return "".join([*(stream.push(int(token)) for token in tokens), stream.finish()])
