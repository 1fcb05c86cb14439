"""Image captioning: an image → a caption."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from meristem.config.errors import MeristemError
from meristem.data.images import is_builtin_image, load_named_image
from meristem.generation.source_target_layout import EncoderDecoderLayout, SourceTargetLayout
from meristem.interfaces.task import Indices, Metrics, Sample, SamplePiece
from meristem.objectives import caption
from meristem.samples import microworld
from meristem.tasks._generation_task import GeneratedAnswer, GenerationTask, GenerationTaskSettings
from meristem.tasks.settings import ImageTaskSettings
from meristem.tokenizers.tokenizer import Tokenizer


class CaptionTaskSettings(GenerationTaskSettings, ImageTaskSettings):
    """Settings of image captioning."""

    renamed: ClassVar[dict[str, str]] = {
        "picture": "image_size",
    }

    name: Literal["caption"] = "caption"
    """The task's name."""
    image_size: int | None = Field(None, ge=4)
    """Side length of images in pixels; the model's if not set."""
    max_tokens: int = Field(64, ge=1)
    """Maximum tokens of a caption."""


class CaptionTask(GenerationTask):
    """p(caption | image); BLEU and chrF, and for built-in images the share of the scene that is named correctly."""

    Settings = CaptionTaskSettings
    name = "caption"
    sample_type = "picture"
    requires_any = frozenset({"encoder_decoder"})
    requires = frozenset({"image"})

    def _build_layout(self, settings: Any, tokenizer: Tokenizer) -> SourceTargetLayout:
        if settings.image_size is None:
            raise MeristemError("task caption: the image size (task.image_size) is not set; it comes from the model")
        objective_settings = {
            "label_smoothing": settings.label_smoothing,
            "start_tokens": settings.decoder_start_ids or ("start",),
        }
        objective = caption.CaptionObjective(
            caption.CaptionObjectiveSettings.model_validate(objective_settings), tokenizer
        )
        return EncoderDecoderLayout(objective, tokenizer, settings.max_length, settings.max_tokens, source_key="image")

    @classmethod
    def sample_texts(cls, sample: Sample) -> list[str]:
        """The captions."""
        return list(sample.gold or ())

    def source_texts(self, sample: Sample) -> Sequence[str]:
        """The image's file name, for display only."""
        return [sample.inputs["picture"]]

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Each image and its first caption; raises with the location of an image that cannot be opened."""
        images: dict[str, NDArray[np.uint8]] = {}  # an image with several captions is several samples
        pieces = []
        for index, (sample, target) in enumerate(zip(samples, self.target_ids(samples), strict=True)):
            image = sample.inputs["picture"]
            if isinstance(image, np.ndarray):  # pixels already, of the model's size
                pieces.append(self.layout.build_piece(index, image, target))
                continue
            images[image] = images[image] if image in images else self._load_image(sample)
            pieces.append(self.layout.build_piece(index, images[image], target))
        return pieces

    def _load_image(self, sample: Sample) -> NDArray[np.uint8]:
        """[side, side, 3] uint8 pixels of an image file or a built-in image."""
        image, image_size = sample.inputs["picture"], self.settings.image_size
        try:
            return load_named_image(image, image_size)
        except MeristemError as error:
            raise MeristemError(f"{sample.location}: {error}" if sample.location else str(error)) from None

    def bootstrap_metrics(
        self, predictions: Sequence[GeneratedAnswer], samples: Sequence[Sample]
    ) -> Callable[[Indices], Metrics]:
        """BLEU and chrF; for microworld scenes also the share of the scene that is named correctly."""
        text_metrics = super().bootstrap_metrics(predictions, samples)
        images = [sample.inputs["picture"] for sample in samples]
        if not all(map(is_builtin_image, images)):
            return text_metrics
        pairs = zip(predictions, images, strict=True)
        named_shares = np.array([microworld.score_caption(answer.text, _scene(name)) for answer, name in pairs])
        return lambda indices: {**text_metrics(indices), "named": float(named_shares[indices].mean())}

    def parse_input(self, value: str | Path | Mapping[str, Any]) -> Sample:
        """An image path, or a mapping with `picture` (or `image`)."""
        image = value.get("picture", value.get("image")) if isinstance(value, Mapping) else value
        if not isinstance(image, str | Path):
            raise MeristemError(f"caption takes an image: give its file (--image F, or picture=…), not {value!r}")
        return Sample(inputs={"picture": str(image)})

    def example_commands(self, run_path: str, sample: Sample) -> list[str]:
        """The command for a sample's image; empty for built-in images."""
        image = sample.inputs["picture"]
        return [] if is_builtin_image(image) else [f"meristem predict {run_path} --image {shlex.quote(image)}"]


def _scene(name: str) -> microworld.ShapeScene:
    _, seed, number = name.split()[0].split(":")
    return microworld.generate_scene(int(seed), int(number))
