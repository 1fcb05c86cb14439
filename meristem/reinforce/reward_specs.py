"""Parsing of reward specifications: `length,target=20`, a mapping, a YAML file, or a run that was trained with some."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import RecipeError
from meristem.config.recipe import parse_recipe_file
from meristem.config.recipe_parts import parse_rewards
from meristem.reinforce.settings import RewardSettings
from meristem.utils import untrusted_files

RewardSpec = str | Path | Mapping[str, Any] | RewardSettings
"""A reward's name followed by comma-separated settings, its settings, or a file or run that lists rewards."""


def parse_reward_specs(specs: Sequence[RewardSpec] | RewardSpec) -> list[RewardSettings]:
    """The settings of every reward in the specifications."""
    spec_list = [specs] if isinstance(specs, str | Path | Mapping | RewardSettings) else specs
    settings: list[RewardSettings] = []
    for spec in spec_list:
        if isinstance(spec, RewardSettings):
            settings.append(spec)
        elif isinstance(spec, Mapping):
            settings += parse_rewards([dict(spec)], "reward")
        elif (path := _recipe_path(spec)) is not None:
            settings += _rewards_in_recipe(path)
        else:
            # not at commas inside a value: no key= follows those
            name, *pairs = re.split(r",(?=\s*[\w.]+=)", str(spec))
            settings += parse_rewards([{"name": name.strip(), **parse_key_values(pairs)}], "reward")
    return settings


def parse_key_values(pairs: Sequence[str]) -> dict[str, Any]:
    """`key=value` pairs as a dictionary; values are parsed as YAML."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.strip().partition("=")
        if not (equals and key):
            raise RecipeError(f"reward: {pair!r} is not a setting; write key=value, for instance weight=0.5")
        try:
            settings[key] = untrusted_files.parse_yaml(value) if value else None
        except ValueError:
            settings[key] = value
    return settings


def _recipe_path(spec: str | Path) -> Path | None:
    """The recipe that a specification points to: a YAML file, or that of a run; None if it names a reward."""
    path = Path(spec).expanduser()
    if (path / "recipe.yaml").is_file():
        return path / "recipe.yaml"
    return path if isinstance(spec, Path) or path.suffix in (".yaml", ".yml") else None


def _rewards_in_recipe(path: Path) -> tuple[RewardSettings, ...]:
    if not path.is_file():
        raise RecipeError(f"no such file of rewards: {path}")
    entries = parse_recipe_file(path).get("rewards")
    if not entries:
        raise RecipeError(f"{path} has no rewards; add a list:  rewards: [{{name: length, target: 20}}]")
    if (run := enclosing_run(path)) is not None:
        reject_untrusted_functions(entries, run)
    return parse_rewards(entries, f"{path}: rewards")


def enclosing_run(path: Path) -> Path | None:
    """The run folder that contains a recipe, at any depth; None for a recipe outside of runs."""
    resolved = path.expanduser().resolve()
    return next((folder for folder in (resolved, *resolved.parents) if RunFolder(folder).exists()), None)


def reject_reward_recipe(recipe: str | Path, mapping: Mapping[str, Any]) -> None:
    """Refuse a reward recipe where pretraining or fine-tuning is asked for; its run can still be started from."""
    if "policy" not in mapping:
        return
    if (run := enclosing_run(Path(recipe))) is not None:
        raise RecipeError(
            f"{run.name} was trained with rewards: meristem reinforce {recipe} resumes it; to train its model on "
            f"text or on a task, name a recipe and start from it: from={run.name}"
        )
    raise RecipeError(f"{recipe} is a recipe for rewards: meristem reinforce {recipe}")


def reject_untrusted_functions(entries: Any, run: Path, *, allowed: Collection[str] = ()) -> None:
    """A run may be a stranger's: a function that it names is executed only if the person has `allowed` it as well."""
    for entry in entries if isinstance(entries, list) else []:
        call = entry.get("call") if isinstance(entry, dict) and entry.get("name") == "function" else None
        if call is not None and call not in allowed and not str(call).startswith("meristem."):
            raise RecipeError(
                f"{run} was trained by a function, {call}, and a run's own word is not enough to execute it: "
                f"name it yourself (rewards.function.call={call}, --reward function,call={call}, or in your own recipe)"
            )


def functions_in_overrides(overrides: Mapping[str, Any]) -> set[str]:
    """The functions that settings of the command line name: every `call` of a reward or a judge among them."""
    functions: set[str] = set()
    for key, value in overrides.items():
        section, *path = key.split(".")
        if section in ("rewards", "judge"):
            entries = value if isinstance(value, list) else [value]
            functions |= {str(entry.get("call")) for entry in entries if isinstance(entry, Mapping)}
            functions |= {value} if path[-1:] == ["call"] and isinstance(value, str) else set()
    return functions
