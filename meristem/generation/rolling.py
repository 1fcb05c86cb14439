"""Several texts from each of many starts at once, drawn at given uniforms, with the log-probability of each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem.batch import Model
from meristem.blocks.precision import wide
from meristem.blocks.sampling import drawn
from meristem.generation.given import Given, together
from meristem.generation.session import Session, steady
from meristem.tokenizers.tokenizer import Tokenizer

Uniforms = NDArray[np.float64]
IDLE = 4
"""Rows that have ended leave once they are one of so many: what is kept of the others must be copied for it."""


@dataclass(frozen=True, kw_only=True)
class Rolled:
    """One text as it was drawn."""

    tokens: NDArray[np.int64]
    """What was drawn, the end included where it was."""
    logprobs: NDArray[Any]
    """Of each token under the distribution it was drawn from."""
    ended: bool
    """Whether it ended by itself, before there was no more room."""

    @property
    def words(self) -> NDArray[np.int64]:
        """The tokens without the end."""
        return self.tokens[:-1] if self.ended else self.tokens


@dataclass(frozen=True, kw_only=True)
class Way:
    """How texts are drawn: up to `most` tokens, never those that are `shut` out, until the end."""

    most: int
    end: int | None
    shut: tuple[int, ...] = ()
    heat: float = 1.0

    def without(self, words: int) -> Tensor:
        """[V] −∞ for tokens that are never drawn, else 0."""
        return torch.zeros(words).index_fill_(0, torch.tensor(self.shut, dtype=torch.long), -torch.inf)


@torch.inference_mode()
def roll(model: Model, starts: Sequence[Given], uniforms: Sequence[Uniforms], way: Way) -> list[list[Rolled]]:
    """For each start as many texts as its uniforms [texts, most] have rows; every start is read once."""
    copies = [len(some) for some in uniforms]
    u_BT = torch.from_numpy(np.concatenate(uniforms)[:, : way.most])
    rows = len(u_BT)
    with steady(rows):
        tokens, sizes, inputs = together(starts, model.device)
        session = Session(model, tokens, sizes, capacity=tokens.shape[1] + way.most, **inputs)
        session.keep(torch.repeat_interleave(torch.tensor(copies)).to(model.device))
        found = _drawn(session, u_BT, way)
    each = iter(found)
    return [[next(each) for _ in range(number)] for number in copies]


def _drawn(session: Session, u_BT: Tensor, way: Way) -> list[Rolled]:
    """Token by token; a text that has ended goes on idly until enough of them leave together."""
    rows, most = u_BT.shape
    kind = wide(session.logits).dtype
    words_BT, logp_BT = torch.zeros(rows, most, dtype=torch.long), torch.zeros(rows, most, dtype=kind)
    sizes, ended = torch.full((rows,), most), torch.zeros(rows, dtype=torch.bool)
    without = way.without(session.logits.shape[1]).to(session.logits.device)
    going = torch.arange(rows)  # which text stands in which row of the session
    end = -1 if way.end is None else way.end
    for place in range(most):
        logits = wide(session.logits) / way.heat + without
        shares = (logits - logits.amax(1, keepdim=True)).exp_()
        chosen = drawn(shares.t(), u_BT[going, place].to(logits.device))
        logp = (shares.gather(1, chosen[:, None])[:, 0] / shares.sum(1)).log()
        chosen_here = chosen.cpu()
        words_BT[going, place], logp_BT[going, place] = chosen_here, logp.cpu()
        over = (chosen_here == end) & ~ended[going]
        sizes[going[over]], ended[going[over]] = place + 1, True
        idle = ended[going]
        if bool(idle.all()) or place + 1 == most:
            break
        if int(idle.sum()) * IDLE >= len(going):
            stay = (~idle).nonzero()[:, 0]
            session.keep(stay.to(chosen.device))
            chosen, going = chosen[stay.to(chosen.device)], going[stay]
        session.push(chosen)
    return [
        Rolled(tokens=words_BT[row, :size].numpy().copy(), logprobs=logp_BT[row, :size].numpy().copy(), ended=done)
        for row, (size, done) in enumerate(zip(sizes.tolist(), ended.tolist(), strict=True))
    ]


def spelled(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int] | NDArray[Any]) -> str:
    """What tokens say after a prompt; whether a space stands between the two is up to the prompt's last token."""
    stream = tokenizer.stream()
    for token in prompt:
        stream.push(token)
    return "".join([*(stream.push(int(token)) for token in tokens), stream.finish()])
