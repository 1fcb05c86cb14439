"""What writing gives back, and how a text on its way becomes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from meristem.generation.stopping import Stopping
from meristem.tables import Tabular
from meristem.tokenizers.tokenizer import Tokenizer

Finished = Literal["stop", "end", "length"]
OnText = Callable[[int, str], None]
"""Called with the number of a text (all texts of all prompts counted on) and what has just become certain of it."""


@dataclass(frozen=True, kw_only=True)
class Written(Tabular):
    """A text that was written."""

    text: str
    """What follows the prompt, up to a stop string or the end of the document."""
    tokens: tuple[int, ...]
    """Every token that was chosen, those of a stop string included, the end of the document left out."""
    score: float
    """Log-probability of the tokens under the model, the end of the document included."""
    finished: Finished
    """A stop string, the end of the document, or no room for more tokens."""


class Writing:
    """One text while it is being written."""

    def __init__(self, tokenizer: Tokenizer, prompt: list[int], stops: tuple[str, ...],
                 show: Callable[[str], None] | None = None, *, end: int | None = None) -> None:
        """`end` is the token that ends the text, where that is not the tokenizer's own."""
        self.prompt, self.tokens, self.score = prompt, list[int](), 0.0
        self.finished: Finished | None = None
        self._end, self._show = tokenizer.end if end is None else end, show
        # spaces between two words depend on the first, so the stream begins with the prompt
        self._stream, self._stopping = tokenizer.stream(after=prompt), Stopping(stops)
        self._shown = ""

    @property
    def text_so_far(self) -> list[int]:
        """Prompt and tokens, for what looks back."""
        return [*self.prompt, *self.tokens]

    def push(self, token: int, score: float, most: int) -> None:
        """Take a token; `finished` tells whether that ended the text."""
        self.score += score
        if token == self._end:
            self._finish("end")
            return
        self.tokens.append(token)
        self._add(self._stopping.push(self._stream.push(token)))
        if self._stopping.stopped:
            self.finished = "stop"
        elif len(self.tokens) >= most:
            self._finish("length")

    def _finish(self, how: Finished) -> None:
        self._add(self._stopping.push(self._stream.finish()))
        self._add(self._stopping.finish())
        self.finished = "stop" if self._stopping.stopped else how

    def _add(self, text: str) -> None:
        self._shown += text
        if text and self._show is not None:
            self._show(text)

    def written(self) -> Written:
        """The text as it stands."""
        return Written(text=self._shown, tokens=tuple(self.tokens), score=self.score,
                       finished=self.finished or "length")
