"""How the next token is chosen: settings, one pure function per control, and a draw that no other row can change."""

# B rows, V vocabulary

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from meristem.errors import MeristemError
from meristem.randomness import generator
from meristem.settings import Settings

COLDEST = 1e-4
"""Nothing but the likeliest token is drawn below this, where numbers would overflow."""


class SamplingSettings(Settings):
    """How a text is written."""

    temperature: float = Field(1.0, gt=0)
    """Below 1 likely tokens become likelier, above 1 less so."""
    top_k: int | None = Field(None, ge=1)
    """Only this many most probable tokens may be drawn."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Only the fewest tokens that together have this probability may be drawn (nucleus sampling)."""
    repetition_penalty: float = Field(1.0, gt=0)
    """Logits of tokens already in the text are divided (multiplied, below 0) by this (Keskar et al. 2019)."""
    greedy: bool = False
    """Always the most probable token; nothing is drawn."""
    beams: int = Field(1, ge=1)
    """Texts followed side by side by beam search; 1 means none."""
    length_penalty: float = Field(1.0, ge=0)
    """Beams are ranked by log-probability / tokens ** this; 0 favours short texts."""
    early: bool = False
    """Beam search ends once no text would overtake the best if it ended now, not only once none ever can."""
    no_repeat: int | None = Field(None, ge=1)
    """No run of so many tokens is written twice in a text: 3 means no trigram."""
    max_tokens: int = Field(100, ge=1)
    """The most tokens that are added to a prompt."""
    min_tokens: int = Field(0, ge=0)
    """The end of the document is not chosen before a text has this many new tokens."""
    stop: tuple[str, ...] = ()
    """Strings at which a text ends; they are not part of it."""
    seed: int = 0
    """The same seed writes the same text."""

    @property
    def searches(self) -> bool:
        """Whether beams are followed."""
        return self.beams > 1


def with_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Sharpened or flattened logits."""
    return logits if temperature == 1.0 else logits / max(temperature, COLDEST)


def with_top_k(logits: Tensor, k: int | None) -> Tensor:
    """The k highest of each row, the rest at −∞; those level with the lowest of them stay too."""
    if k is None or k >= logits.shape[-1]:
        return logits
    return logits.masked_fill(logits < logits.topk(k).values[..., -1:], -torch.inf)


def with_top_p(logits: Tensor, p: float | None) -> Tensor:
    """The fewest most probable tokens that together reach p, the rest at −∞."""
    if p is None or p >= 1:
        return logits
    probabilities, order = logits.softmax(-1).sort(descending=True, stable=True)
    unneeded = probabilities.cumsum(-1) - probabilities >= p  # reached before this token
    unneeded[..., 0] = False  # the smallest p there is reads as 0 here
    return logits.masked_fill(torch.zeros_like(unneeded).scatter(-1, order, unneeded), -torch.inf)


def with_repetition_penalty(logits: Tensor, texts: Sequence[Sequence[int]], penalty: float) -> Tensor:
    """Tokens that a row's text already holds made less likely."""
    if penalty == 1.0:
        return logits
    logits = logits.clone()
    for row, text in enumerate(texts):
        seen = torch.tensor(sorted(set(text)), dtype=torch.long, device=logits.device)
        before = logits[row, seen]
        logits[row, seen] = torch.where(before > 0, before / penalty, before * penalty)
    return logits


def without_repeats(logits: Tensor, texts: Sequence[Sequence[int]], size: int | None) -> Tensor:
    """Tokens at −∞ that would end a run of `size` tokens which a row's text already holds."""
    if size is None:
        return logits
    logits = logits.clone()
    for row, text in enumerate(texts):
        last = tuple(text[len(text) - size + 1 :])
        again = [text[at + size - 1] for at in range(len(text) - size + 1) if tuple(text[at : at + size - 1]) == last]
        logits[row, again] = -torch.inf
    return logits


def without(logits: Tensor, banned: Sequence[int]) -> Tensor:
    """These tokens at −∞."""
    if not len(banned):
        return logits
    return logits.index_fill(-1, torch.as_tensor(banned, dtype=torch.long, device=logits.device), -torch.inf)


def shaped(logits: Tensor, settings: SamplingSettings) -> Tensor:
    """Temperature, then top-k, then top-p."""
    return with_top_p(with_top_k(with_temperature(logits, settings.temperature), settings.top_k), settings.top_p)


def uniforms(seed: int, rows: Sequence[int], position: int) -> Tensor:
    """[B] one number in [0, 1) for each row's token at a position, whatever other rows there are."""
    return torch.tensor([generator(seed, "write", row, position).random() for row in rows], dtype=torch.float64)


def refuse_nan(logits: Tensor) -> None:
    """Refuse logits with a NaN: argmax would take it for the best token, and nothing can be drawn by it."""
    if bool(logits.isnan().any()):
        raise MeristemError("the model's scores are NaN, so that it can write nothing: take an older checkpoint, or "
                            "train it again with a lower train.rate")  # fmt: skip


def draw(logits: Tensor, uniform_B: Tensor) -> Tensor:
    """[B] tokens where the cumulative distribution passes the uniform numbers."""
    cumulative = logits.double().softmax(-1).cumsum(-1)
    total = cumulative[:, -1:].contiguous()
    chosen = torch.searchsorted(cumulative, uniform_B.to(logits.device)[:, None] * total, right=True)
    return torch.minimum(chosen, torch.searchsorted(cumulative, total))[:, 0]  # a product rounded up stays inside


def choose(logits: Tensor, settings: SamplingSettings, rows: Sequence[int], position: int) -> Tensor:
    """[B] the next token of each row: the best, or one drawn for its row and position."""
    refuse_nan(logits)
    if settings.greedy:
        return logits.argmax(-1)
    return draw(shaped(logits, settings), uniforms(settings.seed, rows, position))
