"""What is written, in the shapes of OpenAI's answers: whole or in chunks, as text or as messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any

from meristem.generation.pool import Chosen
from meristem.serving.continuous import News
from meristem.serving.hub import Served
from meristem.serving.numbers import finite
from meristem.serving.openai_bodies import Chat, Completion, Sampled
from meristem.serving.streaming import event
from meristem.serving.works import Echo

NOTHING = Echo("", [], [])
REASONS = {"stop": "stop", "end": "stop", "length": "length", None: None}


class Shape(ABC):
    """One kind of answer."""

    prefix: str
    kind: str
    chunk: str

    def __init__(self, run: Served, asked: Sampled, prompts: int) -> None:
        self.run, self.asked, self._prompts = run, asked, prompts
        self.id, self.begun = "", 0
        self._read, self._wrote = [0] * (prompts * asked.n), 0

    def whole(self, news: Sequence[News]) -> dict[str, Any]:
        """All texts at once."""
        texts, chosen, reasons = self._gathered(news)
        choices = [
            {"index": number, **self.choice(number, text, tokens), "finish_reason": REASONS[reason]}
            for number, (text, tokens, reason) in enumerate(zip(texts, chosen, reasons, strict=True))
        ]
        return {**self._head(self.kind), "choices": choices, "usage": self._usage()}

    async def streamed(self, news: AsyncIterator[list[News]]) -> AsyncIterator[str]:
        """A chunk for each text and step."""
        for number, piece in enumerate(self.first()):
            yield self._chunk(number, piece, None)
        async for some in news:
            for one in some:
                self._count(one)
                yield self._chunk(one.index, self.piece(one), REASONS[one.finished])
        options = self.asked.stream_options
        if options is not None and options.include_usage:
            yield event({**self._head(self.chunk), "choices": [], "usage": self._usage()})
        yield "data: [DONE]\n\n"

    @abstractmethod
    def choice(self, number: int, text: str, chosen: Sequence[Chosen]) -> dict[str, Any]:
        """One text of a whole answer."""

    @abstractmethod
    def first(self) -> list[dict[str, Any]]:
        """What stands before a stream, for each text."""

    @abstractmethod
    def piece(self, news: News) -> dict[str, Any]:
        """What is new of one text."""

    def _chunk(self, number: int, piece: dict[str, Any], reason: str | None) -> str:
        return event({**self._head(self.chunk), "choices": [{"index": number, **piece, "finish_reason": reason}]})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"{self.prefix}-{self.id}", "object": kind, "created": self.begun, "model": self.run.name}

    def _gathered(self, news: Sequence[News]) -> tuple[list[str], list[list[Chosen]], list[Any]]:
        count = self._prompts * self.asked.n
        texts, chosen, reasons = [""] * count, [list[Chosen]() for _ in range(count)], ["length"] * count
        for one in news:
            self._count(one)
            texts[one.index] += one.text
            chosen[one.index] += one.chosen
            reasons[one.index] = one.finished or "length"
        return texts, chosen, reasons

    def _count(self, one: News) -> None:
        self._read[one.index] = one.prompt
        self._wrote += len(one.chosen)

    def _usage(self) -> dict[str, int]:
        read = sum(self._read[:: self.asked.n])  # a prompt is read once, however many texts follow it
        return {"prompt_tokens": read, "completion_tokens": self._wrote, "total_tokens": read + self._wrote}

    def name(self, token: int) -> str:
        """The text of a token."""
        return self.run.tokenizer.piece(token)


class Completions(Shape):
    """Texts."""

    prefix, kind, chunk = "cmpl", "text_completion", "text_completion"
    asked: Completion

    def __init__(self, run: Served, asked: Completion, prompts: int) -> None:
        super().__init__(run, asked, prompts)
        self.echoed: list[Echo] = []
        """Per prompt, where that was asked for."""

    def choice(self, number: int, text: str, chosen: Sequence[Chosen]) -> dict[str, Any]:
        """A text, behind its prompt where that is echoed."""
        before = self.echoed[number // self.asked.n] if self.echoed else NOTHING
        tokens = [*before.ids, *(one.token for one in chosen)]
        return {"text": before.text + text, "logprobs": self._logprobs(tokens, [*before.said, *chosen])}

    def first(self) -> list[dict[str, Any]]:
        """The prompts, where they are echoed."""
        if not self.echoed:
            return []
        return [self.choice(number, "", ()) for number in range(self._prompts * self.asked.n)]

    def piece(self, news: News) -> dict[str, Any]:
        """A few tokens."""
        said = self._logprobs([one.token for one in news.chosen], list(news.chosen))
        return {"text": news.text, "logprobs": said}

    def _logprobs(self, tokens: Sequence[int], said: Sequence[Chosen | None]) -> dict[str, Any] | None:
        """Token by token; the likeliest ones by name, the one that stands there among them."""
        if self.asked.logprobs is None:
            return None
        stream, offsets, at = self.run.tokenizer.stream(), list[int](), 0
        for token in tokens:
            offsets.append(at)
            at += len(stream.push(token))
        tops = [
            None if one is None else {self.name(token): finite(value) for token, value in _with_itself(one)}
            for one in said
        ]
        return {
            "tokens": [self.name(token) for token in tokens],
            "token_logprobs": [None if one is None else finite(one.logprob) for one in said],
            "top_logprobs": tops,
            "text_offset": offsets,
        }


def _with_itself(one: Chosen) -> list[tuple[int, float]]:
    """The likeliest tokens, and the one that was chosen."""
    known = {token for token, _ in one.top}
    return [*one.top, *([] if one.token in known else [(one.token, one.logprob)])]


class Chats(Shape):
    """Messages."""

    prefix, kind, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"
    asked: Chat

    def choice(self, number: int, text: str, chosen: Sequence[Chosen]) -> dict[str, Any]:
        """A message."""
        return {"message": {"role": "assistant", "content": text.strip()}, "logprobs": self._logprobs(chosen)}

    def first(self) -> list[dict[str, Any]]:
        """Who speaks."""
        return [{"delta": {"role": "assistant", "content": ""}, "logprobs": None}] * self.asked.n

    def piece(self, news: News) -> dict[str, Any]:
        """A few tokens."""
        return {"delta": {"content": news.text}, "logprobs": self._logprobs(news.chosen)}

    def _logprobs(self, chosen: Sequence[Chosen]) -> dict[str, Any] | None:
        if not self.asked.logprobs:
            return None
        return {
            "content": [
                {
                    **self._token(one.token, one.logprob),
                    "top_logprobs": [self._token(token, value) for token, value in one.top],
                }
                for one in chosen
            ]
        }

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        name = self.name(token)
        return {"token": name, "logprob": finite(logprob), "bytes": list(self.run.tokenizer.piece_bytes(token))}
