"""Settings that a run would ignore: refused where somebody gave them, with the setting to use instead."""

from __future__ import annotations

from collections.abc import Iterable

from meristem.errors import RecipeError
from meristem.recipe import Recipe


def refuse_ignored(recipe: Recipe, given: Iterable[str]) -> None:
    """Refuse dotted settings that were given and that this run would not read; defaults and recipes stay silent."""
    for name in given:
        if reason := _ignored(recipe, name):
            raise RecipeError(f"{name}: {reason}")


def _ignored(recipe: Recipe, name: str) -> str | None:
    """Why a setting would change nothing; None where it counts."""
    section, _, rest = name.partition(".")
    train, start = recipe.train, recipe.start
    learns_from_text = recipe.task is None and recipe.policy is None
    kind = "a task" if recipe.policy is None else "a policy"
    if name == "train.batch_samples" and learns_from_text:
        return "pretraining counts its batches in tokens: train.batch_tokens"
    if name == "train.batch_tokens" and not learns_from_text:
        return f"{kind} counts its batches in samples: train.batch_samples"
    if name == "train.evaluate_tokens" and not learns_from_text:
        return f"{kind} is evaluated on all validation samples (data.validation, data.held_out)"
    if section in ("corpus", "store") and not learns_from_text:
        return f"{kind} reads labelled samples or prompts, not a corpus: data.train=FILE"
    keeps = start.path is not None and start.tokenizer == "keep" and (start.take == "all" or not learns_from_text)
    if section == "tokenizer" and rest != "room" and keeps:
        return f"the tokenizer of {start.path} is kept; from.tokenizer=own makes one for this run"
    if name in ("train.matrix_rate", "train.momentum") and train.optimizer != "muon":
        return f"belongs to train.optimizer=muon, and this run uses {train.optimizer}"
    if name == "train.decay" and train.schedule != "constant_then_decay":
        return f"belongs to train.schedule=constant_then_decay, and this run uses {train.schedule}"
    return None
