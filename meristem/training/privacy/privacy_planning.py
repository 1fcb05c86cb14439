"""Plan of a private run: the noise for budget, steps and sampling rates, and refusal of what is beyond the budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from meristem.checkpoint import load
from meristem.checkpoint.load_run import load_recipe
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import FinetuneRecipe, PretrainRecipe, Recipe
from meristem.dataset.feed import Feed
from meristem.dataset.poisson_feed import PoissonFeed
from meristem.training.privacy.accountant import SampledSteps, epsilon_of, find_noise_multiplier
from meristem.training.privacy.noise import SECRET_FILE
from meristem.training.privacy.privacy_checks import unit_of
from meristem.training.privacy.private_step import PrivateStep
from meristem.training.privacy.record import PrivacyRecord
from meristem.training.run_result import RunContext
from meristem.training.step_planning import build_mixture


def plan_privacy(context: RunContext, feeds: Mapping[str, Feed], seed: int | None) -> PrivateStep | None:
    """The private step of a run, with the noise that its planned steps need; None without `train.privacy`."""
    privacy, state = context.recipe.train.privacy, context.state
    if privacy is None:
        return None
    if seed is None:
        raise MeristemError(
            f"{context.run.path}: the run has ended, and with it its secret ({SECRET_FILE}) was erased: it cannot take "
            "more steps; start another run from it"
        )
    private_feeds = {name: feed for name, feed in feeds.items() if isinstance(feed, PoissonFeed)}
    mixture = build_mixture(context)
    counts = Counter(mixture(step)[0] for step in range(state.total))
    if state.privacy:
        record = PrivacyRecord.from_dict(state.privacy)
        _refuse_other_rates(context, record, private_feeds)
    else:
        record = _new_record(context, private_feeds, counts)
        state.privacy = record.to_dict()
    planned = record.after(counts)
    if planned.epsilon > privacy.epsilon:
        raise RecipeError(
            f"train.privacy: {state.total:,} steps would spend ε = {planned.epsilon:.4g}, and the budget is "
            f"{privacy.epsilon:g}: the noise was chosen for fewer steps; it cannot be raised for a run that has begun"
        )
    return PrivateStep(
        learner=context.learner,
        settings=privacy,
        distributed=context.training_data.distributed,
        noise_seed=seed,
        noise_multiplier=record.noise_multiplier,
        units_per_step={name: feed.batch_size for name, feed in private_feeds.items()},
        log=context.logger.log,
    )


def _new_record(context: RunContext, feeds: Mapping[str, PoissonFeed], counts: Mapping[str, int]) -> PrivacyRecord:
    recipe, privacy = context.recipe, context.recipe.train.privacy
    assert privacy is not None
    for feed in feeds.values():
        if privacy.delta * len(feed.view) >= 1:
            raise RecipeError(
                f"train.privacy.delta: {privacy.delta:g} allows to publish one of {len(feed.view):,} "
                f"{unit_of(recipe)}s as it is; it must be below {1 / len(feed.view):.1g}"
            )
    earlier = _earlier_steps(context)
    rates = {name: feed.sampling_rate for name, feed in feeds.items()}
    noise_multiplier = find_noise_multiplier(
        privacy.accountant,
        privacy.epsilon,
        privacy.delta,
        [(rates[name], count) for name, count in counts.items()],
        earlier,
    )
    return PrivacyRecord(
        delta=privacy.delta,
        accountant=privacy.accountant,
        noise_multiplier=noise_multiplier,
        rates=rates,
        steps=dict.fromkeys(rates, 0),
        unit=unit_of(recipe),
        data=protected_data(recipe),
        earlier=earlier,
    )


def _refuse_other_rates(context: RunContext, record: PrivacyRecord, feeds: Mapping[str, PoissonFeed]) -> None:
    """Raise if steps would draw units at another rate than the noise was chosen for."""
    rates = {name: feed.sampling_rate for name, feed in feeds.items()}
    if rates != record.rates:
        raise MeristemError(
            f"{context.run.path} drew units with probability {record.rates} and would now with {rates}: its data have "
            "changed, and the budget no longer holds. Restore them, or start over with --fresh"
        )


def protected_data(recipe: Recipe) -> list[str]:
    """Names of the training data of a run."""
    if isinstance(recipe, PretrainRecipe):
        return sorted({name for source in recipe.sources() for name in map(_data_name, source.corpus.sources)})
    files = recipe.data.train if isinstance(recipe, FinetuneRecipe) else None
    return sorted(map(_data_name, (files,) if isinstance(files, str) else files or ()))


def _data_name(source: str) -> str:
    """An absolute path of a file; built-in data without their size, since a larger one has the same texts."""
    if source.startswith("builtin:"):
        return source.partition("?")[0]
    return str(Path(source).resolve()) if Path(source).exists() else source


def _earlier_steps(context: RunContext) -> list[SampledSteps]:
    """Steps on the same data of the run whose weights are loaded; refused if they were not private."""
    start, log = context.recipe.start, context.logger.log
    if start.path is None or start.load == "nothing":
        return []
    run = RunFolder.open(Path(start.path))
    checkpoint = load.load_checkpoint(run.checkpoints)
    saved = {} if checkpoint is None else checkpoint.snapshot.state.get("privacy") or {}
    shared = sorted(set(protected_data(load_recipe(run))) & set(protected_data(context.recipe)))
    if saved:
        earlier = PrivacyRecord.from_dict(saved)
        if set(earlier.data) & set(protected_data(context.recipe)):
            log(f"{start.path} has spent ε = {earlier.epsilon:.4g} on the same data: this run continues from there")
            return [part for part in earlier.spent() if part.count]
        log(f"{start.path} was trained privately on other data: each budget holds for its own data")
        return []
    if shared:
        raise RecipeError(
            f"train.privacy: the weights of {start.path} were trained on {', '.join(shared)} without privacy, and "
            "remember it; start from weights that have not seen the data"
        )
    log(f"{start.path} was trained without privacy: ε holds for the data of this run, not for what was read before")
    return []


def privacy_notices(context: RunContext, private_step: PrivateStep) -> list[str]:
    """Lines for the log: the guarantee, and what it does not cover."""
    recipe, state, privacy = context.recipe, context.state, private_step.settings
    record = PrivacyRecord.from_dict(state.privacy)
    unit, units = record.unit, sorted(private_step.units_per_step.values())
    rates = ", ".join(f"{rate:.3g}" for rate in record.rates.values())
    spent_before = epsilon_of(record.accountant, record.earlier, record.delta)
    lines = [
        f"Private training: at most ε = {privacy.epsilon:g} at δ = {privacy.delta:g} for each {unit}"
        f"{f' (ε = {spent_before:.4g} of it by earlier runs)' if spent_before else ''}; clip {privacy.clip:g}, noise "
        f"multiplier {record.noise_multiplier:.4g}, Poisson sampling of {units[-1]:,} {unit}s in the mean "
        f"(rate {rates})",
        "Not covered by ε: validation and test data, which choose checkpoints, and what was made of the training data "
        "before the first step (vocabulary, labels, which texts are kept); log.txt and metrics.jsonl are not private",
    ]
    keeps_tokenizer = recipe.tokenizer.path is not None or (
        recipe.start.path is not None and recipe.start.tokenizer == "keep"
    )
    if not keeps_tokenizer and not (recipe.tokenizer.kind == "bpe" and recipe.tokenizer.vocab_size == BYTE_VOCABULARY):
        lines.append(
            "The tokenizer was trained on the protected text, and its vocabulary shows words of it: a public one is "
            f"tokenizer.path=FILE, one that learns nothing tokenizer.kind=bpe tokenizer.vocab_size={BYTE_VOCABULARY}"
        )
    if privacy.noise_seed is not None:
        lines.append("train.privacy.noise_seed is set: the guarantee does not hold against anyone who knows it")
    return lines


BYTE_VOCABULARY = 261
"""Vocabulary size of byte-level BPE without merges: 256 bytes and five special tokens."""
