"""A captioner: pictures, cut into a grid, go through the Transformer's encoder, and its decoder says what is there."""

# B batch, P pixels of a side, S source tokens, T tokens written

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from meristem.batch import Hidden, State
from meristem.blocks.norms import norm
from meristem.blocks.patches import GridName, Look, LookName
from meristem.blocks.stack import StackSettings
from meristem.errors import MeristemError
from meristem.models.transformer import Transformer, TransformerSettings

ONE = "a captioner reads a picture (image) or a text (source), one of the two at a time"

PLACE = 0.5  # standard deviation of initial positions: about that of what stands there, or they take long to be noticed


class CaptionerSettings(TransformerSettings):
    """Small pictures in patches unless set otherwise."""

    family: Literal["captioner"] = "captioner"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    picture: int = Field(32, ge=4)
    """Pixels of a picture's side."""
    patch: int = Field(4, ge=1)
    """Pixels of the side of what becomes one place; it divides the picture."""
    look: LookName = "patches"
    """patches (one linear map each) or convolutions (3×3, halving the picture until a place is a patch)."""
    picture_positions: GridName = "grid"
    """grid (a vector for the row and one for the column) or learned (one for each place)."""

    @model_validator(mode="after")
    def _grid(self) -> Self:
        if self.picture % self.patch:
            raise ValueError(f"patch: {self.patch} pixels do not divide a picture of {self.picture}")
        if self.look == "convolutions" and (self.patch < 2 or self.patch & (self.patch - 1)):
            raise ValueError(f"patch: convolutions halve, so a patch has 2, 4, 8, … pixels a side, not {self.patch}")
        return self

    @property
    def places(self) -> int:
        """How many patches a picture has."""
        return (self.picture // self.patch) ** 2


class Captioner(Transformer):
    """Pictures and texts go through the same layers, so that one run can learn from both."""

    Settings: ClassVar[type[CaptionerSettings]] = CaptionerSettings
    can = frozenset({"image", "encoder_decoder"})
    text_tasks = False
    settings: CaptionerSettings

    def __init__(self, settings: CaptionerSettings, vocabulary: int) -> None:
        super().__init__(settings, vocabulary)
        s = settings
        self.look = Look(
            s.look,
            s.width,
            picture=s.picture,
            patch=s.patch,
            positions=s.picture_positions,
            norm=norm(s.norm, s.width, s.norm_epsilon, bias=s.bias) if s.embedding_norm else None,
            dropout=s.dropout,
        )
        self.look.positions.initialise(PLACE)

    def _encoding(self) -> StackSettings:
        """Layers that reach over every place of a picture, which may be more than a text has tokens."""
        return self.settings.model_copy(update={"length": max(self.settings.length, self.settings.places)})

    def forward(  # type: ignore[override]  # a picture may stand in the source's place
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
        """A picture [B, P, P, 3] or a source [B, S], and the target so far [B, T] → Hidden over the target."""
        if image is not None and source is None:
            found = self.encoder(self.look(image), causal=False, want=want)
            return self._write(self.tokens(tokens), found, None, want)
        if source is not None and image is None:
            return super().forward(source=source, tokens=tokens, source_present=source_present, want=want)
        raise MeristemError(ONE)

    def encode(
        self, *, image: Tensor | None = None, source: Tensor | None = None, source_present: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The encoder's states alone, and which of them exist."""
        if image is not None and source is None:
            return self.encoder(self.look(image), causal=False).last, None
        if source is not None and image is None:
            return super().encode(source=source, source_present=source_present)
        raise MeristemError(ONE)
