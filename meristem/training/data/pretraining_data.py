"""Pretraining data: tokenizer and token shards of each source, batches, and validation loss on held-out text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, Recipe
from meristem.corpus.canaries.planting import CANARY_FILE, canary_record
from meristem.corpus.settings import CorpusSettings
from meristem.dataset.feed import Feed
from meristem.dataset.prepare import prepare_dataset, prepare_tokenizer
from meristem.dataset.readable_canaries import check_readable_canaries
from meristem.dataset.token_dataset import TokenDataset
from meristem.dataset.unknown_tokens import (
    check_unknown_share,
    format_percent,
    spelling_bits,
    unknown_share,
    unknown_warning,
)
from meristem.distributed.process_group import SINGLE_PROCESS, DistributedContext
from meristem.evaluation.held_out_loss import SEED, evaluate_held_out
from meristem.interfaces.backbone import Model
from meristem.interfaces.objective import Objective
from meristem.learning.build import build_feeds
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.budget import evaluation_count
from meristem.training.data.training_data import EvaluateFn, TrainingData
from meristem.training.report.suggested_commands import suggest_commands

TEXT_SAMPLE_TOKENS = 1_000_000
"""Tokens of each source in which word frequencies are counted."""


@dataclass(frozen=True, kw_only=True)
class PretrainingData(TrainingData):
    """The tokenizer, and the token shards of each source."""

    recipe: PretrainRecipe
    tokenizer: Tokenizer
    datasets: Mapping[str, TokenDataset]
    cache_keys: Mapping[str, str]
    max_length: int
    """Tokens in a row."""
    distributed: DistributedContext = SINGLE_PROCESS

    @property
    def shard_keys(self) -> Mapping[str, str]:
        """Source → cache key of its shards."""
        return self.cache_keys

    @property
    def record_files(self) -> Mapping[str, str]:
        """The canaries that were planted into the sources."""
        corpora = {source.name: source.corpus for source in self.recipe.sources()}
        planted = {name: corpus.canaries for name, corpus in corpora.items() if corpus.canaries is not None}
        return {CANARY_FILE: canary_record(planted)} if planted else {}

    @property
    def num_tokens(self) -> int:
        """Training tokens of all sources."""
        return sum(len(dataset.split("train")) for dataset in self.datasets.values())

    def build_feeds(
        self, recipe: Recipe, objectives: Mapping[str, Objective], *, split: str, seed: int
    ) -> dict[str, Feed]:
        """Batches of rows of fixed length."""
        assert isinstance(recipe, PretrainRecipe)
        return build_feeds(
            recipe, objectives, self.tokenizer, self.datasets, split=split, seed=seed, distributed=self.distributed
        )

    def build_evaluator(
        self, recipe: Recipe, learner: Learner, split: str, log: Callable[[str], None]
    ) -> EvaluateFn | None:
        """Loss and accuracies on every source with text in this split; None if there is too little."""
        try:
            feeds = self.build_feeds(recipe, learner.objectives, split=split, seed=SEED)
        except MeristemError as error:  # enough text to train on may be too little to evaluate on
            log(f"no evaluation on {split} text: {error}")
            return None
        if not feeds:
            return None
        max_tokens = recipe.train.evaluate_tokens if split == "validation" else None
        weights = {name: weight for name, weight in recipe.evaluation_weights.items() if name in feeds}

        def evaluate() -> dict[str, float]:
            metrics: dict[str, float] = {}
            for name, feed in feeds.items():
                stream = self.datasets[name].split(split)
                rows = None if max_tokens is None else max(1, int(max_tokens / feed.tokens_per_sample))
                bytes_per_token, bits = stream.bytes / max(1, len(stream)), spelling_bits(stream, self.tokenizer)
                source_metrics = evaluate_held_out(
                    learner, name, feed, max_rows=rows, bytes_per_token=bytes_per_token, spelling_bits=bits
                ).metrics()
                if len(feeds) == 1:
                    return source_metrics
                metrics |= {f"{name}.{key}": value for key, value in source_metrics.items()}
            weighted = [weight * metrics[f"{name}.loss"] for name, weight in weights.items() if weight]
            loss = sum(weighted) / sum(weights.values())
            return {"loss": loss, **metrics}

        return evaluate

    def evaluation_count(self, recipe: Recipe, planned_tokens: float) -> int:
        """As many evaluations as cost a tenth of the training."""
        held_out = [dataset for dataset in self.datasets.values() if "validation" in dataset.splits]
        num_tokens = sum(len(dataset.split("validation")) for dataset in held_out)
        return evaluation_count(planned_tokens, min(len(held_out) * recipe.train.evaluate_tokens, num_tokens))

    def describe_data(self) -> list[str]:
        """Size of the text, share of unknown tokens, and warnings where there is too little text."""
        train_streams = {name: dataset.split("train") for name, dataset in self.datasets.items()}
        unknown_shares = {name: unknown_share(stream, self.tokenizer) for name, stream in train_streams.items()}
        shares = [format_percent(share) for share in unknown_shares.values()]
        if len(shares) > 1:
            shares = [f"{share} of {name}" for share, name in zip(shares, unknown_shares, strict=True)]
        note = f" ({', '.join(shares)} unknown)" if any(unknown_shares.values()) else ""
        labels = {source.name: _corpus_label(source.corpus) for source in self.recipe.sources()}
        warnings = (unknown_warning(share, labels[name]) for name, share in unknown_shares.items())
        lines = [f"{self.num_tokens:,} tokens{note}", *filter(None, warnings)]
        if any("validation" not in dataset.splits for dataset in self.datasets.values()):
            lines.append("too few documents to hold any out: there will be no validation loss")
        one_document = [source for source in self.recipe.sources() if train_streams[source.name].documents < 2]
        parts = [part for source in one_document for part in source.objective]
        if any(part.takes_other_documents for part in parts):
            lines.append(
                "the text is one document: negatives of next sentence prediction come from elsewhere in it, not from "
                "another document (corpus.document splits a text into several)"
            )
        batch_tokens = self.recipe.train.batch_tokens
        if self.num_tokens < batch_tokens // self.max_length * self.max_length:
            lines.append(f"the text is smaller than one batch of {batch_tokens:,} tokens: every step repeats it")
        return lines

    def preview_samples(self, feed: Feed, ids: Sequence[int]) -> list[str]:
        """The first 80 characters of each row."""
        return [self.tokenizer.decode(feed.batch_at(row_id, 1).inputs["tokens"][0].tolist())[:80] for row_id in ids]

    def iter_texts(self) -> Iterator[str]:
        """The first documents of every source, about `TEXT_SAMPLE_TOKENS` tokens each."""
        for dataset in self.datasets.values():
            stream, tokens_read = dataset.split("train"), 0
            for index in range(stream.documents):
                span = stream.document(index)
                yield self.tokenizer.decode(stream.tokens(span.start, span.text_stop).tolist())
                tokens_read += span.text_stop - span.start
                if tokens_read > TEXT_SAMPLE_TOKENS:
                    break

    def example_commands(self, run_path: str, model: Model) -> list[str]:
        """Example commands with words from the training text."""
        return suggest_commands(run_path, model, self.tokenizer, self.datasets)

    def source_lines(self) -> list[str]:
        """Each source with its size and objective."""
        return [
            f"{source.name}: `{source.corpus.source}`, {len(text):,} tokens in {text.documents:,} documents; "
            f"objective {' + '.join(part.name for part in source.objective)}{_canary_note(source.corpus)}"
            for source in self.recipe.sources()
            for text in [self.datasets[source.name].split("train")]
        ]


def load_pretraining_data(
    recipe: PretrainRecipe,
    existing_run: RunFolder | None,
    console: Console,
    distributed: DistributedContext = SINGLE_PROCESS,
) -> PretrainingData:
    """Tokenizer and shards of a new run, or those that an existing run started with."""
    sources, start = recipe.sources(), recipe.start
    saved_keys = existing_run.shard_keys() if existing_run is not None else {}
    if existing_run is not None:
        tokenizer = Tokenizer.load(existing_run.tokenizer_path)
    elif start.path is not None and start.load in ("all", "encoder") and start.tokenizer == "keep":
        tokenizer = Tokenizer.load(RunFolder.open(Path(start.path)).tokenizer_path)
    else:
        tokenizer = prepare_tokenizer(recipe.tokenizer, [source.corpus for source in sources], console)
    for corpus_source in sources if existing_run is None else ():
        check_readable_canaries(corpus_source.corpus.canaries, tokenizer)
    by_word = recipe.tokenizer.kind == "words"
    prepared = {
        corpus_source.name: prepare_dataset(
            corpus_source.corpus,
            tokenizer,
            recipe.dataset,
            keep_words=by_word,
            console=console,
            cache_key=saved_keys.get(corpus_source.name),
        )
        for corpus_source in sources
    }
    kept_tokenizer = (
        str(start.path) if start.path is not None and start.load == "all" and start.tokenizer == "keep" else None
    )
    is_foreign_tokenizer = kept_tokenizer is not None or recipe.tokenizer.path is not None  # not trained on this text
    for corpus_source in sources if existing_run is None and is_foreign_tokenizer else ():
        share = unknown_share(prepared[corpus_source.name].dataset.split("train"), tokenizer)
        check_unknown_share(
            share, recipe.dataset.max_unknown, _corpus_label(corpus_source.corpus), kept_from=kept_tokenizer
        )
    datasets, cache_keys = (
        {name: getattr(entry, field) for name, entry in prepared.items()} for field in ("dataset", "cache_key")
    )
    return PretrainingData(
        recipe=recipe,
        tokenizer=tokenizer,
        datasets=datasets,
        cache_keys=cache_keys,
        max_length=recipe.model.max_length,
        distributed=distributed,
    )


def _canary_note(corpus: CorpusSettings) -> str:
    """A note on planted canaries for the model card."""
    if corpus.canaries is None:
        return ""
    copies = sum(corpus.canaries.repeats) * corpus.canaries.per_repeat
    return f"; {copies:,} of the documents are planted canaries (`{CANARY_FILE}`)"


def _corpus_label(corpus: CorpusSettings) -> str:
    """Name of a corpus in messages."""
    return ", ".join(corpus.sources)
