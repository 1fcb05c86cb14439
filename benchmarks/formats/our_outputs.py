"""Outputs of a run as this library computes them, for comparison with another program's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from meristem.checkpoint.load_run import LoadedRun
from meristem.generation.generation_inputs import input_template

Floats = NDArray[np.float64]


@torch.no_grad()
def causal_logits(run: LoadedRun, ids: Sequence[int]) -> Floats:
    """[T, V] logits at every position."""
    model = run.learner.model.eval()
    hidden = model.backbone(tokens=torch.tensor([list(ids)]), causal=True).last_hidden_state
    return np.asarray(model.heads["clm"](hidden)[0].numpy(), np.float64)


@torch.no_grad()
def encoder_states(run: LoadedRun, ids: Sequence[int]) -> Floats:
    """[T, D] states of one text, all of whose tokens are in segment 0."""
    hidden = run.learner.model.eval().backbone(tokens=torch.tensor([list(ids)]))
    return np.asarray(hidden.last_hidden_state[0].numpy(), np.float64)


@torch.no_grad()
def decoder_logits(run: LoadedRun, source: Sequence[int], target: Sequence[int]) -> Floats:
    """[T, V] logits of a target."""
    model = run.learner.model.eval()
    hidden = model.backbone(source=torch.tensor([list(source)]), tokens=torch.tensor([list(target)]))
    return np.asarray(model.heads["seq2seq"](hidden.last_hidden_state)[0].numpy(), np.float64)


def greedy_causal(run: LoadedRun, ids: Sequence[int], steps: int) -> list[int]:
    """The tokens that always are the most probable ones, after `ids`."""
    tokens = list(ids)
    for _ in range(steps):
        tokens.append(int(causal_logits(run, tokens)[-1].argmax()))
    return tokens[len(ids) :]


def greedy_target(run: LoadedRun, source: Sequence[int], start: Sequence[int], steps: int) -> list[int]:
    """The most probable target tokens, until the end token."""
    target = list(start)
    while len(target) - len(start) < steps:
        target.append(int(decoder_logits(run, source, target)[-1].argmax()))
        if target[-1] == run.tokenizer.end:
            break
    return target[len(start) :]


def source_ids(run: LoadedRun, text: str) -> list[int]:
    """The ids of a source with its special tokens."""
    template = input_template(run.learner.model, run.tokenizer, "source")
    return _framed(template, run, text)


def encoder_ids(run: LoadedRun, text: str) -> list[int]:
    """The ids of a text with its special tokens."""
    return _framed(input_template(run.learner.model, run.tokenizer), run, text)


def _framed(template: Any, run: LoadedRun, text: str) -> list[int]:
    ids = run.tokenizer.encode(text).ids.tolist()
    return [*template.prefix_ids.tolist(), *ids, *template.suffix_ids.tolist()]


def relative(values: Sequence[Floats]) -> float:
    """The largest absolute value."""
    return max(float(np.abs(value).max()) for value in values)
