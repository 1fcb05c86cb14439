"""A dialogue, and what is said next."""

from __future__ import annotations

from typing import Any

from meristem.labelled import values
from meristem.labelled.columns import ASKED, REPLY, TURNS
from meristem.labelled.found import Dropped, Flaw, Found
from meristem.labelled.shape import Shape
from meristem.task import Sample

ENDS = "__eou__"
"""What stands between turns in files that have a dialogue a line."""
REPLIES = {"assistant", "gpt", "bot", "model", "system_response", "agent"}
WHO = ("role", "from", "speaker")
WHAT = ("content", "value", "text", "utterance")


class Turns(Shape):
    """{"turns"}, the last one being replied to → replies that are right."""

    one_gold = False

    def look(self) -> None:
        """Turns with a reply beside them, whole dialogues, or a question and its answer."""
        columns = self.columns
        asked = columns.find("text", ASKED)
        self.turns = columns.need("turns", (*TURNS, (asked or "").lower()), "the turns of a dialogue")
        wanted = columns.data.target
        absent = wanted is not None and wanted not in columns.names and not self.gold
        self.reply = None if absent else columns.find("target", REPLY, besides=(self.turns,))

    def samples(self, found: Found) -> list[Sample]:
        """One for each reply: the one beside the turns, those of the assistant, or the last speaker's."""
        said = list(_turns(self.cell(found, self.turns), found.place))
        if not said:
            raise Dropped("empty dialogue")
        told = tuple(text for _, text in said)
        if self.reply is not None or not self.gold:
            right = found.values.get(self.reply) if self.reply else None
            if values.nothing(right) and not self.gold:
                return [Sample(given={"turns": told}, place=found.place)]
            return [Sample(given={"turns": told}, gold=values.texts(right, "reply", found.place), place=found.place)]
        who = [role for role, _ in said]
        roles = any(role in REPLIES for role in who)
        last = len(said) - 1
        at = [n for n in range(1, len(said)) if (who[n] in REPLIES if roles else (last - n) % 2 == 0)]
        if not at:
            raise Flaw(f"{found.place}: a dialogue of one turn; a reply is wanted in it, or in a column (data.target)")
        return [Sample(given={"turns": told[:n]}, gold=(told[n],), place=found.place) for n in at]


def _turns(value: Any, place: str) -> list[tuple[str, str]]:
    """Who says what, where that is told."""
    value = values.listed(value)
    if isinstance(value, str):
        value = value.split(ENDS if ENDS in value else "\n")
    if isinstance(value, dict) or value is None:
        value = [] if value is None else [value]
    out = []
    for one in value:
        who = next((one[key] for key in WHO if key in one), "") if isinstance(one, dict) else ""
        text = next((one[key] for key in WHAT if key in one), None) if isinstance(one, dict) else one
        if isinstance(one, dict) and text is None:
            raise Flaw(f"{place}: a turn without {' or '.join(WHAT)}: {', '.join(one)}")
        if not values.nothing(text):
            out.append((str(who).lower(), values.text(text, "turn", place)))
    return out
