"""Meristem: raw text in, a pretrained language model out."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meristem.api import describe, export, finetune, import_folder, load, pretrain, reinforce, reward

__version__ = "0.1.0"
__all__ = ["describe", "export", "finetune", "import_folder", "load", "pretrain", "reinforce", "reward"]


def __getattr__(name: str) -> Any:
    """The API is imported when it is first used, so that `meristem --help` stays quick."""
    if name in __all__:
        from meristem import api

        return getattr(api, name)
    raise AttributeError(f"module 'meristem' has no attribute {name!r}")
