"""Narrator: texts from beats, single facts and templates that are not part of a story."""

from __future__ import annotations

from meristem.samples.microworld import REALIZERS
from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.clause_templates import split_template
from meristem.samples.microworld.facts import Beat, Fact, Story
from meristem.samples.microworld.surface_realization import SurfaceRealizer
from meristem.samples.sets.excerpt import format_sentence

TARGET_SLOTS = {
    "en": {"judge_what": "what!", "judge_where": "place", "judge_whom": "whom!", "judge_dish": "the food"},
    "zh": {"judge_what": "what!", "judge_where": "place", "judge_whom": "whom", "judge_dish": "饭菜"},
}


class Narrator:
    """Realizes beats and clauses one after another as one text."""

    def __init__(self, story: Story, language: str, rng: BlockRandom) -> None:
        self.language = language
        self.realizer: SurfaceRealizer = REALIZERS[language](rng, story.weekday)
        self.sentences: list[str] = []

    def add_beat(self, beat: Beat, time_draw: float) -> None:
        """Add a beat of the story."""
        self.sentences.append(self.realizer.realize(beat, time_draw).text)

    def add_template(self, template: str, fact: Fact, **extra_slots: str) -> None:
        """Add a template filled from a fact; `extra_slots` are additional slots: text, or the name of another slot."""
        realizer, slot_words = self.realizer, {"target": TARGET_SLOTS[self.language].get(fact.kind, ""), **extra_slots}
        self._begin_sentence(fact)
        for literal, slot in split_template(template):
            realizer.write(literal)
            content = slot_words.get(slot, slot)
            if content in realizer.slots:
                realizer.slots[content](realizer, fact)
            else:
                realizer.write(content)
        self._end_sentence(fact)

    def _begin_sentence(self, fact: Fact) -> None:
        """Start a sentence in which the fact's entities are known: an opinion is about the hat, not a hat."""
        self.realizer.known_ids |= {entity.id for entity in (fact.what, fact.where) if entity is not None}
        self.realizer.text, self.realizer.mentions = "", []

    def _end_sentence(self, fact: Fact) -> None:
        """Add the sentence to the text."""
        self.realizer.previous_entities, self.realizer.sentence_entities = self.realizer.sentence_entities, {}
        self.realizer.subject = fact.who
        self.sentences.append(format_sentence(self.realizer.text, self.language))

    def add_fact(self, fact: Fact) -> None:
        """Add a fact by itself, without its time and the origin of a journey, which the passage may not mention."""
        templates = self.realizer.clauses[fact.kind].all_templates
        if fact.kind == "travel":
            templates = tuple(template for template in templates if all(slot != "town" for _, slot in template))
        self._begin_sentence(fact)
        self.realizer.fill_template(self.realizer.rng.choice(templates), fact)
        self._end_sentence(fact)

    @property
    def text(self) -> str:
        """The complete text."""
        return (" " if self.language == "en" else "").join(self.sentences)
