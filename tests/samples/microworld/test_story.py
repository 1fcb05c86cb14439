"""Stories are consistent: their facts are replayed independently."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from meristem.samples.microworld import generate_story
from meristem.samples.microworld.facts import Fact, Location, Person, Story, Town

TAKES = {"own", "carry", "buy"}
DROPS = {"lose", "put", "hide"}
ELSEWHERE = {"tell", "located", "call", "write"}  # facts whose people need not be where the fact is


@dataclass
class Replay:
    """The state a careful reader would have after each fact."""

    at: dict[int, Location | Town] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)
    owner: dict[int, int] = field(default_factory=dict)
    colour: dict[int, object] = field(default_factory=dict)

    def read(self, fact: Fact) -> None:
        self._check_places(fact)
        thing = fact.what
        if thing is not None and thing.id in self.colour:
            assert thing.colour == self.colour[thing.id]
        if thing is not None and thing.id in self.held:
            self._check_known(fact, thing.id)
        if thing is not None:
            self._change(fact, thing.id)
        if fact.kind == "move":
            self.at[fact.who.id] = fact.where
        elif fact.kind == "travel":
            assert fact.town is not fact.town_to
            self.at[fact.who.id] = fact.town_to

    def _check_places(self, fact: Fact) -> None:
        location = self.at.get(fact.who.id) if fact.who else None
        if fact.where is not None and fact.kind not in {"move", "judge_where", *ELSEWHERE}:
            assert location is not None and location == fact.where, fact
        if fact.whom is not None and fact.kind in {"give", "sell", "lend", "return", "meet", "talk", "show", "eat"}:
            assert self.at.get(fact.whom.id) == location, fact
        if fact.kind in {"wait", "call", "write"}:
            assert self.at.get(fact.whom.id) is None or self.at[fact.whom.id] != location, fact
        if fact.kind == "move" and isinstance(location, Location | Town):
            assert fact.where.town == (location if isinstance(location, Town) else location.town)

    def _check_known(self, fact: Fact, thing: int) -> None:
        kind, holder = fact.kind, self.held[thing]
        if kind in {"give", "sell", "lend", "return", "show", "break", "repair", "paint", "clean", "care", *DROPS}:
            assert holder == fact.who.id, fact
        if kind in {"give", "sell", "lend"}:
            assert self.owner[thing] == fact.who.id
        if kind in {"find", "fetch", "tell", "located"}:
            assert holder == fact.where.id, fact
        if kind == "search":
            assert holder != fact.where.id
        if kind == "held":
            assert holder == fact.who.id
        if kind in {"owned", "search"}:
            assert self.owner[thing] == fact.who.id
        if kind == "return":
            assert self.owner[thing] == fact.whom.id
        assert kind not in TAKES

    def _change(self, fact: Fact, thing: int) -> None:
        if fact.kind in TAKES or (fact.kind == "find" and thing not in self.owner):
            self.held[thing] = self.owner[thing] = fact.who.id
        elif fact.kind in {"find", "fetch"}:
            self.held[thing] = fact.who.id
        elif fact.kind in {"give", "sell"}:
            self.held[thing] = self.owner[thing] = fact.whom.id
        elif fact.kind in {"lend", "return"}:
            self.held[thing] = fact.whom.id
        elif fact.kind in DROPS:
            self.held[thing] = fact.where.id
        self.colour[thing] = fact.term if fact.kind == "paint" else fact.what.colour
        assert thing in self.held, f"{fact.kind} of something nobody has heard of"


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    return [generate_story(11, number) for number in range(600)]


def test_every_fact_agrees_with_those_before(stories: list[Story]) -> None:
    for story in stories:
        replay = Replay()
        for fact in story.facts:
            replay.read(fact)


def test_time_never_runs_backwards(stories: list[Story]) -> None:
    for story in stories:
        moments = [(fact.moment.day, fact.moment.part) for fact in story.facts]
        assert moments == sorted(moments)


def test_opinions_have_causes_and_stay(stories: list[Story]) -> None:
    num_opinions = 0
    for story in stories:
        minds: dict[tuple[int, str, int], int] = {}
        for fact in story.facts:
            if not fact.kind.startswith("judge"):
                continue
            num_opinions += 1
            target = fact.what or fact.whom or fact.where
            assert fact.polarity in {-1, 1} and fact.term and fact.why
            key = (fact.who.id, fact.kind, target.id if target else 0)
            assert minds.setdefault(key, fact.polarity) == fact.polarity
            assert target is not fact.who
    assert num_opinions > 300


def test_relations_fit_age_and_gender(stories: list[Story]) -> None:
    for story in stories:
        for fact in story.facts:
            if fact.kind.startswith("relate"):
                older, word = fact.whom.age > fact.who.age, fact.term.english
                assert ("older" not in word and word not in {"aunt", "uncle"}) or older
                assert ("younger" not in word and word not in {"nephew", "niece"}) or not older
                assert fact.whom.pronoun == {"sister": "she", "brother": "he", "aunt": "she", "uncle": "he"}.get(
                    word.split()[-1], fact.whom.pronoun
                )


def test_later_sentences_depend_on_earlier_ones(stories: list[Story]) -> None:
    num_repeated = 0
    for story in stories:
        known_ids: set[int] = set()
        for fact in story.facts:
            num_repeated += fact.what is not None and fact.what.id in known_ids
            known_ids |= {fact.what.id} if fact.what else set()
    assert num_repeated / len(stories) > 2


def test_entities_have_ids_of_their_own(stories: list[Story]) -> None:
    for story in stories[:200]:
        names: dict[int, object] = {}
        for fact in story.facts:
            for entity in (fact.who, fact.whom, fact.where, fact.town, fact.town_to, fact.what):
                if entity is not None:
                    name = entity.name if isinstance(entity, Person | Town) else entity.noun
                    assert names.setdefault(entity.id, name) == name


def test_words_of_two_senses_are_used_in_both(stories: list[Story]) -> None:
    senses: dict[str, set[str]] = {}
    for story in stories:
        for fact in story.facts:
            if fact.kind == "scene":
                word, _, sense = fact.term.sense.partition("/")
                senses.setdefault(word, set()).add(sense)
    assert len(senses) >= 20
    assert sum(len(sense) >= 2 for sense in senses.values()) >= 20
