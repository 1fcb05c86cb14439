"""Chinese surface realization: measure words, 的, locatives, numbers as characters."""

from __future__ import annotations

from meristem.samples.microworld.facts import Beat, Fact, Location, Noun, Person, Thing, Town
from meristem.samples.microworld.surface_realization import SlotWriter, SurfaceRealizer

PRONOUNS = {"she": "她", "he": "他"}
DIGITS = "零一二三四五六七八九"
WITHOUT_HEN = ("太", "没")  # adjectives that take no 很


def chinese_number(value: int) -> str:
    """A number below a thousand in characters."""
    if value < 10:
        return DIGITS[value]
    if value < 20:
        return "十" + (DIGITS[value % 10] if value % 10 else "")
    if value < 100:
        return DIGITS[value // 10] + chinese_number(10 + value % 10)
    remainder = value % 100
    if remainder == 0:
        return f"{DIGITS[value // 100]}百"
    between = "零" if remainder < 10 else "一" if remainder < 20 else ""
    return f"{DIGITS[value // 100]}百{between}{chinese_number(remainder)}"


def with_measure_word(value: int, measure: str) -> str:
    """A number with its measure word; two is 两 there."""
    return ("两" if value == 2 else chinese_number(value)) + measure


def describe_thing(thing: Thing) -> str:
    """Quality, color and material before the noun, joined in Chinese order."""
    quality = thing.quality.chinese if thing.quality else ""
    colour = thing.colour.chinese if thing.colour else ""
    material = thing.material.chinese if thing.material else ""
    if thing.noun.chinese.startswith(quality) and not material:
        quality = ""  # never 小小提琴
    if len(quality) > 1:
        return f"{quality}的{colour}{material}"
    if "animal" in thing.noun.kinds:
        return f"{quality}{colour}"
    return f"{colour}的{quality}{material}" if colour else f"{quality}{material}"


class ChineseRealizer(SurfaceRealizer):
    """Realizes beats in Chinese."""

    language = "zh"

    def compose(self, beat: Beat) -> None:
        """A time phrase, one or two clauses, and a reason."""
        first, *others = beat
        opener = self.time_phrase(first)
        if opener is not None:
            weekday, days = self.weekday_of(first).chinese, with_measure_word(self.days_passed, "")
            self.write(opener.chinese.replace("{weekday}", weekday).replace("{days}", days))
        self._write_clause(first, subject_first=bool(others or first.why))
        for fact in others:
            self._write_joined(first, fact)
        last = beat[-1]
        if last.why is not None and not last.kind.startswith("judge"):
            self.write("，")
            self.write_phrase(last.why.chinese, last)
        self.write("。")

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
            self.write("，" if is_plain_join else self.rng.choice(("，", "，然后", "，接着")))
            self.fill_template(self.rng.choice(continuations), fact)
        else:
            self.write("，")
            self._write_clause(fact, subject_first=True)

    def _write_person(self, person: Person, by_pronoun: bool) -> None:
        self.write_mention(PRONOUNS[person.pronoun] if by_pronoun else person.name.chinese, person)

    def write_subject(self, fact: Fact) -> None:
        """The subject."""
        assert fact.who is not None
        self._write_person(fact.who, self.use_pronoun(fact.who))

    def write_other_person(self, fact: Fact) -> None:
        """The other person."""
        assert fact.whom is not None
        subject_named = fact.who is not None and fact.who.id in self.sentence_entities
        self._write_person(fact.whom, subject_named and self.is_unambiguous(fact.whom) and self.rng.chance(0.5))

    def write_possessor(self, fact: Fact) -> None:
        """The subject as a possessor."""
        self.write_subject(fact)
        if fact.term is None or not fact.term.chinese.startswith(("最", "以前")):
            self.write("的")

    def write_thing(self, fact: Fact) -> None:
        """The thing, by a pronoun where it is unambiguous."""
        assert fact.what is not None
        if fact.what.id in self.known_ids and self.is_unambiguous(fact.what) and self.rng.chance(0.35):
            self.write_mention("它", fact.what)
        else:
            self.write_full_thing(fact)

    def write_full_thing(self, fact: Fact) -> None:
        """The thing: with number and description when new, with a demonstrative or its owner when known."""
        thing, start = fact.what, len(self.text)
        assert thing is not None
        noun = thing.noun
        if thing.id not in self.known_ids:
            self.write(f"一{noun.measure}{describe_thing(thing)}{noun.chinese}")
        elif (owner := self._owner_word(fact.whose)) and fact.whose and self.rng.chance(0.35):
            self.write_mention(owner, fact.whose)
            self.write(f"的{noun.chinese}")
        else:
            self.write(f"那{noun.measure}{self._describe_again(thing)}{noun.chinese}")
        self.record_mention(start, thing)

    def _describe_again(self, thing: Thing) -> str:
        if not self.rng.chance(0.4):
            return ""
        if thing.colour is None or "animal" in thing.noun.kinds or self.rng.chance(0.3):
            return describe_thing(thing)
        return f"{thing.colour.chinese}的"

    def _owner_word(self, owner: Person | None) -> str:
        """自己 for the first person of the sentence, a name for a person not mentioned in it, otherwise empty."""
        if owner is None or owner.id not in self.sentence_entities:
            return owner.name.chinese if owner else ""
        first = next(entity for entity in self.sentence_entities.values() if isinstance(entity, Person))
        return "自己" if first.id == owner.id else ""

    def write_place(self, fact: Fact) -> None:
        """The place, sometimes with its town when it is new."""
        assert fact.where is not None
        self._write_place(fact.where)

    def _write_place(self, location: Location) -> None:
        if location.id not in self.known_ids and self.rng.chance(0.3):
            self.write_mention(location.town.name.chinese, location.town)
            self.write("的")
        self.write_mention(location.noun.chinese, location)

    def write_locative(self, fact: Fact) -> None:
        """The place with its locative (inside, on)."""
        assert fact.where is not None
        self._write_place(fact.where)
        self.write(fact.where.noun.locative)

    def write_location(self, fact: Fact) -> None:
        """在 with the place, or 那里."""
        assert fact.where is not None
        self.write("在")
        if self.use_there(fact.where):
            self.write_mention("那里", fact.where)
        else:
            self.write_locative(fact)

    def write_term(self, fact: Fact) -> None:
        """The term of the fact."""
        assert fact.term is not None
        if isinstance(fact.term, Noun):
            self.write(f"一{fact.term.measure}")
        self.write_phrase(fact.term.chinese, fact)

    def write_adjective(self, fact: Fact) -> None:
        """The adjective of an opinion, with 很 where it takes one."""
        assert fact.term is not None
        self.write(fact.term.chinese if fact.term.chinese.startswith(WITHOUT_HEN) else f"很{fact.term.chinese}")

    def write_feeling(self, fact: Fact) -> None:
        """A mood; longer phrases take no 很."""
        assert fact.term is not None
        self.write(f"很{fact.term.chinese}" if len(fact.term.chinese) <= 2 else fact.term.chinese)

    def write_cause(self, fact: Fact) -> None:
        """The cause of an opinion."""
        assert fact.why is not None
        self.write_phrase(fact.why.chinese, fact)

    def write_counted_produce(self, fact: Fact) -> None:
        """A number of items of produce."""
        assert isinstance(fact.term, Noun)
        self.write(with_measure_word(fact.count, fact.term.measure) + fact.term.chinese)


def _pronoun_slot(role: str, suffix: str = "") -> SlotWriter:
    def slot(realizer: ChineseRealizer, fact: Fact) -> None:
        person: Person = getattr(fact, role)
        realizer.write_mention(PRONOUNS[person.pronoun], person)
        realizer.write(suffix)

    return slot


def _town_slot(role: str) -> SlotWriter:
    def slot(realizer: ChineseRealizer, fact: Fact) -> None:
        town: Town = getattr(fact, role)
        realizer.write_mention(town.name.chinese, town)

    return slot


def _job_slot(role: str) -> SlotWriter:
    return lambda realizer, fact: realizer.write(getattr(fact, role).job.chinese)


def _age_slot(role: str) -> SlotWriter:
    return lambda realizer, fact: realizer.write(chinese_number(getattr(fact, role).age))


ChineseRealizer.slots = {
    "who": ChineseRealizer.write_subject,
    "whom": ChineseRealizer.write_other_person,
    "who's": ChineseRealizer.write_possessor,
    "what": ChineseRealizer.write_thing,
    "what!": ChineseRealizer.write_full_thing,
    "place": ChineseRealizer.write_place,
    "spot": ChineseRealizer.write_locative,
    "where": ChineseRealizer.write_location,
    "term": ChineseRealizer.write_term,
    "act": ChineseRealizer.write_term,
    "adjective": ChineseRealizer.write_adjective,
    "feeling": ChineseRealizer.write_feeling,
    "cause": ChineseRealizer.write_cause,
    "count_produce": ChineseRealizer.write_counted_produce,
    "count": lambda realizer, fact: realizer.write(with_measure_word(fact.count, "")),
    "he": _pronoun_slot("who"),
    "him": _pronoun_slot("who"),
    "his": _pronoun_slot("who", "的"),
    "he_whom": _pronoun_slot("whom"),
    "town": _town_slot("town"),
    "town_to": _town_slot("town_to"),
    "job": _job_slot("who"),
    "job_whom": _job_slot("whom"),
    "age": _age_slot("who"),
    "age_whom": _age_slot("whom"),
}
