"""English surface realization: articles, adjective order, pronouns by case, numbers as words."""

from __future__ import annotations

from meristem.samples.microworld.facts import Fact, Location, Noun, Term, Thing
from meristem.samples.microworld.surface_realization import SlotWriter, SurfaceRealizer
from meristem.samples.microworld.template_slots import common_slots, pronoun_slot

SUBJECT_PRONOUNS = {"she": "she", "he": "he"}
OBJECT_PRONOUNS = {"she": "her", "he": "him"}
POSSESSIVE_PRONOUNS = {"she": "her", "he": "his"}
REFLEXIVE_PRONOUNS = {"she": "herself", "he": "himself"}
ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SOUNDS_CONSONANT = ("uni", "use", "eu", "one")  # spelled with a vowel, pronounced without
SOUNDS_VOWEL = ("hour", "honest", "heir")


def english_number(value: int) -> str:
    """A number below a thousand in words."""
    if value < 20:
        return ONES[value]
    if value < 100:
        return TENS[value // 10] + (f"-{ONES[value % 10]}" if value % 10 else "")
    hundreds = f"{ONES[value // 100]} hundred"
    return f"{hundreds} and {english_number(value % 100)}" if value % 100 else hundreds


def with_article(phrase: str) -> str:
    """The phrase with `a` or `an`, by its sound."""
    sound = phrase.lower()
    vowel = sound[0] in "aeiou" and not sound.startswith(SOUNDS_CONSONANT)
    return f"an {phrase}" if vowel or sound.startswith(SOUNDS_VOWEL) else f"a {phrase}"


class EnglishRealizer(SurfaceRealizer):
    """Realizes beats in English."""

    language = "en"
    after_opener, opener_moves_subject = " ", True
    joins, clause_join = (" and ", " and then ", ", then "), ", and "
    before_reason, full_stop = " ", "."
    subject_pronouns, object_pronouns = SUBJECT_PRONOUNS, OBJECT_PRONOUNS
    thing_pronoun, thing_pronoun_share = "it", 0.45

    def number_text(self, value: int) -> str:
        """A number below a thousand in words."""
        return english_number(value)

    count_text = number_text

    def write_subject_as_object(self, fact: Fact) -> None:
        """The subject of a fact, where a clause makes it an object."""
        assert fact.who is not None
        by_pronoun = self.is_unambiguous(fact.who) and (fact.who.id in self.sentence_entities or self.rng.chance(0.5))
        self.write_person(fact.who, OBJECT_PRONOUNS[fact.who.pronoun] if by_pronoun else None)

    def write_other_by_name(self, fact: Fact) -> None:
        """The other person by name."""
        assert fact.whom is not None
        self.write_person(fact.whom, None)

    def write_possessor(self, fact: Fact) -> None:
        """The subject as a possessor."""
        assert fact.who is not None
        pronoun = POSSESSIVE_PRONOUNS[fact.who.pronoun] if self.use_pronoun(fact.who) else None
        self.write_person(fact.who, pronoun or f"{fact.who.name.english}'s")

    def write_full_thing(self, fact: Fact) -> None:
        """The thing: described when new, with an article or its owner when known."""
        thing, start = fact.what, len(self.text)
        assert thing is not None
        if thing.id not in self.known_ids:
            self.write(with_article(" ".join([*adjectives(thing), thing.noun.english])))
        else:
            self._write_determiner(fact)
            words = adjectives(thing)
            detail = f"{self.rng.choice(words)} " if words and self.rng.chance(0.35) else ""
            self.write(f"{detail}{thing.noun.english}")
        self.record_mention(start, thing)

    def _write_determiner(self, fact: Fact) -> None:
        owner = fact.whose
        owner_named = owner is not None and owner.id in self.sentence_entities
        if owner is None or not self.rng.chance(0.4):
            self.write("the")
        elif not owner_named:
            self.write_person(owner, f"{owner.name.english}'s")
        elif owner is fact.who or self.is_unambiguous(owner):
            self.write_person(owner, POSSESSIVE_PRONOUNS[owner.pronoun])
        else:
            self.write("the")  # repeating the name would be clumsy, and a pronoun ambiguous
        self.write(" ")

    def write_location_name(self, location: Location) -> None:
        """Write the place, sometimes with its town when it is new."""
        is_new = location.id not in self.known_ids
        self.write_mention(f"the {location.noun.english}", location)
        if is_new and self.rng.chance(0.3):
            self.write(" in ")
            self.write_mention(location.town.name.english, location.town)

    def write_location(self, fact: Fact) -> None:
        """The place with its preposition, or "there"."""
        assert fact.where is not None
        if self.use_there(fact.where):
            self.write_mention("there", fact.where)
            return
        self.write(f"{fact.where.noun.preposition} ")
        self.write_location_name(fact.where)

    def write_counted_produce(self, fact: Fact) -> None:
        """A number of items of produce."""
        assert isinstance(fact.term, Noun)
        self.write(f"{english_number(fact.count)} {fact.term.plural}")


def adjectives(thing: Thing) -> list[str]:
    """Quality, color and material in English order."""
    return [word.english for word in (thing.quality, thing.colour, thing.material) if word is not None]


def _job_slot(role: str) -> SlotWriter:
    return lambda realizer, fact: realizer.write(with_article(getattr(fact, role).job.english))


def _write_term_with_article(realizer: EnglishRealizer, fact: Fact) -> None:
    assert isinstance(fact.term, Term)
    realizer.write(with_article(fact.term.english))


EnglishRealizer.slots = {
    **common_slots(EnglishRealizer),
    "who.object": EnglishRealizer.write_subject_as_object,
    "whom!": EnglishRealizer.write_other_by_name,
    "a_term": _write_term_with_article,
    "he": pronoun_slot("who", SUBJECT_PRONOUNS),
    "him": pronoun_slot("who", OBJECT_PRONOUNS),
    "his": pronoun_slot("who", POSSESSIVE_PRONOUNS),
    "himself": pronoun_slot("who", REFLEXIVE_PRONOUNS),
    "he_whom": pronoun_slot("whom", SUBJECT_PRONOUNS),
    "him_whom": pronoun_slot("whom", OBJECT_PRONOUNS),
    "his_whom": pronoun_slot("whom", POSSESSIVE_PRONOUNS),
    "a_job": _job_slot("who"),
    "a_job_whom": _job_slot("whom"),
}
