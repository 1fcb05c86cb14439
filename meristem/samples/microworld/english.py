"""English surface realization: articles, adjective order, pronouns by case, numbers as words."""

from __future__ import annotations

from meristem.samples.microworld.facts import Beat, Fact, Location, Noun, Person, Term, Thing, Town
from meristem.samples.microworld.surface_realization import SlotWriter, SurfaceRealizer

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

    def compose(self, beat: Beat) -> None:
        """A time phrase, one or two clauses, and a reason."""
        first, *others = beat
        opener = self.time_phrase(first)
        if opener is not None:
            weekday, days = self.weekday_of(first).english, english_number(self.days_passed)
            self.write(opener.english.replace("{weekday}", weekday).replace("{days}", days) + " ")
        self._write_clause(first, subject_first=bool(opener or others or first.why))
        for fact in others:
            self._write_joined(first, fact)
        last = beat[-1]
        if last.why is not None and not last.kind.startswith("judge"):
            self.write(" ")
            self.write_phrase(last.why.english, last)
        self.write(".")

    def _write_clause(self, fact: Fact, subject_first: bool) -> None:
        templates = self.clauses[fact.kind]
        self.fill_template(
            self.rng.choice(
                templates.subject_first if subject_first and templates.subject_first else templates.all_templates
            ),
            fact,
        )

    def _write_joined(self, previous: Fact, fact: Fact) -> None:
        continuations = self.clauses[fact.kind].without_subject
        if (
            previous.who is not None
            and fact.who is previous.who
            and continuations
            and self.clauses[previous.kind].subject_first
        ):
            is_plain_join = fact.kind in {"happy", "sad", "dislikes", "plan"}
            self.write(" and " if is_plain_join else self.rng.choice((" and ", " and then ", ", then ")))
            self.fill_template(self.rng.choice(continuations), fact)
        else:
            self.write(", and ")
            self._write_clause(fact, subject_first=True)

    def _write_person(self, person: Person, pronoun: str | None) -> None:
        self.write_mention(pronoun or person.name.english, person)

    def write_subject(self, fact: Fact) -> None:
        """The subject."""
        assert fact.who is not None
        self._write_person(fact.who, fact.who.pronoun if self.use_pronoun(fact.who) else None)

    def write_subject_as_object(self, fact: Fact) -> None:
        """The subject of a fact, where a clause makes it an object."""
        assert fact.who is not None
        by_pronoun = self.is_unambiguous(fact.who) and (fact.who.id in self.sentence_entities or self.rng.chance(0.5))
        self._write_person(fact.who, OBJECT_PRONOUNS[fact.who.pronoun] if by_pronoun else None)

    def write_other_person(self, fact: Fact) -> None:
        """The other person, as an object or, where a template begins with it, by name."""
        assert fact.whom is not None
        is_object = fact.who is not None and fact.who.id in self.sentence_entities
        by_pronoun = is_object and self.is_unambiguous(fact.whom) and self.rng.chance(0.5)
        self._write_person(fact.whom, OBJECT_PRONOUNS[fact.whom.pronoun] if by_pronoun else None)

    def write_other_by_name(self, fact: Fact) -> None:
        """The other person by name."""
        assert fact.whom is not None
        self._write_person(fact.whom, None)

    def write_possessor(self, fact: Fact) -> None:
        """The subject as a possessor."""
        assert fact.who is not None
        pronoun = POSSESSIVE_PRONOUNS[fact.who.pronoun] if self.use_pronoun(fact.who) else None
        self._write_person(fact.who, pronoun or f"{fact.who.name.english}'s")

    def write_thing(self, fact: Fact) -> None:
        """The thing, by a pronoun where it is unambiguous."""
        assert fact.what is not None
        if fact.what.id in self.known_ids and self.is_unambiguous(fact.what) and self.rng.chance(0.45):
            self.write_mention("it", fact.what)
        else:
            self.write_full_thing(fact)

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
            self._write_person(owner, f"{owner.name.english}'s")
        elif owner is fact.who or self.is_unambiguous(owner):
            self._write_person(owner, POSSESSIVE_PRONOUNS[owner.pronoun])
        else:
            self.write("the")  # repeating the name would be clumsy, and a pronoun ambiguous
        self.write(" ")

    def write_place(self, fact: Fact) -> None:
        """The place, sometimes with its town when it is new."""
        assert fact.where is not None
        self._write_place(fact.where)

    def _write_place(self, location: Location) -> None:
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
        self._write_place(fact.where)

    def write_term(self, fact: Fact) -> None:
        """The term of the fact."""
        assert fact.term is not None
        self.write_phrase(fact.term.english, fact)

    def write_cause(self, fact: Fact) -> None:
        """The cause of an opinion."""
        assert fact.why is not None
        self.write_phrase(fact.why.english, fact)

    def write_counted_produce(self, fact: Fact) -> None:
        """A number of items of produce."""
        assert isinstance(fact.term, Noun)
        self.write(f"{english_number(fact.count)} {fact.term.plural}")


def adjectives(thing: Thing) -> list[str]:
    """Quality, color and material in English order."""
    return [word.english for word in (thing.quality, thing.colour, thing.material) if word is not None]


def _pronoun_slot(forms: dict[str, str] | None, role: str) -> SlotWriter:
    def slot(realizer: EnglishRealizer, fact: Fact) -> None:
        person: Person = getattr(fact, role)
        realizer.write_mention(forms[person.pronoun] if forms else person.pronoun, person)

    return slot


def _town_slot(role: str) -> SlotWriter:
    def slot(realizer: EnglishRealizer, fact: Fact) -> None:
        town: Town = getattr(fact, role)
        realizer.write_mention(town.name.english, town)

    return slot


def _job_slot(role: str) -> SlotWriter:
    return lambda realizer, fact: realizer.write(with_article(getattr(fact, role).job.english))


def _age_slot(role: str) -> SlotWriter:
    return lambda realizer, fact: realizer.write(english_number(getattr(fact, role).age))


def _write_term_with_article(realizer: EnglishRealizer, fact: Fact) -> None:
    assert isinstance(fact.term, Term)
    realizer.write(with_article(fact.term.english))


EnglishRealizer.slots = {
    "who": EnglishRealizer.write_subject,
    "who.object": EnglishRealizer.write_subject_as_object,
    "whom": EnglishRealizer.write_other_person,
    "whom!": EnglishRealizer.write_other_by_name,
    "who's": EnglishRealizer.write_possessor,
    "what": EnglishRealizer.write_thing,
    "what!": EnglishRealizer.write_full_thing,
    "place": EnglishRealizer.write_place,
    "where": EnglishRealizer.write_location,
    "term": EnglishRealizer.write_term,
    "act": EnglishRealizer.write_term,
    "cause": EnglishRealizer.write_cause,
    "count_produce": EnglishRealizer.write_counted_produce,
    "count": lambda realizer, fact: realizer.write(english_number(fact.count)),
    "a_term": _write_term_with_article,
    "he": _pronoun_slot(None, "who"),
    "him": _pronoun_slot(OBJECT_PRONOUNS, "who"),
    "his": _pronoun_slot(POSSESSIVE_PRONOUNS, "who"),
    "himself": _pronoun_slot(REFLEXIVE_PRONOUNS, "who"),
    "he_whom": _pronoun_slot(None, "whom"),
    "him_whom": _pronoun_slot(OBJECT_PRONOUNS, "whom"),
    "his_whom": _pronoun_slot(POSSESSIVE_PRONOUNS, "whom"),
    "town": _town_slot("town"),
    "town_to": _town_slot("town_to"),
    "a_job": _job_slot("who"),
    "a_job_whom": _job_slot("whom"),
    "age": _age_slot("who"),
    "age_whom": _age_slot("whom"),
}
