"""Generated text in OpenAI's response formats: completions and chat completions, full or streamed in chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any

from meristem.generation.continuous_batching import SampledToken
from meristem.serving.generation_worker import GenerationUpdate
from meristem.serving.json_response import finite_logprob
from meristem.serving.model_registry import ServedRun
from meristem.serving.openai.openai_requests import ChatCompletionRequest, CompletionRequest, OpenAISamplingRequest
from meristem.serving.request_work import PromptEcho
from meristem.serving.streaming import format_event

EMPTY_ECHO = PromptEcho("", [], [])
FINISH_REASONS = {"stop": "stop", "end": "stop", "length": "length", None: None}


class OpenAIResponse(ABC):
    """Base of the two response formats."""

    prefix: str
    object_type: str
    chunk_type: str

    def __init__(self, run: ServedRun, request: OpenAISamplingRequest, num_prompts: int) -> None:
        self.run, self.request, self._num_prompts = run, request, num_prompts
        self.id, self.created = "", 0
        self.seed: int | None = None
        """The seed that the texts were sampled with."""
        self._prompt_tokens, self._completion_tokens = [0] * (num_prompts * request.n), 0

    def full_response(self, updates: Sequence[GenerationUpdate]) -> dict[str, Any]:
        """The full response."""
        texts, tokens_per_text, reasons = self._collect(updates)
        choices = [
            {"index": index, **self.choice(index, text, tokens), "finish_reason": FINISH_REASONS[reason]}
            for index, (text, tokens, reason) in enumerate(zip(texts, tokens_per_text, reasons, strict=True))
        ]
        return {**self._header(self.object_type), "choices": choices, "usage": self._usage()}

    async def stream_chunks(self, updates: AsyncIterator[list[GenerationUpdate]]) -> AsyncIterator[str]:
        """The streamed response: one chunk per update of a text, those of a step together."""
        for index, delta in enumerate(self.initial_chunks()):
            yield self._chunk(index, delta, None)
        async for step_updates in updates:
            chunks = []
            for update in step_updates:
                self._count_tokens(update)
                chunks.append(self._chunk(update.index, self.delta(update), FINISH_REASONS[update.finish_reason]))
            yield "".join(chunks)
        options = self.request.stream_options
        if options is not None and options.include_usage:
            yield format_event({**self._header(self.chunk_type), "choices": [], "usage": self._usage()})
        yield "data: [DONE]\n\n"

    @abstractmethod
    def choice(self, index: int, text: str, tokens: Sequence[SampledToken]) -> dict[str, Any]:
        """One choice of the full response."""

    @abstractmethod
    def initial_chunks(self) -> list[dict[str, Any]]:
        """The first chunk of each text of a stream."""

    @abstractmethod
    def delta(self, update: GenerationUpdate) -> dict[str, Any]:
        """The new part of one text, in a streamed chunk."""

    def _chunk(self, index: int, delta: dict[str, Any], reason: str | None) -> str:
        choice = {"index": index, **delta, "finish_reason": reason}
        return format_event({**self._header(self.chunk_type), "choices": [choice]})

    def _header(self, object_type: str) -> dict[str, Any]:
        header = {"id": f"{self.prefix}-{self.id}", "object": object_type, "created": self.created}
        return {**header, "model": self.run.name, "seed": self.seed}

    def _collect(self, updates: Sequence[GenerationUpdate]) -> tuple[list[str], list[list[SampledToken]], list[Any]]:
        count = self._num_prompts * self.request.n
        texts, tokens, reasons = [""] * count, [list[SampledToken]() for _ in range(count)], ["length"] * count
        for update in updates:
            self._count_tokens(update)
            texts[update.index] += update.text
            tokens[update.index] += update.tokens
            reasons[update.index] = update.finish_reason or "length"
        return texts, tokens, reasons

    def _count_tokens(self, update: GenerationUpdate) -> None:
        self._prompt_tokens[update.index] = update.prompt_tokens
        self._completion_tokens += len(update.tokens)

    def _usage(self) -> dict[str, int]:
        prompt_tokens = sum(self._prompt_tokens[:: self.request.n])  # a prompt counts once, whatever n is
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": self._completion_tokens,
            "total_tokens": prompt_tokens + self._completion_tokens,
        }

    def token_text(self, token_id: int) -> str:
        """The text of a token."""
        return self.run.tokenizer.token_text(token_id)


class CompletionResponse(OpenAIResponse):
    """The text_completion format."""

    prefix, object_type, chunk_type = "cmpl", "text_completion", "text_completion"
    request: CompletionRequest

    def __init__(self, run: ServedRun, request: CompletionRequest, num_prompts: int) -> None:
        super().__init__(run, request, num_prompts)
        self.echoes: list[PromptEcho] = []
        """One per prompt if the request has echo, else empty."""

    def choice(self, index: int, text: str, tokens: Sequence[SampledToken]) -> dict[str, Any]:
        """A text, after its prompt if echoed."""
        echo = self.echoes[index // self.request.n] if self.echoes else EMPTY_ECHO
        token_ids = [*echo.ids, *(token.token for token in tokens)]
        return {"text": echo.text + text, "logprobs": self._logprobs(token_ids, [*echo.token_logprobs, *tokens])}

    def initial_chunks(self) -> list[dict[str, Any]]:
        """The prompts, if echoed."""
        if not self.echoes:
            return []
        return [self.choice(index, "", ()) for index in range(self._num_prompts * self.request.n)]

    def delta(self, update: GenerationUpdate) -> dict[str, Any]:
        """The new text and its log-probabilities."""
        logprobs = self._logprobs([token.token for token in update.tokens], list(update.tokens))
        return {"text": update.text, "logprobs": logprobs}

    def _logprobs(self, token_ids: Sequence[int], logprobs: Sequence[SampledToken | None]) -> dict[str, Any] | None:
        """Log-probabilities per token; the top tokens include the generated one."""
        if self.request.logprobs is None:
            return None
        stream, offsets, offset = self.run.tokenizer.stream_decoder(), list[int](), 0
        for token_id in token_ids:
            offsets.append(offset)
            offset += len(stream.push(token_id))
        return {
            "tokens": [self.token_text(token_id) for token_id in token_ids],
            "token_logprobs": [None if chosen is None else finite_logprob(chosen.logprob) for chosen in logprobs],
            "top_logprobs": [None if chosen is None else self._top_with_chosen(chosen) for chosen in logprobs],
            "text_offset": offsets,
        }

    def _top_with_chosen(self, chosen: SampledToken) -> dict[str, float | None]:
        """Log-probabilities of the most likely tokens, and of the generated one if it is not among them."""
        top = dict(chosen.top)
        top.setdefault(chosen.token, chosen.logprob)
        return {self.token_text(token_id): finite_logprob(logprob) for token_id, logprob in top.items()}


class ChatResponse(OpenAIResponse):
    """The chat.completion format."""

    prefix, object_type, chunk_type = "chatcmpl", "chat.completion", "chat.completion.chunk"
    request: ChatCompletionRequest

    def choice(self, index: int, text: str, tokens: Sequence[SampledToken]) -> dict[str, Any]:
        """An assistant message."""
        return {"message": {"role": "assistant", "content": text.strip()}, "logprobs": self._logprobs(tokens)}

    def initial_chunks(self) -> list[dict[str, Any]]:
        """The role of the author."""
        return [{"delta": {"role": "assistant", "content": ""}, "logprobs": None}] * self.request.n

    def delta(self, update: GenerationUpdate) -> dict[str, Any]:
        """The new content and its log-probabilities."""
        return {"delta": {"content": update.text}, "logprobs": self._logprobs(update.tokens)}

    def _logprobs(self, tokens: Sequence[SampledToken]) -> dict[str, Any] | None:
        if not self.request.logprobs:
            return None
        content = []
        for chosen in tokens:
            top = [self._token_entry(token_id, logprob) for token_id, logprob in chosen.top]
            content.append({**self._token_entry(chosen.token, chosen.logprob), "top_logprobs": top})
        return {"content": content}

    def _token_entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        token_bytes = list(self.run.tokenizer.token_bytes(token_id))
        return {"token": self.token_text(token_id), "logprob": finite_logprob(logprob), "bytes": token_bytes}
