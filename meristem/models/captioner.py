"""Image captioner: image patches through a transformer encoder, captions from its decoder."""

# B batch, P image size in pixels, S source tokens, T target tokens

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from meristem.blocks.embeddings.image_patches import ImageEmbedding, ImagePositionName, ImageStemName
from meristem.blocks.transformer.norms import build_norm
from meristem.blocks.transformer.stack import StackSettings
from meristem.config.errors import MeristemError
from meristem.interfaces.backbone import Hidden, State
from meristem.models.settings import ImageModelSettings
from meristem.models.transformer import Transformer, TransformerSettings

ONE_INPUT_MESSAGE = "a captioner takes either an image (image) or a text (source), not both"

POSITION_INIT_STD = 0.5
"""Standard deviation of initial position embeddings: about that of patch embeddings; smaller ones learn slowly."""


class CaptionerSettings(TransformerSettings, ImageModelSettings):
    """32 × 32 images in 4 × 4 patches unless set otherwise."""

    renamed: ClassVar[dict[str, str]] = {
        "picture": "image_size",
        "patch": "patch_size",
        "look": "image_stem",
        "picture_positions": "image_position_encoding",
    }

    family: Literal["captioner"] = "captioner"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    image_size: int = Field(32, ge=4)
    """Image size: height and width in pixels."""
    patch_size: int = Field(4, ge=1)
    """Patch size in pixels; must divide the image size."""
    image_stem: ImageStemName = "patches"
    """Image stem: patches (linear projection, ViT) or convolutions (3×3 with stride 2 down to the patch grid)."""
    image_position_encoding: ImagePositionName = "grid"
    """Position embeddings of patches: grid (row plus column) or learned (one per patch)."""

    @model_validator(mode="after")
    def _check_patches(self) -> Self:
        if self.image_size % self.patch_size:
            raise ValueError(
                f"patch_size: {self.patch_size} pixels do not divide an image of {self.image_size}; choose a divisor"
            )
        if self.image_stem == "convolutions" and (self.patch_size < 2 or self.patch_size & (self.patch_size - 1)):
            raise ValueError(
                "patch_size: with image_stem=convolutions it must be a power of two (2, 4, 8, …), not "
                f"{self.patch_size}"
            )
        return self

    @property
    def num_patches(self) -> int:
        """Number of patches of an image."""
        return (self.image_size // self.patch_size) ** 2


class Captioner(Transformer):
    """Encoder-decoder whose encoder takes images or text through the same layers, so that one run can train on both."""

    Settings: ClassVar[type[CaptionerSettings]] = CaptionerSettings
    capabilities = frozenset({"image", "encoder_decoder"})
    supports_text_tasks = False
    settings: CaptionerSettings

    def __init__(self, settings: CaptionerSettings, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        s = settings
        self.look = ImageEmbedding(
            s.image_stem,
            s.hidden_size,
            image_size=s.image_size,
            patch_size=s.patch_size,
            position_encoding=s.image_position_encoding,
            norm=build_norm(s.norm, s.hidden_size, s.norm_epsilon, bias=s.bias) if s.embedding_norm else None,
            dropout=s.dropout,
        )
        self.look.positions.init_weights(POSITION_INIT_STD)

    def _encoder_settings(self) -> StackSettings:
        """Encoder settings with a maximum length of at least the number of patches."""
        return self.settings.model_copy(update={"max_length": max(self.settings.max_length, self.settings.num_patches)})

    def forward(  # type: ignore[override]  # an image may replace the source
        self,
        *,
        tokens: Tensor,
        image: Tensor | None = None,
        source: Tensor | None = None,
        source_present: Tensor | None = None,
        present: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
    ) -> Hidden:
        """Image [B, P, P, 3] or source [B, S], and target [B, T] → Hidden of the target."""
        if image is not None and source is None:
            encoded = self.encoder(self.look(image), causal=False, want=want)
            return self._decode(self.tokens(tokens), encoded, None, want)
        if source is not None and image is None:
            return super().forward(source=source, tokens=tokens, source_present=source_present, want=want)
        raise MeristemError(ONE_INPUT_MESSAGE)

    def encode(
        self, *, image: Tensor | None = None, source: Tensor | None = None, source_present: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Encoder output and its padding mask."""
        if image is not None and source is None:
            return self.encoder(self.look(image), causal=False).last_hidden_state, None
        if source is not None and image is None:
            return super().encode(source=source, source_present=source_present)
        raise MeristemError(ONE_INPUT_MESSAGE)
