"""English: articles, adjectives in their order, pronouns by case, numbers as words."""

from __future__ import annotations

from meristem.samples.microworld.facts import Beat, Fact, Noun, Person, Place, Term, Thing, Town
from meristem.samples.microworld.telling import Slot, Teller

OBJECT = {"she": "her", "he": "him"}
POSSESSIVE = {"she": "her", "he": "his"}
REFLEXIVE = {"she": "herself", "he": "himself"}
ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SOUNDS_CONSONANT = ("uni", "use", "eu", "one")  # spelled with a vowel, spoken without
SOUNDS_VOWEL = ("hour", "honest", "heir")


def number(value: int) -> str:
    """A number below a thousand in words."""
    if value < 20:
        return ONES[value]
    if value < 100:
        return TENS[value // 10] + (f"-{ONES[value % 10]}" if value % 10 else "")
    hundreds = f"{ONES[value // 100]} hundred"
    return f"{hundreds} and {number(value % 100)}" if value % 100 else hundreds


def with_article(phrase: str) -> str:
    """The phrase after `a` or `an`, by its sound."""
    sound = phrase.lower()
    vowel = sound[0] in "aeiou" and not sound.startswith(SOUNDS_CONSONANT)
    return f"an {phrase}" if vowel or sound.startswith(SOUNDS_VOWEL) else f"a {phrase}"


class English(Teller):
    """Tells beats in English."""

    language = "en"

    def compose(self, beat: Beat) -> None:
        """An opening, one clause or two, and a reason."""
        first, *more = beat
        opener = self.opener(first)
        if opener is not None:
            weekday, days = self.weekday_of(first).english, number(self.days)
            self.write(opener.english.replace("{weekday}", weekday).replace("{days}", days) + " ")
        self._clause(first, led=bool(opener or more or first.why))
        for fact in more:
            self._join(first, fact)
        last = beat[-1]
        if last.why is not None and not last.kind.startswith("judge"):
            self.write(" ")
            self.phrase(last.why.english, last)
        self.write(".")

    def _clause(self, fact: Fact, led: bool) -> None:
        known = self.clauses[fact.kind]
        self.fill(self.dice.pick(known.led if led and known.led else known.every), fact)

    def _join(self, first: Fact, fact: Fact) -> None:
        rest = self.clauses[fact.kind].rest
        if first.who is not None and fact.who is first.who and rest and self.clauses[first.kind].led:
            feeling = fact.kind in {"happy", "sad", "dislikes", "plan"}
            self.write(" and " if feeling else self.dice.pick((" and ", " and then ", ", then ")))
            self.fill(self.dice.pick(rest), fact)
        else:
            self.write(", and ")
            self._clause(fact, led=True)

    def _person(self, person: Person, pronoun: str | None) -> None:
        self.name(pronoun or person.name.english, person)

    def who(self, fact: Fact) -> None:
        """The subject."""
        assert fact.who is not None
        self._person(fact.who, fact.who.pronoun if self.may_be_pronoun(fact.who) else None)

    def who_object(self, fact: Fact) -> None:
        """The person a fact is about, where a clause makes them an object."""
        assert fact.who is not None
        by_pronoun = self.clear(fact.who) and (fact.who.id in self.said or self.dice.chance(0.5))
        self._person(fact.who, OBJECT[fact.who.pronoun] if by_pronoun else None)

    def whom(self, fact: Fact) -> None:
        """The other person, as an object or, where a template begins with it, by name."""
        assert fact.whom is not None
        object_ = fact.who is not None and fact.who.id in self.said
        by_pronoun = object_ and self.clear(fact.whom) and self.dice.chance(0.5)
        self._person(fact.whom, OBJECT[fact.whom.pronoun] if by_pronoun else None)

    def full_whom(self, fact: Fact) -> None:
        """The other person by name."""
        assert fact.whom is not None
        self._person(fact.whom, None)

    def whose(self, fact: Fact) -> None:
        """The subject as a possessor."""
        assert fact.who is not None
        pronoun = POSSESSIVE[fact.who.pronoun] if self.may_be_pronoun(fact.who) else None
        self._person(fact.who, pronoun or f"{fact.who.name.english}'s")

    def what(self, fact: Fact) -> None:
        """The thing, by a pronoun where it is clear."""
        assert fact.what is not None
        if fact.what.id in self.known and self.clear(fact.what) and self.dice.chance(0.45):
            self.name("it", fact.what)
        else:
            self.full_what(fact)

    def full_what(self, fact: Fact) -> None:
        """The thing: described when new, by article or owner when known."""
        thing, start = fact.what, len(self.text)
        assert thing is not None
        if thing.id not in self.known:
            self.write(with_article(" ".join([*adjectives(thing), thing.noun.english])))
        else:
            self._determiner(fact)
            some = adjectives(thing)
            detail = f"{self.dice.pick(some)} " if some and self.dice.chance(0.35) else ""
            self.write(f"{detail}{thing.noun.english}")
        self.note(start, thing)

    def _determiner(self, fact: Fact) -> None:
        owner = fact.whose
        said = owner is not None and owner.id in self.said
        if owner is None or not self.dice.chance(0.4):
            self.write("the")
        elif not said:
            self._person(owner, f"{owner.name.english}'s")
        elif owner is fact.who or self.clear(owner):
            self._person(owner, POSSESSIVE[owner.pronoun])
        else:
            self.write("the")  # the name again would be clumsy, and a pronoun unclear
        self.write(" ")

    def place(self, fact: Fact) -> None:
        """The place, with its town now and then when it is new."""
        assert fact.where is not None
        self._place(fact.where)

    def _place(self, place: Place) -> None:
        new = place.id not in self.known
        self.name(f"the {place.noun.english}", place)
        if new and self.dice.chance(0.3):
            self.write(" in ")
            self.name(place.town.name.english, place.town)

    def where(self, fact: Fact) -> None:
        """At the place."""
        assert fact.where is not None
        if self.is_here(fact.where):
            self.name("there", fact.where)
            return
        self.write(f"{fact.where.noun.preposition} ")
        self._place(fact.where)

    def term(self, fact: Fact) -> None:
        """The word or phrase the fact is about."""
        assert fact.term is not None
        self.phrase(fact.term.english, fact)

    def cause(self, fact: Fact) -> None:
        """What an opinion rests on."""
        assert fact.why is not None
        self.phrase(fact.why.english, fact)

    def count_produce(self, fact: Fact) -> None:
        """So many of something."""
        assert isinstance(fact.term, Noun)
        self.write(f"{number(fact.count)} {fact.term.plural}")


def adjectives(thing: Thing) -> list[str]:
    """Quality, colour and material in the order English wants."""
    return [word.english for word in (thing.quality, thing.colour, thing.material) if word is not None]


def _form(forms: dict[str, str] | None, role: str) -> Slot:
    def slot(teller: English, fact: Fact) -> None:
        person: Person = getattr(fact, role)
        teller.name(forms[person.pronoun] if forms else person.pronoun, person)

    return slot


def _town(role: str) -> Slot:
    def slot(teller: English, fact: Fact) -> None:
        town: Town = getattr(fact, role)
        teller.name(town.name.english, town)

    return slot


def _job(role: str) -> Slot:
    return lambda teller, fact: teller.write(with_article(getattr(fact, role).job.english))


def _age(role: str) -> Slot:
    return lambda teller, fact: teller.write(number(getattr(fact, role).age))


def _a_term(teller: English, fact: Fact) -> None:
    assert isinstance(fact.term, Term)
    teller.write(with_article(fact.term.english))


English.slots = {
    "who": English.who, "who.object": English.who_object, "whom": English.whom,
    "whom!": English.full_whom, "who's": English.whose, "what": English.what,
    "what!": English.full_what, "place": English.place, "where": English.where, "term": English.term,
    "act": English.term, "cause": English.cause, "count_produce": English.count_produce,
    "count": lambda teller, fact: teller.write(number(fact.count)), "a_term": _a_term,
    "he": _form(None, "who"), "him": _form(OBJECT, "who"), "his": _form(POSSESSIVE, "who"),
    "himself": _form(REFLEXIVE, "who"), "he_whom": _form(None, "whom"), "him_whom": _form(OBJECT, "whom"),
    "his_whom": _form(POSSESSIVE, "whom"), "town": _town("town"), "town_to": _town("town_to"),
    "a_job": _job("who"), "a_job_whom": _job("whom"), "age": _age("who"), "age_whom": _age("whom"),
}  # fmt: skip
