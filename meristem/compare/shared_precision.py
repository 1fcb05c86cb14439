"""The precision of a comparison: one for all of its runs, chosen once and kept when the comparison resumes.

`train.precision: auto` times matrix products when a run starts, so that two runs of one comparison could be given
different ones on a busy machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from meristem.compare.comparison_settings import ComparisonSettings
from meristem.config.recipe import Recipe
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.training.precision import fastest_precision
from meristem.training.step import resolve_device
from meristem.utils import untrusted_files


def with_shared_precision(comparison: ComparisonSettings, recipes: Sequence[Recipe], file: Path) -> ComparisonSettings:
    """The comparison with a precision: its own, that in its `file` of an earlier call, or the fastest one.

    It is bfloat16 only where that is faster for all models of the comparison; `recipes` holds one of each arm.
    """
    if comparison.precision != "auto":
        return comparison
    earlier = untrusted_files.read_yaml(file) if file.is_file() else None
    chosen = earlier.get("precision") if isinstance(earlier, dict) else None
    if chosen not in ("float32", "bfloat16"):
        fastest = {fastest_precision(resolve_device(recipe.train), _bfloat16_size(recipe)) for recipe in recipes}
        chosen = "bfloat16" if fastest == {"bfloat16"} else "float32"
    return comparison.model_copy(update={"precision": chosen})


def _bfloat16_size(recipe: Recipe) -> int:
    """Hidden size of the model; 0 if its family gains nothing from bfloat16."""
    return recipe.model.hidden_size if MODEL_FAMILIES[recipe.model.family].gains_from_bfloat16 else 0
