"""What requests to our own routes hold, each part with its bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from meristem.generation.sampling import SamplingSettings
from meristem.settings import Settings

LONGEST = 100_000
"""Characters of a text."""
MANY = 64
"""Texts of one request."""
MOST_TOKENS = 2048
"""That one text is gone on with."""
COPIES = 16
"""Texts from one prompt."""
STOPS, STOP = 16, 100
"""Strings that end a text, and the characters of each."""


def _whole(text: str) -> str:
    """Text without the character that ends strings elsewhere."""
    if "\x00" in text:
        raise ValueError("holds the character NUL, which no text has; leave it out")
    return text


Text = Annotated[str, StringConstraints(max_length=LONGEST), AfterValidator(_whole)]
Some = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST), AfterValidator(_whole)]
Texts = Some | Annotated[list[Some], Field(min_length=1, max_length=MANY)]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=STOP), AfterValidator(_whole)]
Image = Annotated[str, StringConstraints(min_length=1, max_length=1 << 20)]
Model = Annotated[str, StringConstraints(min_length=1, max_length=256)]


def example(**parts: Any) -> ConfigDict:
    """A body as somebody might send it, for the description of the routes."""
    return ConfigDict(json_schema_extra={"examples": [parts]})


class Asked(Settings):
    """What every request may say."""

    model: Model | None = None
    """The run that is asked; may be left out where only one can answer."""


class Generate(Asked):
    """A prompt, and how to go on from it."""

    model_config = example(prompt="The old harbour", max_tokens=20, temperature=0.8, seed=1)
    prompt: Text = ""
    """What the text begins with, or, for an encoder-decoder, what it is made from."""
    source: Some | None = None
    """What an encoder reads, for a model that could also go on from a prompt."""
    n: int = Field(1, ge=1, le=COPIES)
    """Texts to write."""
    max_tokens: int = Field(100, ge=1, le=MOST_TOKENS)
    """Tokens to write at the most."""
    min_tokens: int = Field(0, ge=0, le=MOST_TOKENS)
    """The text does not end before it has this many."""
    temperature: float = Field(1.0, ge=0, le=100)
    """Above 1 bolder, below 1 safer, 0 always the likeliest token."""
    top_k: int | None = Field(None, ge=1, le=1 << 20)
    """Choose among the k likeliest tokens."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Choose among the likeliest tokens that hold p of the probability."""
    repetition_penalty: float = Field(1.0, ge=0.1, le=10)
    """Above 1 makes tokens that were already used less likely."""
    no_repeat: int | None = Field(None, ge=1, le=100)
    """No run of so many tokens is written twice."""
    beams: int = Field(1, ge=1, le=COPIES)
    """Beam search with this many beams; n of their texts are given back."""
    stop: list[Stop] = Field(default_factory=list, max_length=STOPS)
    """End before any of these."""
    seed: int = Field(0, ge=0, lt=1 << 63)
    """The same seed writes the same text."""
    top: int = Field(0, ge=0, le=20)
    """So many of the likeliest tokens are told at each place."""
    stream: bool = False
    """Send the text as it is written, as server-sent events."""

    def sampling(self) -> SamplingSettings:
        """The same as the generation room takes it."""
        same = ("top_k", "top_p", "repetition_penalty", "no_repeat", "beams", "max_tokens", "min_tokens", "seed")
        told = {"temperature": self.temperature or 1.0, "greedy": self.temperature == 0, "stop": tuple(self.stop)}
        return SamplingSettings.model_validate({**told, **{name: getattr(self, name) for name in same}})


class Fill(Asked):
    """A text in which words are missing."""

    model_config = example(text="The cat sat on the [MASK].", top=3)
    text: Texts
    """A text, or several, with [MASK] where a word is missing."""
    top: int = Field(5, ge=1, le=100)
    """Candidates for each mask."""


class Score(Asked):
    """Texts to judge."""

    model_config = example(text="The boats came home.")
    text: Text | Annotated[list[Text], Field(min_length=1, max_length=MANY)] = ""
    """A text, or several; with text_b what each of those is scored given."""
    text_b: Text | Annotated[list[Text], Field(min_length=1, max_length=MANY)] | None = None
    """What is scored: a target, or what follows. Several for one text are ranked, the best first."""
    image: Image | None = None
    """For a captioner: a picture as base64, which text_b is scored given."""

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if "text" not in self.model_fields_set and self.image is None:
            raise ValueError("text: there is none to score")
        if self.image is not None and (self.text or self.text_b is None):
            raise ValueError("image: is scored with text_b, and without a text")
        several = len(self.text) if isinstance(self.text, list) and self.text_b is not None else None
        if several is not None and (isinstance(self.text_b, str) or len(self.text_b or ()) != several):
            raise ValueError("text_b: several texts need as many second ones")
        return self


class Detect(Asked):
    """Texts in which tokens may be replaced."""

    model_config = example(text="The old gardener swam there.")
    text: Texts
    """A text, or several."""


class Embed(Asked):
    """Texts to turn into vectors."""

    model_config = example(text=["The garden.", "A boat in the harbour."], pooling="mean")
    text: Texts
    """A text, or several."""
    pooling: Literal["mean", "first", "last"] = "mean"
    """The mean of a text's states, or its first or last one."""
    level: Literal["text", "token", "word"] = "text"
    """A vector for each text, or those of its tokens or words with their offsets."""
    layer: Annotated[int, Field(ge=-1000, le=1000)] | Literal["mix"] | None = None
    """A layer, 0 the embeddings and -1 the last, or mix: all layers by learned weights; the output unless given."""


class Attention(Asked):
    """A text to be watched while it is read."""

    model_config = example(text="The gardener watered the tree.")
    text: Annotated[str, StringConstraints(max_length=4000), AfterValidator(_whole)] = ""
    """The text, or what is turned into another."""
    text_b: Annotated[str, StringConstraints(max_length=4000), AfterValidator(_whole)] | None = None
    """The second text of a pair."""
    parts: dict[Model, Text] = Field(default_factory=dict, max_length=8)
    """What else a task reads, by name: question, passage."""
    target: Annotated[str, StringConstraints(max_length=4000), AfterValidator(_whole)] | None = None
    """What an encoder-decoder writes; the likeliest unless given."""
    image: Image | None = None
    """For a captioner: a picture as base64."""
    kind: Model | None = None
    """One kind of attention: self, cross, decoder, …; all unless given."""


class Ranked(Asked):
    """A question to a task."""

    top: int | None = Field(None, ge=1, le=100)
    """So many of the likeliest answers instead of the best alone."""


class Classify(Ranked):
    """Texts that get a label or a number."""

    model_config = example(text="What a film!", top=2)
    text: Texts
    """A text, or several."""
    text_b: Some | None = None
    """The second text of a pair."""


class Tag(Ranked):
    """Texts whose words get tags."""

    model_config = example(text="Ada walked to Riverton.")
    text: Texts
    """A text, or several."""


class Answer(Ranked):
    """A question about a passage."""

    model_config = example(question="Who walked?", passage="Ada walked to the harbour.")
    question: Some
    """What is asked."""
    passage: Some
    """Where the answer is taken from."""


class Choose(Ranked):
    """Choices, of which one goes best with a text."""

    model_config = example(text="It rained, so", choices=["she took an umbrella.", "the sun shone."])
    text: Some
    """What comes before."""
    choices: Annotated[list[Some], Field(min_length=2, max_length=MANY)]
    """What may follow, or answer."""
    question: Some | None = None
    """A question that the choices answer."""


class Rewrite(Ranked):
    """Texts that are turned into others: translations, summaries."""

    model_config = example(text="Diego played chess.")
    text: Texts
    """A text, or several."""


class Caption(Ranked):
    """A picture that is told of."""

    model_config = example(
        image="iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC"
    )
    image: Image
    """The bytes of a picture as base64, perhaps behind data:image/png;base64,"""


class Reply(Ranked):
    """A conversation that is gone on with."""

    model_config = example(turns=["Hello!", "Hello, how are you?", "Well, and you?"])
    turns: Annotated[list[Some], Field(min_length=1, max_length=MANY)]
    """What was said so far, in turn."""
