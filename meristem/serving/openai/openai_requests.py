"""Request bodies of the OpenAI-compatible routes; unsupported options are refused, not ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from meristem.config.settings import Settings
from meristem.generation.settings import SamplingSettings
from meristem.serving.request_models import (
    MAX_NEW_TOKENS,
    MAX_SAMPLES,
    MAX_STOPS,
    MAX_TEXTS,
    ModelRequest,
    NonEmptyText,
    StopString,
    Text,
)

MAX_PROMPT_TOKENS = 1 << 16
"""Maximum length of a prompt given as token ids."""
TokenId = Annotated[int, Field(ge=0, lt=1 << 24)]
TokenIds = Annotated[list[TokenId], Field(min_length=1, max_length=MAX_PROMPT_TOKENS)]
PromptInput = Text | list[int]


def example_config(**fields: Any) -> ConfigDict:
    """Model config with an example body; unknown fields are ignored."""
    return ConfigDict(extra="ignore", json_schema_extra={"examples": [fields]})


class StreamOptions(Settings):
    """Options of a streamed response."""

    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False
    """Send a final chunk with the token usage."""


class OpenAISamplingRequest(ModelRequest):
    """Sampling fields of completions and chat completions."""

    n: int = Field(1, ge=1, le=MAX_SAMPLES)
    """Number of texts per prompt."""
    temperature: float | None = Field(1.0, ge=0, le=2)
    """Sampling temperature; 0 is greedy decoding."""
    top_p: float | None = Field(1.0, gt=0, le=1)
    """Sample from the most likely tokens whose probabilities add up to p (nucleus sampling)."""
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = None
    """Stop strings, which are not part of the output."""
    seed: int | None = Field(None, ge=0, lt=1 << 63)
    """Random seed; the same seed generates the same text. Default: a new one, which the response returns."""
    stream: bool = False
    """Stream the text as server-sent events."""
    stream_options: StreamOptions | None = None
    """Options of the stream."""
    presence_penalty: float | None = Field(None, ge=0, le=0)
    """Only 0 is supported."""
    frequency_penalty: float | None = Field(None, ge=0, le=0)
    """Only 0 is supported."""
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    """Not supported."""

    def sampling_settings(self, max_tokens: int) -> SamplingSettings:
        """The sampling settings of the request, with a seed."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        temperature = 1.0 if self.temperature is None else self.temperature
        values = {"temperature": temperature, "top_p": self.top_p, "stop": stop, "seed": self.seed}
        return SamplingSettings.model_validate({**values, "max_tokens": max(1, max_tokens)}).with_seed()


class CompletionRequest(OpenAISamplingRequest):
    """Prompts to complete."""

    model_config = example_config(model="gpt2-mini", prompt="The old harbour", max_tokens=16, temperature=0)
    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)] | TokenIds | Annotated[
        list[TokenIds], Field(min_length=1, max_length=MAX_TEXTS)
    ] = ""  # fmt: skip
    """One or several texts, or lists of token ids."""
    max_tokens: int | None = Field(16, ge=0, le=MAX_NEW_TOKENS)
    """Maximum number of new tokens."""
    logprobs: int | None = Field(None, ge=0, le=20)
    """Return the log-probability of each token, and of this many most likely tokens."""
    echo: bool = False
    """Return the prompt in front of the completion."""
    best_of: int | None = Field(None, ge=1, le=MAX_SAMPLES)
    """Not supported unless equal to n."""
    suffix: str | None = Field(None, max_length=0)
    """Not supported."""

    @model_validator(mode="after")
    def _check_options(self) -> CompletionRequest:
        if self.best_of is not None and self.best_of != self.n:
            raise ValueError("best_of: not supported; use n")
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens: 0 needs echo; otherwise use at least 1")
        return self

    def prompt_list(self) -> list[PromptInput]:
        """The prompts as a list of texts or lists of token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [[item for item in self.prompt if isinstance(item, int)]]
        return [item for item in self.prompt if not isinstance(item, int)]


class MessagePart(Settings):
    """A content part of a message."""

    model_config = ConfigDict(extra="ignore")
    type: Literal["text"] = "text"
    """Only text is supported."""
    text: Text
    """The text."""


class ChatMessage(Settings):
    """One message of a conversation."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant"]
    """The role of the author."""
    content: Text | Annotated[list[MessagePart], Field(min_length=1, max_length=MAX_TEXTS)]
    """The text of the message, or its text parts."""

    @property
    def text(self) -> str:
        """The whole text of the message."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatCompletionRequest(OpenAISamplingRequest):
    """A conversation to continue."""

    model_config = example_config(model="dialogue", messages=[{"role": "user", "content": "Hello!"}], max_tokens=32)
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_TEXTS)]
    """The messages so far."""
    max_tokens: int | None = Field(None, ge=1, le=MAX_NEW_TOKENS)
    """Maximum number of new tokens. Default: 64."""
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_NEW_TOKENS)
    """The newer name of max_tokens."""
    logprobs: bool | None = None
    """Return the log-probability of each token."""
    top_logprobs: int | None = Field(None, ge=0, le=20)
    """Also return this many most likely tokens at each position."""


class EmbeddingsRequest(ModelRequest):
    """Texts to embed."""

    model_config = example_config(model="bert-mini", input=["The garden.", "A boat."])
    input: NonEmptyText | Annotated[list[NonEmptyText], Field(min_length=1, max_length=MAX_TEXTS)]
    """One or several texts."""
    encoding_format: Literal["float", "base64"] = "float"
    """Lists of numbers, or base64-encoded little-endian float32."""
    dimensions: int | None = Field(None, ge=1, le=1 << 20)
    """Not supported unless equal to the model's embedding size."""
