"""Meristem: raw text in, a pretrained language model out.

    import meristem

    meristem.pretrain("bert-mini", {"train.minutes": 3})             # train: a recipe, settings, your text
    meristem.finetune("classification", {"from": "runs/bert-mini"}, data={"train": frame})
    model = meristem.load("runs/bert-mini")                          # use: fill, generate, score, embed, …
    model.fill("The [MASK] is closed.")

docs/python.md describes the whole API on one page; `help(meristem.load)` and so on explain each function.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meristem.api import (
        LoadedModel,
        compare,
        compare_claims,
        describe,
        doctor,
        export,
        exposure,
        finetune,
        import_folder,
        label_noise,
        load,
        pretrain,
        push,
        reinforce,
        reward,
        robustness,
    )
    from meristem.config.errors import MeristemError

__version__ = "0.1.0"
__all__ = [
    "LoadedModel",
    "MeristemError",
    "compare",
    "compare_claims",
    "describe",
    "doctor",
    "export",
    "exposure",
    "finetune",
    "import_folder",
    "label_noise",
    "load",
    "pretrain",
    "push",
    "reinforce",
    "reward",
    "robustness",
]


def __getattr__(name: str) -> Any:
    """Import the API on first use, so that `import meristem` and `meristem --help` stay fast."""
    if name not in __all__:
        raise AttributeError(f"module 'meristem' has no attribute {name!r}")
    if name == "MeristemError":
        return import_module("meristem.config.errors").MeristemError
    return getattr(import_module("meristem.api"), name)


class _Package(ModuleType):
    """The package, in which `meristem.finetune` is the function although a subpackage has the same name.

    Importing a subpackage sets it as an attribute of its parent; it is still found in `sys.modules`.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in __all__ and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    """The names shown by completion and `help(meristem)`."""
    return [*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"]
