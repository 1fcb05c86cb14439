"""Meristem: raw text in, a pretrained language model out.

    import meristem

    meristem.pretrain("bert-mini", {"train.minutes": 3})             # train: a recipe, its settings, text of yours
    meristem.finetune("classification", {"from": "runs/bert-mini"}, data={"train": frame})
    model = meristem.load("runs/bert-mini")                          # use: fill, generate, score, embed, …
    model.fill("The [MASK] is closed.")

docs/python.md is the whole interface on one page; `help(meristem.load)` and the like explain each function.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meristem.api import (
        Loaded,
        describe,
        export,
        finetune,
        import_folder,
        load,
        pretrain,
        reinforce,
        reward,
    )
    from meristem.errors import MeristemError

__version__ = "0.1.0"
__all__ = [
    "Loaded",
    "MeristemError",
    "describe",
    "export",
    "finetune",
    "import_folder",
    "load",
    "pretrain",
    "reinforce",
    "reward",
]


def __getattr__(name: str) -> Any:
    """The interface is imported when it is first used, so that `import meristem` and `meristem --help` stay quick."""
    if name not in __all__:
        raise AttributeError(f"module 'meristem' has no attribute {name!r}")
    return getattr(import_module("meristem.errors" if name == "MeristemError" else "meristem.api"), name)


def __dir__() -> list[str]:
    """What completion and `help(meristem)` show."""
    return [*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"]
