"""Evaluation of a finished run: on its own test split, on other text, on minimal pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from meristem.checkpoint.load_run import LoadedRun
from meristem.checkpoint.provenance import refuse_foreign_data
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, ReinforceRecipe
from meristem.corpus.corpus_sources import matching_target_file
from meristem.corpus.settings import CorpusSettings
from meristem.dataset.manifest import MANIFEST_FILE
from meristem.dataset.prepare import cache_dir, prepare_dataset
from meristem.dataset.token_dataset import TokenDataset, TokenStream
from meristem.dataset.unknown_tokens import spelling_bits, unknown_share, unknown_warning
from meristem.evaluation.held_out_loss import SEED, evaluate_held_out
from meristem.evaluation.labelled_evaluation import evaluate_task
from meristem.evaluation.minimal_pairs import PairCounts, evaluate_pairs, limit_per_paradigm, read_pairs
from meristem.evaluation.reward_runs import with_start_objectives
from meristem.generation.head_selection import LM_HEADS, MASKED_KINDS, LMKind, lm_kinds, require_lm_kind
from meristem.generation.score import token_logprobs
from meristem.generation.token_scores import Floats
from meristem.learning.build import build_feeds
from meristem.utils.randomness import KeyedPermutation

# each token takes a forward pass, so only the beginnings of some documents are scored
PLL_DOCUMENTS, PLL_TOKENS = 64, 128


@dataclass(frozen=True, kw_only=True)
class TextMetrics:
    """Metrics, and the number of samples they are computed from."""

    metrics: dict[str, float]
    samples: dict[str, int]
    unknown_share: dict[str, float] = field(default_factory=dict)
    """The share of unknown tokens in the text, by source if there are several."""


def evaluate(
    loaded_run: LoadedRun,
    *,
    data: str | None = None,
    pairs: str | None = None,
    console: Console,
    limit: int | None = None,
    pll: bool = False,
    task: str | None = None,
    report: str | Path | None = None,
    columns: Mapping[str, Any] | None = None,
    trust_paths: bool = False,
) -> dict[str, Any]:
    """All requested results in one dict; with `pairs` alone no other text is read.

    A task run, or a named task whose head came with imported weights, is evaluated on labelled samples. Data paths from
    the run's own recipe are only read if the run was made on this machine, or with `trust_paths`.
    """
    reads_own_data = data is None and pairs is None
    is_task = pairs is None and (loaded_run.recipe.tuned_task is not None or task is not None)
    if is_task and pll:
        raise MeristemError(f"{loaded_run.run.path} is a task run, which is evaluated by its predictions, not by --pll")
    if columns and not is_task:
        raise MeristemError("--columns: names columns of labelled samples; evaluate a task run, or use --template")
    if report is not None and not is_task:
        raise MeristemError(
            "--report: a report shows predictions on labelled samples; evaluate a task run, or use --template"
        )
    if reads_own_data:
        refuse_foreign_data(loaded_run.run, loaded_run.recipe, trust_paths=trust_paths)
    if is_task:
        return evaluate_task(loaded_run, data=data, columns=columns, limit=limit, task=task, report=report)
    result: dict[str, Any] = {
        "metrics": {},
        "run": str(loaded_run.run.path),
        "step": loaded_run.step,
        "data": None,
        "samples": {},
    }
    if data is not None or pairs is None:
        if isinstance(loaded_run.recipe, ReinforceRecipe):
            loaded_run = with_start_objectives(loaded_run)
            if reads_own_data:
                refuse_foreign_data(loaded_run.run, loaded_run.recipe, trust_paths=trust_paths)
        stores = _stores_from_data(loaded_run, data, console) if data else run_datasets(loaded_run, console)
        split = "train" if data else "test"
        held_out = measure_held_out(loaded_run, stores, split, limit)
        for measured in (held_out, *([pseudo_perplexity(loaded_run, stores, split, limit)] if pll else [])):
            result["metrics"] |= measured.metrics
            result["samples"] |= measured.samples
        is_own_split = str(loaded_run.run.path) == result["run"]
        result["data"] = data or (
            "the run's own test split" if is_own_split else f"the test split of {loaded_run.run.path}"
        )
        result["unknown"] = held_out.unknown_share
        notices = [unknown_warning(share, result["data"]) for share in held_out.unknown_share.values()]
        result["notices"] = [notice for notice in notices if notice]
    if pairs is not None:
        image_size = loaded_run.recipe.image_size
        pair_result = evaluate_pairs(
            loaded_run.learner.model,
            loaded_run.tokenizer,
            limit_per_paradigm(read_pairs(Path(pairs)), limit),
            image_size=image_size,
        )
        result["metrics"]["pairs.accuracy"] = pair_result.overall.accuracy
        result["samples"]["pairs"] = pair_result.overall.pairs
        result["pairs"] = {
            "file": pairs,
            "ties": pair_result.overall.ties,
            "phenomena": _accuracy_table(pair_result.phenomena),
            "paradigms": _accuracy_table(pair_result.paradigms),
        }
    return result


def measure_held_out(
    loaded_run: LoadedRun, stores: Mapping[str, TokenDataset], split: str, limit: int | None
) -> TextMetrics:
    """Loss, perplexity, bits per byte and accuracies per source; the total loss of several is their weighted mean."""
    recipe, learner = _text_recipe(loaded_run), loaded_run.learner
    feeds = build_feeds(recipe, learner.objectives, loaded_run.tokenizer, stores, split=split, seed=SEED)
    if not feeds:
        raise MeristemError(
            f"{loaded_run.run.path} has no held-out {split} split: its corpus was too small, or "
            "corpus.test is 0. Give text with --data FILE"
        )
    metrics: dict[str, float] = {}
    samples: dict[str, int] = {}
    unknown: dict[str, float] = {}
    for name, feed in feeds.items():
        stream = stores[name].split(split)
        source_metrics = evaluate_held_out(
            learner,
            name,
            feed,
            max_rows=limit,
            bytes_per_token=stream.bytes / max(1, len(stream)),
            spelling_bits=spelling_bits(stream, loaded_run.tokenizer),
        ).metrics()
        prefix = "" if len(feeds) == 1 else f"{name}."
        unknown[f"{prefix}unknown"] = unknown_share(stream, loaded_run.tokenizer)
        metrics.update({prefix + key: value for key, value in source_metrics.items()})
        samples[f"{prefix}rows"] = len(feed.view) if limit is None else min(limit, len(feed.view))
    if len(feeds) > 1:
        weights = {name: weight for name, weight in recipe.source_weights.items() if name in feeds}
        loss = sum(weight * metrics[f"{name}.loss"] for name, weight in weights.items()) / sum(weights.values())
        metrics = {"loss": loss, **metrics}
    return TextMetrics(metrics=metrics, samples=samples, unknown_share=unknown)


def pseudo_perplexity(
    loaded_run: LoadedRun, stores: Mapping[str, TokenDataset], split: str, limit: int | None = None
) -> TextMetrics:
    """Pseudo-perplexity (Salazar et al. 2020): each token of some document beginnings masked once and predicted.

    Covers every source with a masked language-model objective; the total of several is their weighted mean.
    """
    model = loaded_run.learner.model
    lm_kind: LMKind = next((kind for kind in MASKED_KINDS if kind in lm_kinds(model)), "masked")
    require_lm_kind(model, lm_kind, "pseudo-log-likelihood")
    source_weights = loaded_run.recipe.source_weights
    objectives = loaded_run.learner.objectives
    masked_sources = [name for name, objective in objectives.items() if LM_HEADS[lm_kind] in objective.heads]
    source_names = masked_sources or list(source_weights)
    streams = {name: stores[name].split(split) for name in source_names if split in stores[name].splits}
    means: dict[str, float] = {}
    metrics: dict[str, float] = {}
    samples: dict[str, int] = {}
    for name, stream in streams.items():
        token_scores, num_documents = _masked_logprobs(loaded_run, stream, lm_kind, limit)
        prefix = "" if len(streams) == 1 else f"{name}."
        means[name] = float(token_scores.mean()) if len(token_scores) else 0.0
        metrics |= _perplexity_metrics(prefix, means[name])
        samples |= {f"{prefix}pll_documents": num_documents, f"{prefix}pll_tokens": len(token_scores)}
    if len(streams) > 1:
        total_weight = sum(source_weights[name] for name in streams)
        mean = sum(source_weights[name] * means[name] for name in streams) / total_weight
        metrics = {**_perplexity_metrics("", mean), **metrics}
    return TextMetrics(metrics=metrics, samples=samples)


def _perplexity_metrics(prefix: str, mean_logprob: float) -> dict[str, float]:
    return {f"{prefix}pll": mean_logprob, f"{prefix}pll_perplexity": math.exp(min(-mean_logprob, 700.0))}


def _masked_logprobs(
    loaded_run: LoadedRun, stream: TokenStream, lm_kind: LMKind, limit: int | None
) -> tuple[Floats, int]:
    """The log-probability of each masked token of some document beginnings, and the number of documents."""
    order = KeyedPermutation(stream.documents, SEED, 0)
    document_ids = order(np.arange(min(stream.documents, limit or PLL_DOCUMENTS)))
    spans = [stream.document(int(document_id)) for document_id in document_ids]
    texts = [stream.tokens(span.start, min(span.text_stop, span.start + PLL_TOKENS)) for span in spans]
    logprobs = token_logprobs(loaded_run.learner.model, loaded_run.tokenizer, texts, lm_kind=lm_kind)
    return np.concatenate(logprobs), len(texts)


def _stores_from_data(loaded_run: LoadedRun, data: str, console: Console) -> dict[str, TokenDataset]:
    """Datasets of other text, all of it regardless of splits, tokenized by the run's own tokenizer."""
    recipe = _text_recipe(loaded_run)
    keep_words = recipe.tokenizer.kind == "words"
    try:
        return {
            source.name: prepare_dataset(
                _corpus_like(source.corpus, data),
                loaded_run.tokenizer,
                recipe.dataset,
                keep_words=keep_words,
                console=console,
            ).dataset
            for source in recipe.sources()
        }
    except MeristemError as error:
        raise MeristemError(str(error).replace("corpus.source: ", "--data: ", 1)) from None


def _corpus_like(corpus: CorpusSettings, data: str) -> CorpusSettings:
    """Corpus settings for other text: the run's own columns, or the target file that belongs to this source."""
    overrides = {"source": data, "validation": 0, "test": 0, "deduplicate": False}
    if data.startswith("builtin:"):
        return CorpusSettings.model_validate(overrides)
    target = corpus.targets[0]
    if target is not None and Path(target).expanduser().is_file():
        target = matching_target_file(data, corpus.sources[0], target)
    text = corpus.text if corpus.side_separator else None
    overrides |= {"format": corpus.format, "encoding": corpus.encoding}
    return CorpusSettings.model_validate({**overrides, "text": text, "target": target, "image": corpus.image})


def run_datasets(loaded_run: LoadedRun, console: Console) -> dict[str, TokenDataset]:
    """The shards the run was trained on: from the cache, or rebuilt from unchanged text."""
    recipe, run = _text_recipe(loaded_run), loaded_run.run
    keys = run.shard_keys()
    stores: dict[str, TokenDataset] = {}
    for source in recipe.sources():
        key = keys.get(source.name)
        if key is not None and (cache_dir() / "stores" / key / MANIFEST_FILE).is_file():
            stores[source.name] = TokenDataset.open(cache_dir() / "stores" / key)
            continue
        try:
            stores[source.name] = prepare_dataset(
                source.corpus,
                loaded_run.tokenizer,
                recipe.dataset,
                console=console,
                cache_key=key,
                keep_words=recipe.tokenizer.kind == "words",
            ).dataset
        except MeristemError as error:
            raise MeristemError(
                f"the shards {run.path} was trained on are not in the cache ({cache_dir()}) and cannot be "
                f"rebuilt ({error}). Give text with --data FILE"
            ) from None
    return stores


def _text_recipe(loaded_run: LoadedRun) -> PretrainRecipe:
    """The recipe of a run that was trained on text."""
    if not isinstance(loaded_run.recipe, PretrainRecipe):
        raise MeristemError(f"{loaded_run.run.path} was not pretrained on text, so it has no held-out loss on text")
    return loaded_run.recipe


def _accuracy_table(counts: Mapping[str, PairCounts]) -> dict[str, dict[str, float]]:
    return {
        name: {"accuracy": pair_counts.accuracy, "pairs": pair_counts.pairs, "ties": pair_counts.ties}
        for name, pair_counts in counts.items()
    }
