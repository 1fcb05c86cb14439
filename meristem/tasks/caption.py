"""Image captioning: an image → a caption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from meristem.config.errors import MeristemError
from meristem.data.images import is_builtin_image, load_named_image
from meristem.generation.source_target_layout import SourceTargetLayout
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task import Task
from meristem.interfaces.task_evaluation import Resampler
from meristem.interfaces.task_parts import TaskParts
from meristem.interfaces.task_signature import InputField, Route, TaskSignature
from meristem.models.settings import ImageModelSettings, ModelSettings
from meristem.samples import microworld
from meristem.tasks.components.generation_parts import generation_parts
from meristem.tasks.components.generation_settings import GenerationSettings, build_image_layout
from meristem.tasks.components.sequence_generator import GeneratedAnswer
from meristem.tasks.components.source_target import SourceTargetEncoder
from meristem.tasks.components.text_metrics import GeneratedTextMetrics
from meristem.tokenizers.tokenizer import Tokenizer


class CaptionTaskSettings(GenerationSettings):
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


class ImageEncoder(SourceTargetEncoder):
    """Each image and its first caption; an image file that cannot be opened is named with its location."""

    def __init__(self, layout: SourceTargetLayout, tokenizer: Tokenizer, image_size: int) -> None:
        super().__init__(None, layout, tokenizer)
        self.image_size = image_size

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """One piece per sample; an image with several captions is opened once."""
        images: dict[str, NDArray[np.uint8]] = {}
        pieces = []
        for index, (sample, target) in enumerate(zip(samples, self.target_ids(samples), strict=True)):
            image = sample.inputs["picture"]
            if not isinstance(image, np.ndarray):  # else pixels already, of the model's size
                if image not in images:
                    images[image] = self._load_image(sample)
                image = images[image]
            pieces.append(self.layout.build_piece(index, image, target))
        return pieces

    def _load_image(self, sample: Sample) -> NDArray[np.uint8]:
        """[side, side, 3] uint8 pixels of an image file or a built-in image."""
        try:
            return load_named_image(sample.inputs["picture"], self.image_size)
        except MeristemError as error:
            raise MeristemError(f"{sample.location}: {error}" if sample.location else str(error)) from None


class CaptionMetrics(GeneratedTextMetrics):
    """BLEU and chrF, and for built-in images the share of the scene that is named correctly."""

    def resampler(self, predictions: Sequence[GeneratedAnswer], samples: Sequence[Sample]) -> Resampler:
        """The metrics for resampled indices."""
        text_metrics = super().resampler(predictions, samples)
        images = [sample.inputs["picture"] for sample in samples]
        if not all(map(is_builtin_image, images)):
            return text_metrics
        pairs = zip(predictions, images, strict=True)
        named_shares = np.array([microworld.score_caption(answer.text, _scene(name)) for answer, name in pairs])
        return lambda indices: {**text_metrics(indices), "named": float(named_shares[indices].mean())}


def _scene(name: str) -> microworld.ShapeScene:
    _, seed, number = name.split()[0].split(":")
    return microworld.generate_scene(int(seed), int(number))


class CaptionTask(Task[CaptionTaskSettings]):
    """p(caption | image)."""

    Settings = CaptionTaskSettings
    name = "caption"
    sample_type = "image"
    requires_any: ClassVar[frozenset[str]] = frozenset({"encoder_decoder"})
    requires: ClassVar[frozenset[str]] = frozenset({"image"})
    signature = TaskSignature(
        takes="an image: give its file (--image F)",
        inputs=(
            InputField(
                name="picture",
                kind="image",
                public_name="image",
                help="The image file as base64, optionally prefixed with data:image/png;base64,",
            ),
        ),
        output="text",
        route=Route(name="caption", summary="The caption of an image"),
    )

    @classmethod
    def complete_settings(cls, settings: CaptionTaskSettings, model_settings: ModelSettings) -> CaptionTaskSettings:
        """The settings with the model's maximum length and image size."""
        completed = super().complete_settings(settings, model_settings)
        if settings.image_size is None and isinstance(model_settings, ImageModelSettings):
            return completed.model_copy(update={"image_size": model_settings.image_size})
        return completed

    @classmethod
    def compose(cls, settings: CaptionTaskSettings, tokenizer: Tokenizer) -> TaskParts:
        """An image for the encoder, and the caption as in pretraining."""
        layout = build_image_layout(settings, cls.name, tokenizer)
        if settings.image_size is None:
            raise MeristemError("task caption: the image size (task.image_size) is not set; it comes from the model")
        encoder = ImageEncoder(layout, tokenizer, settings.image_size)
        return generation_parts(settings, tokenizer, layout, encoder, CaptionMetrics(), cls.signature.output_fields[0])
