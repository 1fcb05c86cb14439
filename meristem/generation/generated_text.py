"""Generated texts: the result type, and the builder that decodes tokens and detects stop strings."""

from __future__ import annotations

from collections.abc import Callable
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


class GeneratedTextBuilder:
    """A text during generation."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: list[int],
        stop_strings: tuple[str, ...],
        on_chunk: Callable[[str], None] | None = None,
        *,
        end_id: int | None = None,
    ) -> None:
        """`end_id` is the token that ends the text, if not the tokenizer's end token."""
        self.prompt_ids, self.token_ids, self.score = prompt_ids, list[int](), 0.0
        self.finished: FinishReason | None = None
        self._end_id, self._on_chunk = tokenizer.end if end_id is None else end_id, on_chunk
        # spaces between two words depend on the first, so the stream begins with the prompt
        self._stream, self._stop_filter = tokenizer.stream_decoder(after=prompt_ids), StopStringFilter(stop_strings)
        self._text = ""

    @property
    def all_token_ids(self) -> list[int]:
        """Prompt and generated tokens."""
        return [*self.prompt_ids, *self.token_ids]

    def add_token(self, token_id: int, logprob: float, max_new_tokens: int) -> None:
        """Append a token; sets `finished` if it ends the text."""
        self.score += logprob
        if token_id == self._end_id:
            self._finish("end")
            return
        self.token_ids.append(token_id)
        self._add_text(self._stop_filter.push(self._stream.push(token_id)))
        if self._stop_filter.stopped:
            self.finished = "stop"
        elif len(self.token_ids) >= max_new_tokens:
            self._finish("length")

    def _finish(self, reason: FinishReason) -> None:
        self._add_text(self._stop_filter.push(self._stream.finish()))
        self._add_text(self._stop_filter.finish())
        self.finished = "stop" if self._stop_filter.stopped else reason

    def _add_text(self, text: str) -> None:
        self._text += text
        if text and self._on_chunk is not None:
            self._on_chunk(text)

    def build(self) -> GeneratedText:
        """The text so far."""
        return GeneratedText(
            text=self._text, tokens=tuple(self.token_ids), score=self.score, finished=self.finished or "length"
        )
