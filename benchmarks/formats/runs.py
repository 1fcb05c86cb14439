"""Small runs with random weights everywhere, norms and biases too, whose exports are compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from meristem.api import resolve_pretrain_recipe
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.learning.build import build_learner
from meristem.tokenizers.train import train_tokenizer

TEXTS = [
    f"The gardener number {n} planted {n * 7} trees. The sailor went home, it rained in the harbour." for n in range(60)
] + ["园丁种下了苹果树。", "naïve gardeners, café", "It's old; don't ask (twice)!"]
SENTENCES = (
    "The sailor planted 7 trees.",
    "it rained, and the gardener went home",
    "The gardener number 12 isn't old!",
    "café naïve 园丁种下了苹果树。",
)
SMALL = {"layers": 3, "hidden_size": 64, "heads": 4, "ffn_size": 96, "max_length": 64}
SEED = 5
T5_ATTENTION_STD = 0.04
"""T5 does not divide scores by the root of the head size; larger weights would make attention nearly discrete."""


def random_run(recipe_name: str, folder: Path, overrides: Sequence[str] = ()) -> Path:
    """A run of a recipe's architecture in small; logits differ enough that the greedy token is clear."""
    family = resolve_pretrain_recipe(recipe_name).model
    sizes = [f"model.{key}={value}" for key, value in SMALL.items() if hasattr(family, key)]
    recipe = resolve_pretrain_recipe(recipe_name, [*sizes, "tokenizer.vocab_size=700", *overrides])
    tokenizer = train_tokenizer(recipe.tokenizer, TEXTS)
    learner = build_learner(recipe, tokenizer)
    generator, scaled = torch.Generator().manual_seed(SEED), getattr(recipe.model, "scale_attention", True)
    with torch.no_grad():
        for name, parameter in learner.model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = parameter.ndim == 1 and name.endswith("weight")
            is_query = name.endswith(("attention.project.weight", "cross.query.weight"))
            std = T5_ATTENTION_STD if is_query and not scaled else 0.15
            parameter.copy_(1 + 0.2 * noise if is_norm else std * noise)
    state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
    return write_run(folder, recipe, tokenizer, {key: value.detach() for key, value in state.items()}, {}).path
