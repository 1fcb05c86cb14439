"""Text as material: shards made now or found again, and what is measured on those held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from meristem.batch import Model, Objective
from meristem.checkpoint.run import Run
from meristem.corpus.settings import CorpusSettings
from meristem.errors import MeristemError
from meristem.evaluation.held_out import SEED, held_out
from meristem.learning.assemble import feeds_of
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.learning.team import ALONE, Team
from meristem.recipe import Recipe
from meristem.store.prepare import store_for, tokenizer_for
from meristem.store.store import Store
from meristem.store.unknown import notice_of, percent, refuse_unknown, spelling_bits, unknown_share
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.budget import evaluations
from meristem.training.material import Evaluate, Material
from meristem.training.trying import commands

PASSAGES = 1_000_000
"""Tokens of each source that tell how often words are used."""


@dataclass(frozen=True, kw_only=True)
class Shards(Material):
    """The tokenizer, and the shards of each source."""

    tokenizer: Tokenizer
    stores: Mapping[str, Store]
    keys: Mapping[str, str]
    length: int
    """Tokens of a row."""
    team: Team = ALONE

    @property
    def shards(self) -> Mapping[str, str]:
        """The key of each source's shards."""
        return self.keys

    @property
    def tokens(self) -> int:
        """Tokens there are to train on."""
        return sum(len(store.split("train")) for store in self.stores.values())

    def feeds(self, recipe: Recipe, objectives: Mapping[str, Objective], *, split: str, seed: int) -> dict[str, Feed]:
        """Rows of a fixed length."""
        return feeds_of(recipe, objectives, self.tokenizer, self.stores, split=split, seed=seed, team=self.team)

    def evaluator(self, recipe: Recipe, learner: Learner, split: str, say: Callable[[str], None]) -> Evaluate | None:
        """Loss and accuracies of every source that has held-out text of that split."""
        try:
            feeds = self.feeds(recipe, learner.objectives, split=split, seed=SEED)
        except MeristemError as error:  # what trains well may be too little to evaluate on
            say(f"nothing will be measured on {split} text: {error}")
            return None
        if not feeds:
            return None
        wanted = recipe.train.evaluate_tokens if split == "validation" else None
        weights = {s.name: s.weight for s in recipe.sources() if s.name in feeds}

        def evaluate() -> dict[str, float]:
            found: dict[str, float] = {}
            for name, feed in feeds.items():
                stream = self.stores[name].split(split)
                rows = None if wanted is None else max(1, int(wanted / feed.tokens_per_sample))
                ratio, spelling = stream.bytes / max(1, len(stream)), spelling_bits(stream, self.tokenizer)
                metrics = held_out(
                    learner, name, feed, rows=rows, bytes_per_token=ratio, spelling_bits=spelling
                ).metrics()
                found.update(metrics if len(feeds) == 1 else {f"{name}.{key}": value for key, value in metrics.items()})
            if len(feeds) > 1:
                loss = sum(w * found[f"{n}.loss"] for n, w in weights.items()) / sum(weights.values())
                found = {"loss": loss, **found}
            return found

        return evaluate

    def evaluations(self, recipe: Recipe, planned: float) -> int:
        """As often as costs a tenth of the training."""
        held = [len(store.split("validation")) for store in self.stores.values() if "validation" in store.splits]
        return evaluations(planned, min(len(held) * recipe.train.evaluate_tokens, sum(held)))

    def about(self, recipe: Recipe) -> list[str]:
        """How much text there is, and where that is too little."""
        shares = {name: unknown_share(store.split("train"), self.tokenizer) for name, store in self.stores.items()}
        known = ", ".join(f"{percent(share)} of {name}" if len(shares) > 1 else percent(share)
                          for name, share in shares.items())
        said = [f"{self.tokens:,} tokens ({known} unknown)" if any(shares.values()) else f"{self.tokens:,} tokens"]
        places = {source.name: _place(source.corpus) for source in recipe.sources()}
        said += [line for name, share in shares.items() if (line := notice_of(share, places[name]))]
        if any("validation" not in store.splits for store in self.stores.values()):
            said.append("too few documents to hold any out: no validation loss will be shown")
        single = {name for name, store in self.stores.items() if store.split("train").documents < 2}
        parts = [part for source in recipe.sources() if source.name in single for part in source.objective]
        if any(part.name == "nsp" and part.negatives == "other" for part in parts):
            said.append(
                "the text is one document: false next sentences come from elsewhere in it, not from another document "
                "(corpus.document cuts a text into several)"
            )
        batch = recipe.train.batch_tokens
        if self.tokens < batch // self.length * self.length:
            said.append(f"the text is smaller than one batch of {batch:,} tokens: every step repeats it")
        return said

    def texts(self, feed: Feed, ids: Sequence[int]) -> list[str]:
        """The beginnings of rows."""
        return [self.tokenizer.decode(feed.at(number, 1).inputs["tokens"][0].tolist())[:80] for number in ids]

    def passages(self) -> Iterator[str]:
        """The first documents of every source."""
        for store in self.stores.values():
            stream, read = store.split("train"), 0
            for number in range(stream.documents):
                span = stream.document(number)
                yield self.tokenizer.decode(stream.tokens(span.start, span.text_stop).tolist())
                read += span.text_stop - span.start
                if read > PASSAGES:
                    break

    def tries(self, place: str, model: Model) -> list[str]:
        """Commands with words of its own text."""
        return commands(place, model, self.tokenizer, self.stores)

    def sources(self, recipe: Recipe) -> list[str]:
        """Each source, its size and its objective."""
        return [
            f"{source.name}: `{source.corpus.source}`, {len(text):,} tokens in {text.documents:,} documents; "
            f"objective {' + '.join(part.name for part in source.objective)}"
            for source in recipe.sources()
            for text in [self.stores[source.name].split("train")]
        ]


def gather(recipe: Recipe, before: Run | None, console: Console, team: Team = ALONE) -> Shards:
    """The material of a new run, or the very material an old one began with."""
    sources, start = recipe.sources(), recipe.start
    begun = before.shards() if before is not None else {}
    if before is not None:
        tokenizer = Tokenizer.load(before.tokenizer_path)
    elif start.path is not None and start.take in ("all", "encoder") and start.tokenizer == "keep":
        tokenizer = Tokenizer.load(Run.open(Path(start.path)).tokenizer_path)
    else:
        tokenizer = tokenizer_for(recipe.tokenizer, [source.corpus for source in sources], console)
    words = recipe.tokenizer.kind == "words"
    made = {
        s.name: store_for(s.corpus, tokenizer, recipe.store, words=words, console=console, key=begun.get(s.name))
        for s in sources
    }
    kept = str(start.path) if start.path is not None and start.take == "all" and start.tokenizer == "keep" else None
    elsewhere = kept is not None or recipe.tokenizer.path is not None  # one trained on this very text is its own
    for s in sources if before is None and elsewhere else ():
        share = unknown_share(made[s.name].store.split("train"), tokenizer)
        refuse_unknown(share, recipe.store.max_unknown, _place(s.corpus), kept=kept)
    stores, keys = ({name: getattr(one, what) for name, one in made.items()} for what in ("store", "key"))
    return Shards(tokenizer=tokenizer, stores=stores, keys=keys, length=recipe.model.length, team=team)


def _place(corpus: CorpusSettings) -> str:
    """What a corpus is called in a sentence."""
    return ", ".join(corpus.sources)
