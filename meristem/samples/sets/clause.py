"""Sentences that no story tells, from a template and a fact, by the tellers that tell the stories."""

from __future__ import annotations

from meristem.samples.microworld import TELLERS, Fact, Story
from meristem.samples.microworld.dice import Dice
from meristem.samples.microworld.facts import Beat
from meristem.samples.microworld.telling import Teller, pieces
from meristem.samples.sets.excerpt import sentence

TARGETS = {
    "en": {"judge_what": "what!", "judge_where": "place", "judge_whom": "whom!", "judge_dish": "the food"},
    "zh": {"judge_what": "what!", "judge_where": "place", "judge_whom": "whom", "judge_dish": "饭菜"},
}


class Narrator:
    """Tells beats and clauses one after another as one text."""

    def __init__(self, of: Story, language: str, dice: Dice) -> None:
        self.language = language
        self.teller: Teller = TELLERS[language](dice, of.weekday)
        self.sentences: list[str] = []

    def tell(self, beat: Beat, pace: float) -> None:
        """A beat of the story."""
        self.sentences.append(self.teller.sentence(beat, pace).text)

    def say(self, template: str, fact: Fact, **given: str) -> None:
        """A template told of a fact; `given` are slots of this template alone: words, or the name of another slot."""
        teller, words = self.teller, {"target": TARGETS[self.language].get(fact.kind, ""), **given}
        self.know(fact)  # the hat, of which somebody thinks something, not a hat
        teller.text, teller.mentions = "", []
        for literal, slot in pieces(template):
            teller.write(literal)
            filled = words.get(slot, slot)
            if filled in teller.slots:
                teller.slots[filled](teller, fact)
            else:
                teller.write(filled)
        teller.recent, teller.said, teller.subject = teller.said, {}, fact.who
        self.sentences.append(sentence(teller.text, self.language))

    def know(self, fact: Fact) -> None:
        """Take what a fact is about as known: it is not described anew, and a place's town is not named."""
        self.teller.known |= {one.id for one in (fact.what, fact.where) if one is not None}

    def retell(self, fact: Fact) -> None:
        """A fact by itself, without the hour it happened at and where a journey began, which may not have been told."""
        every = self.teller.clauses[fact.kind].every
        ways = [way for way in every if fact.kind != "travel" or all(slot != "town" for _, slot in way)]
        self.know(fact)
        self.teller.text, self.teller.mentions = "", []
        self.teller.fill(self.teller.dice.pick(ways), fact)
        self.teller.recent, self.teller.said, self.teller.subject = self.teller.said, {}, fact.who
        self.sentences.append(sentence(self.teller.text, self.language))

    @property
    def text(self) -> str:
        """All of it."""
        return (" " if self.language == "en" else "").join(self.sentences)
