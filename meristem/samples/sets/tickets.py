"""Support tickets: what a customer of a web shop writes, and the team that should answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.clause_templates import split_template
from meristem.samples.microworld.lexicon import load_lexicon
from meristem.samples.sets.sample_request import Row, SampleRequest
from meristem.samples.sets.template_tables import read_groups

PARTS = ("aside", "greeting", "closing")
"""Groups of sentences that say nothing of the team."""
WRONG_LABELS = 0.04
"""Share of tickets that are filed under another team if wrong labels are asked for."""


def row(request: SampleRequest) -> Row:
    """One ticket, in columns that no recipe guesses: id, message, team."""
    table = read_groups("tickets", request.language)
    teams = [name for name in table if name not in PARTS]
    team = request.label_rng.choice(teams)
    rng, space = request.rng, " " if request.language == "en" else ""
    message = space.join(_fill(part, rng, request.language) for part in _draw_parts(table, team, rng))
    if request.options.get("wrong") == "1" and request.label_rng.chance(WRONG_LABELS):
        team = request.label_rng.choice([name for name in teams if name != team])
    return {"id": f"T{request.seed % 10}{request.number:05d}", "message": message, "team": team}


def _draw_parts(table: Mapping[str, tuple[str, ...]], team: str, rng: BlockRandom) -> list[str]:
    """Sentences of a ticket: one or two about its matter, an aside before or after them, and the manners."""
    body = rng.sample(table[team], 2 if rng.chance(0.25) else 1)
    if rng.chance(0.5):
        body.insert(rng.randint(0, 1) * len(body), rng.choice(table["aside"]))
    greeting = [rng.choice(table["greeting"])] if rng.chance(0.4) else []
    return [*greeting, *body, *([rng.choice(table["closing"])] if rng.chance(0.4) else [])]


def _fill(template: str, rng: BlockRandom, language: str) -> str:
    return "".join(
        literal + (SLOT_FILLERS[slot](rng, language) if slot else "") for literal, slot in split_template(template)
    )


def _draw_day(rng: BlockRandom, language: str) -> str:
    day = rng.choice(load_lexicon().times["weekday", str(rng.randint(0, 6))])
    return f"on {day.english}" if language == "en" else day.chinese


def _draw_thing(rng: BlockRandom, language: str) -> str:
    goods = [noun for noun in load_lexicon().things if "animal" not in noun.kinds]
    return rng.choice(goods).text(language)


SLOT_FILLERS: dict[str, Callable[[BlockRandom, str], str]] = {
    "thing": _draw_thing,
    "order": lambda rng, language: f"{rng.randint(10_000, 99_999)}",
    "amount": lambda rng, language: f"{rng.randint(5, 240)}",
    "count": lambda rng, language: f"{rng.randint(2, 9)}",
    "day": _draw_day,
    "town": lambda rng, language: rng.choice(load_lexicon().towns).text(language),
    "person": lambda rng, language: rng.choice(load_lexicon().names).term.text(language),
}
