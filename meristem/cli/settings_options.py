"""Options of a command that follow from a settings class: one for each setting, with its help, bounds and default."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin

import typer

from meristem.cli.dynamic_options import CommandFunction, takes_options
from meristem.config.errors import RecipeError
from meristem.config.settings import Settings


def takes_settings(
    parameter: str, module: str, class_name: str, panel: str, **defaults: Any
) -> Callable[[CommandFunction], CommandFunction]:
    """Decorator of a command with this parameter: each setting of the class becomes an option.

    The module is imported when the command is run, not for `meristem --help`.
    """

    def settings_class() -> type[Settings]:
        cls: type[Settings] = getattr(import_module(f"meristem.{module}"), class_name)
        return cls

    def make_options(arguments: Sequence[str], _: Sequence[inspect.Parameter]) -> dict[str, inspect.Parameter]:
        cls = settings_class()
        _refuse_renamed(cls, arguments)
        return {
            name: inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_option_default(defaults.get(name, field.default)),
                annotation=Annotated[_option_type(field.annotation), _option(name, field, panel)],
            )
            for name, field in cls.model_fields.items()
        }

    def decorate(command: CommandFunction) -> CommandFunction:
        def build(values: dict[str, Any]) -> Settings:
            from meristem.config.validation import build_settings

            chosen_values = {name: value for name, value in values.items() if value is not None}
            return build_settings(settings_class(), chosen_values, command.__name__)

        return takes_options(parameter, make_options, build)(command)

    return decorate


def _refuse_renamed(cls: type[Settings], arguments: Sequence[str]) -> None:
    """Raise for an option under its earlier name."""
    for old, new in cls.renamed.items():
        if any(argument.partition("=")[0] == _option_name(old) for argument in arguments):
            raise RecipeError(f"{_option_name(old)} is now {_option_name(new)}")


def _option_name(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _option_type(annotation: Any) -> Any:
    """The type of an option: a tuple of texts is an option that may be given several times."""
    if get_origin(annotation) is tuple:
        return list[get_args(annotation)[0]] | None  # type: ignore[misc]  # known when it runs
    return annotation


def _option_default(default: Any) -> Any:
    return None if default == () else default


def _option(name: str, field: Any, panel: str) -> Any:
    """The option of a setting; bounds that exclude their limit are checked with the settings."""
    bounds = {key: getattr(rule, key) for rule in field.metadata for key in ("ge", "le") if hasattr(rule, key)}
    return typer.Option(
        _option_name(name),
        help=field.description,
        min=bounds.get("ge"),
        max=bounds.get("le"),
        rich_help_panel=panel,
    )
