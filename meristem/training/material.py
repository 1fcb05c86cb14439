"""What a run is made from: its words and its shards, made now or found again, and the folder it lives in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console

from meristem.checkpoint import disk
from meristem.checkpoint.run import Run
from meristem.recipe import Recipe
from meristem.settings import MeristemError
from meristem.store.prepare import store_for, tokenizer_for
from meristem.store.store import Store
from meristem.tokenizers.tokenizer import Tokenizer

BEGUN = ".begun"
"""Without a recipe beside it, it tells a start that was killed from a folder of something else."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """The tokenizer, and the shards of each source."""

    tokenizer: Tokenizer
    stores: Mapping[str, Store]
    keys: Mapping[str, str]
    """Which shards each source reads, so that a run keeps the ones it began with."""

    @property
    def tokens(self) -> int:
        """Tokens there are to train on."""
        return sum(len(store.split("train")) for store in self.stores.values())


def gather(recipe: Recipe, before: Run | None, console: Console) -> Material:
    """The material of a new run, or the very material an old one began with."""
    sources, start = recipe.sources(), recipe.start
    begun = before.shards() if before is not None else {}
    if before is not None:
        tokenizer = Tokenizer.load(before.tokenizer_path)
    elif start.path is not None and start.take == "all" and start.tokenizer == "keep":
        tokenizer = Tokenizer.load(Run.open(Path(start.path)).tokenizer_path)
    else:
        tokenizer = tokenizer_for(recipe.tokenizer, [source.corpus for source in sources], console)
    words = recipe.tokenizer.kind == "words"
    made = {
        s.name: store_for(s.corpus, tokenizer, recipe.store, words=words, console=console, key=begun.get(s.name))
        for s in sources
    }
    stores, keys = ({name: getattr(one, what) for name, one in made.items()} for what in ("store", "key"))
    return Material(tokenizer=tokenizer, stores=stores, keys=keys)


def refuse_other_things(out: Path) -> None:
    """A run is never begun in a folder that holds something else."""
    if out.is_file() or (out.exists() and any(out.iterdir()) and not (out / BEGUN).exists()):
        what = "a file" if out.is_file() else "a folder of something else"
        raise MeristemError(f"{out} is {what}: choose another place with --out")


def create(out: Path, recipe: Recipe, material: Material) -> Run:
    """The run's folder, with everything it needs to go on."""
    out.mkdir(parents=True, exist_ok=True)
    (out / BEGUN).touch()
    run = Run(out)
    material.tokenizer.save(run.tokenizer_path)
    disk.replace(run.shards_path, [json.dumps(dict(material.keys), indent=1).encode()])
    run = Run.create(out, recipe_text(recipe), run.tokenizer_path)
    (out / BEGUN).unlink(missing_ok=True)
    return run


def recipe_text(recipe: Recipe) -> str:
    """The resolved recipe as its run keeps it."""
    title = f"# {recipe.name} — resolved: every default written out\n"
    return title + yaml.safe_dump(recipe.plain(), sort_keys=False, allow_unicode=True)
