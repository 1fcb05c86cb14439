"""What a causal model says of every token of texts: its log-probability there, and the likeliest ones beside it."""

# N places, V vocabulary

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.batch import Model
from meristem.generation.pool import Chosen
from meristem.generation.watching import go_on, tokens_per_pass
from meristem.generation.way import HEADS, require

TOKENS = 4096
"""Read at once, padding counted."""
PLACES = 256
"""Places whose logits exist at once."""


@dataclass(frozen=True)
class _Window:
    """A stretch of a text, whose tokens from `since` on are judged in it."""

    text: int
    start: int
    stop: int
    since: int


@torch.inference_mode()
def echoed(model: Model, texts: Sequence[Sequence[int]], *, top: int = 0) -> list[list[Chosen]]:
    """For each token but the first of each text; one longer than the model is read in windows that overlap by half."""
    require(model, "causal", "echo")
    out: list[list[Chosen]] = [[] for _ in texts]
    for some in _together(list(_windows(texts, model.backbone.length))):
        rows = [torch.tensor(texts[one.text][one.start : one.stop - 1]) for one in some]
        tokens = pad_sequence(rows, batch_first=True).to(model.device)  # padding comes later, so that nothing sees it
        hidden = model.backbone(tokens=tokens, causal=True)
        for row, one in enumerate(some):
            states = hidden.last[row, one.since - one.start - 1 : one.stop - one.start - 1]
            wanted = torch.tensor(texts[one.text][one.since : one.stop], device=model.device)
            out[one.text] += _judged(model, states, wanted, top)
    return out


def _judged(model: Model, states_ND: Tensor, wanted_N: Tensor, top: int) -> Iterator[Chosen]:
    head = model.heads[HEADS["causal"]]
    for states, wanted in zip(torch.split(states_ND, PLACES), torch.split(wanted_N, PLACES), strict=True):
        logprobs = head(states).float().log_softmax(-1)
        found = logprobs.gather(1, wanted[:, None])[:, 0].tolist()
        best = logprobs.topk(min(top, logprobs.shape[1])) if top else None
        for place, (token, logprob) in enumerate(zip(wanted.tolist(), found, strict=True)):
            pairs = () if best is None else zip(best.indices[place].tolist(), best.values[place].tolist(), strict=True)
            yield Chosen(token, logprob, tuple(pairs))


def _windows(texts: Sequence[Sequence[int]], length: int) -> Iterator[_Window]:
    """In the order of each text; every token is judged in the first window that holds it."""
    for number, text in enumerate(texts):
        start, since = 0, 1
        while since < len(text):
            stop = min(len(text), start + length + 1)
            yield _Window(number, start, stop, since)
            since, start = stop, start + length - length // 2


def _together(windows: list[_Window]) -> Iterator[list[_Window]]:
    """Windows of like length, as many as are read at once; those of one text stay in their order."""
    some: list[_Window] = []
    widest, most = 0, tokens_per_pass(TOKENS)
    for one in sorted(windows, key=lambda one: (one.start, one.stop - one.start)):
        widest = max(widest, one.stop - one.start)
        if some and (len(some) + 1) * widest > most:
            yield some
            go_on()
            some, widest = [], one.stop - one.start
        some.append(one)
    if some:
        yield some
