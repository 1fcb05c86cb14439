"""Captioning: a picture → what there is to say of it (SPEC C10)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from meristem.corpus.pictures import is_builtin, pixels
from meristem.errors import MeristemError
from meristem.generation.laid import Laid, TwoSides
from meristem.objectives import caption
from meristem.samples import microworld
from meristem.task import Indices, Metrics, Piece, Sample
from meristem.tasks._writing import Said, Writing, WritingSettings
from meristem.tokenizers.tokenizer import Tokenizer


class CaptionSettings(WritingSettings):
    """What captioning can be told."""

    name: Literal["caption"] = "caption"
    """The task's name."""
    picture: int | None = Field(None, ge=4)
    """Pixels of a picture's side; the model's unless set."""
    max_tokens: int = Field(64, ge=1)
    """Tokens of a caption at the most."""


class Caption(Writing):
    """p(caption | picture); BLEU and chrF, and on built-in pictures how much of a scene is named right."""

    Settings = CaptionSettings
    name = "caption"
    shape = "picture"
    ways = frozenset({"encoder_decoder"})
    needs = frozenset({"image"})

    def _layout(self, s: Any, tokenizer: Tokenizer) -> Laid:
        if s.picture is None:
            raise MeristemError("task caption: how large pictures are is not known yet; it comes from the model")
        told = {"label_smoothing": s.label_smoothing, "begin": s.begin or ("start",)}
        objective = caption.Caption(caption.CaptionSettings.model_validate(told), tokenizer)
        return TwoSides(objective, tokenizer, s.length, s.max_tokens, key="image")

    @classmethod
    def texts(cls, sample: Sample) -> list[str]:
        """The captions."""
        return list(sample.gold or ())

    def given(self, sample: Sample) -> Sequence[str]:
        """The picture's name, for a person; it is never read as text."""
        return [sample.given["picture"]]

    def pieces(self, samples: Sequence[Sample]) -> list[Piece]:
        """Each picture and its first caption; one that cannot be opened is named with its place."""
        opened: dict[str, NDArray[np.uint8]] = {}  # a picture with several captions is several samples
        out = []
        for number, (sample, target) in enumerate(zip(samples, self.targets(samples), strict=True)):
            name = sample.given["picture"]
            if isinstance(name, np.ndarray):  # pixels already, of the model's size
                out.append(self.laid.piece(number, name, target))
                continue
            opened[name] = opened[name] if name in opened else self._picture(sample)
            out.append(self.laid.piece(number, opened[name], target))
        return out

    def _picture(self, sample: Sample) -> NDArray[np.uint8]:
        """[side, side, 3] bytes, whether it lies in a file or is built in."""
        given, side = sample.given["picture"], self.settings.picture
        try:
            return pixels(given, side)
        except MeristemError as error:
            raise MeristemError(f"{sample.place}: {error}" if sample.place else str(error)) from None

    def resampled(self, answers: Sequence[Said], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """BLEU and chrF; where every picture is a scene of the microworld, the share of it that is named right."""
        cited = super().resampled(answers, samples)
        pictures = [sample.given["picture"] for sample in samples]
        if not all(map(is_builtin, pictures)):
            return cited
        pairs = zip(answers, pictures, strict=True)
        right = np.array([microworld.named(answer.text, _scene(name)) for answer, name in pairs])
        return lambda at: {**cited(at), "named": float(right[at].mean())}

    def asked(self, given: str | Path | Mapping[str, Any]) -> Sample:
        """A file, or a mapping with `picture` (`image` will do)."""
        found = given.get("picture", given.get("image")) if isinstance(given, Mapping) else given
        if not isinstance(found, str | Path):
            raise MeristemError(f"caption tells of a picture: give its file (--image F, or picture=…), not {given!r}")
        return Sample(given={"picture": str(found)})

    def commands(self, place: str, sample: Sample) -> list[str]:
        """The caption of a sample's picture, where that is a file."""
        name = sample.given["picture"]
        return [] if is_builtin(name) else [f"meristem predict {place} --image {shlex.quote(name)}"]


def _scene(name: str) -> microworld.Scene:
    _, seed, number = name.split()[0].split(":")
    return microworld.scene(int(seed), int(number))
