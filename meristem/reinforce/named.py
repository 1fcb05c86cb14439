"""Rewards as people name them: `length,target=20`, a mapping, a YAML file, a run that was trained by some."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.checkpoint.run import Run
from meristem.errors import RecipeError
from meristem.recipe import parse, rewards
from meristem.reinforce.reward import RewardSettings

Named = str | Path | Mapping[str, Any] | RewardSettings
"""A reward's name with settings behind commas, or its settings, or where there are some."""


def settings_of(given: Sequence[Named] | Named) -> list[RewardSettings]:
    """The settings of every reward that was named."""
    several = [given] if isinstance(given, str | Path | Mapping | RewardSettings) else given
    found: list[RewardSettings] = []
    for one in several:
        if isinstance(one, RewardSettings):
            found.append(one)
        elif isinstance(one, Mapping):
            found += rewards([dict(one)], "reward")
        elif (path := _file(one)) is not None:
            found += _of_recipe(path)
        else:
            name, *told = re.split(r",(?=\s*[\w.]+=)", str(one))  # a comma inside a value is before no key
            found += rewards([{"name": name.strip(), **equations(told)}], "reward")
    return found


def equations(told: Sequence[str]) -> dict[str, Any]:
    """`key=value`, the value as YAML would have it."""
    found: dict[str, Any] = {}
    for one in told:
        key, sign, value = one.strip().partition("=")
        if not (sign and key):
            raise RecipeError(f"reward: {one!r} is no setting; they are given as key=value, for instance weight=0.5")
        try:
            found[key] = bounded.yaml_in(value) if value else None
        except ValueError:
            found[key] = value
    return found


def _file(given: str | Path) -> Path | None:
    """The recipe that is meant, if one is: a YAML file, or that of a run."""
    path = Path(given).expanduser()
    if (path / "recipe.yaml").is_file():
        return path / "recipe.yaml"
    return path if isinstance(given, Path) or path.suffix in (".yaml", ".yml") else None


def _of_recipe(path: Path) -> tuple[RewardSettings, ...]:
    if not path.is_file():
        raise RecipeError(f"no file {path} with rewards")
    entries = parse(path).get("rewards")
    if not entries:
        raise RecipeError(f"{path} has no rewards; they are a list:  rewards: [{{name: length, target: 20}}]")
    if (run := run_around(path)) is not None:
        refuse_functions(entries, run)
    return rewards(entries, f"{path}: rewards")


def run_around(path: Path) -> Path | None:
    """The run folder that a recipe lies in, at whatever depth; none for a recipe of one's own."""
    place = path.expanduser().resolve()
    return next((folder for folder in (place, *place.parents) if Run(folder).exists()), None)


def refuse_rewards(recipe: str | Path, mapping: Mapping[str, Any]) -> None:
    """Refuse a recipe for rewards where text or a task is learned; the run that it made can be started from."""
    if "policy" not in mapping:
        return
    if (run := run_around(Path(recipe))) is not None:
        raise RecipeError(
            f"{run.name} learned from rewards: meristem reinforce {recipe} goes on with them; to train its model on "
            f"text or on a task, name a recipe and start from it: from={run.name}"
        )
    raise RecipeError(f"{recipe} is a recipe for rewards: meristem reinforce {recipe}")


def refuse_functions(entries: Any, run: Path, *, named: Collection[str] = ()) -> None:
    """A run may be a stranger's: a function that it names is executed only if the person has `named` it as well."""
    for one in entries if isinstance(entries, list) else []:
        call = one.get("call") if isinstance(one, dict) and one.get("name") == "function" else None
        if call is not None and call not in named and not str(call).startswith("meristem."):
            raise RecipeError(
                f"{run} was trained by a function, {call}, and a run's own word is not enough to execute it: "
                f"name it yourself (rewards.function.call={call}, --reward function,call={call}, or in your own recipe)"
            )


def functions_named(overrides: Mapping[str, Any]) -> set[str]:
    """The functions that settings of the command line name: every `call` of a reward or a judge among them."""
    found: set[str] = set()
    for key, value in overrides.items():
        section, *path = key.split(".")
        if section in ("rewards", "judge"):
            entries = value if isinstance(value, list) else [value]
            found |= {str(one.get("call")) for one in entries if isinstance(one, Mapping)}
            found |= {value} if path[-1:] == ["call"] and isinstance(value, str) else set()
    return found
