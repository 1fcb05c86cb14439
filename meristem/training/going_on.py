"""What may change when a run goes on, and what makes it another run."""

from __future__ import annotations

from pathlib import Path

from meristem.errors import MeristemError, RecipeError
from meristem.recipe import Recipe, parse, resolve
from meristem.recipe_differences import differing_settings
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
    lines = [f"  {key}: {old} in the run, {new} now" for key, (old, new) in list(differing.items())[:12]]
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
        shown = list(differing.items())[:4]
        lines = [f"{key} is {new} there and {old} in the checkpoint" for key, (old, new) in shown]
        raise MeristemError(
            f"{run / 'recipe.yaml'} was changed after its last checkpoint was written: {'; '.join(lines)}. "
            "Put the old values back, or start another run with --out"
        )


def differences(before: Recipe, now: Recipe) -> dict[str, tuple[str, str]]:
    """Settings of two recipes that differ and that may not change while a run goes on, with both values."""
    return {
        key: values
        for key, values in differing_settings(before, now).items()
        if key not in MAY_CHANGE
        and not key.endswith(CORPUS)
        and not (key in LEARNED and values[0] in ("None", "not set"))
    }
