"""Dialogue samples: the turns so far and the replies to the last one."""

from __future__ import annotations

from typing import Any

from meristem.interfaces.sample import Sample
from meristem.labelled import cell_values
from meristem.labelled.columns import DIALOGUE_PROMPT_COLUMNS, REPLY_COLUMNS, TURN_COLUMNS
from meristem.labelled.rows import RawRow, RowError, SkipRow
from meristem.labelled.sample_type import SampleType

TURN_SEPARATOR = "__eou__"
"""Separator of turns in files with one dialogue per line (DailyDialog)."""
REPLY_ROLES = {"assistant", "gpt", "bot", "model", "system_response", "agent"}
ROLE_KEYS = ("role", "from", "speaker")
TEXT_KEYS = ("content", "value", "text", "utterance")


class TurnsSample(SampleType):
    """{"turns"} → reference replies to the last turn."""

    single_gold = False

    def resolve_columns(self) -> None:
        """Turns with a reply column, complete dialogues, or a question and its answer."""
        columns = self.columns
        prompt_column = columns.find("text", DIALOGUE_PROMPT_COLUMNS)
        self.turns_column = columns.require(
            "turns", (*TURN_COLUMNS, (prompt_column or "").lower()), "the turns of a dialogue"
        )
        configured_target = columns.settings.target
        is_absent = configured_target is not None and configured_target not in columns.names and not self.require_gold
        self.reply_column = None if is_absent else columns.find("target", REPLY_COLUMNS, exclude=(self.turns_column,))

    def parse_row(self, row: RawRow) -> list[Sample]:
        """One sample for each reply: the reply column, or the assistant's turns, or else those of the last speaker."""
        dialogue = list(_parse_turns(self.require_cell(row, self.turns_column), row.location))
        if not dialogue:
            raise SkipRow("empty dialogue")
        turn_texts = tuple(text for _, text in dialogue)
        if self.reply_column is not None or not self.require_gold:
            replies = row.values.get(self.reply_column) if self.reply_column else None
            return [self.reference_sample({"turns": turn_texts}, replies, "reply", row)]
        is_reply = [role in REPLY_ROLES for role, _ in dialogue]
        last_turn = len(dialogue) - 1
        if not any(is_reply):
            is_reply = [(last_turn - turn) % 2 == 0 for turn in range(len(dialogue))]
        reply_turns = [turn for turn in range(1, len(dialogue)) if is_reply[turn]]
        if not reply_turns:
            raise RowError(
                f"{row.location}: a dialogue of one turn; add a reply to it, or a reply column (data.target)"
            )
        return [
            Sample(inputs={"turns": turn_texts[:turn]}, gold=(turn_texts[turn],), location=row.location)
            for turn in reply_turns
        ]


def _parse_turns(value: Any, location: str) -> list[tuple[str, str]]:
    """(role, text) of each turn; the role is "" if it is not given."""
    value = cell_values.parse_list(value)
    if isinstance(value, str):
        value = value.split(TURN_SEPARATOR if TURN_SEPARATOR in value else "\n")
    if isinstance(value, dict) or value is None:
        value = [] if value is None else [value]
    turns = []
    for turn in value:
        role, text = "", turn
        if isinstance(turn, dict):
            role = next((turn[key] for key in ROLE_KEYS if key in turn), "")
            text = next((turn[key] for key in TEXT_KEYS if key in turn), None)
            if text is None:
                raise RowError(f"{location}: a turn without {' or '.join(TEXT_KEYS)}: {', '.join(turn)}")
        if not cell_values.is_empty(text):
            turns.append((str(role).lower(), cell_values.parse_text(text, "turn", location)))
    return turns
