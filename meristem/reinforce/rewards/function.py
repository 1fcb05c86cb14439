"""Function: your own reward, `f(prompts, completions, **columns) -> list[float]` (SPEC D4)."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, SupportsFloat

from pydantic import field_validator

from meristem.errors import MeristemError, did_you_mean
from meristem.recipe import Recipe
from meristem.reinforce.reward import Attempt, Desk, Judgement, Reward, RewardSettings

SHOWN = 80
"""Characters of a text in a message."""


class FunctionSettings(RewardSettings):
    """Which function."""

    name: Literal["function"] = "function"
    """The reward's name."""
    call: str
    """module:function; the module is installed, or a file in the current folder."""

    @field_validator("call")
    @classmethod
    def _named(cls, call: str) -> str:
        if not re.fullmatch(r"[\w.]+:\w+", call):
            raise ValueError("expected module:function, as in call=mine:score")
        return call


class Function(Reward):
    """Whatever the function says."""

    Settings = FunctionSettings
    name = "function"

    @classmethod
    def check_settings(cls, settings: FunctionSettings, runs: Mapping[str, Recipe]) -> None:
        """There is such a function, and it can be called with prompts and completions."""
        _takes(_found(settings.call), settings.call)

    def __init__(self, settings: FunctionSettings, desk: Desk) -> None:
        self.call = settings.call
        self._function = _found(settings.call)
        self._takes = _takes(self._function, settings.call)

    def judge(self, attempts: Sequence[Attempt]) -> list[Judgement]:
        """All attempts in one call; where that fails, one by one until the text that did it is found."""
        if not attempts:
            return []
        found = self._asked(attempts)
        if isinstance(found, str):
            raise MeristemError(f"reward {self.call}: {self._pinned(attempts, found)}")
        return [Judgement(value=value) for value in found]

    def _asked(self, attempts: Sequence[Attempt]) -> list[float] | str:
        """A number for each attempt, or what is wrong with the answer."""
        try:
            answer = self._function(**self._arguments(attempts))
        except Exception as error:  # whatever a stranger's code raises is told with the text that it was given
            return f"{type(error).__name__}: {error}{_line(error)}"
        try:
            values = list(answer)
        except TypeError:
            return f"expected a list of {len(attempts)} numbers, got {type(answer).__name__}"
        if len(values) != len(attempts):
            return f"expected {len(attempts)} numbers, one for each text, got {len(values)}"
        numbers = [_number(value) for value in values]
        wrong = [value for value, number in zip(values, numbers, strict=True) if number is None]
        return f"{wrong[0]!r:.60} is no finite number" if wrong else [n for n in numbers if n is not None]

    def _arguments(self, attempts: Sequence[Attempt]) -> dict[str, Any]:
        """Prompts and completions, and every column as a list."""
        names = dict.fromkeys(name for one in attempts for name in one.columns)
        told: dict[str, Any] = {name: [one.columns.get(name) for one in attempts] for name in names}
        told["references"] = [list(one.references) for one in attempts]
        told = {name: value for name, value in told.items() if self._takes(name)}
        return {"prompts": [one.shown for one in attempts], "completions": [one.text for one in attempts], **told}

    def _pinned(self, attempts: Sequence[Attempt], whole: str) -> str:
        """What is wrong, with the very text that caused it."""
        for one in attempts:
            alone = self._asked([one])
            if isinstance(alone, str):
                where = f"{one.place}: " if one.place else ""
                return f"{where}{alone}\n  text {_short(one.text)}\n  prompt {_short(one.shown)}"
        return f"{whole}, for {len(attempts)} texts together and for none of them alone"


def _found(call: str) -> Callable[..., Any]:
    """The function that a name stands for; files in the current folder can be imported."""
    module, _, name = call.partition(":")
    here = os.getcwd()  # noqa: PTH109  # as sys.path has it
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.split(".")[0] != error.name.split(".")[0]:
            raise MeristemError(f"reward {call}: {module} needs {error.name}, which is not installed") from error
        raise MeristemError(
            f"reward {call}: no module {module}; {module.split('.')[0]}.py would be read from {here}"
        ) from None
    except Exception as error:  # a module of the user's own may fail in any way
        raise MeristemError(f"reward {call}: {module} cannot be imported: {error}{_line(error)}") from error
    function = vars(loaded).get(name)
    if not callable(function):
        known = [key for key, value in vars(loaded).items() if callable(value) and not key.startswith("_")]
        raise MeristemError(f"reward {call}: {module} has no function {name!r}{did_you_mean(name, known)}")
    return function  # type: ignore[no-any-return]  # found by name


def _takes(function: Callable[..., Any], call: str) -> Callable[[str], bool]:
    """Which columns a function wants: all, or those it names."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return lambda name: True
    names = {name for name, one in parameters.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    rest = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    if missing := [name for name in ("prompts", "completions") if name not in names and not rest]:
        raise MeristemError(
            f"reward {call}: its signature has no {missing[0]}; it is called as f(prompts, completions, **columns)"
        )
    return lambda name: name not in ("prompts", "completions") and (rest or name in names)


def _number(value: Any) -> float | None:
    """A finite number, or nothing."""
    if isinstance(value, SupportsFloat) and not isinstance(value, str):
        with suppress(TypeError, ValueError, OverflowError, RuntimeError):
            number = float(value)
            return number if math.isfinite(number) else None
    return None


def _line(error: BaseException) -> str:
    """Where an error was raised, as the end of a sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__ and not frame.filename.startswith("<")]
    return f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""  # noqa: PTH119  # a name alone


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")
