"""What a recipe costs and what this machine has, through the Python API."""

from __future__ import annotations

from pathlib import Path

from meristem.describe import describe_recipe as recipe_description
from meristem.describe import doctor as machine_report
from meristem.recipe_resolution import Overrides, resolve_pretrain_recipe


def describe(recipe: str | Path, overrides: Overrides = ()) -> recipe_description.RecipeDescription:
    """Parameters, FLOPs, memory and measured speed of a recipe on this machine.

    Args:
        recipe: A recipe's name or YAML file, or a run.
        overrides: Settings, {"train.minutes": 3} or ["train.minutes=3"].
    """
    return recipe_description.describe_recipe(resolve_pretrain_recipe(recipe, overrides))


def doctor(*, speed: bool = True) -> machine_report.MachineReport:
    """Versions, processor, memory, disk, optional packages and speed of this machine.

    Args:
        speed: Measure the speed, which takes some seconds.
    """
    return machine_report.examine_machine(measure_speed=speed)
