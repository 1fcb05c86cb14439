"""Chinese: measure words, 的 where it belongs, places with their locative, numbers as characters."""

from __future__ import annotations

from meristem.samples.microworld.facts import Beat, Fact, Noun, Person, Place, Thing, Town
from meristem.samples.microworld.telling import Slot, Teller

PRONOUN = {"she": "她", "he": "他"}
DIGITS = "零一二三四五六七八九"
BARE = ("太", "没")  # adjectives that take no 很


def number(value: int) -> str:
    """A number below a thousand in characters."""
    if value < 10:
        return DIGITS[value]
    if value < 20:
        return "十" + (DIGITS[value % 10] if value % 10 else "")
    if value < 100:
        return DIGITS[value // 10] + number(10 + value % 10)
    left = value % 100
    if left == 0:
        return f"{DIGITS[value // 100]}百"
    between = "零" if left < 10 else "一" if left < 20 else ""
    return f"{DIGITS[value // 100]}百{between}{number(left)}"


def counted(value: int, measure: str) -> str:
    """A number with its measure word: two is 两 there."""
    return ("两" if value == 2 else number(value)) + measure


def description(thing: Thing) -> str:
    """Quality, colour and material before the noun, joined as Chinese joins them."""
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


class Chinese(Teller):
    """Tells beats in Chinese."""

    language = "zh"

    def compose(self, beat: Beat) -> None:
        """An opening, one clause or two, and a reason."""
        first, *more = beat
        opener = self.opener(first)
        if opener is not None:
            weekday, days = self.weekday_of(first).chinese, counted(self.days, "")
            self.write(opener.chinese.replace("{weekday}", weekday).replace("{days}", days))
        self._clause(first, led=bool(more or first.why))
        for fact in more:
            self._join(first, fact)
        last = beat[-1]
        if last.why is not None and not last.kind.startswith("judge"):
            self.write("，")
            self.phrase(last.why.chinese, last)
        self.write("。")

    def _clause(self, fact: Fact, led: bool) -> None:
        known = self.clauses[fact.kind]
        self.fill(self.dice.pick(known.led if led and known.led else known.every), fact)

    def _join(self, first: Fact, fact: Fact) -> None:
        rest = self.clauses[fact.kind].rest
        if first.who is not None and fact.who is first.who and rest and self.clauses[first.kind].led:
            plain = fact.kind in {"happy", "sad", "dislikes", "plan"}
            self.write("，" if plain else self.dice.pick(("，", "，然后", "，接着")))
            self.fill(self.dice.pick(rest), fact)
        else:
            self.write("，")
            self._clause(fact, led=True)

    def _person(self, person: Person, by_pronoun: bool) -> None:
        self.name(PRONOUN[person.pronoun] if by_pronoun else person.name.chinese, person)

    def who(self, fact: Fact) -> None:
        """The subject."""
        assert fact.who is not None
        self._person(fact.who, self.may_be_pronoun(fact.who))

    def whom(self, fact: Fact) -> None:
        """The other person."""
        assert fact.whom is not None
        named = fact.who is not None and fact.who.id in self.said
        self._person(fact.whom, named and self.clear(fact.whom) and self.dice.chance(0.5))

    def whose(self, fact: Fact) -> None:
        """The subject as a possessor."""
        self.who(fact)
        if fact.term is None or not fact.term.chinese.startswith(("最", "以前")):
            self.write("的")

    def what(self, fact: Fact) -> None:
        """The thing, by a pronoun where it is clear."""
        assert fact.what is not None
        if fact.what.id in self.known and self.clear(fact.what) and self.dice.chance(0.35):
            self.name("它", fact.what)
        else:
            self.full_what(fact)

    def full_what(self, fact: Fact) -> None:
        """The thing: counted and described when new, pointed at or by its owner when known."""
        thing, start = fact.what, len(self.text)
        assert thing is not None
        noun = thing.noun
        if thing.id not in self.known:
            self.write(f"一{noun.measure}{description(thing)}{noun.chinese}")
        elif (owner := self._owner(fact.whose)) and fact.whose and self.dice.chance(0.35):
            self.name(owner, fact.whose)
            self.write(f"的{noun.chinese}")
        else:
            self.write(f"那{noun.measure}{self._detail(thing)}{noun.chinese}")
        self.note(start, thing)

    def _detail(self, thing: Thing) -> str:
        if not self.dice.chance(0.4):
            return ""
        if thing.colour is None or "animal" in thing.noun.kinds or self.dice.chance(0.3):
            return description(thing)
        return f"{thing.colour.chinese}的"

    def _owner(self, owner: Person | None) -> str:
        """自己 for whoever the sentence began with, a name for whom it has not named, otherwise nothing."""
        if owner is None or owner.id not in self.said:
            return owner.name.chinese if owner else ""
        first = next(entity for entity in self.said.values() if isinstance(entity, Person))
        return "自己" if first.id == owner.id else ""

    def place(self, fact: Fact) -> None:
        """The place, with its town now and then when it is new."""
        assert fact.where is not None
        self._place(fact.where)

    def _place(self, place: Place) -> None:
        if place.id not in self.known and self.dice.chance(0.3):
            self.name(place.town.name.chinese, place.town)
            self.write("的")
        self.name(place.noun.chinese, place)

    def spot(self, fact: Fact) -> None:
        """The inside or top of the place."""
        assert fact.where is not None
        self._place(fact.where)
        self.write(fact.where.noun.locative)

    def where(self, fact: Fact) -> None:
        """At the place."""
        assert fact.where is not None
        self.write("在")
        if self.is_here(fact.where):
            self.name("那里", fact.where)
        else:
            self.spot(fact)

    def term(self, fact: Fact) -> None:
        """The word or phrase the fact is about."""
        assert fact.term is not None
        if isinstance(fact.term, Noun):
            self.write(f"一{fact.term.measure}")
        self.phrase(fact.term.chinese, fact)

    def adjective(self, fact: Fact) -> None:
        """What an opinion says, with 很 where it takes one."""
        assert fact.term is not None
        self.write(fact.term.chinese if fact.term.chinese.startswith(BARE) else f"很{fact.term.chinese}")

    def feeling(self, fact: Fact) -> None:
        """A mood; whole phrases take no 很."""
        assert fact.term is not None
        self.write(f"很{fact.term.chinese}" if len(fact.term.chinese) <= 2 else fact.term.chinese)

    def cause(self, fact: Fact) -> None:
        """What an opinion rests on."""
        assert fact.why is not None
        self.phrase(fact.why.chinese, fact)

    def count_produce(self, fact: Fact) -> None:
        """So many of something."""
        assert isinstance(fact.term, Noun)
        self.write(counted(fact.count, fact.term.measure) + fact.term.chinese)


def _pronoun(role: str, suffix: str = "") -> Slot:
    def slot(teller: Chinese, fact: Fact) -> None:
        person: Person = getattr(fact, role)
        teller.name(PRONOUN[person.pronoun], person)
        teller.write(suffix)

    return slot


def _town(role: str) -> Slot:
    def slot(teller: Chinese, fact: Fact) -> None:
        town: Town = getattr(fact, role)
        teller.name(town.name.chinese, town)

    return slot


def _job(role: str) -> Slot:
    return lambda teller, fact: teller.write(getattr(fact, role).job.chinese)


def _age(role: str) -> Slot:
    return lambda teller, fact: teller.write(number(getattr(fact, role).age))


Chinese.slots = {
    "who": Chinese.who, "whom": Chinese.whom, "who's": Chinese.whose, "what": Chinese.what,
    "what!": Chinese.full_what, "place": Chinese.place, "spot": Chinese.spot, "where": Chinese.where,
    "term": Chinese.term, "act": Chinese.term, "adjective": Chinese.adjective, "feeling": Chinese.feeling,
    "cause": Chinese.cause, "count_produce": Chinese.count_produce,
    "count": lambda teller, fact: teller.write(counted(fact.count, "")),
    "he": _pronoun("who"), "him": _pronoun("who"), "his": _pronoun("who", "的"),
    "he_whom": _pronoun("whom"), "town": _town("town"), "town_to": _town("town_to"),
    "job": _job("who"), "job_whom": _job("whom"), "age": _age("who"), "age_whom": _age("whom"),
}  # fmt: skip
