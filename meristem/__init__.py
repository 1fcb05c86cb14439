"""Meristem: raw text in, a pretrained language model out.

    import meristem

    meristem.pretrain("bert-mini", {"train.minutes": 3})             # train: a recipe, its settings, text of yours
    meristem.finetune("classification", {"from": "runs/bert-mini"}, data={"train": frame})
    model = meristem.load("runs/bert-mini")                          # use: fill, generate, score, embed, …
    model.fill("The [MASK] is closed.")

docs/python.md is the whole interface on one page; `help(meristem.load)` and the like explain each function.
"""

import sys
from importlib import import_module
from types import ModuleType
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
    if name == "MeristemError":
        return import_module("meristem.errors").MeristemError
    return getattr(import_module("meristem.api"), name)


class _Package(ModuleType):
    """The package itself, in which `meristem.reinforce` is the function although a subpackage has the same name."""

    @property
    def reinforce(self) -> Any:
        """Improve a model that writes with rewards."""
        return import_module("meristem.api").reinforce

    @reinforce.setter
    def reinforce(self, subpackage: ModuleType) -> None:
        """Importing a subpackage sets it as an attribute of its parent; it is found in `sys.modules` all the same."""


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    """What completion and `help(meristem)` show."""
    return [*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"]
