"""Replaced-token detection with a discriminator (ELECTRA, Clark et al. 2020).

Every token of a text gets the probability that it is not the original one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from meristem.config.errors import MeristemError
from meristem.generation.generation_inputs import input_template
from meristem.generation.head_selection import DETECTION_HEAD, can_detect, supported_operations
from meristem.generation.masked_input import hidden_states_at
from meristem.generation.token_scores import forward_passes
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Encoding, Tokenizer
from meristem.utils.result_tables import Tabular

MAX_TOKENS_PER_PASS = 4096
"""Tokens per forward pass, padding included."""


@dataclass(frozen=True, kw_only=True)
class DetectedToken(Tabular):
    """One token of a text and the probability that it was replaced."""

    text: str
    """The token in readable form; `##` marks one that continues a word."""
    start: int
    end: int
    """Character span in the text: text[start:end]."""
    probability: float
    """Probability that the token was replaced."""


@dataclass(frozen=True)
class _Window:
    """A window of a text, tokens `start` to `stop`, of which `first` to `last` are scored in it."""

    text: int
    start: int
    stop: int
    first: int
    last: int


def detect(model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[DetectedToken]]:
    """Every token of each text with the probability that it was replaced."""
    return detect_encoded(model, tokenizer, tokenizer.encode_batch(texts))


@torch.inference_mode()
def detect_encoded(model: Model, tokenizer: Tokenizer, texts: Sequence[Encoding]) -> list[list[DetectedToken]]:
    """The same for encoded texts; a text longer than the model is split into windows that overlap by half."""
    require_detection(model)
    template = input_template(model, tokenizer, "masked")
    windows = [
        window
        for text_index, text in enumerate(texts)
        for window in _windows(text_index, len(text.ids), template.max_text_tokens())
    ]
    probabilities: list[NDArray[np.float64]] = [np.zeros(len(text.ids)) for text in texts]
    for batch in forward_passes([window.stop - window.start for window in windows], MAX_TOKENS_PER_PASS):
        batch_windows = [windows[index] for index in batch]
        rows = [
            torch.from_numpy(template.add_special_tokens(texts[window.text].ids[window.start : window.stop]))
            for window in batch_windows
        ]
        sizes = [window.last - window.first for window in batch_windows]
        offsets = [len(template.prefix_ids) - window.start for window in batch_windows]
        positions = torch.cat(
            [torch.arange(w.first, w.last) + offset for w, offset in zip(batch_windows, offsets, strict=True)]
        )
        row_indices = torch.repeat_interleave(torch.arange(len(batch_windows)), torch.tensor(sizes))
        logits = model.heads[DETECTION_HEAD](hidden_states_at(model, rows, positions, row_indices))
        window_probabilities = torch.split(logits.double().sigmoid().cpu(), sizes)
        for window, window_probs in zip(batch_windows, window_probabilities, strict=True):
            probabilities[window.text][window.first : window.last] = window_probs.numpy()
    return [
        _detected_tokens(tokenizer, text, text_probs) for text, text_probs in zip(texts, probabilities, strict=True)
    ]


def require_detection(model: Model) -> None:
    """Raise an error for a model without a discriminator."""
    if not can_detect(model):
        raise MeristemError(
            "detect needs a model trained on replaced-token detection (objective=rtd, as electra-mini); this one "
            f"supports {' and '.join(supported_operations(model)) or 'no language-model command'}"
        )


def _windows(text_index: int, num_tokens: int, max_tokens: int) -> Iterator[_Window]:
    """Overlapping windows; each token is scored in the window in which it is farthest from an edge."""
    stride, first = max_tokens - max_tokens // 2, 0
    for start in range(0, max(1, num_tokens - max_tokens + stride), stride):
        stop = min(start + max_tokens, num_tokens)
        last = num_tokens if stop == num_tokens else start + stride + (max_tokens - stride) // 2
        if last > first:
            yield _Window(text_index, start, stop, first, last)
        first = last
        if stop == num_tokens:
            return


def _detected_tokens(
    tokenizer: Tokenizer, encoding: Encoding, probabilities: NDArray[np.float64]
) -> list[DetectedToken]:
    pieces = tokenizer.token_texts(encoding.ids)
    return [
        DetectedToken(text=piece, start=start, end=end, probability=float(probability))
        for piece, (start, end), probability in zip(pieces, encoding.offsets.tolist(), probabilities, strict=True)
    ]
