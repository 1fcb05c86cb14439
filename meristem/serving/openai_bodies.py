"""What requests to OpenAI's routes hold, as their clients send it; what cannot be done is refused, not ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from meristem.generation.sampling import SamplingSettings
from meristem.serving.bodies import COPIES, MANY, MOST_TOKENS, STOPS, Asked, Some, Stop, Text
from meristem.settings import Settings

TOKENS = 1 << 16
"""Of a prompt that comes as tokens."""
Id = Annotated[int, Field(ge=0, lt=1 << 24)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=TOKENS)]
Prompt = Text | list[int]


def example(**parts: Any) -> ConfigDict:
    """A body as a client sends it; parts that nobody here knows are passed over."""
    return ConfigDict(extra="ignore", json_schema_extra={"examples": [parts]})


class StreamOptions(Settings):
    """How a stream is sent."""

    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False
    """A last piece tells how many tokens there were."""


class Sampled(Asked):
    """How texts are written."""

    n: int = Field(1, ge=1, le=COPIES)
    """Texts for each prompt."""
    temperature: float | None = Field(1.0, ge=0, le=2)
    """0 always takes the likeliest token."""
    top_p: float | None = Field(1.0, gt=0, le=1)
    """Choose among the likeliest tokens that hold p of the probability."""
    stop: Stop | Annotated[list[Stop], Field(max_length=STOPS)] | None = None
    """End before any of these."""
    seed: int | None = Field(None, ge=0, lt=1 << 63)
    """The same seed writes the same text; 0 unless given."""
    stream: bool = False
    """Send the text as it is written."""
    stream_options: StreamOptions | None = None
    """How it is sent then."""
    presence_penalty: float | None = Field(None, ge=0, le=0)
    """Only 0 is known here."""
    frequency_penalty: float | None = Field(None, ge=0, le=0)
    """Only 0 is known here."""
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    """Not known here."""

    def sampling(self, max_tokens: int) -> SamplingSettings:
        """The same as the generation room takes it."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return SamplingSettings.model_validate(
            {
                "temperature": self.temperature or 1.0,
                "greedy": self.temperature == 0,
                "top_p": self.top_p,
                "stop": stop,
                "seed": self.seed or 0,
                "max_tokens": max(1, max_tokens),
            }
        )


class Completion(Sampled):
    """Prompts to go on from."""

    model_config = example(model="gpt2-mini", prompt="The old harbour", max_tokens=16, temperature=0)
    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=MANY)] | Ids | Annotated[
        list[Ids], Field(min_length=1, max_length=MANY)
    ] = ""  # fmt: skip
    """A text or several, or their tokens."""
    max_tokens: int | None = Field(16, ge=0, le=MOST_TOKENS)
    """Tokens to write at the most."""
    logprobs: int | None = Field(None, ge=0, le=20)
    """Tell the log-probability of each token, and of so many of the likeliest."""
    echo: bool = False
    """Give the prompt back before what follows it."""
    best_of: int | None = Field(None, ge=1, le=COPIES)
    """Not known here unless it is n."""
    suffix: str | None = Field(None, max_length=0)
    """Not known here."""

    @model_validator(mode="after")
    def _possible(self) -> Completion:
        if self.best_of is not None and self.best_of != self.n:
            raise ValueError("best_of: texts are not ranked here; ask for n of them")
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens: 0 tokens make no text; ask for 1, or for the prompt with echo")
        return self

    def prompts(self) -> list[Prompt]:
        """Each prompt as it was given."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [[one for one in self.prompt if isinstance(one, int)]]
        return [one for one in self.prompt if not isinstance(one, int)]


class Part(Settings):
    """A piece of a message."""

    model_config = ConfigDict(extra="ignore")
    type: Literal["text"] = "text"
    """Only text is read."""
    text: Text
    """What it says."""


class Message(Settings):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant"]
    """Who speaks."""
    content: Text | Annotated[list[Part], Field(min_length=1, max_length=MANY)]
    """What is said."""

    @property
    def text(self) -> str:
        """All of it."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class Chat(Sampled):
    """A conversation to go on with."""

    model_config = example(model="dialogue", messages=[{"role": "user", "content": "Hello!"}], max_tokens=32)
    messages: Annotated[list[Message], Field(min_length=1, max_length=MANY)]
    """What was said so far."""
    max_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS)
    """Tokens to write at the most; 64 unless given."""
    max_completion_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS)
    """Its newer name."""
    logprobs: bool | None = None
    """Tell the log-probability of each token."""
    top_logprobs: int | None = Field(None, ge=0, le=20)
    """And of so many of the likeliest."""


class Embeddings(Asked):
    """Texts to turn into vectors."""

    model_config = example(model="bert-mini", input=["The garden.", "A boat."])
    input: Some | Annotated[list[Some], Field(min_length=1, max_length=MANY)]
    """A text, or several."""
    encoding_format: Literal["float", "base64"] = "float"
    """Numbers, or their bytes (float32, the lowest first) as base64."""
    dimensions: int | None = Field(None, ge=1, le=1 << 20)
    """Not known here unless it is the width of the run."""
