"""Settings that everything a model is trained on has: objectives, tasks and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meristem.config.settings import Settings


class ObjectiveSettings(Settings):
    """Base class of an objective's settings; each objective declares `name` itself, as the name of its file."""

    if TYPE_CHECKING:  # a field of a base class would come first in every recipe.yaml
        name: str

    @property
    def takes_other_documents(self) -> bool:
        """Whether samples are made of several documents, so that a corpus should have more than one."""
        return False

    @property
    def privacy_obstacle(self) -> str | None:
        """Why the gradient of a document or sample depends on others, so that it cannot be private; None if not."""
        return "its samples are made of several documents" if self.takes_other_documents else None

    @property
    def required_mode(self) -> str | None:
        """The mode in which the backbone is used, where the settings choose one of several."""
        return None
