"""Default learning rate for fine-tuning all weights of a pretrained model, by its hidden size and optimizer.

Task recipes are tuned for training from scratch with hidden size 256. Pretrained weights need another learning rate:
published models are fine-tuned at about 3e-4 · (256 / width)² (the papers' 2e-5 to 5e-5 for width 768, 1e-5 to 3e-5
for 1,024), and matrices trained with Muon are larger, so that about three times as much is best (docs/log/2026-11.md).
"""

from __future__ import annotations

from meristem.config.recipe import Recipe

BASE_HIDDEN_SIZE, BASE_LEARNING_RATE, MUON_BASE_LEARNING_RATE = 256, 3e-4, 1e-3
"""Hidden size of a mini model, and its learning rate after pretraining with AdamW or with Muon."""


def default_learning_rate(source_recipe: Recipe) -> float | None:
    """Learning rate for fine-tuning a Transformer pretrained with this recipe; None to use the task recipe's own."""
    model, is_muon = source_recipe.model, source_recipe.train.optimizer == "muon"
    is_transformer = hasattr(model, "heads")  # recurrent nets use the recipe's learning rate
    if not is_transformer or (model.hidden_size <= BASE_HIDDEN_SIZE and not is_muon):
        return None
    base = MUON_BASE_LEARNING_RATE if is_muon else BASE_LEARNING_RATE
    return float(f"{base * min(1.0, BASE_HIDDEN_SIZE / model.hidden_size) ** 2:.1e}")


def describe_learning_rate(recipe: Recipe, source_recipe: Recipe) -> str:
    """Log line for a run that uses the default learning rate; empty if it does not."""
    if recipe.tuned_task is None or recipe.train.learning_rate != default_learning_rate(source_recipe):
        return ""
    return (
        f"Learning rate {recipe.train.learning_rate:g}, "
        "chosen for these pretrained weights (train.learning_rate sets another)"
    )
