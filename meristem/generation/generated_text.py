"""Generated texts: the result type, and the stream that decodes tokens and detects stop strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from meristem.generation.stop_strings import StopStringFilter
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.result_tables import Tabular

FinishReason = Literal["stop", "end", "length"]
OnText = Callable[[int, str], None]
"""Called with the index of a text (prompt index · count + copy) and the newly final part of it."""


@dataclass(frozen=True, kw_only=True)
class GeneratedText(Tabular):
    """A generated text."""

    text: str
    """The text after the prompt, up to a stop string or the end token."""
    tokens: tuple[int, ...]
    """All generated tokens, including those of a stop string, without the end token."""
    score: float
    """Sum of the tokens' log-probabilities under the model, end token included."""
    finished: FinishReason
    """Why it ended: a stop string, the end token, or the maximum number of tokens."""
    seed: int | None = None
    """The seed it was sampled with; None for greedy decoding and beam search."""


class TextStream:
    """The text of tokens that are generated one by one, up to a stop string."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        stop_strings: Sequence[str] = (),
        on_chunk: Callable[[str], None] | None = None,
    ) -> None:
        """`on_chunk` is called with every new part of the text."""
        # spaces between two words depend on the first, so the stream begins with the prompt
        self._decoder, self._stop_filter = tokenizer.stream_decoder(after=prompt_ids), StopStringFilter(stop_strings)
        self._on_chunk, self.text = on_chunk, ""

    def push(self, token_id: int) -> bool:
        """Append a token; whether a stop string ends the text."""
        self._add_text(self._stop_filter.push(self._decoder.push(token_id)))
        return self._stop_filter.stopped

    def finish(self) -> bool:
        """Append what was held back; whether a stop string ends the text."""
        self._add_text(self._stop_filter.push(self._decoder.finish()))
        self._add_text(self._stop_filter.finish())
        return self._stop_filter.stopped

    def _add_text(self, text: str) -> None:
        self.text += text
        if text and self._on_chunk is not None:
            self._on_chunk(text)


def build_text(
    tokenizer: Tokenizer,
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    *,
    finished: FinishReason,
    score: float,
    seed: int | None = None,
    stop: Sequence[str] = (),
    on_chunk: Callable[[str], None] | None = None,
) -> GeneratedText:
    """The text of tokens after a prompt; `finished` is why it ends if no stop string ends it before."""
    stream = TextStream(tokenizer, prompt_ids, stop, on_chunk)
    size = next((size for size, token in enumerate(token_ids, 1) if stream.push(token)), len(token_ids))
    reason = "stop" if stream.finish() else finished
    return GeneratedText(text=stream.text, tokens=tuple(token_ids[:size]), score=score, finished=reason, seed=seed)
