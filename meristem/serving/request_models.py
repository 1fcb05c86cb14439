"""Request bodies of meristem's own HTTP routes, with the bounds of every field."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from meristem.config.settings import Settings
from meristem.generation.settings import SamplingSettings

MAX_TEXT_CHARS = 100_000
"""Maximum characters of a text."""
MAX_TEXTS = 64
"""Maximum texts per request."""
MAX_NEW_TOKENS = 2048
"""Maximum generated tokens per text."""
MAX_SAMPLES = 16
"""Maximum texts per prompt."""
MAX_STOPS, MAX_STOP_CHARS = 16, 100
"""Maximum number of stop strings, and characters of each."""


def _refuse_nul(text: str) -> str:
    """The text; refuses NUL characters."""
    if "\x00" in text:
        raise ValueError("contains a NUL character; remove it")
    return text


Text = Annotated[str, StringConstraints(max_length=MAX_TEXT_CHARS), AfterValidator(_refuse_nul)]
ShortText = Annotated[str, StringConstraints(max_length=4000), AfterValidator(_refuse_nul)]
NonEmptyText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT_CHARS), AfterValidator(_refuse_nul)]
Texts = NonEmptyText | Annotated[list[NonEmptyText], Field(min_length=1, max_length=MAX_TEXTS)]
StopString = Annotated[str, StringConstraints(min_length=1, max_length=MAX_STOP_CHARS), AfterValidator(_refuse_nul)]
Base64Image = Annotated[str, StringConstraints(min_length=1, max_length=1 << 20)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=256)]


def example_config(**fields: Any) -> ConfigDict:
    """Model config with an example body for the OpenAPI schema."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class ModelRequest(Settings):
    """Fields of every request."""

    model: ModelName | None = None
    """The run to use; optional if only one run supports the route."""


class GenerateRequest(ModelRequest):
    """A prompt and sampling settings."""

    model_config = example_config(prompt="The old harbour", max_tokens=20, temperature=0.8, seed=1)
    prompt: Text = ""
    """The prompt to continue; for an encoder-decoder, the source text."""
    source: NonEmptyText | None = None
    """A source text for the encoder, for a model that can also continue a prompt."""
    n: int = Field(1, ge=1, le=MAX_SAMPLES)
    """Number of texts."""
    max_tokens: int = Field(100, ge=1, le=MAX_NEW_TOKENS)
    """Maximum number of new tokens."""
    min_tokens: int = Field(0, ge=0, le=MAX_NEW_TOKENS)
    """Minimum number of new tokens."""
    temperature: float = Field(1.0, ge=0, le=100)
    """Sampling temperature; 0 is greedy decoding."""
    top_k: int | None = Field(None, ge=1, le=1 << 20)
    """Sample from the k most likely tokens."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Sample from the most likely tokens whose probabilities add up to p (nucleus sampling)."""
    repetition_penalty: float = Field(1.0, ge=0.1, le=10)
    """Values above 1 make tokens that already occur less likely."""
    no_repeat: int | None = Field(None, ge=1, le=100)
    """No n-gram of this many tokens occurs twice."""
    beams: int = Field(1, ge=1, le=MAX_SAMPLES)
    """Number of beams; the n best texts are returned."""
    stop: list[StopString] = Field(default_factory=list, max_length=MAX_STOPS)
    """Stop strings, which are not part of the output."""
    seed: int | None = Field(None, ge=0, lt=1 << 63)
    """Random seed; the same seed generates the same text. Default: a new one, which the response returns."""
    top: int = Field(0, ge=0, le=20)
    """Number of most likely tokens reported at each position."""
    stream: bool = False
    """Stream the text as server-sent events."""

    def sampling_settings(self) -> SamplingSettings:
        """The sampling settings of the request, with a seed."""
        shared = ("temperature", "top_k", "top_p", "repetition_penalty", "beams", "max_tokens", "min_tokens", "seed")
        values = {name: getattr(self, name) for name in shared}
        values |= {"stop": tuple(self.stop), "no_repeat_ngram_size": self.no_repeat}
        return SamplingSettings.model_validate(values).with_seed()


class FillRequest(ModelRequest):
    """Texts with masks to fill."""

    model_config = example_config(text="The cat sat on the [MASK].", top=3)
    text: Texts
    """One or several texts, each with one or more [MASK]."""
    top: int = Field(5, ge=1, le=100)
    """Number of candidates per mask."""


class ScoreRequest(ModelRequest):
    """Texts, or targets given a source, to score."""

    model_config = example_config(text="The boats came home.")
    text: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)] = ""
    """One or several texts; with text_b, the sources or prompts."""
    text_b: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)] | None = None
    """The targets or continuations to score. Several for one text are ranked, best first."""
    image: Base64Image | None = None
    """For a captioning model: the image (base64) that the caption in text_b is scored for."""

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if "text" not in self.model_fields_set and self.image is None:
            raise ValueError("text: missing")
        if self.image is not None and (self.text or self.text_b is None):
            raise ValueError("image: needs text_b, and no text")
        num_texts = len(self.text) if isinstance(self.text, list) and self.text_b is not None else None
        if num_texts is not None and (isinstance(self.text_b, str) or len(self.text_b or ()) != num_texts):
            raise ValueError("text_b: must have as many texts as text")
        return self


class DetectRequest(ModelRequest):
    """Texts in which some tokens may have been replaced."""

    model_config = example_config(text="The old gardener swam there.")
    text: Texts
    """One or several texts."""


class EmbedRequest(ModelRequest):
    """Texts to embed."""

    model_config = example_config(text=["The garden.", "A boat in the harbour."], pooling="mean")
    text: Texts
    """One or several texts."""
    pooling: Literal["mean", "first", "last"] | None = None
    """How token vectors are pooled into a text vector."""
    level: Literal["text", "token", "word"] = "text"
    """One vector per text, or per token or word with their offsets."""
    layer: Annotated[int, Field(ge=-1000, le=1000)] | Literal["mix"] | None = None
    """A layer (0 the embeddings, -1 the last), or mix: learned weighted sum of all layers. Default: the output."""


class AttentionRequest(ModelRequest):
    """Inputs whose attention weights are returned."""

    model_config = example_config(text="The gardener watered the tree.")
    text: ShortText = ""
    """The text, or the source of an encoder-decoder."""
    text_b: ShortText | None = None
    """The second text of a pair."""
    parts: dict[ModelName, Text] = Field(default_factory=dict, max_length=8)
    """Further inputs of a task by name: question, passage."""
    target: ShortText | None = None
    """The target of an encoder-decoder. Default: its greedy output."""
    image: Base64Image | None = None
    """For a captioning model: the image as base64."""
    kind: ModelName | None = None
    """One kind of attention: self, cross, decoder, …. Default: all."""
