"""A tokenizer for all clients that no client's text is read for: of a run, a file, a public sample, or bytes alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.recipe import PretrainRecipe
from meristem.dataset.prepare import prepare_tokenizer
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

BYTE_VOCABULARY_SIZE = 261
"""256 bytes and five special tokens: there is no room for a merge, so nothing is learned from text."""
NO_SHARED_TEXT = "text of the clients, which is not here"
"""`corpus.source` in the recipe of a federated run without a public sample: no such file exists."""


@dataclass(frozen=True, kw_only=True)
class TokenizerAgreement:
    """The tokenizer, the recipe that says where it is from, and one sentence about the choice."""

    recipe: PretrainRecipe
    tokenizer: Tokenizer
    description: str


def agree_on_tokenizer(recipe: PretrainRecipe, public_sample: str | None, console: Console) -> TokenizerAgreement:
    """The tokenizer of `from`, of `tokenizer.path`, trained on the public sample, or a byte vocabulary."""
    corpus = recipe.corpus.model_copy(update={"source": public_sample or NO_SHARED_TEXT})
    recipe, start = replace(recipe, corpus=corpus), recipe.start
    if start.path is not None and start.load in ("all", "encoder") and start.tokenizer == "keep":
        tokenizer = Tokenizer.load(RunFolder.open(Path(start.path)).tokenizer_path)
        return _agreement(recipe, tokenizer, f"that of {start.path}")
    if recipe.tokenizer.path is not None:
        return _agreement(recipe, prepare_tokenizer(recipe.tokenizer, [], console), recipe.tokenizer.path)
    if public_sample is not None:
        tokenizer = prepare_tokenizer(recipe.tokenizer, [corpus], console)
        return _agreement(recipe, tokenizer, f"trained on the public sample {public_sample}")
    sentinels, lowercase = recipe.tokenizer.sentinels, recipe.tokenizer.lowercase
    size = BYTE_VOCABULARY_SIZE + sentinels
    settings = TokenizerSettings.model_validate(
        {"kind": "bpe", "vocab_size": size, "sentinels": sentinels, "lowercase": lowercase}
    )
    tokenizer = train_tokenizer(settings, ["x"])  # a text is required, and one letter has no pair to merge
    description = "a byte vocabulary, which needs no training (tokenizer.source=FILE trains one on a public sample)"
    return _agreement(replace(recipe, tokenizer=settings), tokenizer, description)


def _agreement(recipe: PretrainRecipe, tokenizer: Tokenizer, origin: str) -> TokenizerAgreement:
    description = f"tokenizer: {tokenizer.vocab_size:,} tokens, {origin}; no client's text was read for it"
    return TokenizerAgreement(recipe=recipe, tokenizer=tokenizer, description=description)
