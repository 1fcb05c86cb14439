"""Forward and backward log-probabilities, and gap filling, with a bidirectional LSTM (ELMo, Peters et al. 2018).

Forward: Σ log p(x_t | start, x_<t); backward: Σ log p(x_t | x_>t, end). The start and end of a text are read and never
predicted, as in training. A gap is filled by both: p(w) ∝ p_forward(w | left) · p_backward(w | right), renormalised.

A text may be of any length: beyond `WORDS` words its parts go through the LSTM state, from the left for the forward
direction and from the right for the backward one.
"""

# B rows, T words, L letters of a word

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.batch import Model, State
from meristem.generation.token_scores import TokenScores, length_batches, token_scores
from meristem.generation.watching import go_on
from meristem.generation.way import vocabulary_head
from meristem.store.letters import BLANK, Letters, spelled
from meristem.store.rows import frame_of
from meristem.store.store import Ints
from meristem.tokenizers.tokenizer import Tokenizer

WORDS = 1024
"""Of a text that are read in one pass; the gates of every step are held."""
TOKENS = 4096
"""Read at once, padding counted."""
FORWARD, BACKWARD = 0, 1


@dataclass(frozen=True)
class Spelled:
    """A text between its start and end tokens, with the letters of each word."""

    ids: Ints
    letters: Letters

    @classmethod
    def of(cls, tokenizer: Tokenizer, ids: Ints, words: Sequence[bytes] | None = None) -> Spelled:
        """`words` are how the tokens were written; their names in the vocabulary unless given."""
        before, after = frame_of(tokenizer)
        told = words if words is not None else [_name(tokenizer, token) for token in ids.tolist()]
        whole = np.concatenate([before, ids, after]).astype(np.int64)
        return cls(whole, spelled(whole, [*[b""] * len(before), *told, *[b""] * len(after)], tokenizer))


def _name(tokenizer: Tokenizer, token: int) -> bytes:
    return tokenizer.token(token).encode("utf-8", "surrogatepass")


def bilm_scores(
    model: Model, tokenizer: Tokenizer, texts: Sequence[Ints], words: Sequence[Sequence[bytes] | None] | None = None
) -> tuple[list[TokenScores], list[TokenScores]]:
    """Per text its tokens' forward scores, and the same backward."""
    told = words or [None] * len(texts)
    rows = [Spelled.of(tokenizer, ids, some) for ids, some in zip(texts, told, strict=True)]
    before, after = frame_of(tokenizer)
    out = [[TokenScores.zeros(len(ids)) for ids in texts] for _ in (FORWARD, BACKWARD)]
    for direction in (FORWARD, BACKWARD):
        for batch in length_batches([len(ids) for ids in texts], TOKENS):
            some = [out[direction][text] for text in batch]
            _score(model, [rows[text] for text in batch], direction, (len(before), len(after)), some)
    return out[FORWARD], out[BACKWARD]


def mean_scores(forward: TokenScores, backward: TokenScores) -> TokenScores:
    """The mean of both directions, token by token, as in the training objective; best where it is best in both."""
    return TokenScores((forward.logprobs + backward.logprobs) / 2, forward.best & backward.best)


@torch.inference_mode()
def _score(
    model: Model, rows: Sequence[Spelled], direction: int, edges: tuple[int, int], out: Sequence[TokenScores]
) -> None:
    """Each word predicted by its neighbour on the side that a direction comes from.

    Without a frame nothing comes before the first word of a direction, and it adds nothing.
    """
    step = 1 if direction == FORWARD else -1
    for part in _parts(model, rows, direction):
        go_on()
        states, wanted, sizes, places = [], [], [], []
        for row, text in enumerate(rows):
            first, last = edges[0], len(text.ids) - edges[1]
            at = np.arange(part.start, part.start + part.sizes[row]) + step  # what each place predicts
            inside = (at >= first) & (at < last)
            states.append(part.states_BTD[row, : part.sizes[row]][torch.from_numpy(inside)])
            wanted.append(torch.from_numpy(text.ids[at[inside]]))
            sizes.append(int(inside.sum()))
            places.append(int(at[inside][0]) - first if inside.any() else 0)
        scores = token_scores(
            vocabulary_head(model, "bilm"), torch.cat(states), torch.cat(wanted).to(model.device), sizes
        )
        for one, place, (logprobs, best) in zip(out, places, scores, strict=True):
            one.put(place, logprobs, best)


@dataclass(frozen=True)
class _Part:
    """States [B, T, D] of one direction over a stretch of every row that begins at `start`."""

    start: int
    sizes: list[int]
    states_BTD: Tensor


def _parts(model: Model, rows: Sequence[Spelled], direction: int) -> Iterator[_Part]:
    """All words of rows, in parts that follow each other in a direction."""
    backbone: Any = model.backbone
    longest = max(len(row.ids) for row in rows)
    starts = list(range(0, longest, WORDS))
    state: State | None = backbone.begin(len(rows)) if len(starts) > 1 else None
    for start in starts if direction == FORWARD else reversed(starts):
        cut = [row.letters[start : start + WORDS] for row in rows]
        sizes = [len(letters) for letters in cut]
        hidden = backbone(**letters_input(cut, model.device), state=state)
        if state is not None:
            here = torch.tensor([size > 0 for size in sizes], device=model.device)
            state = {"state": torch.where(here[:, None, None, None], hidden.state["state"], state["state"])}
        yield _Part(start, sizes, hidden.last.chunk(2, -1)[direction])


def letters_input(rows: Sequence[Letters], device: torch.device) -> dict[str, Tensor]:
    """Words of several texts as the backbone reads them; short rows are filled up with blanks and marked so."""
    sizes = torch.tensor([len(row) for row in rows], device=device)
    characters = pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True, padding_value=BLANK).to(device)
    if len({len(row) for row in rows}) == 1:
        return {"characters": characters}
    return {"characters": characters, "present": torch.arange(characters.shape[1], device=device) < sizes[:, None]}


@torch.inference_mode()
def bilm_gaps(model: Model, gaps: Sequence[tuple[Spelled, int]]) -> Tensor:
    """[gaps, V] probabilities of words at places of framed texts, from both sides; the word there is not read."""
    hidden = model.backbone(**letters_input([text.letters for text, _ in gaps], model.device))
    forward, backward = hidden.last.chunk(2, -1)
    rows, places = torch.arange(len(gaps)), torch.tensor([place for _, place in gaps])
    head = vocabulary_head(model, "bilm")
    left: Tensor = head(forward[rows, places - 1]).float().log_softmax(-1)
    right: Tensor = head(backward[rows, places + 1]).float().log_softmax(-1)
    return (left + right).softmax(-1).cpu()
