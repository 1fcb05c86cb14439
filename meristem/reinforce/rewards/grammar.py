"""Grammar: how little a text surprises a model of correct text, beside correct sentences (SPEC D1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from meristem.checkpoint.revive import recipe_of
from meristem.checkpoint.run import Run
from meristem.corpus.settings import CorpusSettings
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.randomness import generator
from meristem.recipe import Recipe
from meristem.reinforce.correct import FEWEST, Sentence, sentences
from meristem.reinforce.judging import Floats, Judge
from meristem.reinforce.rarity import Rarity
from meristem.reinforce.reward import Attempt, Desk, Judgement, Order, Reward, RewardSettings
from meristem.reinforce.words import Known, variety, words
from meristem.settings import find

SCORING = {"clm", "mlm", "generator"}
"""Heads of which one scores texts."""
COUNTED = 4096
"""Correct sentences that say how rare words are."""


class GrammarSettings(RewardSettings):
    """Who judges, what is correct, and what is refused whatever the judge thinks of it."""

    needs: ClassVar[Dependences] = {
        "corpus": (when("run", None),),
        "half": (when("run", None),),
        "document": (when("run", None) | when("correct"),),
        "recipe": (when("run", None),),
        "judge": (when("run", None),),
    }

    name: Literal["grammar"] = "grammar"
    """The reward's name."""
    run: str | None = None
    """The judge: a causal or masked run of ours, trained on correct text."""
    corpus: str | tuple[str, ...] | None = None
    """Without a run: text that a judge is trained on first; a file, a folder, builtin:NAME."""
    half: Literal[0, 1] | None = None
    """Only this half of the corpus, so that another judge can learn from the other."""
    document: Literal["auto", "file", "block", "line"] = "auto"
    """What one document of a text file is: halves, and what is held out, are made of whole ones."""
    recipe: str = "gpt2-mini"
    """What that judge is."""
    judge: dict[str, Any] = {}
    """Its other settings, as in {train.steps: 500, model.width: 128}."""
    seed: int = Field(0, ge=0)
    """Of its training, and of the choice of sentences."""
    correct: str | tuple[str, ...] | None = None
    """Text to take correct sentences from; what the judge's corpus held out unless given."""
    sentences: int = Field(256, ge=FEWEST)
    """Correct sentences that are read once; their spread is the unit of the reward."""
    drawn: int = Field(64, ge=1)
    """How many of them, drawn anew for each prompt, a text is compared with."""
    rarity: float = Field(1.0, ge=0, le=1)
    """How much of what rare words cost anywhere is forgiven: 1 is SLOR (Pauls & Klein 2012); at 0 common words pay."""
    prompted: bool = True
    """Whether a text goes on where its prompt ends, and is read behind it; false where it is made from a source."""
    limit: float = Field(5.0, gt=0)
    """No text is worse than −limit; values are nearly straight in the middle."""
    most: float = Field(1.0, gt=0)
    """None is better than this: text that surprises far less than correct sentences do is bland, not more correct."""
    shortest: int = Field(3, ge=1)
    """A text of fewer words gets −limit."""
    variety: float = Field(0.5, ge=0, le=1)
    """So does one with fewer different pairs of words among 40 words, as a share."""
    copy_words: int = Field(8, ge=2)
    """So many words in a row that stand in a reference, a correct sentence or the prompt are copied."""
    copy_share: float = Field(0.5, gt=0, le=1)
    """A text of which more is copied gets −limit."""
    longest: int = Field(4000, ge=1)
    """Characters of a text that are read."""

    @model_validator(mode="after")
    def _judged(self) -> Self:
        if self.run is None and self.corpus is None:
            raise ValueError("grammar needs a judge: run=RUN, or corpus=SOURCE to train one")
        return self


def correct_sentences(settings: GrammarSettings, corpus: CorpusSettings | None, number: int) -> list[Sentence]:
    """Up to so many sentences that a judge does not learn from: of `correct`, or held out of its corpus."""
    s = settings
    if s.correct is not None:
        corpus = CorpusSettings.model_validate({"source": s.correct, "document": s.document})
    assert corpus is not None
    found = sentences(corpus, held_out=s.correct is None, number=number, shortest=s.shortest, seed=s.seed)
    if len(found) < FEWEST:
        where = f"{corpus.source} " + ("holds out" if s.correct is None else "has")
        raise MeristemError(
            f"grammar: {where} {len(found)} sentences, and {FEWEST} are the fewest that say what is correct; "
            "give correct=FILE with text that the judge was not trained on, or cut it finer: document=block or line"
        )
    return found


def _refuse_what_scores_nothing(judge: Recipe) -> None:
    """A model that gives no probability to a text alone is no judge of it."""
    parts = [part.name for source in judge.sources() for part in source.objective]
    if not {head for name in parts for head in find("objectives", name).heads} & SCORING:
        raise MeristemError(
            f"grammar: {judge.name} is trained by {', '.join(parts)}, which gives a text alone no probability: "
            "judge with a causal or a masked model (gpt2-mini, bert-mini)"
        )


class Grammar(Reward):
    """z = (mean surprise of correct sentences − surprise of the text) / their spread, between −limit and most."""

    Settings = GrammarSettings
    name = "grammar"

    @classmethod
    def orders(cls, settings: GrammarSettings) -> dict[str, Order]:
        """A judge, where none is named."""
        if settings.run is not None:
            return {}
        text = {"source": settings.corpus, "half": settings.half, "document": settings.document}
        told = {f"corpus.{key}": value for key, value in text.items()}
        return {"run": Order(recipe=settings.recipe, overrides={**told, "train.seed": settings.seed, **settings.judge})}

    @classmethod
    def check_settings(cls, settings: GrammarSettings, runs: Mapping[str, Recipe]) -> None:
        """Enough correct sentences are there before a judge is trained on the rest."""
        named = settings.run is not None and Path(settings.run).expanduser()
        if named and not Run(named).exists():
            raise MeristemError(f"grammar: run={settings.run} is no run of ours; corpus=SOURCE trains a judge")
        judge = recipe_of(Run.open(named)) if named else runs["run"]
        if judge.task is None and judge.policy is None:
            _refuse_what_scores_nothing(judge)
        if not named or settings.correct is not None:
            correct_sentences(settings, judge.sources()[0].corpus, settings.sentences)

    def __init__(self, settings: GrammarSettings, desk: Desk) -> None:
        assert settings.run is not None  # ordered where it was not named
        self.settings = settings
        self._reader = Judge.of(settings.run, desk.say)
        found, more = self._correct(settings.run)
        self._rarity = Rarity(self._reader.tokenizer, more)
        self._known = Known((one.text for one in found), settings.copy_words)
        self._alone = self._surprise(("", one.text) for one in found)
        self._behind = self._surprise((one.before, one.text) for one in found)
        beyond = " beyond what the rarity of its word explains" if settings.rarity else ""
        alone, behind = (f"{one.mean():.2f} ± {one.std():.2f}" for one in (self._alone, self._behind))
        desk.say(
            f"grammar: {len(found)} correct sentences have {alone} nats a token{beyond}, "
            f"and {behind} behind the sentences before them, by {settings.run}"
        )

    def _surprise(self, pairs: Iterable[tuple[str, str]]) -> Floats:
        """Of those sentences that have any token."""
        found = self._measured(list(pairs))
        return found[np.isfinite(found)]

    def _measured(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Nats per token, less what their words' rarity explains."""
        found = self._reader.surprise(pairs)
        return found - self.settings.rarity * self._rarity.of([text for _, text in pairs])

    def _correct(self, run: str) -> tuple[list[Sentence], list[str]]:
        """Sentences that the judge has not learned from: those that are read, and more whose words are counted."""
        s, sources = self.settings, self._reader.recipe.sources()
        if s.correct is None and sources[0].corpus is None:
            raise MeristemError(f"{run} was trained on labelled data: give correct=FILE with correct sentences")
        found, more = (correct_sentences(s, sources[0].corpus, number) for number in (s.sentences, COUNTED))
        return found, [one.text for one in more]

    def judge(self, attempts: Sequence[Attempt]) -> list[Judgement]:
        """Guards first; only what passes them is read."""
        guards = [self._guard(one) for one in attempts]
        passed = [number for number, guard in enumerate(guards) if not guard]
        read = [self._read(attempts[number]) for number in passed]
        surprise = dict(zip(passed, self._measured(read).tolist(), strict=True))
        return [
            self._judged(one, surprise[number]) if number in surprise else self._refused(guards[number])
            for number, one in enumerate(attempts)
        ]

    def _read(self, attempt: Attempt) -> tuple[str, str]:
        """What stands before a text, and as much of the text as is read."""
        text = attempt.text[: self.settings.longest]
        prompt = attempt.prompt[-self.settings.longest :] if self.settings.prompted else ""
        return (prompt, text) if prompt.strip() else ("", text.lstrip())

    def _guard(self, attempt: Attempt) -> str:
        """Why a text gets the lowest value whatever the judge thinks: dull repetition surprises nobody."""
        s, text = self.settings, words(attempt.text)
        if len(text) < s.shortest:
            return f"too short: {len(text)} of at least {s.shortest} words"
        if (varied := variety(text)) < s.variety:
            return f"repetitive: {varied:.0%} of its pairs of words are different, at least {s.variety:.0%} should be"
        others = (*attempt.references, attempt.prompt) if s.prompted else attempt.references
        if (copied := max(self._known.share(text), Known(others, s.copy_words).share(text))) > s.copy_share:
            return f"copied: {copied:.0%} of its words stand like that in a reference, a correct sentence or the prompt"
        return ""

    def _judged(self, attempt: Attempt, surprise: float) -> Judgement:
        s = self.settings
        if not np.isfinite(surprise):
            return self._refused("unreadable: the judge's tokenizer finds no token in it")
        correct = self._behind if self._read(attempt)[0] else self._alone
        mean = float(self._drawn(correct, attempt.seed).mean())
        z = (mean - surprise) / max(float(correct.std()), 1e-3)
        end = s.limit if z < 0 else s.most
        value = end * float(np.tanh(z / end))
        return Judgement(value=value, why={"surprise": surprise, "of correct sentences": mean, "spreads better": z})

    def _drawn(self, correct: Floats, seed: int) -> Floats:
        """Some of the correct sentences' surprises, as an attempt's seed has it."""
        number = min(self.settings.drawn, len(correct))
        return correct[generator(seed, "grammar", 0, 0).permutation(len(correct))[:number]]

    def _refused(self, guard: str) -> Judgement:
        return Judgement(value=-self.settings.limit, why={"guard": guard})
