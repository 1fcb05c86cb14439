"""The Python API: pretrain, finetune, reinforce, load a run, import and export weights, score texts with rewards."""

from meristem.api.comparison import compare, compare_claims
from meristem.api.description import describe, doctor
from meristem.api.loaded_model import LoadedModel, load
from meristem.api.rewards import reward
from meristem.api.training import finetune, pretrain, reinforce
from meristem.api.trust import exposure, label_noise, robustness
from meristem.api.weights import export, import_folder, push
from meristem.recipe_resolution import resolve_pretrain_recipe, resolve_task_recipe

__all__ = [
    "LoadedModel",
    "compare",
    "compare_claims",
    "describe",
    "doctor",
    "export",
    "exposure",
    "finetune",
    "import_folder",
    "label_noise",
    "load",
    "pretrain",
    "push",
    "reinforce",
    "resolve_pretrain_recipe",
    "resolve_task_recipe",
    "reward",
    "robustness",
]
