"""Missing files: files and folders that a recipe names are checked before any work starts."""

from __future__ import annotations

from pathlib import Path

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, Recipe
from meristem.corpus.corpus_sources import find_sources
from meristem.data.sources import describe_missing_path


def refuse_missing_files(recipe: Recipe) -> None:
    """Raise if the text, tokenizer, word vectors or run that a recipe names is missing, with the closest name."""
    for setting, path in (("tokenizer.path", recipe.tokenizer.path), ("from.word_vectors", recipe.start.word_vectors)):
        if path is not None and not Path(path).expanduser().exists():
            raise MeristemError(f"{setting}: {describe_missing_path(Path(path).expanduser())}")
    if recipe.start.path is not None and not Path(recipe.start.path).exists():
        RunFolder.open(Path(recipe.start.path))
    if isinstance(recipe, PretrainRecipe):
        for source in recipe.sources():
            find_sources(source.corpus)
