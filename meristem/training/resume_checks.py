"""Resume checks: which settings may change when a run is resumed, and which make it a different run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from meristem.checkpoint.load import LoadedCheckpoint
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import Recipe, parse_recipe_file, resolve_recipe
from meristem.config.recipe_diff import differing_settings
from meristem.interfaces.objective import Objective
from meristem.training.missing_files import refuse_missing_files
from meristem.training.settings import BUDGETS
from meristem.training.train_state import TrainState
from meristem.utils.shell_quoting import shell_path

CHANGEABLE_SETTINGS = frozenset(
    f"train.{name}"
    for name in (
        *BUDGETS,
        *(
            "compile",
            "device",
            "dataloader_workers",
            "threads",
            "log_every",
            "save_every",
            "keep_checkpoints",
            "trackers",
            "tracker_project",
        ),
        *("compile", "fsdp", "distributed_timeout", "single_task_baselines"),
    )
)
INFERRED_COLUMNS = frozenset(f"data.{name}" for name in ("label", "answers", "intent"))
"""Columns that are inferred from the data; older versions did not record them in recipe.yaml."""
CHANGEABLE_CORPUS_SETTINGS = ("corpus.processes", "corpus.near_dedup.memory_mb")  # also inside `mix`


def refuse_changed_settings(saved: Recipe, current: Recipe, out: Path) -> None:
    """Raise with the differences unless only budgets, devices, intervals and the like were changed."""
    differing = blocking_differences(saved, current)
    if not differing:
        return
    refuse_missing_files(current)  # a mistyped file name is also a changed setting: report it as missing
    lines = [f"  {key}: {old} in the run, {new} now" for key, (old, new) in list(differing.items())[:12]]
    more_lines = [f"  … and {len(differing) - 12} more"] if len(differing) > 12 else []
    advice = [
        f"Train in another folder:            add --out {shell_path(f'{out}-2')}",
        "Start over (the old run is kept):   add --fresh",
    ]
    heading = f"{out} was started with different settings:"
    raise RecipeError("\n".join([heading, *lines, *more_lines, *advice]))


def refuse_edited_recipe(run_path: Path, checkpoint: Path, current: Recipe) -> None:
    """Raise if the run's recipe.yaml no longer matches the recipe its checkpoint was trained with."""
    saved = resolve_recipe(current.name, parse_recipe_file(checkpoint / "recipe.yaml"))
    if differing := blocking_differences(saved, current):
        first_differences = list(differing.items())[:4]
        lines = [f"{key} is {new} there and {old} in the checkpoint" for key, (old, new) in first_differences]
        raise MeristemError(
            f"{run_path / 'recipe.yaml'} was changed after its last checkpoint was written: {'; '.join(lines)}. "
            "Restore the old values, or start another run with --out"
        )


def refuse_changed_tokenizer(run_path: Path, checkpoint: LoadedCheckpoint) -> None:
    """Raise if the run's tokenizer.json is no longer the one that its checkpoint was trained with."""
    sealed, own_path = checkpoint.snapshot.tokenizer, run_path / "tokenizer.json"
    if sealed is not None and sealed.read_bytes() != own_path.read_bytes():
        raise MeristemError(
            f"{own_path} was changed after its last checkpoint was written: copy {sealed} over it, "
            "or start another run with --out"
        )


def refuse_impossible_state(state: TrainState, objectives: Iterable[Objective]) -> None:
    """Raise if the train state says that the run is over, and its budget and objectives could not have ended it."""
    can_stop = any(type(objective).after_step is not Objective.after_step for objective in objectives)
    invalid = "total" if state.budget and state.step > state.total else "stopped" if state.stopped else ""
    if invalid == "total" or (invalid and not can_stop):
        raise MeristemError(f"state.json: {invalid} has an invalid value: the file was changed")


def blocking_differences(saved: Recipe, current: Recipe) -> dict[str, tuple[str, str]]:
    """Differing settings that may not change when a run is resumed: name → (saved value, current value)."""
    return {
        key: values
        for key, values in differing_settings(saved, current).items()
        if key not in CHANGEABLE_SETTINGS
        and not key.endswith(CHANGEABLE_CORPUS_SETTINGS)
        and not (key in INFERRED_COLUMNS and values[0] in ("None", "not set"))
    }
