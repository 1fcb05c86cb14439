"""Settings that all model families have, and those of families that read images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meristem.config.settings import Settings


class ModelSettings(Settings):
    """Base class of a family's settings; each family declares these fields itself, with its defaults and help."""

    if TYPE_CHECKING:  # fields of a base class would come first in every recipe.yaml
        family: str
        layers: int
        hidden_size: int
        max_length: int

    @property
    def reads_both_ways(self) -> bool:
        """Whether half of the rows are read backwards (XLNet)."""
        return False

    @property
    def carries_memory(self) -> bool:
        """Whether training carries memory from step to step, over contiguous batches (Transformer-XL)."""
        return False


class ImageModelSettings(ModelSettings):
    """Settings of a family that reads images."""

    if TYPE_CHECKING:
        image_size: int
