"""Grammar reward: perplexity of a text under a judge language model, compared with held-out correct sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from meristem.checkpoint.load_run import load_recipe
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, Recipe
from meristem.corpus.settings import CorpusSettings
from meristem.interfaces.objective import OBJECTIVES
from meristem.reinforce.judge_model import Floats, JudgeModel, UnigramRarity
from meristem.reinforce.reference_sentences import MIN_SENTENCES, ReferenceSentence, sample_sentences
from meristem.reinforce.reward_base import PromptCompletion, RequiredRun, Reward, RewardContext, RewardScore
from meristem.reinforce.settings import RewardSettings
from meristem.reinforce.word_ngrams import CopyDetector, min_distinct_share, normalized_words
from meristem.utils.randomness import generator

SCORING_HEADS = {"clm", "mlm", "generator"}
"""Heads with which a model can score texts."""
RARITY_SENTENCES = 4096
"""Correct sentences that unigram frequencies are estimated on."""


class GrammarRewardSettings(RewardSettings):
    """The judge model, the correct sentences, and the guards against degenerate texts."""

    renamed: ClassVar[dict[str, str]] = {
        "copy_share": "max_copied_share",
        "copy_words": "copy_ngram_size",
        "correct": "reference_corpus",
        "drawn": "sentences_per_prompt",
        "judge": "judge_settings",
        "limit": "max_penalty",
        "longest": "max_characters",
        "most": "max_score",
        "prompted": "include_prompt",
        "rarity": "rarity_weight",
        "recipe": "judge_recipe",
        "sentences": "reference_sentences",
        "shortest": "min_words",
        "variety": "min_distinct2",
    }

    needs: ClassVar[SettingConditions] = {
        "corpus": (when("run", None),),
        "half": (when("run", None),),
        "document": (when("run", None) | when("reference_corpus"),),
        "judge_recipe": (when("run", None),),
        "judge_settings": (when("run", None),),
    }

    name: Literal["grammar"] = "grammar"
    """The reward's name."""
    run: str | None = None
    """The judge: a causal or masked run trained on correct text."""
    corpus: str | tuple[str, ...] | None = None
    """Without a run: text that a judge is trained on first; a file, a folder, builtin:NAME."""
    half: Literal[0, 1] | None = None
    """Use only this half of the corpus, so that another judge can be trained on the other half."""
    document: Literal["auto", "file", "block", "line"] = "auto"
    """What one document of a text file is: halves and held-out parts consist of whole documents."""
    judge_recipe: str = "gpt2-mini"
    """The recipe of that judge."""
    judge_settings: dict[str, Any] = {}
    """Its other settings, as in {train.steps: 500, model.hidden_size: 128}."""
    seed: int = Field(0, ge=0)
    """Seed of the judge's training and of sampling sentences."""
    reference_corpus: str | tuple[str, ...] | None = None
    """Text to sample correct sentences from; the held-out part of the judge's corpus unless set."""
    reference_sentences: int = Field(256, ge=MIN_SENTENCES)
    """Correct sentences that are scored once; their standard deviation is the unit of the reward."""
    sentences_per_prompt: int = Field(64, ge=1)
    """How many of them, sampled for each prompt, a text is compared with."""
    rarity_weight: float = Field(1.0, ge=0, le=1)
    """Share of unigram surprisal that is subtracted: 1 is SLOR (Pauls & Klein 2012); at 0 common words are favored."""
    include_prompt: bool = True
    """Whether a text continues its prompt and is scored after it; false where it is generated from a source."""
    max_penalty: float = Field(5.0, gt=0)
    """The lowest value is −max_penalty; values are nearly linear in the middle."""
    max_score: float = Field(1.0, gt=0)
    """The highest value: text with much lower surprisal than correct sentences is bland, not more correct."""
    min_words: int = Field(3, ge=1)
    """Minimum number of words; a shorter text gets −max_penalty."""
    min_distinct2: float = Field(0.5, ge=0, le=1)
    """Minimum share of distinct word pairs in any 40 words; a less diverse text gets −max_penalty."""
    copy_ngram_size: int = Field(8, ge=2)
    """A sequence of so many words that occurs in a reference, a correct sentence or the prompt counts as copied."""
    max_copied_share: float = Field(0.5, gt=0, le=1)
    """Maximum share of copied words; a text with more gets −max_penalty."""
    max_characters: int = Field(4000, ge=1)
    """Characters of a text that are scored."""

    @model_validator(mode="after")
    def _check_judge(self) -> Self:
        if self.run is None and self.corpus is None:
            raise ValueError("grammar needs a judge: run=RUN, or corpus=SOURCE to train one")
        return self


def reference_sentences(
    settings: GrammarRewardSettings, corpus: CorpusSettings | None, count: int
) -> list[ReferenceSentence]:
    """Up to `count` sentences that the judge was not trained on: from `correct`, or held out of its corpus."""
    reward = settings
    if reward.reference_corpus is not None:
        corpus = CorpusSettings.model_validate({"source": reward.reference_corpus, "document": reward.document})
    assert corpus is not None
    candidates = sample_sentences(
        corpus, held_out=reward.reference_corpus is None, count=count, min_words=reward.min_words, seed=reward.seed
    )
    if len(candidates) < MIN_SENTENCES:
        description = f"{corpus.source} " + ("holds out" if reward.reference_corpus is None else "has")
        raise MeristemError(
            f"grammar: {description} {len(candidates)} sentences, and at least {MIN_SENTENCES} are needed; give "
            "correct=FILE with text that the judge was not trained on, or use smaller documents: document=block or line"
        )
    return candidates


def _reject_non_scoring_judge(judge: Recipe) -> None:
    """Refuse a model that cannot score a text alone."""
    parts = [part.name for source in judge.objectives.values() for part in source]
    if not {head for name in parts for head in OBJECTIVES[name].heads} & SCORING_HEADS:
        raise MeristemError(
            f"grammar: {judge.name} is trained with {', '.join(parts)} and cannot score a text alone: "
            "use a causal or a masked model as judge (gpt2-mini, bert-mini)"
        )


def _judge_corpus(judge: Recipe) -> CorpusSettings | None:
    """The corpus that a judge was trained on, the first of several; None for one trained on samples."""
    return judge.sources()[0].corpus if isinstance(judge, PretrainRecipe) else None


class GrammarReward(Reward[GrammarRewardSettings]):
    """z = (mean surprisal of correct sentences − surprisal of the text) / their std, between −max_penalty and most."""

    Settings = GrammarRewardSettings
    name = "grammar"

    @classmethod
    def required_runs(cls, settings: GrammarRewardSettings) -> dict[str, RequiredRun]:
        """A judge, where none is set."""
        if settings.run is not None:
            return {}
        corpus_settings = {"source": settings.corpus, "half": settings.half, "document": settings.document}
        overrides = {f"corpus.{key}": value for key, value in corpus_settings.items()}
        return {
            "run": RequiredRun(
                recipe=settings.judge_recipe,
                overrides={**overrides, "train.seed": settings.seed, **settings.judge_settings},
            )
        }

    @classmethod
    def check_settings(cls, settings: GrammarRewardSettings, runs: Mapping[str, Recipe]) -> None:
        """Refuse an unsuitable judge, or too few correct sentences, before a judge is trained."""
        run_path = settings.run is not None and Path(settings.run).expanduser()
        if run_path and not RunFolder(run_path).exists():
            raise MeristemError(f"grammar: run={settings.run} is not a run folder; corpus=SOURCE trains a judge")
        judge = load_recipe(RunFolder.open(run_path)) if run_path else runs["run"]
        if isinstance(judge, PretrainRecipe):
            _reject_non_scoring_judge(judge)
        if not run_path or settings.reference_corpus is not None:
            reference_sentences(settings, _judge_corpus(judge), settings.reference_sentences)

    def __init__(self, settings: GrammarRewardSettings, context: RewardContext) -> None:
        assert settings.run is not None  # trained where it was not set
        self.settings = settings
        self._judge = JudgeModel.from_run(settings.run, context.say)
        references, rarity_texts = self._load_references(settings.run)
        self._rarity = UnigramRarity(self._judge.tokenizer, rarity_texts)
        self._copy_detector = CopyDetector((item.text for item in references), settings.copy_ngram_size)
        self._reference_alone = self._finite_surprise(("", item.text) for item in references)
        self._reference_in_context = self._finite_surprise((item.context, item.text) for item in references)
        suffix = ", corrected for word frequency," if settings.rarity_weight else ""
        alone, in_context = (
            f"{item.mean():.2f} ± {item.std():.2f}" for item in (self._reference_alone, self._reference_in_context)
        )
        context.say(
            f"grammar: {len(references)} correct sentences have {alone} nats per token{suffix} "
            f"and {in_context} after the sentences before them, according to {settings.run}"
        )

    def _finite_surprise(self, pairs: Iterable[tuple[str, str]]) -> Floats:
        """Surprisal of the sentences that have any token."""
        values = self._surprise(list(pairs))
        return values[np.isfinite(values)]

    def _surprise(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """[pairs] nats per token, minus `rarity` times the unigram surprisal."""
        values = self._judge.nats_per_token(pairs)
        return values - self.settings.rarity_weight * self._rarity.mean_nats([text for _, text in pairs])

    def _load_references(self, run: str) -> tuple[list[ReferenceSentence], list[str]]:
        """Sentences that the judge was not trained on: those to compare with, and more for unigram frequencies."""
        reward, corpus = self.settings, _judge_corpus(self._judge.recipe)
        if reward.reference_corpus is None and corpus is None:
            raise MeristemError(f"{run} was trained on labelled data: give correct=FILE with correct sentences")
        references, rarity_sentences = (
            reference_sentences(reward, corpus, number) for number in (reward.reference_sentences, RARITY_SENTENCES)
        )
        return references, [sentence.text for sentence in rarity_sentences]

    def score(self, completions: Sequence[PromptCompletion]) -> list[RewardScore]:
        """Guards first; only texts that pass them are scored by the judge."""
        guards = [self._guard(completion) for completion in completions]
        accepted = [index for index, guard in enumerate(guards) if not guard]
        pairs = [self._context_and_text(completions[index]) for index in accepted]
        surprise = dict(zip(accepted, self._surprise(pairs).tolist(), strict=True))
        return [
            self._score_one(completion, surprise[index]) if index in surprise else self._lowest_score(guards[index])
            for index, completion in enumerate(completions)
        ]

    def _context_and_text(self, completion: PromptCompletion) -> tuple[str, str]:
        """The context of a text, and as much of the text as is scored."""
        text = completion.text[: self.settings.max_characters]
        prompt = completion.prompt[-self.settings.max_characters :] if self.settings.include_prompt else ""
        return (prompt, text) if prompt.strip() else ("", text.lstrip())

    def _guard(self, completion: PromptCompletion) -> str:
        """Why a text gets the lowest value regardless of the judge: repetition, for one, has a low perplexity."""
        reward, tokens = self.settings, normalized_words(completion.text)
        if len(tokens) < reward.min_words:
            return f"too short: {len(tokens)} of at least {reward.min_words} words"
        distinct_share = min_distinct_share(tokens)
        if distinct_share < reward.min_distinct2:
            return (
                f"repetitive: {distinct_share:.0%} of its word pairs are distinct, "
                f"at least {reward.min_distinct2:.0%} are required"
            )
        sources = (*completion.references, completion.prompt) if reward.include_prompt else completion.references
        copied_share = max(
            self._copy_detector.copied_share(tokens), CopyDetector(sources, reward.copy_ngram_size).copied_share(tokens)
        )
        if copied_share > reward.max_copied_share:
            return (
                f"copied: {copied_share:.0%} of its words are copied from a reference, a correct sentence or the prompt"
            )
        return ""

    def _score_one(self, completion: PromptCompletion, surprise: float) -> RewardScore:
        reward = self.settings
        if not np.isfinite(surprise):
            return self._lowest_score("unreadable: the judge's tokenizer finds no token in it")
        reference_values = (
            self._reference_in_context if self._context_and_text(completion)[0] else self._reference_alone
        )
        mean = float(self._sample_references(reference_values, completion.seed).mean())
        z = (mean - surprise) / max(float(reference_values.std()), 1e-3)
        bound = reward.max_penalty if z < 0 else reward.max_score
        value = bound * float(np.tanh(z / bound))
        return RewardScore(value=value, why={"surprise": surprise, "of correct sentences": mean, "spreads better": z})

    def _sample_references(self, values: Floats, seed: int) -> Floats:
        """A sample of the correct sentences' surprisals, by the completion's seed."""
        count = min(self.settings.sentences_per_prompt, len(values))
        return values[generator(seed, "grammar", 0, 0).permutation(len(values))[:count]]

    def _lowest_score(self, guard: str) -> RewardScore:
        return RewardScore(value=-self.settings.max_penalty, why={"guard": guard})
