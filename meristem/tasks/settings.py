"""Settings that all tasks have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meristem.objectives.settings import ObjectiveSettings


class TaskSettings(ObjectiveSettings):
    """Base class of a task's settings."""

    if TYPE_CHECKING:  # fields of a base class would come first in every recipe.yaml
        backbone_mode: str | None
        max_length: int | None
        decoder_start_ids: tuple[int, ...]
        lm_weight: float

    @property
    def required_mode(self) -> str | None:
        """The mode in which the task uses the backbone; set from the model when a run starts."""
        return self.backbone_mode

    @property
    def head_labels(self) -> tuple[str, ...]:
        """The labels that the outputs of the task's head stand for, in order."""
        return ()
