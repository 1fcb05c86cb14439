"""What may change when a run goes on, and what makes it another run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meristem.errors import MeristemError, RecipeError
from meristem.recipe import Recipe, parse, resolve
from meristem.shell_commands import shell_path
from meristem.training.named_files import refuse_missing
from meristem.training.settings import BUDGETS

MAY_CHANGE = frozenset(
    f"train.{name}"
    for name in (
        *BUDGETS,
        *("device", "workers", "threads", "log_every", "save_every", "keep", "shard", "timeout"),
        "single_task_baselines",
    )
)
LEARNED = frozenset(f"data.{name}" for name in ("label", "answers", "intent"))
"""Columns that a run found in its data; runs of older versions did not write them down."""
CORPUS = ("corpus.processes", "corpus.near.memory_mb")  # also of an entry of mix


def refuse_another_run(before: Recipe, now: Recipe, out: Path) -> None:
    """Budgets may grow, places and intervals may change; anything else is refused with the difference."""
    differing = differences(before, now)
    if not differing:
        return
    refuse_missing(now)  # a name that was mistyped makes another run of it, too
    old, new = dict(flat(before.plain())), dict(flat(now.plain()))
    lines = [f"  {key}: {_shown(old, key)} in the run, {_shown(new, key)} now" for key in differing[:12]]
    more = [f"  … and {len(differing) - 12} more"] if len(differing) > 12 else []
    raise RecipeError(
        "\n".join(
            [
                f"{out} was begun with other settings:",
                *lines,
                *more,
                f"Give the run another place:        add --out {shell_path(f'{out}-2')}",
                "Begin anew (the old one is kept):  add --fresh",
            ]
        )
    )


def refuse_edited_recipe(run: Path, checkpoint: Path, now: Recipe) -> None:
    """Refuse a run whose recipe.yaml no longer says what its checkpoint was trained with."""
    written = resolve(now.name, parse(checkpoint / "recipe.yaml"))
    if differing := differences(written, now):
        old, new = dict(flat(written.plain())), dict(flat(now.plain()))
        lines = [f"{key} is {_shown(new, key)} there and {_shown(old, key)} in the checkpoint" for key in differing[:4]]
        raise MeristemError(
            f"{run / 'recipe.yaml'} was changed after its last checkpoint was written: {'; '.join(lines)}. "
            "Put the old values back, or start another run with --out"
        )


def differences(before: Recipe, now: Recipe) -> list[str]:
    """Settings of two recipes that differ and that may not change while a run goes on, by their dotted names."""
    old, new = dict(flat(before.plain())), dict(flat(now.plain()))
    return [
        key
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
        and key not in MAY_CHANGE
        and not key.endswith(CORPUS)
        and not (key in LEARNED and old.get(key) is None)
    ]


def flat(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a recipe by its dotted name; of a list of parts each by the part's own."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        for number, inner in enumerate(value):
            name = inner.get("name", number)
            yield from flat(inner, f"{place}.{name}")
    else:
        yield place, list(value) if isinstance(value, tuple) else value


def _shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not set"
