"""Chinese surface realization: measure words, 的, locatives, numbers as characters."""

from __future__ import annotations

from meristem.samples.microworld.facts import Fact, Location, Noun, Person, Thing
from meristem.samples.microworld.surface_realization import SlotWriter, SurfaceRealizer
from meristem.samples.microworld.template_slots import common_slots, pronoun_slot

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
    after_opener, opener_moves_subject = "", False
    joins, clause_join = ("，", "，然后", "，接着"), "，"
    before_reason, full_stop = "，", "。"
    subject_pronouns = object_pronouns = PRONOUNS
    thing_pronoun, thing_pronoun_share = "它", 0.35

    def number_text(self, value: int) -> str:
        """A number below a thousand in characters."""
        return chinese_number(value)

    def count_text(self, value: int) -> str:
        """A number of something in characters; two is 两."""
        return with_measure_word(value, "")

    def write_possessor(self, fact: Fact) -> None:
        """Write the subject as a possessor."""
        self.write_subject(fact)
        if fact.term is None or not fact.term.chinese.startswith(("最", "以前")):
            self.write("的")

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

    def write_location_name(self, location: Location) -> None:
        """Write the place, sometimes with its town when it is new."""
        if location.id not in self.known_ids and self.rng.chance(0.3):
            self.write_mention(location.town.name.chinese, location.town)
            self.write("的")
        self.write_mention(location.noun.chinese, location)

    def write_locative(self, fact: Fact) -> None:
        """The place with its locative (inside, on)."""
        assert fact.where is not None
        self.write_location_name(fact.where)
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
        """Write the term of the fact, a noun with its measure word."""
        if isinstance(fact.term, Noun):
            self.write(f"一{fact.term.measure}")
        super().write_term(fact)

    def write_adjective(self, fact: Fact) -> None:
        """The adjective of an opinion, with 很 where it takes one."""
        assert fact.term is not None
        self.write(fact.term.chinese if fact.term.chinese.startswith(WITHOUT_HEN) else f"很{fact.term.chinese}")

    def write_feeling(self, fact: Fact) -> None:
        """A mood; longer phrases take no 很."""
        assert fact.term is not None
        self.write(f"很{fact.term.chinese}" if len(fact.term.chinese) <= 2 else fact.term.chinese)

    def write_counted_produce(self, fact: Fact) -> None:
        """A number of items of produce."""
        assert isinstance(fact.term, Noun)
        self.write(with_measure_word(fact.count, fact.term.measure) + fact.term.chinese)


def _job_slot(role: str) -> SlotWriter:
    return lambda realizer, fact: realizer.write(getattr(fact, role).job.chinese)


ChineseRealizer.slots = {
    **common_slots(ChineseRealizer),
    "spot": ChineseRealizer.write_locative,
    "adjective": ChineseRealizer.write_adjective,
    "feeling": ChineseRealizer.write_feeling,
    "he": pronoun_slot("who", PRONOUNS),
    "him": pronoun_slot("who", PRONOUNS),
    "his": pronoun_slot("who", PRONOUNS, "的"),
    "he_whom": pronoun_slot("whom", PRONOUNS),
    "job": _job_slot("who"),
    "job_whom": _job_slot("whom"),
}
