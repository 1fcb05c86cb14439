"""Registry: the classes of one kind of component by name, from the package's own modules and from plugins.

`OBJECTIVES["mlm"]` is `MLMObjective` in `objectives/mlm.py`; a plugin is an entry point `swap = "package.module:Class"`
in the group `meristem.objectives` of any installed distribution.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from meristem.config.errors import MeristemError, RecipeError, did_you_mean
from meristem.config.settings import Settings

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


class ComponentKind(Enum):
    """A kind of component: its name in messages, the package of its modules, the end of its class names, and the entry
    point group of its plugins, if it takes any."""

    FAMILY = ("model family", "models", "", "meristem.models")
    OBJECTIVE = ("objective", "objectives", "objective", "meristem.objectives")
    TASK = ("task", "tasks", "task", "meristem.tasks")
    REWARD = ("reward", "reinforce.rewards", "reward", "meristem.rewards")
    POLICY = ("policy objective", "reinforce.objectives", "objective", None)
    TOKENIZER = ("tokenizer kind", "tokenizers.kinds", "tokenizer", "meristem.tokenizers")
    FORMAT = ("file format", "data.formats", "format", "meristem.formats")
    TRACKER = ("tracker", "training.trackers", "tracker", "meristem.trackers")
    VIEW = ("dataset view", "dataset.views", "view", None)
    SAMPLE_TYPE = ("sample type", "labelled.sample_types", "sample", None)
    PERTURBATION = ("perturbation", "labelled.perturbations", "", "meristem.perturbations")
    MODEL_TYPE = ("model type", "interop.families", "modeltype", None)

    def __init__(self, label: str, package: str, class_suffix: str, group: str | None) -> None:
        self.label, self.package, self.class_suffix, self.group = label, package, class_suffix, group

    def names(self) -> tuple[str, ...]:
        """All names, sorted; nothing is imported."""
        return tuple(sorted({*module_names(self.package), *self.plugins()}))

    def __contains__(self, name: str) -> bool:
        stem = name.replace("-", "_")
        return stem in module_names(self.package) or stem in self.plugins()

    def plugins(self) -> dict[str, EntryPoint]:
        """Name → entry point of another distribution; a built-in name cannot be replaced."""
        return _plugins(self) if self.group is not None else {}

    def load(self, name: str) -> type[object]:
        """The class of this name; raises RecipeError for an unknown one and MeristemError for a broken plugin."""
        stem = name.replace("-", "_")
        if stem in module_names(self.package):
            return _class_in_module(self, stem)
        if (entry_point := self.plugins().get(stem)) is not None:
            return _load_plugin(entry_point)
        raise RecipeError(f"no {self.label} {name!r}{did_you_mean(name, self.names())}")

    def settings_class(self, name: str) -> type[Settings]:
        """The `Settings` of the class of this name."""
        settings = getattr(self.load(name), "Settings", None)
        if isinstance(settings, type) and issubclass(settings, Settings):
            return settings
        raise MeristemError(f"{self.origin(name)}: its class attribute Settings must be a subclass of Settings")

    def settings_classes(self) -> Iterator[tuple[str, type[Settings]]]:
        """Every name and its `Settings`; a plugin that cannot be loaded is left out with a warning."""
        return _working(self, self.settings_class)

    def origin(self, name: str) -> str:
        """Where the class of this name is defined, for messages."""
        entry_point = self.plugins().get(name.replace("-", "_"))
        return f"{self.label} {name}" if entry_point is None else _describe(entry_point)


class Registry(Generic[T_co]):
    """The classes of one kind by name; each is imported when it is asked for."""

    def __init__(self, kind: ComponentKind, base: type[T_co]) -> None:
        self.kind, self.base = kind, base

    def __getitem__(self, name: str) -> type[T_co]:
        cls = self.kind.load(name)
        if not issubclass(cls, self.base):
            raise MeristemError(f"{self.kind.origin(name)}: {cls.__name__} is no subclass of {self.base.__name__}")
        if missing := _missing_members(cls):
            raise MeristemError(
                f"{self.kind.origin(name)}: {cls.__name__} defines no {', '.join(missing)}; "
                f"a subclass of {self.base.__name__} needs {'it' if len(missing) == 1 else 'them'}"
            )
        return cls

    def __contains__(self, name: str) -> bool:
        return name in self.kind

    def __iter__(self) -> Iterator[str]:
        return iter(self.kind.names())

    def items(self) -> Iterator[tuple[str, type[T_co]]]:
        """Every name and its class; a plugin that cannot be loaded is left out with a warning."""
        return _working(self.kind, self.__getitem__)


def _missing_members(cls: type[object]) -> list[str]:
    """The class attributes that base classes only declare, and the abstract methods, that a class does not define."""
    declared = (
        name
        for parent in cls.__mro__
        for name, annotation in vars(parent).get("__annotations__", {}).items()
        if str(annotation).startswith("ClassVar")
    )
    undefined = [name for name in declared if not hasattr(cls, name)]
    return sorted({*undefined, *getattr(cls, "__abstractmethods__", ())})


def _working(kind: ComponentKind, load: Callable[[str], U]) -> Iterator[tuple[str, U]]:
    """Every name and what is loaded for it, without the plugins that fail."""
    for name in kind.names():
        try:
            yield name, load(name)
        except MeristemError as error:
            if name not in kind.plugins():
                raise
            warnings.warn(f"left out: {error}", stacklevel=3)


@cache
def module_names(package: str) -> tuple[str, ...]:
    """The public modules of a package, such as "objectives", without importing them; settings.py is no component."""
    imported = importlib.import_module(f"meristem.{package}")
    modules = (module for module in pkgutil.iter_modules(imported.__path__) if not module.ispkg)
    return tuple(sorted(module.name for module in modules if module.name != "settings" and module.name[0] != "_"))


def _class_in_module(kind: ComponentKind, stem: str) -> type[object]:
    """The class named after its file: `MLMObjective` in `objectives/mlm.py`."""
    module = importlib.import_module(f"meristem.{kind.package}.{stem}")
    class_names = {stem.replace("_", ""), stem.replace("_", "") + kind.class_suffix}
    for key, value in vars(module).items():
        if isinstance(value, type) and key.lower() in class_names and value.__module__ == module.__name__:
            return value
    raise RecipeError(f"meristem/{kind.package}/{stem}.py contains no class named after the file")


@cache
def _plugins(kind: ComponentKind) -> dict[str, EntryPoint]:
    plugins: dict[str, EntryPoint] = {}
    for entry_point in entry_points(group=str(kind.group)):
        name = entry_point.name.replace("-", "_")
        if name in module_names(kind.package):
            warnings.warn(f"ignored: {_describe(entry_point)}: {name} is built in and not replaced", stacklevel=4)
        elif plugins.setdefault(name, entry_point).value != entry_point.value:
            warnings.warn(
                f"ignored: {_describe(entry_point)}: {_describe(plugins[name])} has the same name", stacklevel=4
            )
    return plugins


def _load_plugin(entry_point: EntryPoint) -> type[object]:
    """The class that an entry point names; whatever goes wrong in its package becomes one error."""
    try:
        cls = entry_point.load()
    except Exception as error:  # third-party code can raise anything
        reason = f"{type(error).__name__}: {error}"
        raise MeristemError(f"{_describe(entry_point)} cannot be loaded ({reason}); update or uninstall it") from error
    if not isinstance(cls, type):
        raise MeristemError(f"{_describe(entry_point)}: {entry_point.value} is no class")
    return cls


def _describe(entry_point: EntryPoint) -> str:
    """An entry point with its distribution, for messages."""
    distribution = "an unknown distribution" if entry_point.dist is None else entry_point.dist.name
    return f"{entry_point.group} {entry_point.name} of {distribution}"
