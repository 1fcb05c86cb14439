"""Function reward: a user's own Python function, `f(prompts, completions, **columns) -> list[float]`."""

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

from meristem.config.errors import MeristemError, did_you_mean
from meristem.config.recipe import Recipe
from meristem.reinforce.reward_base import PromptCompletion, Reward, RewardContext, RewardScore, quote_text
from meristem.reinforce.settings import RewardSettings


class FunctionRewardSettings(RewardSettings):
    """The function to call."""

    name: Literal["function"] = "function"
    """The reward's name."""
    call: str
    """module:function; the module is installed, or a file in the current folder."""

    @field_validator("call")
    @classmethod
    def _check_format(cls, call: str) -> str:
        if not re.fullmatch(r"[\w.]+:\w+", call):
            raise ValueError("expected module:function, as in call=mine:score")
        return call


class FunctionReward(Reward[FunctionRewardSettings]):
    """The values that the function returns."""

    Settings = FunctionRewardSettings
    name = "function"

    @classmethod
    def check_settings(cls, settings: FunctionRewardSettings, runs: Mapping[str, Recipe]) -> None:
        """Refuse a function that does not exist or does not accept prompts and completions."""
        _column_filter(_import_function(settings.call), settings.call)

    def __init__(self, settings: FunctionRewardSettings, context: RewardContext) -> None:
        self.call = settings.call
        self._function = _import_function(settings.call)
        self._accepts_column = _column_filter(self._function, settings.call)

    def score(self, completions: Sequence[PromptCompletion]) -> list[RewardScore]:
        """Score all completions in one call; if that fails, find the failing one by calling one at a time."""
        if not completions:
            return []
        result = self._call(completions)
        if isinstance(result, str):
            raise MeristemError(f"reward {self.call}: {self._locate_error(completions, result)}")
        return [RewardScore(value=value) for value in result]

    def _call(self, completions: Sequence[PromptCompletion]) -> list[float] | str:
        """A number for each completion, or an error message."""
        try:
            output = self._function(**self._arguments(completions))
        except Exception as error:  # user code may raise anything; it is reported with the text that caused it
            return f"{type(error).__name__}: {error}{_error_location(error)}"
        try:
            values = list(output)
        except TypeError:
            return f"expected a list of {len(completions)} numbers, got {type(output).__name__}"
        if len(values) != len(completions):
            return f"expected {len(completions)} numbers, one for each text, got {len(values)}"
        numbers = [_finite_float(value) for value in values]
        invalid = [value for value, number in zip(values, numbers, strict=True) if number is None]
        return f"{invalid[0]!r:.60} is not a finite number" if invalid else [n for n in numbers if n is not None]

    def _arguments(self, completions: Sequence[PromptCompletion]) -> dict[str, Any]:
        """Keyword arguments: prompts, completions, and every accepted column as a list."""
        names = dict.fromkeys(name for completion in completions for name in completion.columns)
        columns: dict[str, Any] = {name: [completion.columns.get(name) for completion in completions] for name in names}
        columns["references"] = [list(completion.references) for completion in completions]
        columns = {name: value for name, value in columns.items() if self._accepts_column(name)}
        return {
            "prompts": [completion.prompt_label for completion in completions],
            "completions": [completion.text for completion in completions],
            **columns,
        }

    def _locate_error(self, completions: Sequence[PromptCompletion], batch_error: str) -> str:
        """The error message, with the completion that caused it."""
        for completion in completions:
            result = self._call([completion])
            if isinstance(result, str):
                text, prompt = quote_text(completion.text), quote_text(completion.prompt_label)
                return f"{completion.location_prefix}{result}\n  text {text}\n  prompt {prompt}"
        return f"{batch_error}, for {len(completions)} texts together and for none of them alone"


def _import_function(call: str) -> Callable[..., Any]:
    """The function of a `module:function` name; files in the current folder can be imported."""
    module, _, name = call.partition(":")
    working_dir = os.getcwd()  # noqa: PTH109  # as sys.path has it
    if working_dir not in sys.path and "" not in sys.path:
        sys.path.insert(0, working_dir)
    importlib.invalidate_caches()
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.split(".")[0] != error.name.split(".")[0]:
            raise MeristemError(f"reward {call}: {module} needs {error.name}, which is not installed") from error
        raise MeristemError(
            f"reward {call}: no module {module}; {module.split('.')[0]}.py would be read from {working_dir}"
        ) from None
    except Exception as error:  # a module of the user's own may fail in any way
        raise MeristemError(f"reward {call}: {module} cannot be imported: {error}{_error_location(error)}") from error
    function = vars(loaded).get(name)
    if not callable(function):
        functions = [key for key, value in vars(loaded).items() if callable(value) and not key.startswith("_")]
        raise MeristemError(f"reward {call}: {module} has no function {name!r}{did_you_mean(name, functions)}")
    return function  # type: ignore[no-any-return]  # found by name


def _column_filter(function: Callable[..., Any], call: str) -> Callable[[str], bool]:
    """A predicate for the columns that a function accepts: all, or those in its signature."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return lambda name: True
    names = {
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    accepts_kwargs = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if missing := [name for name in ("prompts", "completions") if name not in names and not accepts_kwargs]:
        raise MeristemError(
            f"reward {call}: its signature has no {missing[0]}; it is called as f(prompts, completions, **columns)"
        )
    return lambda name: name not in ("prompts", "completions") and (accepts_kwargs or name in names)


def _finite_float(value: Any) -> float | None:
    """The value as a finite float, or None."""
    if isinstance(value, SupportsFloat) and not isinstance(value, str):
        with suppress(TypeError, ValueError, OverflowError, RuntimeError):
            number = float(value)
            return number if math.isfinite(number) else None
    return None


def _error_location(error: BaseException) -> str:
    """File and line where an error was raised, as the end of a sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [frame for frame in frames if frame.filename != __file__ and not frame.filename.startswith("<")]
    return f" ({os.path.basename(user_frames[-1].filename)}:{user_frames[-1].lineno})" if user_frames else ""  # noqa: PTH119  # a name alone
