"""A finished run measured: on its own test split, on other text, on minimal pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from meristem.checkpoint.origin import refuse_foreign_data
from meristem.checkpoint.revive import Revived
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sources import target_beside
from meristem.errors import MeristemError
from meristem.evaluation.held_out import SEED, held_out
from meristem.evaluation.on_samples import evaluate_task
from meristem.evaluation.pairs import Answers, judge, read_pairs, some
from meristem.evaluation.reward_runs import with_start_objectives
from meristem.generation.score import logprobs
from meristem.generation.token_scores import Floats
from meristem.generation.way import HEADS, Way, require, ways
from meristem.learning.assemble import feeds_of
from meristem.randomness import Order
from meristem.store.manifest import FINISHED
from meristem.store.prepare import cache, store_for
from meristem.store.store import Store, Stream
from meristem.store.unknown import notice_of, spelling_bits, unknown_share

PLL_DOCUMENTS, PLL_TOKENS = 64, 128  # a token costs a pass over its text, so only beginnings of some documents are read


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Metrics, and how many samples and bytes stand behind them."""

    metrics: dict[str, float]
    samples: dict[str, int]
    unknown: dict[str, float] = field(default_factory=dict)
    """The share of unknown tokens in the text, by source where there are several."""


def evaluate(
    revived: Revived, *, data: str | None = None, pairs: str | None = None, console: Console, limit: int | None = None,
    pll: bool = False, task: str | None = None, report: str | Path | None = None,
    columns: Mapping[str, Any] | None = None, trust_paths: bool = False,
) -> dict[str, Any]:
    """Everything asked for in one plain mapping; with pairs alone no other text is read.

    A task run, or the named task of a model that came with its head, is measured on labelled samples. Data that only
    the run's own recipe names are read where this machine made the run, or with `trust_paths`.
    """
    if pairs is None and (revived.recipe.task is not None or task is not None):
        if pll:
            raise MeristemError(f"{revived.run.path} is a task run, which is measured by its answers, not by --pll")
        if data is None:
            refuse_foreign_data(revived.run, revived.recipe, trust_paths=trust_paths)
        return evaluate_task(revived, data=data, columns=columns, limit=limit, task=task, report=report)
    if columns:
        raise MeristemError("--columns: names columns of labelled samples; measure a task run, or ask with --template")
    if report is not None:
        raise MeristemError("--report: a page shows answers to labelled samples; measure a task run, or ask with "
                            "--template")
    found: dict[str, Any] = {"metrics": {}, "run": str(revived.run.path), "step": revived.step, "data": None,
                             "samples": {}}
    if revived.recipe.policy is not None and (data is not None or pairs is None):
        if data is None:
            refuse_foreign_data(revived.run, revived.recipe, trust_paths=trust_paths)
        revived = with_start_objectives(revived)
    if data is not None or pairs is None:
        if data is None:
            refuse_foreign_data(revived.run, revived.recipe, trust_paths=trust_paths)
        stores, split = (_given(revived, data, console), "train") if data else (_own(revived, console), "test")
        measured = measure(revived, stores, split, limit)
        found["metrics"].update(measured.metrics)
        found["samples"].update(measured.samples)
        own = str(revived.run.path) == found["run"]
        found["data"] = data or ("the run's own test split" if own else f"the test split of {revived.run.path}")
        found["unknown"] = measured.unknown
        found["notices"] = [line for share in measured.unknown.values() if (line := notice_of(share, found["data"]))]
        if pll:
            measured = pseudo(revived, stores, split, limit)
            found["metrics"].update(measured.metrics)
            found["samples"].update(measured.samples)
    if pairs is not None:
        side = revived.recipe.model.model_dump().get("picture", revived.recipe.store.picture)
        judgement = judge(revived.learner.model, revived.tokenizer, some(read_pairs(Path(pairs)), limit), side=side)
        found["metrics"]["pairs.accuracy"] = judgement.overall.accuracy
        found["samples"]["pairs"] = judgement.overall.pairs
        found["pairs"] = {"file": pairs, "ties": judgement.overall.ties, "phenomena": _plain(judgement.phenomena),
                          "paradigms": _plain(judgement.paradigms)}
    return found


def measure(revived: Revived, stores: Mapping[str, Store], split: str, limit: int | None) -> Measured:
    """Loss, perplexity, bits per byte and accuracies of every source; several are named apart and weighed together."""
    recipe, learner = revived.recipe, revived.learner
    feeds = feeds_of(recipe, learner.objectives, revived.tokenizer, stores, split=split, seed=SEED)
    if not feeds:
        raise MeristemError(f"{revived.run.path} held out no text for a {split}: its corpus was too small, or "
                            "corpus.test is 0. Give text with --data FILE")
    metrics: dict[str, float] = {}
    samples: dict[str, int] = {}
    unknown: dict[str, float] = {}
    for name, feed in feeds.items():
        stream = stores[name].split(split)
        each = held_out(learner, name, feed, rows=limit, bytes_per_token=stream.bytes / max(1, len(stream)),
                        spelling_bits=spelling_bits(stream, revived.tokenizer)).metrics()
        prefix = "" if len(feeds) == 1 else f"{name}."
        unknown[f"{prefix}unknown"] = unknown_share(stream, revived.tokenizer)
        metrics.update({prefix + key: value for key, value in each.items()})
        samples[f"{prefix}rows"] = len(feed.view) if limit is None else min(limit, len(feed.view))
    if len(feeds) > 1:
        weights = {source.name: source.weight for source in recipe.sources() if source.name in feeds}
        loss = sum(weight * metrics[f"{name}.loss"] for name, weight in weights.items()) / sum(weights.values())
        metrics = {"loss": loss, **metrics}
    return Measured(metrics=metrics, samples=samples, unknown=unknown)


def pseudo(revived: Revived, stores: Mapping[str, Store], split: str, limit: int | None = None) -> Measured:
    """Pseudo-perplexity: every token of some documents' beginnings hidden once and predicted from all the others.

    Every source that masked tokens are learned from is read; several are named apart and weighed together.
    """
    model = revived.learner.model
    way: Way = "generator" if "generator" in ways(model) and "masked" not in ways(model) else "masked"
    require(model, way, "pseudo-log-likelihood")
    named = {source.name: source.weight for source in revived.recipe.sources()}
    learned = [name for name, one in revived.learner.objectives.items() if HEADS[way] in one.heads] or list(named)
    streams = {name: stores[name].split(split) for name in learned if split in stores[name].splits}
    means: dict[str, float] = {}
    metrics: dict[str, float] = {}
    samples: dict[str, int] = {}
    for name, stream in streams.items():
        each, documents = _pseudo(revived, stream, way, limit)
        prefix = "" if len(streams) == 1 else f"{name}."
        means[name] = float(each.mean()) if len(each) else 0.0
        metrics |= _perplexity(prefix, means[name])
        samples |= {f"{prefix}pll_documents": documents, f"{prefix}pll_tokens": len(each)}
    if len(streams) > 1:
        total = sum(named[name] for name in streams)
        metrics = {**_perplexity("", sum(named[name] * means[name] for name in streams) / total), **metrics}
    return Measured(metrics=metrics, samples=samples)


def _perplexity(prefix: str, mean: float) -> dict[str, float]:
    return {f"{prefix}pll": mean, f"{prefix}pll_perplexity": math.exp(min(-mean, 700.0))}


def _pseudo(revived: Revived, stream: Stream, way: Way, limit: int | None) -> tuple[Floats, int]:
    """The log-probability of each hidden token of some documents' beginnings, and how many documents there are."""
    order = Order(stream.documents, SEED, 0)
    chosen = order(np.arange(min(stream.documents, limit or PLL_DOCUMENTS)))
    spans = [stream.document(int(number)) for number in chosen]
    texts = [stream.tokens(span.start, min(span.text_stop, span.start + PLL_TOKENS)) for span in spans]
    return np.concatenate(logprobs(revived.learner.model, revived.tokenizer, texts, way=way)), len(texts)


def _given(revived: Revived, data: str, console: Console) -> dict[str, Store]:
    """Other text, all of it read whichever split it would fall into, cut by the run's own tokenizer."""
    recipe = revived.recipe
    words = recipe.tokenizer.kind == "words"
    try:
        return {source.name: store_for(_like(source.corpus, data), revived.tokenizer, recipe.store, words=words,
                                       console=console).store for source in recipe.sources()}
    except MeristemError as error:
        raise MeristemError(str(error).replace("corpus.source: ", "--data: ", 1)) from None


def _like(corpus: CorpusSettings, data: str) -> CorpusSettings:
    """Other text read as the run's own was: the same columns, or the target file that goes with this source."""
    plain = {"source": data, "validation": 0, "test": 0, "deduplicate": False}
    if data.startswith("builtin:"):
        return CorpusSettings.model_validate(plain)
    target = corpus.targets[0]
    if target is not None and Path(target).expanduser().is_file():
        target = target_beside(data, corpus.sources[0], target)
    text = corpus.text if corpus.mark else None
    plain |= {"format": corpus.format, "encoding": corpus.encoding}
    return CorpusSettings.model_validate({**plain, "text": text, "target": target, "picture": corpus.picture})


def _own(revived: Revived, console: Console) -> dict[str, Store]:
    """The shards the run was trained on: from the cache, or made again from text that has not changed."""
    recipe, run = revived.recipe, revived.run
    keys = run.shards()
    stores: dict[str, Store] = {}
    for source in recipe.sources():
        key = keys.get(source.name)
        if key is not None and (cache() / "stores" / key / FINISHED).is_file():
            stores[source.name] = Store.open(cache() / "stores" / key)
            continue
        try:
            stores[source.name] = store_for(source.corpus, revived.tokenizer, recipe.store, console=console, key=key,
                                            words=recipe.tokenizer.kind == "words").store
        except MeristemError as error:
            raise MeristemError(f"the shards {run.path} was trained on are not in the cache ({cache()}) and cannot be "
                                f"made again ({error}). Give text with --data FILE") from None
    return stores


def _plain(answers: Mapping[str, Answers]) -> dict[str, dict[str, float]]:
    return {name: {"accuracy": one.accuracy, "pairs": one.pairs, "ties": one.ties} for name, one in answers.items()}
